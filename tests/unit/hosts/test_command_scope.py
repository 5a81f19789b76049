"""Commands of a resident process on this machine that are ended once what they are for is gone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from compiled import compiled
from waiting import ENOUGH_SECONDS as SECONDS
from waiting import wait_until

from tare.errors import TimedOut, TrialFailed
from tare.hosts.command_scope import CommandScope
from tare.hosts.exec import ExecHost, at_hand
from tare.hosts.local import LocalHost

WHY = "ended, as its server has"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled(tmp_path_factory.mktemp("programs"), "run") / "run"


@pytest.fixture
def host(program: Path) -> Iterator[ExecHost]:
    found = ExecHost(LocalHost())
    found.supervisor = str(program)
    with at_hand(found):
        yield found


def test_waiting_for_a_command_ends_at_once_when_its_purpose_is_gone(host: ExecHost, tmp_path: Path) -> None:
    purpose = CommandScope()
    load = host.serving(purpose)
    with ThreadPoolExecutor(1) as pool:
        begun = tmp_path / "begun"
        waiting = pool.submit(load.run, "sh", "-c", 'echo $$ >"$1"; exec sleep 600', "sh", str(begun), timeout=SECONDS)
        wait_until(lambda: begun.exists() and begun.read_text())
        purpose.gone(WHY)
        with pytest.raises(TrialFailed, match=rf"^sh: {WHY}$") as caught:
            waiting.result()
    assert not isinstance(caught.value, TimedOut)
    assert not Path(f"/proc/{begun.read_text().strip()}").exists()


def test_reading_its_lines_ends_too(host: ExecHost) -> None:
    purpose = CommandScope()
    with host.serving(purpose).spawn("sh", "-c", "echo begun; exec sleep 600") as process:
        assert process.read_line(SECONDS).text == "begun"
        threading.Timer(0.05, purpose.gone, (WHY,)).start()
        with pytest.raises(TrialFailed, match=rf"^sh: {WHY}$"):
            process.read_line(SECONDS)
        assert not process.running()


def test_what_is_begun_later_is_ended_too_and_other_commands_go_on(host: ExecHost) -> None:
    purpose = CommandScope()
    load = host.serving(purpose)
    with host.serving(CommandScope()).spawn("sh", "-c", "read -r line; echo $line") as other:
        assert load.run("echo", "before", timeout=SECONDS).text == "before\n"
        purpose.gone(WHY)
        purpose.gone("a later reason")
        with pytest.raises(TrialFailed, match=rf"^sleep: {WHY}$"):
            load.run("sleep", "600", timeout=SECONDS)
        with pytest.raises(TrialFailed, match=rf"^sleep: {WHY}$"), load.spawn("sleep", "600"):
            pass
        assert host.run("echo", "after", timeout=SECONDS).text == "after\n"
        other.send("still there\n")
        assert other.read_line(SECONDS).text == "still there"

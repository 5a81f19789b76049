"""The load ends with tare, also where tare is killed outright."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from compiled import compiled
from waiting import ENOUGH_SECONDS as SECONDS
from waiting import wait_until

from tare.hosts.local import LocalHost
from tare.runner.machines import _END, _MARK

# As the client's commands are run, but for the namespace and the chroot, which are execs as well.
LOADING = """
import sys
from tare.hosts.exec import ExecHost, at_hand
from tare.hosts.local import LocalHost
from tare.runner.machines import _DIES_WITH_US
client = ExecHost(LocalHost(), *_DIES_WITH_US, "env", sys.argv[2])
client.supervisor = sys.argv[1]
with at_hand(client):
    client.run("sleep", "600", timeout=600)
"""


def _loads(mark: str) -> int:
    listed = LocalHost().run("sh", "-c", 'grep -slzxF "$0" /proc/[0-9]*/environ', mark, timeout=SECONDS, check=False)
    return len(listed.text.split())


def _wait_for(mark: str, count: int) -> None:
    wait_until(lambda: _loads(mark) == count)


def test_a_load_and_what_it_has_started_die_with_a_tare_that_is_killed(tmp_path: Path) -> None:
    compiled(tmp_path, "run")
    mark = f"{_MARK}=tare-test-dies"
    with subprocess.Popen((sys.executable, "-c", LOADING, str(tmp_path / "run"), mark)) as tare:
        _wait_for(mark, 3)  # its resident process, run, sleep
        tare.kill()
    _wait_for(mark, 0)


def test_what_is_left_of_a_load_is_ended_by_its_undo_and_nothing_else_is() -> None:
    ours, others = f"{_MARK}=tare-test-ours", f"{_MARK}=tare-test-ours-not"
    with (
        subprocess.Popen(("env", ours, "sleep", "600")) as left,
        subprocess.Popen(("env", others, "sleep", "600")) as other,
    ):
        _wait_for(ours, 1)
        _wait_for(others, 1)
        LocalHost().run("sh", "-c", _END, "sh", "tare-test-ours", timeout=SECONDS)
        assert left.wait(SECONDS) == -9
        assert other.poll() is None
        other.kill()

"""Machines over SSH: real sshd in namespaces, slow links, and a connection that is cut."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest
from ssh_machines import Lab
from waiting import ENOUGH_SECONDS as SECONDS

from tare.hosts import ssh
from tare.hosts.exec import SUPERVISE
from tare.hosts.local import LocalHost
from tare.hosts.ssh import SshHost, connect_machine
from tare.model.errors import TareError, TimedOut, Unreachable, UsageError
from tare.model.image import Image
from tare.model.machine import SshTarget

pytestmark = [pytest.mark.machine, pytest.mark.ssh]


@pytest.fixture
def server(there: Lab, image: Image) -> Iterator[SshHost]:
    with connect_machine(LocalHost(), there.server, "/run/tare-test.ssh", image.root / SUPERVISE[1:]) as host:
        yield host


def test_a_machine_runs_commands_and_keeps_their_exit_codes_and_words(server: SshHost) -> None:
    assert server.run("hostname", timeout=SECONDS).text == "tare-test-server\n"
    output = server.run("sh", "-c", "echo 'a  b'; echo said >&2; exit 7", timeout=SECONDS, check=False)
    assert (output.exit_code, output.text, output.stderr) == (7, "a  b\n", b"said\n")
    assert server.run("sh", "-c", "exit 255", timeout=SECONDS, check=False).exit_code == 255
    assert server.run("cat", timeout=SECONDS, input=b"through").text == "through"


def test_a_machine_needs_no_python(server: SshHost) -> None:
    assert server.run("python3", "-c", "pass", timeout=SECONDS, check=False).exit_code != 0
    assert server.facts().cpus >= 1


def test_files_are_read_written_and_gathered(server: SshHost, tmp_path: Path) -> None:
    server.write("/var/lib/tare/tare-a", "one\n")
    server.run("mkdir", "-p", "/var/lib/tare/tare-b/c", timeout=SECONDS)
    server.write("/var/lib/tare/tare-b/c/name", "two\n")
    assert server.read("/var/lib/tare/tare-a") == "one\n"
    assert server.read("/var/lib/tare/nothing") == ""
    assert server.read_matching("/var/lib/tare/tare-b", "name") == "two\n"
    (tmp_path / "source").write_bytes(bytes(range(256)) * 9000)
    server.put(tmp_path / "source", PurePosixPath("/var/lib/tare/tare-copy"))
    server.get(PurePosixPath("/var/lib/tare/tare-copy"), tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == (tmp_path / "source").read_bytes()


def test_a_command_that_takes_too_long_is_ended_over_there(server: SshHost) -> None:
    with pytest.raises(TimedOut):
        server.run("sleep", "70031", timeout=0.5)
    assert server.run("pgrep", "--full", "sleep 70031", timeout=SECONDS, check=False).text.count("\n") <= 1


def test_what_was_started_is_gone_after_its_block(server: SshHost) -> None:
    with server.spawn("sh", "-c", "echo up; exec sleep 70032") as process:
        assert process.read_line(SECONDS).text == "up"
    assert server.run("pidof", "sleep", timeout=SECONDS, check=False).text == ""


def test_a_connection_that_was_lost_is_opened_again(server: SshHost) -> None:
    _lose(server)
    assert server.run("hostname", timeout=SECONDS).text == "tare-test-server\n"


def test_a_machine_that_does_not_come_back_is_given_up(
    there: Lab, server: SshHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ssh, "_MAX_AWAY_SECONDS", 3.0)
    monkeypatch.setattr(ssh, "_CONNECT_SECONDS", 1.0)
    assert server.connection is not None
    there.to_server.set("down")
    try:
        _lose(server)
        began = time.monotonic()
        with pytest.raises(Unreachable, match="tare-test-server"):
            server.connection.await_reconnection()
        assert time.monotonic() - began > ssh._MAX_AWAY_SECONDS
    finally:
        there.to_server.set("up")
    server.connection.await_reconnection()
    assert server.run("hostname", timeout=SECONDS).text == "tare-test-server\n"


def _lose(server: SshHost) -> None:
    """End the client that holds the connection."""
    assert server.connection is not None
    process = server.connection._process
    assert process is not None
    LocalHost().run("kill", str(process.pid), timeout=SECONDS)
    while process.is_running():
        time.sleep(0.01)


def test_a_machine_that_has_no_address_reports_it(there: Lab) -> None:
    _refused(
        SshTarget("tare-test-nowhere.invalid", str(there.ssh_config)), "Could not resolve hostname", "~/.ssh/config"
    )


def test_a_machine_that_does_not_answer_is_given_up(there: Lab, tmp_path: Path) -> None:
    which = _changed(there, tmp_path, HostName="198.19.240.3", ConnectTimeout="1")
    with pytest.raises(Unreachable) as caught, connect_machine(LocalHost(), which, "/run/tare-test-x.ssh"):
        pytest.fail("nobody is there")
    assert caught.value.hint.startswith("is the machine on")


def _changed(there: Lab, tmp_path: Path, **settings: str) -> SshTarget:
    """Return the server with other settings of the client."""
    lines = [line for line in there.ssh_config.read_text().splitlines() if line.split()[0] not in settings]
    text = "\n".join([lines[0], *(f"  {key} {value}" for key, value in settings.items()), *lines[1:], ""])
    (tmp_path / "ssh_config").write_text(text)
    return SshTarget("tare-test-server", str(tmp_path / "ssh_config"))


def test_a_refused_connection_reports_it(there: Lab, tmp_path: Path) -> None:
    _refused(_changed(there, tmp_path, Port="9"), "Connection refused", "start its SSH server")


def test_a_machine_whose_key_has_changed_is_not_trusted(there: Lab, tmp_path: Path) -> None:
    other = (there.folder / "key.pub").read_text()
    (tmp_path / "known").write_text(f"198.19.240.2 {other}\n")
    which = _changed(there, tmp_path, UserKnownHostsFile=str(tmp_path / "known"))
    _refused(which, "Host key verification failed", "if the machine was really set up anew")


def test_a_machine_whose_key_nobody_has_checked_is_not_trusted(there: Lab, tmp_path: Path) -> None:
    which = _changed(there, tmp_path, UserKnownHostsFile="/dev/null")
    _refused(which, "Host key verification failed", "connect once by hand")


def test_a_key_that_is_not_let_in_is_not_asked_for_a_password(there: Lab, tmp_path: Path) -> None:
    which = _changed(there, tmp_path, IdentityFile=str(there.folder / "host_key"))
    _refused(which, "Permission denied", "ssh-copy-id")


def test_a_user_who_may_not_become_root_gets_the_fix(there: Lab, tmp_path: Path) -> None:
    which = _changed(there, tmp_path, User="visitor")
    with pytest.raises(TareError, match="tare is not root there, and sudo") as caught:  # noqa: SIM117 - one statement each
        with connect_machine(LocalHost(), which, "/run/tare-test-x.ssh"):
            pytest.fail("a visitor is not root")
    assert "sudoers" in caught.value.hint


def test_an_option_is_no_name_of_a_machine() -> None:
    with pytest.raises(UsageError, match="not a machine's name"):
        SshHost(LocalHost(), "-oProxyCommand=true")


def _refused(which: SshTarget, says: str, hint: str) -> None:
    with pytest.raises(Unreachable) as caught, connect_machine(LocalHost(), which, "/run/tare-test-x.ssh"):
        pytest.fail("the connection must not be had")
    assert says in str(caught.value)
    assert hint in caught.value.hint

"""SSH logins of machines that tare has started, with answers of OpenSSH's programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.guests import ssh_login
from tare.guests.ssh_login import Login, await_login, scan_host_keys, write_ssh_config
from tare.hosts.local import LocalHost
from tare.model.errors import TrialFailed
from tare.model.machine import SshTarget
from tare.model.trial import Output

THERE = SshTarget("tare-1", "/tare-1/ssh_config", "198.18.0.10")
REFUSED = (255, b"", b"debian@198.18.0.10: Permission denied (publickey).\r\n")
SCANNED = b"# 198.18.0.10:22 SSH-2.0-OpenSSH_9.2p1\n198.18.0.10 ssh-ed25519 AAAA\n198.18.0.10 ssh-rsa BBBB\n"


class Answering(LocalHost):
    """A host whose commands have these exit codes and outputs, one after the other; the last one stays."""

    def __init__(self, *answers: tuple[int, bytes, bytes]) -> None:
        self.answers = list(answers)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002, ARG002
        code, stdout, stderr = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return Output(argv, code, stdout, stderr, 0.0)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_login, "MAX_PAUSE_SECONDS", 0.0)


def test_a_machine_is_entered_by_its_key_and_by_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "tare-1"
    folder.mkdir()
    there = write_ssh_config(LocalHost(), folder, Login("198.18.0.10", "debian", "/key"), ["ssh-ed25519 AAAA"])
    assert there == SshTarget("tare-1", f"{folder}/ssh_config", "198.18.0.10")
    lines = (folder / "ssh_config").read_text().splitlines()
    assert {"HostName 198.18.0.10", "User debian", "IdentityFile /key", "IdentitiesOnly yes"} <= {*lines}
    assert "StrictHostKeyChecking yes" in lines
    assert (folder / "known_hosts").read_text() == "tare-1 ssh-ed25519 AAAA\n"


def test_without_a_key_the_client_has_its_own(tmp_path: Path) -> None:
    write_ssh_config(LocalHost(), tmp_path, Login("198.18.0.10", "root"), [])
    assert "Identit" not in (tmp_path / "ssh_config").read_text()


def test_a_key_that_comes_late_is_waited_for() -> None:
    host = Answering(REFUSED, REFUSED, (0, b"", b""))
    await_login(host, THERE, "machine", 60)
    assert host.answers == [(0, b"", b"")]


def test_a_refusal_is_final_where_no_key_comes_later() -> None:
    host = Answering(REFUSED, (0, b"", b""))
    with pytest.raises(TrialFailed, match=r"machine: SSH to 198\.18\.0\.10: .*Permission denied") as error:
        await_login(host, THERE, "machine", 60, refusal_hint="is it the right user?")
    assert error.value.hint == "is it the right user?"


def test_a_login_that_never_succeeds_ends_with_the_machines_words() -> None:
    said = (142, b'Please login as the user "debian" rather than the user "root".\n', b"")
    with pytest.raises(TrialFailed, match='Please login as the user "debian"'):
        await_login(Answering(said), THERE, "machine", 0)


def test_a_machine_with_another_host_key_is_not_entered() -> None:
    with pytest.raises(TrialFailed, match="host key is not the one that it should have"):
        await_login(Answering((255, b"", b"Host key verification failed.\r\n")), THERE, "machine", 60)


def test_the_host_keys_are_read_once_the_server_answers() -> None:
    keys = scan_host_keys(Answering((0, b"", b""), (0, SCANNED, b"")), "198.18.0.10", "machine", 60)
    assert keys == ("ssh-ed25519 AAAA", "ssh-rsa BBBB")


def test_a_machine_without_an_ssh_server_is_named() -> None:
    with pytest.raises(TrialFailed, match=r"machine: no SSH server answers at 198\.18\.0\.10 for 0 s") as error:
        scan_host_keys(Answering((0, b"", b"")), "198.18.0.10", "machine", 0)
    assert error.value.hint == "have its SSH server start by itself, or leave out user"

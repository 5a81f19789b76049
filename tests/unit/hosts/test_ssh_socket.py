"""Tests of the socket of an SSH connection, which tare removes because a killed client leaves it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tare.hosts.local import LocalHost
from tare.hosts.process import LocalProcess
from tare.hosts.ssh import SshConnection, SshHost
from tare.model.errors import Unreachable
from tare.model.trial import Output


@dataclass(frozen=True)
class Around(LocalHost):
    """Machine whose SSH client creates a socket and then runs this script."""

    socket: Path
    then: str

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        if argv[0] == "ssh":
            return Output(argv, 0, b"a boot\n", b"", 0.0)
        return super().run(*argv, timeout=timeout, input=input, check=check)

    def spawn(self, *_: str, die_with_parent: bool = False) -> AbstractContextManager[LocalProcess]:
        return super().spawn(
            "sh", "-c", f'touch "$1"; {self.then}', "sh", str(self.socket), die_with_parent=die_with_parent
        )


def test_a_connection_that_is_closed_leaves_no_socket(tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    with SshConnection(SshHost(Around(socket, "echo connected; exec sleep 60"), "there"), str(socket)):
        assert socket.exists()
    assert not socket.exists()


def test_a_connection_that_cannot_be_opened_leaves_none_either(tmp_path: Path) -> None:
    socket = tmp_path / "socket"
    master = SshConnection(SshHost(Around(socket, "echo refused >&2; exit 255"), "there"), str(socket))
    with pytest.raises(Unreachable, match="refused"), master:
        pytest.fail("it must not be had")
    assert not socket.exists()

"""A command on our own streams: whose the keys of the terminal are, and that the terminal is as before afterwards."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from waiting import ENOUGH_SECONDS, wait_until

CALL = "import sys; from tare.hosts.process import attached; sys.exit(attached(sys.argv[2:], sys.argv[1]))"
BASH = ("env", "PS1=ready> ", "bash", "--norc", "-i")
_LINE = "stty sane; exec env 'PS1=ready> ' bash --norc -i"
OWN_TERMINAL = ("script", "--quiet", "--return", "--command", _LINE, "/dev/null")


@contextmanager
def on_terminal(*argv: str) -> Iterator[tuple[int, int]]:
    """Run Python on a terminal of its own; yield its number and our end."""
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, (sys.executable, "-c", CALL, *argv))  # noqa: S606 - as a shell would
    try:
        yield child, terminal
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.close(terminal)


def until(terminal: int, words: str) -> str:
    seen, deadline = "", time.monotonic() + ENOUGH_SECONDS
    while words not in seen:
        assert select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))[0], seen
        try:
            seen += os.read(terminal, 65536).decode("utf-8", "replace")
        except OSError:  # the other end is gone
            return seen
    return seen


@pytest.mark.skipif(not shutil.which("script"), reason="script is not installed")
@pytest.mark.parametrize(("keys", "command"), [("shared", BASH), ("passed", OWN_TERMINAL)])
def test_a_shell_gets_every_key_and_an_interrupt_is_only_its_own(keys: str, command: tuple[str, ...]) -> None:
    with on_terminal(keys, *command) as (child, terminal):
        until(terminal, "ready> ")
        os.write(terminal, b"echo $((6 * 7))\n")
        assert "42\r\n" in until(terminal, "42\r\n")
        os.write(terminal, b"sleep 70108\n")
        wait_until(lambda: subprocess.run(("pgrep", "-fx", "sleep 70108"), check=False, capture_output=True).stdout)
        os.write(terminal, b"\x03")
        until(terminal, "ready> ")
        os.write(terminal, b"exit 5\n")
        until(terminal, "what nobody prints")
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 5


def test_a_command_does_not_wait_for_keys_that_are_kept() -> None:
    with on_terminal("kept", "cat") as (child, terminal):
        until(terminal, "what nobody prints")
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

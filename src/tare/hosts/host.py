"""The Host protocol, its per-run cache, and cancellation of groups of commands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path, PurePosixPath
from typing import Protocol, Self, runtime_checkable

from tare.model.errors import TrialFailed
from tare.model.machine import Facts
from tare.model.trial import Output, OutputLine

BOOT_ID = "/proc/sys/kernel/random/boot_id"  # a file: its text is another one after each start of the kernel


class Process(Protocol):
    """A running command."""

    @property
    def pid(self) -> int:
        """Process number on the machine that tare itself runs on."""

    def read_line(self, timeout: float) -> OutputLine:
        """Return the next line of standard output; raises TimedOut, or TrialFailed when there is no more."""

    def listen(self, listener: Callable[[OutputLine | None], None]) -> None:
        """Call a function with each line as it comes, instead of keeping it, and with None at the end.

        The call comes from another thread.
        """

    def send(self, text: str) -> None:
        """Write to the command's standard input; raises TrialFailed once the command takes no more.

        An inside without a resident process drops the text: there, `supervise` uses standard input as its life line.
        """

    def is_running(self) -> bool:
        """Return whether the command still runs."""

    def exit_code(self) -> int | None:
        """Return the command's exit code; None while it runs, and where it is unknown."""

    def errors(self) -> str:
        """Return what the command has written to standard error so far, also after its block."""


@runtime_checkable
class Host(Protocol):
    """A place where commands can be run."""

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        """Run a command to its end.

        It reads `input`: bytes, or a file of this machine. After `timeout` seconds, tare kills the command and all that
        it started, and raises TimedOut. With `check`, an exit code other than 0 raises TrialFailed.
        """

    def spawn(self, *argv: str, die_with_parent: bool = False) -> AbstractContextManager[Process]:
        """Start a command; kill it, with all that it started, when the block or tare itself ends.

        With `die_with_parent`, the command ends itself within 3 seconds of the end of its standard input, which also
        works through a container engine or SSH.
        """

    def command_line(self, *argv: str) -> tuple[str, ...]:
        """Return the command line that runs a command on the host, for the machine that tare itself runs on."""

    def put(self, source: Path, target: PurePosixPath) -> None:
        """Copy a file of this machine to the host, with its permission bits."""

    def get(self, source: PurePosixPath, target: Path) -> None:
        """Copy a file of the host to this machine."""

    def read(self, path: str) -> str:
        """Return the text of a file; empty if it cannot be read."""

    def write(self, path: str, text: str) -> None:
        """Write a file that only its owner may read."""

    def read_matching(self, folder: str, name: str) -> str:
        """Return the texts of all files of this name in and below a folder, one after the other."""

    def facts(self) -> Facts:
        """Read the facts that the host reports."""

    def connection_error(self, last_output: str) -> TrialFailed | None:
        """Return the reason if the way to the host is lost, or None. `last_output` are the last that came over it."""


class Command(Protocol):
    """A command that runs."""

    def cancel(self, reason: str) -> None:
        """End it early; waiting for it then raises the reason."""

    def cancellation_error(self, reason: str) -> TrialFailed:
        """Return the reason why it has no result."""


class CommandScope:
    """The scope of some commands. Any thread may use it."""

    def __init__(self) -> None:
        self._reason = ""
        self._commands: set[Command] = set()
        self._changing = threading.Lock()

    def cancel(self, reason: str) -> None:
        """End all of its commands, also later ones; waiting for them raises the reason."""
        with self._changing:
            self._reason = self._reason or reason
            commands, self._commands = self._commands, set()
        for command in commands:
            command.cancel(reason)

    def add(self, command: Command) -> None:
        """Record a command that has been started; raises TrialFailed if the scope has ended."""
        with self._changing:
            if self._reason:
                raise command.cancellation_error(self._reason)
            self._commands.add(command)

    def remove(self, command: Command) -> None:
        """Forget a command that has ended."""
        with self._changing:
            self._commands.discard(command)


class HostCache:
    """Texts by their meaning; some of them name a thing that exists on the host until the end of the block."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Return it, empty."""
        return self

    def __exit__(self, *_: object) -> None:
        """Remove everything."""
        self.close()

    def read_once(self, what: str, find: Callable[[], str]) -> str:
        """Return a text that is read at the first call."""
        if what not in self._texts:
            self._texts[what] = find()
        return self._texts[what]

    def create_once(self, what: str, make: Callable[[], AbstractContextManager[str]]) -> str:
        """Return the name of a thing that is made at the first call."""
        return self.read_once(what, lambda: self._open.enter_context(make()))

    def close(self) -> None:
        """Remove what was made, the last thing first, and forget the rest. It can be used again."""
        self._texts.clear()
        self._open.close()

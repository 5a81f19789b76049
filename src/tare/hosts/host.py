"""Host protocol, cache of facts and resources of a host, and cancellation of groups of commands."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path, PurePosixPath
from typing import Protocol, Self, runtime_checkable

from tare.model.errors import TrialFailed
from tare.model.machine import Facts
from tare.model.trial import Output, OutputLine

BOOT_ID = "/proc/sys/kernel/random/boot_id"  # the kernel draws another text at each boot


class Process(Protocol):
    """Running command, or one that has ended."""

    @property
    def pid(self) -> int:
        """PID on tare's machine; for a remote command, that of the client, such as `ssh`."""

    def read_line(self, timeout: float) -> OutputLine:
        """Return the next line of standard output; raises TimedOut, or TrialFailed at the end of the output."""

    def listen(self, listener: Callable[[OutputLine | None], None]) -> None:
        """Call `listener` with each line as it arrives, and with None at the end. `read_line` then gets no lines.

        Another thread makes the calls.
        """

    def send(self, text: str) -> None:
        """Write to the command's standard input; raises TrialFailed if the input is closed.

        An instance without a resident agent drops the text: `supervise` uses standard input as its die-with-parent
        pipe.
        """

    def is_running(self) -> bool:
        """Return whether the command still runs."""

    def exit_code(self) -> int | None:
        """Return the command's exit code; None while the command runs, and if the code is unknown."""

    def errors(self) -> str:
        """Return the command's standard error so far; may be called after the block, too."""


@runtime_checkable
class Host(Protocol):
    """Machine, container or guest in which tare runs commands."""

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        """Run a command to its end; return its output, exit code and duration.

        `input` is the command's standard input: bytes, or a file of this machine. After `timeout` seconds, tare kills
        the command with its descendants and raises TimedOut. With `check`, an exit code other than 0 raises
        TrialFailed.
        """

    def spawn(self, *argv: str, die_with_parent: bool = False) -> AbstractContextManager[Process]:
        """Context manager: start a command, and kill it with its descendants after the block or when tare dies.

        `die_with_parent` declares that the command ends itself within 3 seconds of the end of its standard input. This
        also works through a container engine or SSH, where tare cannot kill the command.
        """

    def command_line(self, *argv: str) -> tuple[str, ...]:
        """Return the command line that runs a command on the host when it is started on tare's machine."""

    def put(self, source: Path, target: PurePosixPath) -> None:
        """Copy a file of this machine to the host, with its permission bits."""

    def get(self, source: PurePosixPath, target: Path) -> None:
        """Copy a file of the host to this machine."""

    def read(self, path: str) -> str:
        """Return the text of a file; "" if it cannot be read."""

    def write(self, path: str, text: str) -> None:
        """Write a file with mode 0600."""

    def read_matching(self, folder: str, name: str) -> str:
        """Return the concatenated texts of all files of this name in and below a folder."""

    def facts(self) -> Facts:
        """Return the facts that the host reports: kernel, CPUs, memory, virtualization."""

    def connection_error(self, last_output: str) -> TrialFailed | None:
        """Return the error if the connection to the host is lost, else None.

        `last_output` is the last output of the command that failed; some hosts recognize a lost connection by it.
        """


class Command(Protocol):
    """Running command that can be cancelled."""

    def cancel(self, reason: str) -> None:
        """End the command early; a thread that waits for the command then raises the reason."""

    def cancellation_error(self, reason: str) -> TrialFailed:
        """Return the command's error for this reason of a cancellation."""


class CommandScope:
    """Group of commands that are cancelled together. Any thread may use it."""

    def __init__(self) -> None:
        self._reason = ""
        self._commands: set[Command] = set()
        self._changing = threading.Lock()

    def cancel(self, reason: str) -> None:
        """End all commands of the scope; they, and commands added later, raise the first reason."""
        with self._changing:
            self._reason = self._reason or reason
            commands, self._commands = self._commands, set()
        for command in commands:  # without the lock: a command that ends removes itself
            command.cancel(reason)

    def add(self, command: Command) -> None:
        """Add a command that has been started; raises TrialFailed if the scope is cancelled."""
        with self._changing:
            if self._reason:
                raise command.cancellation_error(self._reason)
            self._commands.add(command)

    def remove(self, command: Command) -> None:
        """Remove a command that has ended."""
        with self._changing:
            self._commands.discard(command)


class HostCache:
    """Cache of texts by a key, such as facts of a host and names of resources that exist until the end of the block."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Return the empty cache."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the cache."""
        self.close()

    def read_once(self, key: str, read: Callable[[], str]) -> str:
        """Return the text of this key, which the first call reads."""
        if key not in self._texts:
            self._texts[key] = read()
        return self._texts[key]

    def create_once(self, key: str, create: Callable[[], AbstractContextManager[str]]) -> str:
        """Return the name of the resource of this key, which the first call creates."""
        return self.read_once(key, lambda: self._open.enter_context(create()))

    def close(self) -> None:
        """Remove the created resources, the newest first, and all texts. The cache can be used again."""
        self._texts.clear()
        self._open.close()

"""A host whose commands are recorded while a technology starts an instance on it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath

from tare.errors import TrialFailed
from tare.hosts.host import Host, Process
from tare.model.machines import Facts
from tare.model.trials import Output


class Recorder:
    """A host that records the commands of a technology, for the report."""

    def __init__(self, host: Host, commands: list[tuple[str, ...]]) -> None:
        self._host = host
        self._commands: list[tuple[str, ...]] | None = commands

    def stop(self) -> None:
        """Record no more: the commands that follow are the workload's."""
        self._commands = None

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        """Run a command; see `Host.run`."""
        self._note(argv)
        return self._host.run(*argv, timeout=timeout, input=input, check=check)

    def spawn(self, *argv: str, life_line: bool = False) -> AbstractContextManager[Process]:
        """Start a command; see `Host.spawn`."""
        self._note(argv)
        return self._host.spawn(*argv, life_line=life_line)

    def command_line(self, *argv: str) -> tuple[str, ...]:
        """Return a command line; see `Host.command_line`."""
        return self._host.command_line(*argv)

    def put(self, source: Path, target: PurePosixPath) -> None:
        """Copy a file; see `Host.put`."""
        self._host.put(source, target)

    def get(self, source: PurePosixPath, target: Path) -> None:
        """Copy a file; see `Host.get`."""
        self._host.get(source, target)

    def read(self, path: str) -> str:
        """Read a file; see `Host.read`."""
        return self._host.read(path)

    def write(self, path: str, text: str) -> None:
        """Write a file; see `Host.write`."""
        self._host.write(path, text)

    def gather(self, folder: str, name: str) -> str:
        """Read files; see `Host.gather`."""
        return self._host.gather(folder, name)

    def facts(self) -> Facts:
        """Read what the host is."""
        return self._host.facts()

    def lost(self, words: str) -> TrialFailed | None:
        """Return the reason if the way to the host is lost; see `Host.lost`."""
        return self._host.lost(words)

    def _note(self, argv: tuple[str, ...]) -> None:
        if self._commands is not None:
            self._commands.append(argv)

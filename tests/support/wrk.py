"""A wrk that takes turns without a server: it prints what was captured."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from tare.errors import TrialFailed
from tare.hosts.local import LocalHost
from tare.model.trials import Line


@dataclass
class PretendedWrk:
    """A process whose lines are those in `lines`. `send` decides what it prints."""

    argv: tuple[str, ...]
    end: str
    told: list[str] = field(default_factory=list)
    pid: int = 0
    lines: list[str] = field(default_factory=list)

    @abstractmethod
    def send(self, text: str) -> None:
        """Note the text, and add what it makes wrk print to `lines`."""

    def read_line(self, timeout: float) -> Line:
        assert timeout > 0
        if not self.lines:
            raise TrialFailed("wrk: ended")
        return Line(0.0, self.lines.pop(0))

    def listen(self, listener: object) -> None:
        raise NotImplementedError

    def running(self) -> bool:
        return True

    def exit_code(self) -> int | None:
        return None

    def errors(self) -> str:
        return "unable to connect"


@dataclass
class WrkClient(LocalHost):
    """A client with such a wrk, one at a time. It notes each, and the files that it gets."""

    started: list[PretendedWrk] = field(default_factory=list)
    running: int = 0
    files: list[tuple[str, str]] = field(default_factory=list)

    @abstractmethod
    def wrk(self, argv: tuple[str, ...]) -> PretendedWrk:
        """Return the wrk of a command line."""

    @contextmanager
    def spawn(  # type: ignore[override] # what is asked of a process
        self, *argv: str, life_line: bool = False
    ) -> Iterator[PretendedWrk]:
        assert not life_line
        self.started.append(self.wrk(argv))
        self.running += 1
        assert self.running == 1
        try:
            yield self.started[-1]
        finally:
            self.running -= 1

    def put(self, source: Path, target: PurePosixPath) -> None:
        assert source.exists()
        self.files.append((source.name, str(target)))

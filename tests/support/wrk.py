"""A wrk that takes turns without a server: it prints what was captured."""

from __future__ import annotations

from dataclasses import dataclass, field

from tare.errors import TrialFailed
from tare.model.trials import Line


@dataclass
class PretendedWrk:
    """A process whose lines are those in `lines`. A test says in `send` what it prints, and notes what it is told."""

    argv: tuple[str, ...]
    end: str
    told: list[str] = field(default_factory=list)
    pid: int = 0
    lines: list[str] = field(default_factory=list)

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

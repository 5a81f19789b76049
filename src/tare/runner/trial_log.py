"""TrialLog: everything that a trial has produced so far."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from tare.model.machine import FileSystem
from tare.model.trial import (
    Caution,
    Footprint,
    LayerCost,
    LimitsCheck,
    Mark,
    MeasuredValue,
    RawOutput,
    Status,
    Trial,
    Turn,
)
from tare.suites.plan import PlannedTrial

_Item = TypeVar("_Item")


@dataclass
class TrialLog:
    """Results, cautions and failure of a trial. A failed trial keeps what it has produced up to the failure.

    Cautions are added to its `cautions` and nowhere else. `marks` are on our monotonic clock. `ready_seconds` are those
    until its server was ready. `busy_cpus` are those of the instance in each turn, by label. `ended` is when its
    instance was gone; None until then.
    """

    marks: list[Mark] = field(default_factory=list)
    commands: list[tuple[str, ...]] = field(default_factory=list)
    raw: list[RawOutput] = field(default_factory=list)
    turns: list[Turn] = field(default_factory=list)
    cautions: list[Caution] = field(default_factory=list)
    values: tuple[MeasuredValue, ...] = ()
    footprint: Footprint | None = None
    limits: LimitsCheck | None = None
    path: str = ""
    proof: tuple[tuple[str, str], ...] = ()
    layers: tuple[LayerCost, ...] = ()
    file_systems: tuple[FileSystem, ...] = ()
    ready_seconds: float | None = None
    busy_cpus: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    status: Status = "ok"
    reason: str = ""
    hint: str = ""
    started: float = field(default_factory=time.time)
    ended: float | None = None
    seconds: float = 0.0
    first_round: int = 0

    def fail(self, reason: str, hint: str = "", status: Status = "failed") -> None:
        """Record why the trial has failed, unless it has failed already. Its values are quarantined."""
        if self.status == "ok":
            self.status, self.reason, self.hint = status, reason, hint

    @property
    def measured_seconds(self) -> float:
        """The seconds of its turns so far."""
        return sum(turn.seconds for turn in self.turns)

    @property
    def timeline(self) -> tuple[Mark, ...]:
        """The marks in order, in seconds since `requested`."""
        if not self.marks:
            return ()
        start = next((mark.seconds for mark in self.marks if mark.name == "requested"), self.marks[0].seconds)
        ordered = sorted(self.marks, key=lambda mark: mark.seconds)
        return tuple(Mark(mark.name, mark.seconds - start) for mark in ordered)

    def to_trial(self, step: PlannedTrial) -> Trial:
        """Return the trial as it is recorded."""
        return Trial(
            trial=step.trial,
            block=step.block,
            order=step.order,
            workload=step.workload,
            stack=step.stack,
            status=self.status,
            reason=self.reason,
            hint=self.hint,
            started=self.started,
            seconds=self.seconds,
            values=self.values if self.status == "ok" else (),
            timeline=self.timeline,
            footprint=self.footprint,
            layers=self.layers,
            limits=self.limits,
            file_systems=self.file_systems,
            path=self.path,
            proof=self.proof,
            cautions=_drop_duplicates(self.cautions),
            commands=_drop_duplicates([*self.commands, *(raw.argv for raw in self.raw)]),
            first_round=self.first_round,
            turns=tuple(self.turns),
            quarantined=self.values if self.status == "failed" else (),
            ended=self.ended,
        )


def _drop_duplicates(items: Sequence[_Item]) -> tuple[_Item, ...]:
    """Leave out repetitions. Values of plug-ins may have no hash."""
    return tuple(each for index, each in enumerate(items) if each not in items[:index])

"""Trial log: all data that a trial has produced so far."""

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
    """Results, cautions and failure of a trial. A failed trial keeps all data from before the failure.

    - `marks` are on this machine's monotonic clock.
    - `cautions` is the only place to which cautions are added.
    - `ready_seconds` is the time from the server's start until its readiness; None without a server.
    - `busy_cpus` has the number of busy CPUs of the instance in each turn, by label.
    - `ended` is the time at which the instance was gone, in seconds since the epoch; None until then.
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
    reused: bool = False

    def fail(self, reason: str, hint: str = "", status: Status = "failed") -> None:
        """Record why the trial has failed; a later failure does not replace the first. Its values are quarantined."""
        if self.status == "ok":
            self.status, self.reason, self.hint = status, reason, hint

    def has_caution(self, kind: str) -> bool:
        """Return whether there is a caution of this kind."""
        return any(caution.kind == kind for caution in self.cautions)

    @property
    def measured_seconds(self) -> float:
        """The seconds of all turns so far."""
        return sum(turn.seconds for turn in self.turns)

    @property
    def timeline(self) -> tuple[Mark, ...]:
        """The marks in order of time, in seconds since the mark `requested`."""
        if not self.marks:
            return ()
        start = next((mark.seconds for mark in self.marks if mark.name == "requested"), self.marks[0].seconds)
        ordered = sorted(self.marks, key=lambda mark: mark.seconds)
        return tuple(Mark(mark.name, mark.seconds - start) for mark in ordered)

    def to_trial(self, step: PlannedTrial) -> Trial:
        """Return the trial for the journal."""
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
            reused=self.reused,
        )


def _drop_duplicates(items: Sequence[_Item]) -> tuple[_Item, ...]:
    """Return the items without repetitions, in their order."""
    # Not `dict.fromkeys`: values of plug-ins may not be hashable.
    return tuple(each for index, each in enumerate(items) if each not in items[:index])

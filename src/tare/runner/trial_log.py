"""Trial log: all data that a trial has produced so far."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tare.model.machine import FileSystem
from tare.model.observed_isolation import ObservedIsolation
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
from tare.plugins.workload import Workload
from tare.runner.values import read_values
from tare.suites.plan import PlannedTrial

_MAX_STARTS_SECONDS = 1.0  # for all starts of a stack in a block: two or three of Docker, all of quick stacks
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
    isolation: tuple[ObservedIsolation, ...] = ()

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
            isolation=self.isolation,
        )


def _drop_duplicates(items: Sequence[_Item]) -> tuple[_Item, ...]:
    """Return the items without repetitions, in their order."""
    # Not `dict.fromkeys`: values of plug-ins may not be hashable.
    return tuple(each for index, each in enumerate(items) if each not in items[:index])


# --- several starts of a stack, each of which is a turn -------------------------------------------------------------


def has_time_for_another_start(starts: Sequence[TrialLog]) -> bool:
    """Return whether another start of this stack would end in time; False after a failed start."""
    seconds = [log.seconds for log in starts]
    return starts[-1].status == "ok" and sum(seconds) + seconds[-1] <= _MAX_STARTS_SECONDS


def mark_as_warm_up(log: TrialLog) -> None:
    """Mark the outputs of a start as warm-up, so that they do not count as values."""
    log.raw = [replace(each, warm_up=True) for each in log.raw]


def merge_starts(workload: Workload, starts: Sequence[TrialLog]) -> TrialLog:
    """Return one log for several starts, each of which is a turn. Warm-up starts do not count.

    All other fields are those of the median start, or of a failed one.
    """
    raw = [each for log in starts for each in log.raw]
    seconds = sum(log.seconds for log in starts)
    failed = next((log for log in starts if log.status != "ok"), None)
    if failed is not None:
        failed.raw, failed.seconds = raw, seconds
        return failed
    counted = [log for log in starts if not all(each.warm_up for each in log.raw)]
    # The lower median is a real start: its timeline, footprint and commands belong together.
    merged = sorted(counted, key=_ready_seconds)[(len(counted) - 1) // 2]
    turns = [replace(turn, number=number) for number, log in enumerate(counted) for turn in log.turns]
    cautions: list[Caution] = []
    for log in counted:  # keep one caution of each kind: those of later starts differ only in their numbers
        known = {caution.kind for caution in cautions}
        cautions += [caution for caution in log.cautions if caution.kind not in known]
    merged.raw, merged.turns, merged.cautions, merged.seconds = raw, turns, cautions, seconds
    merged.started, merged.ended = starts[0].started, starts[-1].ended
    merged.values = read_values(workload, raw)
    return merged


def _ready_seconds(log: TrialLog) -> float:
    """Return the seconds of the mark `ready`, which need not be the last: technologies may mark later steps."""
    return next(mark.seconds for mark in log.timeline if mark.name == "ready")

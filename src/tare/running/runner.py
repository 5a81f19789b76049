"""The loop: blocks of trials, one after the other, until all is decided, or the plan or the budget is at its end."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Protocol

from tare.errors import NotRecorded, Unreachable
from tare.journal import Journal
from tare.launch import Technology
from tare.model import Caution, Problem, Raw, Trial, Workload
from tare.running.deciding import decisions_of
from tare.running.layers import Place
from tare.running.trial import attempt
from tare.statistics.anytime import least_count
from tare.suites.plan import Block, Step, estimate, plan, remaining
from tare.suites.suite import Suite

_START_SECONDS = 2.0  # what starting and ending an instance takes, until the run has seen it


class Watch(Protocol):
    """Somebody who watches a run: the terminal."""

    def trial_begins(self, step: Step, following: Step | None, left: TimeLeft) -> None:
        """Be told what runs now and what is next."""

    def trial_ended(self, trial: Trial) -> None:
        """Be told of a result."""

    def block_ended(self, block: Block) -> None:
        """Be told that a block is complete: its trials can be compared."""


@dataclass(frozen=True)
class TimeLeft:
    """How far a run is: blocks ended and planned, seconds spent, and seconds left as far as one can tell."""

    blocks_done: int
    blocks: int
    spent_seconds: float
    left_seconds: float


@dataclass
class Pace:
    """Learns how long trials take: the mean of those of the same workload and stack, else what the workload says."""

    workloads: Mapping[str, Workload]
    seen: dict[tuple[str, str], list[float]] = field(default_factory=dict)

    def learn(self, trial: Trial) -> None:
        """Take a trial into account."""
        if trial.status == "ok":
            self.seen.setdefault((trial.workload, trial.stack), []).append(trial.seconds)

    def seconds_of(self, step: Step) -> float:
        """Estimate a trial."""
        if known := self.seen.get((step.workload, step.stack)):
            return sum(known) / len(known)
        return self.workloads[step.workload].seconds() + _START_SECONDS


@dataclass(frozen=True)
class Work:
    """What is to be done: a suite, less the trials that are done and the stacks that cannot run, and until when."""

    suite: Suite
    done: tuple[Trial, ...]
    unusable: Mapping[str, Sequence[Problem]]
    budget_seconds: float | None

    def blocks(self) -> tuple[Block, ...]:
        """Give the blocks that are left. A stack that cannot run has one step for each workload, for its reason."""
        noted = {(trial.workload, trial.stack) for trial in self.done if trial.status == "skipped"}
        left = []
        for block in remaining(plan(self.suite), {trial.trial for trial in self.done}):
            can = [step for step in block.steps if step.stack not in self.unusable]
            cannot = [step for step in block.steps if step.stack in self.unusable]
            unsaid = [step for step in cannot if (step.workload, step.stack) not in noted]
            noted |= {(step.workload, step.stack) for step in unsaid}
            if can:
                left.append(replace(block, steps=(*unsaid, *can)))
        return tuple(left)


def work_through(work: Work, place: Place, journal: Journal, watch: Watch) -> str:
    """Do the blocks that are left; gives why it stopped.

    That is `plan` (all is done), `decided` (nothing is open any more), `budget`, or else in words.
    """
    suite = work.suite
    stacks: dict[str, Sequence[Technology]] = {stack.name: stack.layers for stack in suite.measured}
    workloads = {planned.name: planned.workload for planned in suite.workloads}
    pace, decisions = Pace(workloads), decisions_of(suite)
    for trial in work.done:
        pace.learn(trial)
        decisions.learn(trial)
    broken = {(trial.workload, trial.block) for trial in work.done if trial.status != "skipped"}
    left = work.blocks()
    schedule = Schedule(decisions.needed(left), work.budget_seconds, time.monotonic(), pace).in_order()
    stopped, dropped = "plan", len(schedule.blocks) < len(left)
    while schedule.blocks:
        if not schedule.fits():
            stopped = "budget"
            schedule = replace(schedule, blocks=schedule.blocks[1:], past=schedule.past + 1)
            continue
        block = schedule.blocks[0]
        for order, step in enumerate(block.steps):
            raw: tuple[Raw, ...] = ()
            if step.stack in work.unusable:
                trial = _skipped(step, work.unusable[step.stack])
            else:
                try:
                    place.await_machines()
                except Unreachable as error:
                    return str(error)
                watch.trial_begins(step, schedule.following(order), schedule.left(order))
                trial, raw = attempt(place, step, stacks[step.stack], workloads[step.workload])
            if (step.workload, step.block) in broken:
                trial = replace(trial, cautions=(*trial.cautions, _RESUMED))
            try:
                journal.append(trial, raw)
            except NotRecorded as error:
                return str(error)
            pace.learn(trial)
            decisions.learn(trial)
            watch.trial_ended(trial)
        watch.block_ended(block)
        following = schedule.blocks[1:]
        needed = decisions.needed(following)
        dropped |= len(needed) < len(following)
        schedule = replace(schedule, blocks=needed, past=schedule.past + 1).in_order()
    return "decided" if stopped == "plan" and dropped and decisions.decided() else stopped


@dataclass(frozen=True)
class Schedule:
    """The blocks that are left, the time that they may take, the time that they seem to take, and how many are past."""

    blocks: tuple[Block, ...]
    budget_seconds: float | None
    began: float
    pace: Pace
    past: int = 0

    def fits(self) -> bool:
        """Tell whether the next block would end within the budget. The first does: a run has to say something."""
        if self.budget_seconds is None or self.past == 0:
            return True
        spent = time.monotonic() - self.began
        return spent + estimate(self.blocks[:1], self.pace.seconds_of) <= self.budget_seconds

    def in_order(self) -> Schedule:
        """Let the workloads go first that can still get an interval, where the budget is too short for one of all.

        Enough blocks of some workloads say more than too few of all. Every workload has its first block before, and the
        quickest then go on first, so that as many as can be have enough.
        """
        if self.budget_seconds is None:
            return self
        left = self.budget_seconds - (time.monotonic() - self.began)
        early = [block for block in self.blocks if block.index < least_count()]
        if estimate(early, self.pace.seconds_of) <= left:
            return self
        costs = {block.workload: 0.0 for block in self.blocks}
        for block in early:
            costs[block.workload] += estimate((block,), self.pace.seconds_of)
        quickest = sorted(costs, key=lambda workload: costs[workload])
        within = dict(zip(quickest, accumulate(costs[workload] for workload in quickest), strict=True))

        def turn(block: Block) -> tuple[float, ...]:
            if block.index == 0:
                return ()
            is_late, seconds = block.index >= least_count(), within[block.workload]
            return seconds > left, is_late, 0.0 if is_late else seconds

        return replace(self, blocks=tuple(sorted(self.blocks, key=turn)))

    def following(self, order: int) -> Step | None:
        """Give the step after one of the next block."""
        after = [*self.blocks[0].steps[order + 1 :], *(self.blocks[1].steps if len(self.blocks) > 1 else ())]
        return after[0] if after else None

    def left(self, order: int) -> TimeLeft:
        """Tell how far the run is before a step of the next block."""
        spent = time.monotonic() - self.began
        block = replace(self.blocks[0], steps=self.blocks[0].steps[order:])
        left = estimate((block, *self.blocks[1:]), self.pace.seconds_of)
        if self.budget_seconds is not None:
            left = min(left, max(0.0, self.budget_seconds - spent))
        return TimeLeft(self.past, self.past + len(self.blocks), spent, left)


_RESUMED = Caution(
    "resumed-block", "the run was stopped within this block and resumed: its trials are not close in time"
)


def _skipped(step: Step, problems: Sequence[Problem]) -> Trial:
    reason = "; ".join(f"{problem.what} (fix: {problem.fix})" for problem in problems)
    return Trial(
        trial=step.trial,
        block=step.block,
        order=step.order,
        workload=step.workload,
        stack=step.stack,
        status="skipped",
        reason=reason,
        started=time.time(),
        seconds=0.0,
    )

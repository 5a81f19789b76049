"""The order of the blocks: first those that add most to the answer at the end of the budget."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate

from tare.contracts.workloads import Workload
from tare.model.trials import Trial
from tare.statistics.anytime import least_count
from tare.suites.plan import Block, Step, estimate

_START_SECONDS = 2.0  # what starting and ending an instance takes, until the run has seen it


@dataclass(frozen=True)
class TimeLeft:
    """How far a run is: blocks done and planned, seconds spent, and estimated seconds left."""

    blocks_done: int
    blocks: int
    spent_seconds: float
    left_seconds: float


@dataclass
class Pace:
    """Estimates the seconds of a trial: the median of its workload and stack, or at first the workload's own estimate.

    Not the mean: the first trial is often slow, because caches are cold.
    """

    workloads: Mapping[str, Workload]
    _seconds: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    _turning: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    _turns: dict[str, tuple[int, int]] = field(default_factory=dict)  # of the latest block, after its number

    def learn(self, trial: Trial) -> None:
        """Take a trial into account."""
        if trial.status == "ok":
            place = (trial.workload, trial.stack)
            self._seconds.setdefault(place, []).append(trial.seconds)
            self._turning.setdefault(place, []).append(sum(turn.seconds for turn in trial.turns))
        if trial.status == "ok" and trial.turns:
            block, turns = self._turns.get(trial.workload, (trial.block, 0))
            own = trial.turns[-1].number + 1
            self._turns[trial.workload] = (trial.block, max(own, turns if block == trial.block else 0))

    def seconds_of(self, step: Step) -> float:
        """Estimate a trial."""
        if known := self._seconds.get((step.workload, step.stack)):
            return statistics.median(known)
        return self.workloads[step.workload].seconds() + _START_SECONDS

    def turning_seconds_of(self, step: Step) -> float:
        """Estimate the part of a trial in which it has its turns."""
        if known := self._turning.get((step.workload, step.stack)):
            return statistics.median(known)
        return self.workloads[step.workload].seconds()

    def turns_of(self, workload: str) -> int | None:
        """Return how many turns the stacks had in the latest block of a workload; None before there was one."""
        return self._turns[workload][1] if workload in self._turns else None


def seconds_to_intervals(blocks: Sequence[Block], pace: Pace) -> Mapping[str, float]:
    """Return the seconds until each workload has its minimum of blocks for an interval, as a run orders them.

    Every workload gets its first block; then the quickest go first.
    """
    seconds = {block: estimate((block,), pace.seconds_of) for block in blocks}
    first = sum(seconds[block] for block in blocks if block.index == 0)
    others = _quickest_first([block for block in blocks if block.index], seconds)
    return {block.workload: first + others.get(block.workload, 0.0) for block in blocks}


def _quickest_first(blocks: Sequence[Block], seconds: Mapping[Block, float]) -> Mapping[str, float]:
    """Return the seconds until each workload has its minimum of blocks, if the quickest go first."""
    costs = {block.workload: 0.0 for block in blocks}
    for block in blocks:
        if block.index < least_count():
            costs[block.workload] += seconds[block]
    quickest = sorted(costs, key=lambda workload: costs[workload])
    return dict(zip(quickest, accumulate(costs[workload] for workload in quickest), strict=True))


@dataclass(frozen=True)
class Schedule:
    """The remaining blocks, the time that they may take and are estimated to take, and the number of past blocks."""

    blocks: tuple[Block, ...]
    budget_seconds: float | None
    began: float
    pace: Pace
    past: int = 0

    def fits(self) -> bool:
        """Return whether the next block would end within the budget. The first always counts as if it would."""
        if self.budget_seconds is None or self.past == 0:
            return True
        spent = time.monotonic() - self.began
        return spent + estimate(self.blocks[:1], self.pace.seconds_of) <= self.budget_seconds

    def in_order(self, nearness: Mapping[str, float]) -> Schedule:
        """Order the blocks by what they add to the answer at the end of the budget.

        If all blocks fit the budget, the order is that of the plan. Otherwise, every workload gets its first block.
        Then as many workloads as possible get enough blocks for an interval, the quickest first where time is short.
        The others follow by expected decisions per second; `nearness` has the expected decisions of a block
        (`Decisions.nearness`). If a workload has too little time for an interval, its value is multiplied by the share
        of that time which is left: later trials may be quicker than the first, cold ones.
        """
        if self.budget_seconds is None:
            return self
        left = max(0.0, self.budget_seconds - (time.monotonic() - self.began))  # a last block may take longer
        seconds = {block: estimate((block,), self.pace.seconds_of) for block in self.blocks}
        if sum(seconds.values()) <= left:
            return replace(self, blocks=tuple(sorted(self.blocks, key=self._in_plan)))
        ready_in = _quickest_first(self.blocks, seconds)
        rounds = max(ready_in.values()) <= left

        def turn(block: Block) -> tuple[float, ...]:
            ready, position = ready_in[block.workload], self._in_plan(block)
            if block.index == 0:
                return (0, *position)
            if block.index < least_count() and ready <= left:
                return (1, 0.0 if rounds else ready, *position)
            chance = 1.0 if ready <= left else left / ready
            return (2, -nearness.get(block.workload, 0.0) / seconds[block] * chance, *position)

        return replace(self, blocks=tuple(sorted(self.blocks, key=turn)))

    def _in_plan(self, block: Block) -> tuple[int, int]:
        """Return a block's position in the plan: its round, and its workload's position in the suite."""
        return block.index, list(self.pace.workloads).index(block.workload)

    def timing(self) -> BlockTiming:
        """Estimate the next block. Where stacks take turns, all are started first, and then have their turns."""
        block, after = self.blocks[0], estimate(self.blocks[1:], self.pace.seconds_of)
        whole = {step: self.pace.seconds_of(step) for step in block.steps}
        if self.pace.workloads[block.workload].rounds == 1:
            return BlockTiming(self, whole, 0.0, None, after)
        turns = {step: min(whole[step], self.pace.turning_seconds_of(step)) for step in block.steps}
        starting = {step: whole[step] - turns[step] for step in block.steps}
        return BlockTiming(self, starting, sum(turns.values()), self.pace.turns_of(block.workload), after)

    def time_left(self, seconds: float) -> TimeLeft:
        """Return how far the run is when it is estimated to take this many more seconds."""
        spent = time.monotonic() - self.began
        if self.budget_seconds is not None:
            seconds = min(seconds, max(0.0, self.budget_seconds - spent))
        return TimeLeft(self.past, self.past + len(self.blocks), spent, seconds)


@dataclass
class BlockTiming:
    """How far the next block of a schedule is, and the time left of it and of the blocks after it.

    All is estimated before the block begins: between two turns there is no time for it. `starting` are the seconds of
    instances that have not started, `turning` those of all turns, `after` those of later blocks. `turns` is the number
    of turns of each stack, None where it is unknown.
    """

    schedule: Schedule
    starting: dict[Step, float]
    turning: float
    turns: int | None
    after: float
    _since: float | None = None
    _turned: float = 0.0

    @property
    def block(self) -> Block:
        """The block."""
        return self.schedule.blocks[0]

    def following(self, step: Step) -> Step | None:
        """Return the step after one of the block, None after the last one of the run."""
        own, later = self.block.steps, self.schedule.blocks[1:2]
        after = [*own[own.index(step) + 1 :], *(each for block in later for each in block.steps)]
        return after[0] if after else None

    def trial_begins(self, step: Step) -> TimeLeft:
        """Record that an instance is started; return the time left before it."""
        left = self._left()
        self.starting.pop(step, None)
        return left

    def turns_begin(self, number: int) -> TimeLeft:
        """Record that the turns of a number begin; return the time left. A first block is estimated by time."""
        now = time.monotonic()
        self._since = self._since or now
        done = number / self.turns if self.turns else (now - self._since) / max(self.turning, 1e-9)
        self._turned = min(1.0, done)
        return self._left()

    def _left(self) -> TimeLeft:
        return self.schedule.time_left(sum(self.starting.values()) + (1 - self._turned) * self.turning + self.after)

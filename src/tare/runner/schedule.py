"""Schedule of a run: the order of its blocks, by estimated durations and what each adds to the answer.

The estimates are at first those of the workloads, and then the durations of the run's own trials.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import inf
from operator import itemgetter

from tare.model.trial import Trial, Turn
from tare.model.units import format_duration
from tare.plugins.workload import Workload
from tare.statistics.anytime import LEAST, least_count
from tare.suites.plan import Block, Step, estimate

_START_SECONDS = 2.0  # what starting and ending an instance takes, until the run has seen it
SLOW = 3.0  # times as long as the median stack's turns: the others do not wait for more of them

ServicePlacement = tuple[str, str]  # a workload and a stack


def rounds_by_label(turns: Iterable[Turn]) -> Counter[str]:
    """Count the turns of each label that hold a value: after whole rounds, as many of each."""
    return Counter(turn.label for turn in turns if not turn.warm_up)


@dataclass
class DurationEstimates:
    """Estimates the seconds of a trial: the median of its workload and stack, or at first the workload's own estimate.

    Not the mean: the first trial is often slow, because caches are cold. `passes` is how often each workload is
    measured in its next block (`tare.runner.loop`), once where nothing is said.
    """

    workloads: Mapping[str, Workload]
    passes: dict[str, int] = field(default_factory=dict)
    _starting: dict[ServicePlacement, list[float]] = field(default_factory=dict)
    _turning: dict[ServicePlacement, list[float]] = field(default_factory=dict)  # of one pass
    _turns: dict[str, tuple[int, int]] = field(default_factory=dict)  # the latest block, and the turns of a pass

    def learn(self, trial: Trial) -> None:
        """Take a trial into account."""
        if trial.status != "ok":
            return
        place, passes = (trial.workload, trial.stack), self._passes_in(trial)
        turning = sum(turn.seconds for turn in trial.turns)
        self._starting.setdefault(place, []).append(max(0.0, trial.seconds - turning))
        self._turning.setdefault(place, []).append(turning / passes)
        if trial.turns:
            block, turns = self._turns.get(trial.workload, (trial.block, 0))
            own = (trial.turns[-1].number + 1) // passes
            self._turns[trial.workload] = (trial.block, max(own, turns if block == trial.block else 0))

    def _passes_in(self, trial: Trial) -> int:
        counts = rounds_by_label(trial.turns)
        return max(1, max(counts.values(), default=1) // max(1, self.workloads[trial.workload].rounds))

    def seconds_of(self, step: Step) -> float:
        """Estimate a trial."""
        return self.starting_seconds_of(step) + self.turning_seconds_of(step)

    def starting_seconds_of(self, step: Step) -> float:
        """Estimate what starting and ending the instance of a trial takes."""
        known = self._starting.get((step.workload, step.stack))
        return statistics.median(known) if known else _START_SECONDS

    def turning_seconds_of(self, step: Step) -> float:
        """Estimate the part of a trial in which it has its turns."""
        return self.pass_seconds_of(step) * self.passes_of(step)

    def pass_seconds_of(self, step: Step) -> float:
        """Estimate the turns of a trial in which its workload is measured once."""
        known = self._turning.get((step.workload, step.stack))
        return statistics.median(known) if known else self.workloads[step.workload].seconds()

    def passes_of(self, step: Step) -> int:
        """Return how often a trial of the next block measures: once where its stack is much slower than the others."""
        passes = self.passes.get(step.workload, 1)
        return 1 if passes > 1 and self.pass_seconds_of(step) > SLOW * self._usual_pass(step.workload) else passes

    def _usual_pass(self, workload: str) -> float:
        known = [statistics.median(seconds) for (name, _), seconds in self._turning.items() if name == workload]
        return statistics.median(known) if known else self.workloads[workload].seconds()

    def turns_of(self, workload: str) -> int | None:
        """Return how many turns stacks have in the next block of a workload; None before there was one."""
        return self._turns[workload][1] * self.passes.get(workload, 1) if workload in self._turns else None


@dataclass(frozen=True)
class TimeLeft:
    """How far a run is: blocks done and planned, seconds spent, and estimated seconds left."""

    blocks_done: int
    blocks: int
    spent_seconds: float
    left_seconds: float


def seconds_to_intervals(blocks: Sequence[Block], pace: DurationEstimates) -> Mapping[str, float]:
    """Return the seconds until each workload has its minimum of blocks for an interval, as a run orders them.

    Every workload gets its first block; then the quickest go first.
    """
    seconds = {block: estimate((block,), pace.seconds_of) for block in blocks}
    first = sum(seconds[block] for block in blocks if block.index == 0)
    others = _quickest_first([block for block in blocks if block.index], seconds, least_blocks(blocks))
    return {block.workload: first + others.get(block.workload, 0.0) for block in blocks}


@dataclass(frozen=True)
class Shortfall:
    """What a budget is too short for: the minimum of `least` blocks of the workloads in `late`.

    All workloads need so many `seconds` for it. `stack` and `workload` are those that take the longest, with their
    seconds of these; 0 where there is no other one, so that it cannot be left out.
    """

    late: tuple[str, ...]
    least: int
    seconds: float
    stack: tuple[str, float]
    workload: tuple[str, float]

    def __str__(self) -> str:
        """Return it as the end of a sentence about the budget."""
        takes = [f"{name} takes {_about(seconds)}" for name, seconds in (self.stack, self.workload) if seconds]
        needed = f"too short for the {self.least} blocks that an interval of {', '.join(self.late)} needs"
        advice = f", of which {' and '.join(takes)}: leave {'it' if len(takes) == 1 else 'one'} out" if takes else ""
        return f"{needed} (about {_about(self.seconds)} in all{advice})"


def _about(seconds: float) -> str:
    return format_duration(round(seconds))


def shortfall(
    blocks: Sequence[Block], pace: DurationEstimates, baselines: Collection[str], seconds: float
) -> Shortfall | None:
    """Return what so many seconds are too short for; None if nothing.

    The `baselines`, with its A/A control, cannot be left out.
    """
    least = least_blocks(blocks)
    needed = [block for block in blocks if block.index < least]
    late = [name for name, ready in seconds_to_intervals(needed, pace).items() if ready > seconds]
    if not late or max(block.index for block in blocks) + 1 < least:
        return None
    costs = [(step, pace.seconds_of(step)) for block in needed for step in block.steps]
    stacks, workloads = defaultdict[str, float](float), defaultdict[str, float](float)
    for step, cost in costs:
        workloads[step.workload] += cost
        stacks[step.stack] += 0.0 if step.stack in baselines else cost
    total = sum(workloads.values())
    return Shortfall(tuple(late), least, total, _longest(stacks), _longest(workloads))


def _longest(seconds: Mapping[str, float]) -> tuple[str, float]:
    """Return what takes the longest, and its seconds; 0 where there is no other."""
    name, most = max(seconds.items(), key=itemgetter(1))
    return name, most if sum(each > 0 for each in seconds.values()) > 1 else 0.0


def least_blocks(blocks: Sequence[Block]) -> int:
    """Return the least number of blocks for an interval: fewer where many stacks borrow from each other."""
    return least_count(max((len(block.steps) for block in blocks), default=1) - 1)  # the baseline lends nothing


def _quickest_first(blocks: Sequence[Block], seconds: Mapping[Block, float], least: int) -> Mapping[str, float]:
    """Return the seconds until each workload has its minimum of blocks, if the quickest go first."""
    costs = {block.workload: 0.0 for block in blocks}
    for block in blocks:
        if block.index < least:
            costs[block.workload] += seconds[block]
    quickest = sorted(costs, key=lambda workload: costs[workload])
    return dict(zip(quickest, accumulate(costs[workload] for workload in quickest), strict=True))


@dataclass(frozen=True)
class Schedule:
    """The remaining blocks, the time that they may take and are estimated to take, and the number of past blocks.

    `least` is the least number of blocks for an interval.
    """

    blocks: tuple[Block, ...]
    budget_seconds: float | None
    began: float
    pace: DurationEstimates
    past: int = 0
    least: int = LEAST

    def fits(self) -> bool:
        """Return whether the next block would end within the budget. The first always counts as if it would."""
        if self.budget_seconds is None or self.past == 0:
            return True
        spent = time.monotonic() - self.began
        return spent + estimate(self.blocks[:1], self.pace.seconds_of) <= self.budget_seconds

    def left_seconds(self) -> float:
        """Return what is left of the budget: nothing where the last block took longer, infinite without a budget."""
        return inf if self.budget_seconds is None else max(0.0, self.budget_seconds - (time.monotonic() - self.began))

    def with_blocks(self, blocks: Iterable[Block], more_past: int = 0) -> Schedule:
        """Return the schedule of these blocks, after so many more past ones."""
        return replace(self, blocks=tuple(blocks), past=self.past + more_past)

    def in_order(self, nearness: Mapping[str, float]) -> Schedule:
        """Order the blocks by what they add to the answer at the end of the budget.

        If all blocks fit the budget, the order is that of the plan. Otherwise, every workload gets its first block.
        Then as many workloads as possible get enough blocks for an interval: the least number, then that of a stack
        which can borrow from no other; the quickest first where time is short. The others follow by expected decisions
        per second; `nearness` has the expected decisions of a block (`Decisions.nearness`). If a workload has too
        little time for an interval, its value is multiplied by the share of that time which is left: later trials may
        be quicker than the first, cold ones.
        """
        if self.budget_seconds is None:
            return self
        left = self.left_seconds()
        seconds = {block: estimate((block,), self.pace.seconds_of) for block in self.blocks}
        if sum(seconds.values()) <= left:
            return self.with_blocks(sorted(self.blocks, key=self._in_plan))
        goals = {number: _quickest_first(self.blocks, seconds, number) for number in sorted({self.least, LEAST})}
        early = goals[self.least]

        def turn(block: Block) -> tuple[float, ...]:
            position = self._in_plan(block)
            if block.index == 0:
                return (0, *position)
            for number, ready_in in goals.items():
                ready = ready_in[block.workload]
                if block.index < number and ready <= left:
                    return (number, 0.0 if max(ready_in.values()) <= left else ready, *position)
            chance = 1.0 if early[block.workload] <= left else left / early[block.workload]
            return (inf, -nearness.get(block.workload, 0.0) / seconds[block] * chance, *position)

        return self.with_blocks(sorted(self.blocks, key=turn))

    def _in_plan(self, block: Block) -> tuple[int, int]:
        """Return a block's position in the plan: its round, and its workload's position in the suite."""
        return block.index, list(self.pace.workloads).index(block.workload)

    def timing(self) -> BlockTiming:
        """Estimate the next block. Where stacks take turns, all are started first, and then have their turns."""
        block, after = self.blocks[0], estimate(self.blocks[1:], self.pace.seconds_of)
        if self.pace.workloads[block.workload].alone:
            return BlockTiming(self, {step: self.pace.seconds_of(step) for step in block.steps}, 0.0, None, after)
        starting = {step: self.pace.starting_seconds_of(step) for step in block.steps}
        turning = sum(self.pace.turning_seconds_of(step) for step in block.steps)
        return BlockTiming(self, starting, turning, self.pace.turns_of(block.workload), after)

    def time_left(self, seconds: float) -> TimeLeft:
        """Return how far the run is when it is estimated to take this many more seconds."""
        spent = time.monotonic() - self.began
        return TimeLeft(self.past, self.past + len(self.blocks), spent, min(seconds, self.left_seconds()))


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

    def block_ends(self) -> TimeLeft:
        """Return the time left when the block has ended."""
        return self.schedule.time_left(self.after)

    def _left(self) -> TimeLeft:
        return self.schedule.time_left(sum(self.starting.values()) + (1 - self._turned) * self.turning + self.after)

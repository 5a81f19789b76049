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
from tare.statistics.anytime import MIN_VALUES, min_value_count
from tare.suites.plan import Block, PlannedTrial, estimate_total_seconds

_DEFAULT_START_SECONDS = 2.0  # what starting and ending an instance takes, until the run has seen it
SLOW_FACTOR = 3.0  # times as long as the median stack's turns: the others do not wait for more of them

CellKey = tuple[str, str]  # a workload and a stack


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
    _start_seconds: dict[CellKey, list[float]] = field(default_factory=dict)
    _pass_seconds: dict[CellKey, list[float]] = field(default_factory=dict)  # of one pass
    _turns_of_pass: dict[str, tuple[int, int]] = field(
        default_factory=dict
    )  # the latest block, and the turns of a pass

    def learn(self, trial: Trial) -> None:
        """Take a trial into account."""
        if trial.status != "ok":
            return
        place, passes = (trial.workload, trial.stack), self._count_passes(trial)
        turning = sum(turn.seconds for turn in trial.turns)
        self._start_seconds.setdefault(place, []).append(max(0.0, trial.seconds - turning))
        self._pass_seconds.setdefault(place, []).append(turning / passes)
        if trial.turns:
            block, turns = self._turns_of_pass.get(trial.workload, (trial.block, 0))
            own = (trial.turns[-1].number + 1) // passes
            self._turns_of_pass[trial.workload] = (trial.block, max(own, turns if block == trial.block else 0))

    def _count_passes(self, trial: Trial) -> int:
        counts = rounds_by_label(trial.turns)
        return max(1, max(counts.values(), default=1) // max(1, self.workloads[trial.workload].rounds))

    def seconds_of(self, step: PlannedTrial) -> float:
        """Estimate a trial."""
        return self.start_seconds_of(step) + self.turn_seconds_of(step)

    def start_seconds_of(self, step: PlannedTrial) -> float:
        """Estimate what starting and ending the instance of a trial takes."""
        known = self._start_seconds.get((step.workload, step.stack))
        return statistics.median(known) if known else _DEFAULT_START_SECONDS

    def turn_seconds_of(self, step: PlannedTrial) -> float:
        """Estimate the part of a trial in which it has its turns."""
        return self.pass_seconds_of(step) * self.passes_of(step)

    def pass_seconds_of(self, step: PlannedTrial) -> float:
        """Estimate the turns of a trial in which its workload is measured once."""
        known = self._pass_seconds.get((step.workload, step.stack))
        return statistics.median(known) if known else self.workloads[step.workload].estimate_seconds()

    def passes_of(self, step: PlannedTrial) -> int:
        """Return how often a trial of the next block measures: once where its stack is much slower than the others."""
        passes = self.passes.get(step.workload, 1)
        return (
            1
            if passes > 1 and self.pass_seconds_of(step) > SLOW_FACTOR * self._median_pass_seconds(step.workload)
            else passes
        )

    def _median_pass_seconds(self, workload: str) -> float:
        known = [statistics.median(seconds) for (name, _), seconds in self._pass_seconds.items() if name == workload]
        return statistics.median(known) if known else self.workloads[workload].estimate_seconds()

    def turns_of(self, workload: str) -> int | None:
        """Return how many turns stacks have in the next block of a workload; None before there was one."""
        return (
            self._turns_of_pass[workload][1] * self.passes.get(workload, 1) if workload in self._turns_of_pass else None
        )


@dataclass(frozen=True)
class TimeLeft:
    """How far a run is: blocks done and planned, seconds spent, and estimated seconds left."""

    blocks_done: int
    blocks: int
    spent_seconds: float
    left_seconds: float


def seconds_to_intervals(blocks: Sequence[Block], estimates: DurationEstimates) -> Mapping[str, float]:
    """Return the seconds until each workload has its minimum of blocks for an interval, as a run orders them.

    Every workload gets its first block; then the quickest go first.
    """
    seconds = {block: estimate_total_seconds((block,), estimates.seconds_of) for block in blocks}
    first = sum(seconds[block] for block in blocks if block.index == 0)
    others = _seconds_until_ready([block for block in blocks if block.index], seconds, least_blocks(blocks))
    return {block.workload: first + others.get(block.workload, 0.0) for block in blocks}


@dataclass(frozen=True)
class BudgetShortfall:
    """What a budget is too short for: the minimum of `min_blocks` blocks of the workloads in `late_workloads`.

    All workloads need so many `available_seconds` for it. `longest_stack` and `longest_workload` are those that take
    the longest, with their seconds of these; 0 where there is no other one, so that it cannot be left out.
    """

    late_workloads: tuple[str, ...]
    min_blocks: int
    required_seconds: float
    longest_stack: tuple[str, float]
    longest_workload: tuple[str, float]

    def __str__(self) -> str:
        """Return it as the end of a sentence about the budget."""
        takes = [
            f"{name} takes {_format_seconds(seconds)}"
            for name, seconds in (self.longest_stack, self.longest_workload)
            if seconds
        ]
        needed = (
            f"too short for the {self.min_blocks} blocks that an interval of {', '.join(self.late_workloads)} needs"
        )
        advice = f", of which {' and '.join(takes)}: leave {'it' if len(takes) == 1 else 'one'} out" if takes else ""
        return f"{needed} (about {_format_seconds(self.required_seconds)} in all{advice})"


def _format_seconds(seconds: float) -> str:
    return format_duration(round(seconds))


def find_shortfall(
    blocks: Sequence[Block], estimates: DurationEstimates, baselines: Collection[str], available_seconds: float
) -> BudgetShortfall | None:
    """Return what so many seconds are too short for; None if nothing.

    The `baselines`, with its A/A control, cannot be left out.
    """
    least = least_blocks(blocks)
    needed = [block for block in blocks if block.index < least]
    late = [name for name, ready in seconds_to_intervals(needed, estimates).items() if ready > available_seconds]
    if not late or max(block.index for block in blocks) + 1 < least:
        return None
    costs = [(step, estimates.seconds_of(step)) for block in needed for step in block.trials]
    stacks, workloads = defaultdict[str, float](float), defaultdict[str, float](float)
    for step, cost in costs:
        workloads[step.workload] += cost
        stacks[step.stack] += 0.0 if step.stack in baselines else cost
    total = sum(workloads.values())
    return BudgetShortfall(tuple(late), least, total, _longest(stacks), _longest(workloads))


def _longest(seconds: Mapping[str, float]) -> tuple[str, float]:
    """Return what takes the longest, and its seconds; 0 where there is no other."""
    name, most = max(seconds.items(), key=itemgetter(1))
    return name, most if sum(each > 0 for each in seconds.values()) > 1 else 0.0


def least_blocks(blocks: Sequence[Block]) -> int:
    """Return the least number of blocks for an interval: fewer where many stacks borrow from each other."""
    return min_value_count(max((len(block.trials) for block in blocks), default=1) - 1)  # the baseline lends nothing


def _seconds_until_ready(blocks: Sequence[Block], seconds: Mapping[Block, float], least: int) -> Mapping[str, float]:
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

    `min_blocks` is the least number of blocks for an interval.
    """

    blocks: tuple[Block, ...]
    budget_seconds: float | None
    started_at: float
    estimates: DurationEstimates
    past_blocks: int = 0
    min_blocks: int = MIN_VALUES

    def has_time_for_next(self) -> bool:
        """Return whether the next block would end within the budget. The first always counts as if it would."""
        if self.budget_seconds is None or self.past_blocks == 0:
            return True
        spent = time.monotonic() - self.started_at
        return spent + estimate_total_seconds(self.blocks[:1], self.estimates.seconds_of) <= self.budget_seconds

    def remaining_seconds(self) -> float:
        """Return what is left of the budget: nothing where the last block took longer, infinite without a budget."""
        return (
            inf if self.budget_seconds is None else max(0.0, self.budget_seconds - (time.monotonic() - self.started_at))
        )

    def with_blocks(self, blocks: Iterable[Block], more_past: int = 0) -> Schedule:
        """Return the schedule of these blocks, after so many more past ones."""
        return replace(self, blocks=tuple(blocks), past_blocks=self.past_blocks + more_past)

    def order_blocks(self, expected_decisions: Mapping[str, float]) -> Schedule:
        """Order the blocks by what they add to the answer at the end of the budget.

        If all blocks fit the budget, the order is that of the plan. Otherwise, every workload gets its first block.
        Then as many workloads as possible get enough blocks for an interval: the least number, then that of a stack
        which can borrow from no other; the quickest first where time is short. The others follow by expected decisions
        per second; `expected_decisions` has the expected decisions of a block (`Decisions.expected_decisions`). If a
        workload has too little time for an interval, its value is multiplied by the share of that time which is left:
        later trials may be quicker than the first, cold ones.
        """
        if self.budget_seconds is None:
            return self
        left = self.remaining_seconds()
        seconds = {block: estimate_total_seconds((block,), self.estimates.seconds_of) for block in self.blocks}
        if sum(seconds.values()) <= left:
            return self.with_blocks(sorted(self.blocks, key=self._plan_position))
        goals = {
            number: _seconds_until_ready(self.blocks, seconds, number)
            for number in sorted({self.min_blocks, MIN_VALUES})
        }
        early = goals[self.min_blocks]

        def sort_key(block: Block) -> tuple[float, ...]:
            position = self._plan_position(block)
            if block.index == 0:
                return (0, *position)
            for number, ready_in in goals.items():
                ready = ready_in[block.workload]
                if block.index < number and ready <= left:
                    return (number, 0.0 if max(ready_in.values()) <= left else ready, *position)
            chance = 1.0 if early[block.workload] <= left else left / early[block.workload]
            return (inf, -expected_decisions.get(block.workload, 0.0) / seconds[block] * chance, *position)

        return self.with_blocks(sorted(self.blocks, key=sort_key))

    def _plan_position(self, block: Block) -> tuple[int, int]:
        """Return a block's position in the plan: its round, and its workload's position in the suite."""
        return block.index, list(self.estimates.workloads).index(block.workload)

    def estimate_next_block(self) -> BlockTiming:
        """Estimate the next block. Where stacks take turns, all are started first, and then have their turns."""
        block, after = self.blocks[0], estimate_total_seconds(self.blocks[1:], self.estimates.seconds_of)
        if self.estimates.workloads[block.workload].runs_exclusively:
            return BlockTiming(self, {step: self.estimates.seconds_of(step) for step in block.trials}, 0.0, None, after)
        starting = {step: self.estimates.start_seconds_of(step) for step in block.trials}
        turning = sum(self.estimates.turn_seconds_of(step) for step in block.trials)
        return BlockTiming(self, starting, turning, self.estimates.turns_of(block.workload), after)

    def time_left(self, seconds: float) -> TimeLeft:
        """Return how far the run is when it is estimated to take this many more seconds."""
        spent = time.monotonic() - self.started_at
        return TimeLeft(
            self.past_blocks, self.past_blocks + len(self.blocks), spent, min(seconds, self.remaining_seconds())
        )


@dataclass
class BlockTiming:
    """How far the next block of a schedule is, and the time left of it and of the blocks after it.

    All is estimated before the block begins: between two turns there is no time for it. `start_seconds` are the seconds
    of instances that have not started, `turn_seconds` those of all turns, `later_seconds` those of later blocks.
    `turns` is the number of turns of each stack, None where it is unknown.
    """

    schedule: Schedule
    start_seconds: dict[PlannedTrial, float]
    turn_seconds: float
    turns: int | None
    later_seconds: float
    _turns_started_at: float | None = None
    _done_share: float = 0.0

    @property
    def block(self) -> Block:
        """The block."""
        return self.schedule.blocks[0]

    def next_trial(self, step: PlannedTrial) -> PlannedTrial | None:
        """Return the step after one of the block, None after the last one of the run."""
        own, later = self.block.trials, self.schedule.blocks[1:2]
        after = [*own[own.index(step) + 1 :], *(each for block in later for each in block.trials)]
        return after[0] if after else None

    def begin_trial(self, step: PlannedTrial) -> TimeLeft:
        """Record that an instance is started; return the time left before it."""
        left = self._time_left()
        self.start_seconds.pop(step, None)
        return left

    def begin_turns(self, number: int) -> TimeLeft:
        """Record that the turns of a number begin; return the time left. A first block is estimated by time."""
        now = time.monotonic()
        self._turns_started_at = self._turns_started_at or now
        done = number / self.turns if self.turns else (now - self._turns_started_at) / max(self.turn_seconds, 1e-9)
        self._done_share = min(1.0, done)
        return self._time_left()

    def time_left_after(self) -> TimeLeft:
        """Return the time left when the block has ended."""
        return self.schedule.time_left(self.later_seconds)

    def _time_left(self) -> TimeLeft:
        return self.schedule.time_left(
            sum(self.start_seconds.values()) + (1 - self._done_share) * self.turn_seconds + self.later_seconds
        )

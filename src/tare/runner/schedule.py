"""Schedule of a run: the order of its blocks by estimated durations and expected decisions.

Durations are estimated by the workloads at first, and later from the trials of the run.
"""

from __future__ import annotations

import random
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import inf
from operator import itemgetter

from tare.model.trial import Trial, Turn
from tare.model.turn_length import CHOICE_SECONDS
from tare.model.units import format_duration
from tare.plugins.workload import Workload
from tare.statistics.anytime import MIN_VALUES, min_value_count
from tare.suites.plan import Block, PlannedTrial, estimate_total_seconds

_DEFAULT_START_SECONDS = 2.0  # to start and end an instance, until a trial of the stack has ended
SLOW_FACTOR = 3.0  # a stack with turns of this many times the median gets fewer turns: the others would wait for it

CellKey = tuple[str, str]  # a workload and a stack


def rounds_by_label(turns: Iterable[Turn]) -> Counter[str]:
    """Return the number of turns of each label without warm-up; after whole rounds, all numbers are equal."""
    return Counter(turn.label for turn in turns if not turn.warm_up)


@dataclass
class DurationEstimates:
    """Estimates of trial durations: the median of a workload and stack, before the first trial the workload's estimate.

    The median, because the first trial is often slow: caches are cold. `passes` has the number of passes of each
    workload's next block (`tare.runner.loop`); 1 if it is missing. `has_instance` returns whether a block of a workload
    would find a running instance of a stack. `control` is the A/A control, with which the length of turns is chosen; ""
    if none is chosen.
    """

    workloads: Mapping[str, Workload]
    passes: dict[str, int] = field(default_factory=dict)
    control: str = ""
    has_instance: Callable[[str, str], bool] = lambda _workload, _stack: False
    _start_seconds: dict[tuple[CellKey, bool], list[float]] = field(default_factory=dict)  # by cell and `Trial.reused`
    _pass_seconds: dict[CellKey, list[float]] = field(default_factory=dict)
    # By workload: its latest block, and the turns of a pass there.
    _turns_of_pass: dict[str, tuple[int, int]] = field(default_factory=dict)

    def learn(self, trial: Trial) -> None:
        """Add the durations of a trial; only those of successful trials count."""
        if trial.status != "ok":
            return
        cell, passes = (trial.workload, trial.stack), self._count_passes(trial)
        turn_seconds = sum(turn.seconds for turn in trial.turns)
        start_seconds = max(0.0, trial.seconds - turn_seconds)
        self._start_seconds.setdefault((cell, trial.reused), []).append(start_seconds)
        self._pass_seconds.setdefault(cell, []).append(turn_seconds / passes)
        if trial.turns:
            block, turns = self._turns_of_pass.get(trial.workload, (trial.block, 0))
            turns_here = (trial.turns[-1].number + 1) // passes
            self._turns_of_pass[trial.workload] = (trial.block, max(turns_here, turns if block == trial.block else 0))

    def _count_passes(self, trial: Trial) -> int:
        counts = rounds_by_label(trial.turns)
        return max(1, max(counts.values(), default=1) // max(1, self.workloads[trial.workload].rounds))

    def seconds_of(self, step: PlannedTrial) -> float:
        """Estimate the seconds of a trial, with those of the choice of turns in the control's first one."""
        chooses = step.block == 0 and step.stack == self.control and self.workloads[step.workload].turn_lengths
        return self.start_seconds_of(step) + self.turn_seconds_of(step) + (CHOICE_SECONDS if chooses else 0.0)

    def start_seconds_of(self, step: PlannedTrial) -> float:
        """Estimate the seconds of a trial without its turns: mostly the start and the end of its instance."""
        cell = (step.workload, step.stack)
        reused, fresh = (self._start_seconds.get((cell, known)) for known in (True, False))
        if reused and self.has_instance(*cell):
            return statistics.median(reused)
        return statistics.median(fresh or reused or (_DEFAULT_START_SECONDS,))

    def turn_seconds_of(self, step: PlannedTrial) -> float:
        """Estimate the seconds of all turns of a trial."""
        return self.pass_seconds_of(step) * self.passes_of(step)

    def pass_seconds_of(self, step: PlannedTrial) -> float:
        """Estimate the seconds of the turns of one pass."""
        known = self._pass_seconds.get((step.workload, step.stack))
        return statistics.median(known) if known else self.workloads[step.workload].estimate_seconds()

    def passes_of(self, step: PlannedTrial) -> int:
        """Return the passes of a trial in the next block; 1 if its stack is much slower than the others."""
        passes = self.passes.get(step.workload, 1)
        is_slow = passes > 1 and self.pass_seconds_of(step) > SLOW_FACTOR * self._median_pass_seconds(step.workload)
        return 1 if is_slow else passes

    def _median_pass_seconds(self, workload: str) -> float:
        known = [statistics.median(seconds) for (name, _), seconds in self._pass_seconds.items() if name == workload]
        return statistics.median(known) if known else self.workloads[workload].estimate_seconds()

    def turns_of(self, workload: str) -> int | None:
        """Return the number of turns of a stack in the workload's next block; None before its first block."""
        if workload not in self._turns_of_pass:
            return None
        return self._turns_of_pass[workload][1] * self.passes.get(workload, 1)


@dataclass(frozen=True)
class TimeLeft:
    """Progress of a run: blocks done and planned, seconds spent, and estimated seconds left."""

    blocks_done: int
    blocks: int
    spent_seconds: float
    left_seconds: float


def seconds_to_intervals(blocks: Sequence[Block], estimates: DurationEstimates) -> Mapping[str, float]:
    """Return the seconds until each workload has the minimum number of blocks for an interval.

    The order is that of a run: the first block of every workload, then the workloads with the shortest blocks.
    """
    seconds = {block: estimate_total_seconds((block,), estimates.seconds_of) for block in blocks}
    first = sum(seconds[block] for block in blocks if block.index == 0)
    others = _seconds_until_ready([block for block in blocks if block.index], seconds, least_blocks(blocks))
    return {block.workload: first + others.get(block.workload, 0.0) for block in blocks}


@dataclass(frozen=True)
class BudgetShortfall:
    """Shortfall of a budget: `late_workloads` do not get their minimum of `min_blocks` blocks.

    All workloads together need `required_seconds` for this minimum. `longest_stack` and `longest_workload` take the
    largest part of it, with their seconds; 0 seconds if there is no other one, because it cannot be left out then.
    """

    late_workloads: tuple[str, ...]
    min_blocks: int
    required_seconds: float
    longest_stack: tuple[str, float]
    longest_workload: tuple[str, float]

    def __str__(self) -> str:
        """Return the shortfall as the end of a sentence that begins with "the budget is"."""
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
    """Return the shortfall of a budget of `available_seconds`; None if it is long enough.

    The advice never names a stack of `baselines` (the baseline and its A/A control): they cannot be left out.
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
    return BudgetShortfall(tuple(late), least, total, _find_longest(stacks), _find_longest(workloads))


def _find_longest(seconds: Mapping[str, float]) -> tuple[str, float]:
    """Return the name with the most seconds, and these seconds; 0 if no other name has any."""
    name, most = max(seconds.items(), key=itemgetter(1))
    return name, most if sum(each > 0 for each in seconds.values()) > 1 else 0.0


def least_blocks(blocks: Sequence[Block]) -> int:
    """Return the minimum number of blocks for an interval: fewer with many stacks, whose variances are moderated."""
    # The baseline does not count: variances of ratios are moderated, and the baseline has no ratio.
    return min_value_count(max((len(block.trials) for block in blocks), default=1) - 1)


def _seconds_until_ready(blocks: Sequence[Block], seconds: Mapping[Block, float], least: int) -> Mapping[str, float]:
    """Return the seconds until each workload has `least` blocks, if the quickest workloads go first."""
    costs = {block.workload: 0.0 for block in blocks}
    for block in blocks:
        if block.index < least:
            costs[block.workload] += seconds[block]
    quickest = sorted(costs, key=lambda workload: costs[workload])
    return dict(zip(quickest, accumulate(costs[workload] for workload in quickest), strict=True))


@dataclass(frozen=True)
class Schedule:
    """Schedule: the remaining blocks, the budget, duration estimates, and the number of past blocks.

    `budget_seconds` is None for no limit and counts from `started_at`, on the monotonic clock. `min_blocks` is the
    minimum number of blocks for an interval. `seed` decides the order of the workloads that share instances; None
    keeps the order of the suite.
    """

    blocks: tuple[Block, ...]
    budget_seconds: float | None
    started_at: float
    estimates: DurationEstimates
    past_blocks: int = 0
    min_blocks: int = MIN_VALUES
    seed: int | None = None

    def has_time_for_next(self) -> bool:
        """Return whether the next block would end within the budget; always True for the first block of the run."""
        if self.budget_seconds is None or self.past_blocks == 0:  # a run without any block would have no result at all
            return True
        spent = time.monotonic() - self.started_at
        return spent + estimate_total_seconds(self.blocks[:1], self.estimates.seconds_of) <= self.budget_seconds

    def remaining_seconds(self) -> float:
        """Return the seconds left of the budget; 0 if it is exceeded, infinite without a budget."""
        if self.budget_seconds is None:
            return inf
        return max(0.0, self.budget_seconds - (time.monotonic() - self.started_at))

    def with_blocks(self, blocks: Iterable[Block], more_past: int = 0) -> Schedule:
        """Return the schedule with these blocks; `more_past` is added to the number of past blocks."""
        return replace(self, blocks=tuple(blocks), past_blocks=self.past_blocks + more_past)

    def order_blocks(self, expected_decisions: Mapping[str, float]) -> Schedule:
        """Return the schedule with its blocks in the order that gives most answers until the end of the budget.

        If all blocks fit the budget, the order is that of the plan. Otherwise:

        1. Every workload gets its first block.
        2. As many workloads as possible get the blocks that an interval needs: first the minimum with moderated
           variances, then the minimum without. The quickest workloads go first if time is short.
        3. The other blocks follow by expected decisions per second, from `Decisions.expected_decisions`.

        A workload whose interval needs more than the time left keeps a chance, the share of it that is left: trials
        may get faster after the first, cold ones.
        """
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
        """Return a block's position in the plan: its index, and the position of its workload among those of the index.

        With shared instances, starts come first, as the other workloads can then use their instances. The others follow
        in random order, so that no workload is always measured in an instance that another one has used. First blocks
        keep the order of the suite: a budget may be too short for all of them.
        """
        workloads = list(self.estimates.workloads)
        if self.seed is None:
            return block.index, workloads.index(block.workload)
        if block.index:
            random.Random(f"{self.seed}/{block.index}/order").shuffle(workloads)  # noqa: S311 - nothing secret
        workloads.sort(key=lambda name: not self.estimates.workloads[name].leaves_instance_fresh)
        return block.index, workloads.index(block.workload)

    def estimate_next_block(self) -> BlockTiming:
        """Estimate the next block: with turns, all stacks start first and then take turns; else one after the other."""
        block, after = self.blocks[0], estimate_total_seconds(self.blocks[1:], self.estimates.seconds_of)
        if self.estimates.workloads[block.workload].runs_exclusively:
            return BlockTiming(self, {step: self.estimates.seconds_of(step) for step in block.trials}, 0.0, None, after)
        starting = {step: self.estimates.start_seconds_of(step) for step in block.trials}
        turning = sum(self.estimates.turn_seconds_of(step) for step in block.trials)
        return BlockTiming(self, starting, turning, self.estimates.turns_of(block.workload), after)

    def time_left(self, seconds: float) -> TimeLeft:
        """Return the progress of the run, with `seconds` more to go; at most the rest of the budget."""
        spent = time.monotonic() - self.started_at
        # Not more than the budget: blocks that do not fit it are never run.
        return TimeLeft(
            self.past_blocks, self.past_blocks + len(self.blocks), spent, min(seconds, self.remaining_seconds())
        )


@dataclass
class BlockTiming:
    """Progress within the next block of a schedule, and the time left for it and for later blocks.

    All estimates are made before the block begins: computing them between two turns would delay the turns.
    `start_seconds` are the seconds of instances that have not started, `turn_seconds` those of all turns,
    `later_seconds` those of later blocks. `turns` is the number of turns of each stack; None if unknown.
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
        """Return the step that follows a step of the block; None after the last step of the run."""
        steps, later = self.block.trials, self.schedule.blocks[1:2]
        after = [*steps[steps.index(step) + 1 :], *(following for block in later for following in block.trials)]
        return after[0] if after else None

    def begin_trial(self, step: PlannedTrial) -> TimeLeft:
        """Record that an instance starts now; return the time left, its start included."""
        left = self._time_left()
        self.start_seconds.pop(step, None)
        return left

    def begin_turns(self, number: int) -> TimeLeft:
        """Record that round `number` of turns begins; return the time left.

        In a workload's first block, the number of turns is unknown: the elapsed time then gives the share that is done.
        """
        now = time.monotonic()
        self._turns_started_at = self._turns_started_at or now
        done = number / self.turns if self.turns else (now - self._turns_started_at) / max(self.turn_seconds, 1e-9)
        self._done_share = min(1.0, done)
        return self._time_left()

    def time_left_after(self) -> TimeLeft:
        """Return the time left after the end of the block."""
        return self.schedule.time_left(self.later_seconds)

    def _time_left(self) -> TimeLeft:
        return self.schedule.time_left(
            sum(self.start_seconds.values()) + (1 - self._done_share) * self.turn_seconds + self.later_seconds
        )

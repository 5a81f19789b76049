"""The loop: it runs blocks of trials until all is decided, or the plan or the budget ends."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from tare.errors import NotRecorded, Unreachable
from tare.journal import Journal
from tare.launch import Technology
from tare.model import Caution, Problem, Raw, Trial
from tare.running.block import Ended, Rounds
from tare.running.deciding import decisions_of
from tare.running.failing import FAILING, Failing
from tare.running.layers import Testbed
from tare.running.schedule import Course, Pace, Schedule, TimeLeft
from tare.suites.plan import Block, Step, plan, remaining
from tare.suites.suite import Suite


@dataclass(frozen=True)
class Turns:
    """The turns of one number, from 0, of so many stacks of a block; `of` is how many to expect, None if unknown."""

    block: Block
    number: int
    of: int | None
    stacks: int


class Watch(Protocol):
    """Watches a run, as the terminal does."""

    def trial_begins(self, step: Step, following: Step | None, left: TimeLeft) -> None:
        """Take note of the step that runs now and of the next one."""

    def turns_begin(self, begun: Turns, left: TimeLeft) -> None:
        """Take note of what turns begin. This is done between two turns, which are short: it must take no time."""

    def turn_ended(self, step: Step, raw: Raw) -> None:
        """Take note of what a stack's turn gave; this, too, must take no time."""

    def trial_ended(self, trial: Trial) -> None:
        """Take note of a finished trial."""

    def block_ended(self, block: Block) -> None:
        """Take note of a complete block: its trials can be compared."""


@dataclass(frozen=True)
class Work:
    """The work of a run: a suite, the trials that are already done, the stacks that cannot run, and the budget."""

    suite: Suite
    done: tuple[Trial, ...]
    unusable: Mapping[str, Sequence[Problem]]
    budget_seconds: float | None

    def blocks(self) -> tuple[Block, ...]:
        """Give the remaining blocks. A stack that does not run keeps one step a workload, which records the reason."""
        noted = {(trial.workload, trial.stack) for trial in self.done if trial.status == "skipped"}
        left = []
        for block in remaining(plan(self.suite), {trial.trial for trial in self.done}):
            can = [step for step in block.steps if not self.against(step)]
            cannot = [step for step in block.steps if self.against(step)]
            unsaid = [step for step in cannot if (step.workload, step.stack) not in noted]
            noted |= {(step.workload, step.stack) for step in unsaid}
            if can:
                left.append(replace(block, steps=(*unsaid, *can)))
        return tuple(left)

    def against(self, step: Step) -> str:
        """Give the reason why a trial does not run; empty if it does."""
        problems = self.unusable.get(step.stack, ())
        if not problems and self.suite.excludes(step.workload, step.stack):
            return "the suite excludes it from this workload"
        return "; ".join(f"{problem.what} (fix: {problem.fix})" for problem in problems)


def work_through(work: Work, testbed: Testbed, journal: Journal, watch: Watch) -> str:
    """Run the remaining blocks; gives the stop reason.

    It is `plan` (all blocks are done), `decided` (no cell is open), `budget`, `failing` (the first block of every
    workload has failed, in all its stacks for one reason), or a sentence.
    """
    suite = work.suite
    stacks: dict[str, Sequence[Technology]] = {stack.name: stack.layers for stack in suite.measured}
    programs = {stack.name: stack.own for stack in suite.measured}
    rounds = Rounds(testbed, stacks, (suite.baseline, suite.control), suite.seed, programs=programs)
    workloads = {planned.name: planned.workload for planned in suite.workloads}
    pace, decisions = Pace(workloads), decisions_of(suite)
    for trial in work.done:
        pace.learn(trial)
        decisions.learn(trial)
    broken = {(trial.workload, trial.block) for trial in work.done if trial.status != "skipped"}
    left = work.blocks()
    failing = Failing(frozenset(block.workload for block in left))
    failing.resume(work.done)
    schedule = Schedule(decisions.needed(left), work.budget_seconds, time.monotonic(), pace)
    schedule, stopped = schedule.in_order(decisions.nearness()), "plan"
    while schedule.blocks:
        if not schedule.fits():
            stopped = "budget"
            schedule = replace(schedule, blocks=schedule.blocks[1:], past=schedule.past + 1)
            continue
        block = schedule.blocks[0]
        try:
            for ended in _ended(block, rounds, work, _Said(watch, schedule)):
                kept = [(_doubted(trial, broken), raw) for trial, raw in ended]
                journal.append(*kept)
                for trial, _ in kept:
                    pace.learn(trial)
                    decisions.learn(trial)
                    failing.learn(trial)
                    watch.trial_ended(trial)
        except (Unreachable, NotRecorded) as error:
            return str(error)
        watch.block_ended(block)
        if failing.is_certain():
            return FAILING
        needed = decisions.needed(schedule.blocks[1:])
        schedule = replace(schedule, blocks=needed, past=schedule.past + 1).in_order(decisions.nearness())
    return "decided" if stopped == "plan" and decisions.are_complete() else stopped


def _ended(block: Block, rounds: Rounds, work: Work, progress: _Said) -> Iterator[Sequence[Ended]]:
    """Measure a block; gives the trials that are kept together.

    A trial whose stack had turns with others says little without theirs: such a block is kept whole, or is lost.
    """
    against = {step: work.against(step) for step in block.steps}
    for step, reason in against.items():
        if reason:
            yield [(_skipped(step, reason), ())]
    steps = tuple(step for step, reason in against.items() if not reason)
    planned = next(each for each in work.suite.workloads if each.name == block.workload)
    own = replace(rounds, testbed=rounds.testbed.within(planned.limits), seconds=planned.limits.seconds)
    ended = own.measured(replace(block, steps=steps), planned.workload, progress)
    if planned.workload.rounds == 1:
        for each in ended:
            yield [each]
    else:
        yield list(ended)


@dataclass
class _Said:
    """Passes on to the watch what goes on in a block, with how far the run is."""

    watch: Watch
    schedule: Schedule
    _course: Course = field(init=False)

    def __post_init__(self) -> None:
        self._course = self.schedule.course()

    def starts(self, step: Step) -> None:
        order = self.schedule.blocks[0].steps.index(step)
        left = self.schedule.time_left(self._course.starts(step))
        self.watch.trial_begins(step, self.schedule.following(order), left)

    def turns_begin(self, number: int, stacks: int) -> None:
        if self.schedule.takes_turns:
            left = self.schedule.time_left(self._course.turns_begin(number))
            self.watch.turns_begin(Turns(self.schedule.blocks[0], number, self._course.turns, stacks), left)

    def turn_ended(self, step: Step, raw: Raw) -> None:
        self.watch.turn_ended(step, raw)


_RESUMED = Caution(
    "resumed-block", "the run was stopped within this block and resumed: its trials are not close in time"
)


def _doubted(trial: Trial, broken: Collection[tuple[str, int]]) -> Trial:
    """Doubt a trial of a block that was broken off."""
    if (trial.workload, trial.block) not in broken:
        return trial
    return replace(trial, cautions=(*trial.cautions, _RESUMED))


def _skipped(step: Step, reason: str) -> Trial:
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

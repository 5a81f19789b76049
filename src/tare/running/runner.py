"""The loop: it runs blocks of trials until all is decided, or the plan or the budget ends."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from tare.errors import NotRecorded, Unreachable
from tare.journal import Journal
from tare.launch import Technology
from tare.model import Caution, Problem, Raw, Trial
from tare.running.deciding import decisions_of
from tare.running.layers import Testbed
from tare.running.schedule import Pace, Schedule, TimeLeft
from tare.running.trial import attempt
from tare.suites.plan import Block, Step, plan, remaining
from tare.suites.suite import Suite


class Watch(Protocol):
    """Watches a run, as the terminal does."""

    def trial_begins(self, step: Step, following: Step | None, left: TimeLeft) -> None:
        """Take note of the step that runs now and of the next one."""

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
        """Give the remaining blocks. A stack that cannot run keeps one step a workload, which records the reason."""
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


def work_through(work: Work, testbed: Testbed, journal: Journal, watch: Watch) -> str:
    """Run the remaining blocks; gives the stop reason.

    It is `plan` (all blocks are done), `decided` (no cell is open), `budget`, or a sentence.
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
    schedule = Schedule(decisions.needed(left), work.budget_seconds, time.monotonic(), pace)
    schedule, stopped = schedule.in_order(decisions.nearness()), "plan"
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
                    testbed.await_machines()
                except Unreachable as error:
                    return str(error)
                watch.trial_begins(step, schedule.following(order), schedule.left(order))
                trial, raw = attempt(testbed, step, stacks[step.stack], workloads[step.workload])
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
        needed = decisions.needed(schedule.blocks[1:])
        schedule = replace(schedule, blocks=needed, past=schedule.past + 1).in_order(decisions.nearness())
    return "decided" if stopped == "plan" and decisions.are_complete() else stopped


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

"""Measurement loop: run blocks of trials until all is decided, or the plan or the budget ends.

A workload is measured in each block as often as is most informative for its time. A block costs its starts, and then
its turns. Where rounds differ more than fresh instances do, more rounds tell more than more blocks. The number of
rounds that makes an answer cheapest is

    sqrt(seconds of all starts / seconds of a round * variance within / variance between)

(Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM 2013, 63-74, section 6). The first block has the
workload's own number, later ones a multiple of it: a workload is measured once more as a whole, in another pass.
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tare.contracts.technologies import Technology
from tare.errors import NotRecorded, Unreachable
from tare.journal import Journal, RunRecord
from tare.model.trials import Caution, Problem, Stop, StopReason, Trial
from tare.runner.block import BlockRunner, FinishedTrial
from tare.runner.context import Testbed
from tare.runner.decisions import Decisions
from tare.runner.events import BlockBegins, BlockEnded, RunObserver, TrialEnded, Warned
from tare.runner.inside_check import InsideCheck
from tare.runner.schedule import DurationEstimates, Schedule, least_blocks, shortfall
from tare.runner.values import PrintedUnits
from tare.statistics.anytime import LEAST
from tare.statistics.components import Components
from tare.statistics.outcomes import alike
from tare.suites.plan import Block, Step, plan, remaining
from tare.suites.suite import Suite


@dataclass
class FailureWatch:
    """What trials have failed for, by workload; `workloads` are those that the run still measures."""

    workloads: frozenset[str]
    _reasons: dict[str, set[str]] = field(default_factory=dict)
    _works: bool = False

    def resume(self, done: Iterable[Trial]) -> None:
        """Take the trials from before the run was resumed into account: failures may have been fixed since."""
        self._works = any(trial.status == "ok" for trial in done)

    def learn(self, trial: Trial) -> None:
        """Take a trial into account."""
        if trial.status == "ok":
            self._works = True
        elif trial.status == "failed":
            self._reasons.setdefault(trial.workload, set()).add(alike(trial.reason))

    def is_certain(self) -> bool:
        """Return whether every workload has failed, each for one reason."""
        alike = all(len(self._reasons.get(workload, ())) == 1 for workload in self.workloads)
        return bool(self.workloads) and alike and not self._works


_MOST = 10  # passes: beyond it, the variance between blocks is known too badly to go on


@dataclass(frozen=True)
class BlockDuration:
    """What a block takes: seconds of all its starts, and of a pass, which has so many rounds."""

    starting: float
    once: float
    rounds: int

    @property
    def seconds(self) -> float:
        """What a block of one pass takes."""
        return self.starting + self.once


def block_duration(block: Block, pace: DurationEstimates) -> BlockDuration:
    """Estimate what a block takes."""
    return BlockDuration(
        sum(pace.starting_seconds_of(step) for step in block.steps),
        sum(pace.pass_seconds_of(step) for step in block.steps),
        pace.workloads[block.workload].rounds,
    )


def optimal_passes(found: Components, costs: BlockDuration, seconds: float = math.inf) -> int:
    """Return the number of passes of a block that may take so many seconds."""
    if not costs.once > 0:
        return 1
    per_round = costs.once / costs.rounds
    rounds = math.sqrt(costs.starting / per_round * found.within / found.between)
    fitting = (seconds - costs.starting) / costs.once
    return max(1, min(_MOST, round(rounds / costs.rounds), int(min(fitting, _MOST))))


@dataclass(frozen=True)
class RemainingWork:
    """The work of a run: a suite, the trials that are already done, the stacks that cannot run, and the budget."""

    suite: Suite
    done: tuple[Trial, ...]
    unusable: Mapping[str, Sequence[Problem]]
    budget_seconds: float | None

    def blocks(self) -> tuple[Block, ...]:
        """Return the remaining blocks. A stack that does not run keeps one step a workload, for the reason."""
        noted = {(trial.workload, trial.stack) for trial in self.done if trial.status == "skipped"}
        left = []
        for block in remaining(plan(self.suite), {trial.trial for trial in self.done}):
            can = [step for step in block.steps if not self.skip_reason(step)]
            cannot = [step for step in block.steps if self.skip_reason(step)]
            unsaid = [step for step in cannot if (step.workload, step.stack) not in noted]
            noted |= {(step.workload, step.stack) for step in unsaid}
            if can:
                left.append(replace(block, steps=(*unsaid, *can)))
        return tuple(left)

    def skip_reason(self, step: Step) -> str:
        """Return why a trial does not run; empty if it does."""
        problems = self.unusable.get(step.stack, ())
        if not problems and self.suite.excludes(step.workload, step.stack):
            return "the suite excludes it from this workload"
        return "; ".join(f"{problem.what} (fix: {problem.fix})" for problem in problems)


def run_blocks(work: RemainingWork, testbed: Testbed, journal: Journal, report: RunObserver) -> Stop:
    """Run the remaining blocks; return why it stopped."""
    suite = work.suite
    rounds, units = _rounds_of(suite, testbed), PrintedUnits((suite.baseline, suite.control))
    pace, decisions = DurationEstimates(suite.by_name), _no_decisions(journal.run.record, suite)
    units.checked(work.done)
    for trial in work.done:
        pace.learn(trial)
        decisions.learn(trial)
    broken = {(trial.workload, trial.block) for trial in work.done if trial.status != "skipped"}
    left = work.blocks()
    failing = FailureWatch(frozenset(block.workload for block in left))
    failing.resume(work.done)
    schedule = Schedule(left, work.budget_seconds, time.monotonic(), pace, least=least_blocks(left))
    schedule = replace(schedule, blocks=decisions.needed(left, pace.seconds_of))
    _warn_of_shortfall(schedule, work, report)
    _set_passes(pace, schedule, decisions, work)
    schedule, reason = schedule.in_order(decisions.nearness()), StopReason.PLAN
    while schedule.blocks:
        block = schedule.blocks[0]
        left = tuple(each for each in left if (each.workload, each.index) != (block.workload, block.index))
        schedule = shorten_to_fit(schedule, decisions, once=suite.rounds is None)
        block = schedule.blocks[0]
        if not schedule.fits():
            reason = StopReason.BUDGET
            schedule = replace(schedule, blocks=schedule.blocks[1:], past=schedule.past + 1)
            continue
        report(BlockBegins(schedule.timing()))
        tried: set[str] = set()
        try:
            for ended in _ended(block, rounds, work, pace, report):
                trials = units.checked(trial for trial, _ in ended)
                kept = [(_doubted(trial, broken), raw) for trial, (_, raw) in zip(trials, ended, strict=True)]
                journal.append(*kept)
                for trial, _ in kept:
                    tried.add(trial.trial)
                    pace.learn(trial)
                    decisions.learn(trial)
                    failing.learn(trial)
                    report(TrialEnded(trial))
        except (Unreachable, NotRecorded) as error:
            return Stop(StopReason.ERROR, str(error))
        report(BlockEnded(journal.run))
        if failing.is_certain():
            return Stop(StopReason.FAILING)
        if not tried.issuperset(step.trial for step in block.steps):  # its command does not end on the baseline
            left = tuple(each for each in left if each.workload != block.workload)
        if block.index == 0 and all(each.index for each in left):
            _warn_of_shortfall(replace(schedule, blocks=left), work, report)
        needed = decisions.needed(left, pace.seconds_of)
        schedule = replace(schedule, blocks=needed, past=schedule.past + 1)
        _set_passes(pace, schedule, decisions, work)
        schedule = schedule.in_order(decisions.nearness())
    all_decided = reason == StopReason.PLAN and decisions.are_complete()
    return Stop(StopReason.DECIDED if all_decided else reason)


def _rounds_of(suite: Suite, testbed: Testbed) -> BlockRunner:
    """Return what measures the blocks of a suite, and checks the conditions inside each stack."""
    stacks: dict[str, Sequence[Technology]] = {stack.name: stack.layers for stack in suite.measured}
    testbed = replace(testbed, run=replace(testbed.run, inside=InsideCheck(suite.baseline, stacks)))
    programs = {stack.name: stack.own for stack in suite.measured}
    return BlockRunner(testbed, stacks, (suite.baseline, suite.control), suite.seed, programs=programs)


def _no_decisions(began: RunRecord, suite: Suite) -> Decisions:
    """Return the decisions of a run before its first trial."""
    return Decisions(
        began.workloads,
        began.stacks,
        began.baseline,
        began.control,
        began.margin,
        suite.until == "blocks",
        suite.precision,
    )


def shorten_to_fit(schedule: Schedule, decisions: Decisions, *, once: bool) -> Schedule:
    """Return the schedule, with a next block of open cells alone, measured `once`, where only that fits the budget."""
    if schedule.fits():
        return schedule
    block, passes = schedule.blocks[0], schedule.pace.passes
    usual = passes.get(block.workload, 1)
    passes[block.workload] = 1 if once else usual
    shorter = replace(schedule, blocks=(decisions.of_open_cells(block), *schedule.blocks[1:]))
    if shorter.fits():
        return shorter
    passes[block.workload] = usual
    return schedule


def _warn_of_shortfall(schedule: Schedule, work: RemainingWork, report: RunObserver) -> None:
    """Warn if the budget is too short for an interval: before the first block, and when the pace is known."""
    if schedule.blocks and schedule.budget_seconds is not None:
        references = (work.suite.baseline, work.suite.control)
        if short := shortfall(schedule.blocks, schedule.pace, references, schedule.left_seconds()):
            report(Warned(f"the budget is {short}"))


def _set_passes(pace: DurationEstimates, schedule: Schedule, decisions: Decisions, work: RemainingWork) -> None:
    """Set how often the next block of each workload is measured: as often as the suite says, or as tells most.

    The latter matters only where the first blocks do not decide all cells anyway. It takes no more than its share of
    the time that the first blocks of all workloads leave.
    """
    following = {block.workload: block for block in reversed(schedule.blocks)}
    costs = {name: block_duration(block, pace) for name, block in following.items()}
    once = sum(costs[name].seconds * max(0, LEAST - block.index) for name, block in following.items())
    spare = max(0.0, schedule.left_seconds() - once) / max(1, len(following))
    for planned in work.suite.workloads:
        block, workload = following.get(planned.name), planned.workload
        if block is None or workload.alone or workload.searches or planned.limits.seconds:
            continue
        if work.suite.rounds is not None:
            pace.passes[planned.name] = math.ceil(work.suite.rounds / workload.rounds)
        elif block.index and (found := decisions.components(planned.name)):
            further = max(1, LEAST - block.index)
            is_enough, own = decisions.are_soon_decided(planned.name, further), costs[planned.name]
            pace.passes[planned.name] = 1 if is_enough else optimal_passes(found, own, own.seconds + spare / further)


def _ended(
    block: Block, rounds: BlockRunner, work: RemainingWork, pace: DurationEstimates, report: RunObserver
) -> Iterator[Sequence[FinishedTrial]]:
    """Measure a block; yield the trials that are kept together.

    A trial in turns is comparable only with the others of its block: such a block is kept whole, or not at all.
    """
    reasons = {step: work.skip_reason(step) for step in block.steps}
    for step, reason in reasons.items():
        if reason:
            yield [(_skipped(step, reason), ())]
    steps = tuple(step for step, reason in reasons.items() if not reason)
    planned = next(each for each in work.suite.workloads if each.name == block.workload)
    own = replace(rounds, testbed=rounds.testbed.within(planned.limits), seconds=planned.limits.seconds)
    repeated = {step.stack: pace.passes_of(step) for step in steps}
    ended = own.measured(replace(block, steps=steps), planned.workload, report, repeated)
    if planned.workload.rounds == 1:
        for each in ended:
            yield [each]
    else:
        yield list(ended)


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

"""Measurement loop: run blocks of trials until all cells are decided, or until the plan or the budget ends.

A block takes the time of its starts and of its rounds. If rounds vary more than fresh instances do, additional rounds
give more information than additional blocks. The number of rounds with the lowest variance per second is

    sqrt(seconds of all starts / seconds of a round * variance within / variance between)

(Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM 2013, 63-74, section 6). The first block has the
number of rounds that the workload defines, a pass. Later blocks have whole passes: a workload divides its measurement
into rounds by itself, and can only be repeated as a whole.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace

from tare.hosts.process import defer_signals
from tare.model.errors import NotRecorded, Unreachable
from tare.model.run_folder import RunWriter
from tare.model.trial import Caution, Problem, Stop, StopReason, Trial
from tare.plugins.technology import Technology
from tare.runner.block import BlockOptions, BlockRunner, TurnChooser
from tare.runner.context import RunContext
from tare.runner.decisions import Decisions
from tare.runner.events import BlockBegins, BlockEnded, RunObserver, TrialEnded, WarningIssued
from tare.runner.inside_check import InsideCheck
from tare.runner.schedule import DurationEstimates, Schedule, find_shortfall, least_blocks
from tare.runner.trial import FinishedTrial
from tare.runner.turn_lengths import ProbePair, apply_choices, choose_turn_length
from tare.runner.values import PrintedUnits
from tare.statistics.anytime import MIN_VALUES
from tare.statistics.outcomes import normalize_reason
from tare.statistics.planning import VarianceComponents
from tare.suites.plan import Block, PlannedTrial, plan, select_remaining
from tare.suites.stacks import StackOverride
from tare.suites.suite import PlannedWorkload, Suite

_MAX_PASSES = 10  # with more passes in fewer blocks, the variance between blocks would hardly be known
_RESUMED = Caution(
    "resumed-block", "the run was stopped within this block and resumed: its trials are not close in time"
)


@dataclass
class FailureWatch:
    """Reasons of failed trials by workload, to stop a run in which nothing works.

    `workloads` are those that the run still measures.
    """

    workloads: frozenset[str]
    _reasons: dict[str, set[str]] = field(default_factory=dict)
    _works: bool = False

    def resume(self, done: Iterable[Trial]) -> None:
        """Learn from the trials before a resume; only successes count, because failures may have been fixed since."""
        self._works = any(trial.status == "ok" for trial in done)

    def learn(self, trial: Trial) -> None:
        """Record the outcome of a trial."""
        if trial.status == "ok":
            self._works = True
        elif trial.status == "failed":
            self._reasons.setdefault(trial.workload, set()).add(normalize_reason(trial.reason))

    def is_certain(self) -> bool:
        """Return whether every workload has failed, each always for the same reason, and no trial has succeeded."""
        has_one_reason = all(len(self._reasons.get(workload, ())) == 1 for workload in self.workloads)
        return bool(self.workloads) and has_one_reason and not self._works


@dataclass(frozen=True)
class BlockDuration:
    """Estimated duration of a block: seconds of all its starts, seconds of a pass, and the rounds of a pass."""

    start_seconds: float
    pass_seconds: float
    rounds: int

    @property
    def seconds(self) -> float:
        """The seconds of a block of one pass."""
        return self.start_seconds + self.pass_seconds


def block_duration(block: Block, estimates: DurationEstimates) -> BlockDuration:
    """Estimate the duration of a block."""
    return BlockDuration(
        sum(estimates.start_seconds_of(step) for step in block.trials),
        sum(estimates.pass_seconds_of(step) for step in block.trials),
        estimates.workloads[block.workload].rounds,
    )


def optimal_passes(components: VarianceComponents, duration: BlockDuration, max_seconds: float = math.inf) -> int:
    """Return the number of passes with the lowest variance per second, for a block of at most `max_seconds`."""
    if not duration.pass_seconds > 0:
        return 1
    per_round = duration.pass_seconds / duration.rounds
    rounds = math.sqrt(duration.start_seconds / per_round * components.within / components.between)
    fitting = (max_seconds - duration.start_seconds) / duration.pass_seconds
    return max(1, min(_MAX_PASSES, round(rounds / duration.rounds), int(min(fitting, _MAX_PASSES))))


@dataclass(frozen=True)
class RemainingWork:
    """Work of a run: a suite, trials that are done, stacks that cannot run, and the budget; None for no limit."""

    suite: Suite
    done: tuple[Trial, ...]
    unusable: Mapping[str, Sequence[Problem]]
    budget_seconds: float | None

    def blocks(self) -> tuple[Block, ...]:
        """Return the remaining blocks. A stack that cannot run keeps one step per workload, to record the reason."""
        noted = {(trial.workload, trial.stack) for trial in self.done if trial.status == "skipped"}
        left = []
        for block in select_remaining(plan(self.suite), {trial.trial for trial in self.done}):
            can = [step for step in block.trials if not self.skip_reason(step)]
            cannot = [step for step in block.trials if self.skip_reason(step)]
            unrecorded = [step for step in cannot if (step.workload, step.stack) not in noted]
            noted |= {(step.workload, step.stack) for step in unrecorded}
            if can:
                left.append(block.with_steps((*unrecorded, *can)))
        return tuple(left)

    def skip_reason(self, step: PlannedTrial) -> str:
        """Return why a trial does not run; empty if it does."""
        problems = self.unusable.get(step.stack, ())
        if not problems and self.suite.excludes(step.workload, step.stack):
            return "the suite excludes it from this workload"
        return "; ".join(f"{problem.what} (fix: {problem.fix})" for problem in problems)


class RunLoop:
    """Loop over the remaining blocks of a run, which decides after each block which ones are still needed."""

    def __init__(self, work: RemainingWork, context: RunContext, writer: RunWriter, observe: RunObserver) -> None:
        began = writer.run.record
        suite = apply_choices(work.suite, began.workloads)
        self._work, self._writer, self._observe = replace(work, suite=suite), writer, observe
        stacks: dict[str, Sequence[Technology]] = {stack.name: stack.layers for stack in suite.measured_stacks}
        references = (suite.baseline, suite.control)
        overrides = {stack.name: stack.override for stack in suite.measured_stacks if stack.override != StackOverride()}
        inside_check = InsideCheck(suite.baseline, stacks)
        self._block_runner = BlockRunner(
            context,
            stacks,
            references,
            suite.seed,
            overrides,
            inside_check,
            began.awake_cpus,
            suite.workloads if suite.instances == "shared" else (),
        )
        self._units = PrintedUnits(references)
        self._estimates = DurationEstimates(suite.by_name, control=suite.control)
        self._decisions = Decisions(
            began.workloads,
            began.stacks,
            began.baseline,
            began.control,
            began.margin,
            suite.until == "blocks",
            suite.precision,
        )
        self._units.check_trials(work.done)
        for trial in work.done:
            self._estimates.learn(trial)
            self._decisions.learn(trial)
        self._interrupted = {(trial.workload, trial.block) for trial in work.done if trial.status != "skipped"}
        self._unchosen = {each.name for each in suite.workloads if each.workload.turn_lengths}
        self._unchosen -= {workload for workload, _ in self._interrupted}  # measured with the usual length before
        self._remaining = work.blocks()
        self._recorded: set[str] = set()  # of the current block
        self._failures = FailureWatch(frozenset(block.workload for block in self._remaining))
        self._failures.resume(work.done)
        least = least_blocks(self._remaining)
        self._estimates.has_instance = self._block_runner.shared.is_ready
        started_at = time.monotonic()
        seed = suite.seed if suite.instances == "shared" else None
        self._schedule = Schedule((), work.budget_seconds, started_at, self._estimates, 0, least, seed)

    def run(self) -> Stop:
        """Run the remaining blocks; return why the loop stopped."""
        with closing(self._block_runner):
            stop = self._run_blocks()
        if stop.reason == StopReason.PLAN and self._remaining and self._decisions.have_all_failed():
            self._observe(WarningIssued(f"all stacks fail but the baseline {self._work.suite.baseline}"))
        return stop

    def _run_blocks(self) -> Stop:
        self._warn_of_shortfall(self._decisions.select_needed_blocks(self._remaining, self._estimates.seconds_of))
        self._plan_needed_blocks()
        reason = StopReason.PLAN
        while block := self._next_block():
            if not self._schedule.has_time_for_next():
                reason = StopReason.BUDGET
                self._schedule = self._schedule.with_blocks(self._schedule.blocks[1:], more_past=1)
                continue
            self._observe(BlockBegins(self._schedule.estimate_next_block()))
            in_turns = self._planned_workload(block).workload.rounds > 1
            try:
                ended: list[FinishedTrial] = []
                for each in self._run_block(block):
                    ended.append(each)
                    if not in_turns:
                        self._record(ended.pop())
                # Trials in turns are comparable only with each other: a killed run records all of a block, or none.
                self._record(*ended)
            except (Unreachable, NotRecorded) as error:  # every later trial would fail for the same reason
                return Stop(StopReason.ERROR, str(error))
            self._observe(BlockEnded(self._writer.run))
            if self._failures.is_certain():
                return Stop(StopReason.FAILING)
            if not self._recorded.issuperset(step.trial for step in block.trials):
                # The block ended early: the command never ends on the baseline. Later blocks would time out as well.
                self._remaining = tuple(each for each in self._remaining if each.workload != block.workload)
            if block.index == 0:
                self._warn_of_shortfall(self._remaining)
            self._plan_needed_blocks(more_past=1)
        all_decided = reason == StopReason.PLAN and self._decisions.are_complete()
        return Stop(StopReason.DECIDED if all_decided else reason)

    def _plan_needed_blocks(self, more_past: int = 0) -> None:
        """Schedule the blocks that are still needed: set their passes, and put the most informative ones first."""
        needed = self._decisions.select_needed_blocks(self._remaining, self._estimates.seconds_of)
        self._schedule = self._schedule.with_blocks(needed, more_past)
        _set_passes(self._estimates, self._schedule, self._decisions, self._work)
        self._schedule = self._schedule.order_blocks(self._decisions.expected_decisions())

    def _next_block(self) -> Block | None:
        """Remove and return the next block, shortened if only this makes it fit the budget; None without a block."""
        if not self._schedule.blocks:
            return None
        block = self._schedule.blocks[0]
        left = (each for each in self._remaining if (each.workload, each.index) != (block.workload, block.index))
        self._remaining = tuple(left)
        self._schedule = shorten_to_fit(self._schedule, self._decisions, single_pass=self._work.suite.rounds is None)
        return self._schedule.blocks[0]

    def _planned_workload(self, block: Block) -> PlannedWorkload:
        return next(each for each in self._work.suite.workloads if each.name == block.workload)

    def _run_block(self, block: Block) -> Iterator[FinishedTrial]:
        """Record the skipped trials of a block, and return an iterator that runs the others."""
        self._recorded = set()
        is_resumed = (block.workload, block.index) in self._interrupted
        cautions = (_RESUMED,) if is_resumed else ()
        reasons = {step: self._work.skip_reason(step) for step in block.trials}
        for step, reason in reasons.items():
            if reason:
                self._record((_create_skipped_trial(step, reason, cautions), ()))
        steps = tuple(step for step, reason in reasons.items() if not reason)
        passes = {step.stack: self._estimates.passes_of(step) for step in steps}
        choose = self._turn_chooser(block, steps) if block.workload in self._unchosen else None
        self._unchosen.discard(block.workload)
        return self._block_runner.run(
            block.with_steps(steps),
            self._planned_workload(block),
            self._observe,
            BlockOptions(passes, cautions, choose),
        )

    def _turn_chooser(self, block: Block, steps: Sequence[PlannedTrial]) -> TurnChooser:
        """Return a function that chooses and records the length of a workload's turns (see BlockRunner.run)."""

        def choose(pairs: Sequence[ProbePair], seconds: float) -> tuple[PlannedWorkload, Mapping[str, int]]:
            usual = self._planned_workload(block).workload.turn_length
            if choice := choose_turn_length(pairs, self._work.suite.margin, usual, seconds):
                records = self._writer.run.record.workloads
                records = tuple(
                    replace(each, turns=choice) if each.name == block.workload else each for each in records
                )
                self._writer.amend(workloads=records)
                self._work = replace(self._work, suite=apply_choices(self._work.suite, records))
                self._estimates.workloads = self._work.suite.by_name
                _set_passes(self._estimates, self._schedule, self._decisions, self._work)
            return self._planned_workload(block), {step.stack: self._estimates.passes_of(step) for step in steps}

        return choose

    def _record(self, *ended: FinishedTrial) -> None:
        """Write trials to the journal, and update estimates, decisions and failures with them."""
        trials = self._units.check_trials(trial for trial, _ in ended)
        with defer_signals():  # an interrupt between the journal and the writer's list would hide these trials
            self._writer.append(*((trial, raw) for trial, (_, raw) in zip(trials, ended, strict=True)))
        self._recorded |= {trial.trial for trial in trials}
        for trial in trials:
            self._estimates.learn(trial)
            self._decisions.learn(trial)
            self._failures.learn(trial)
            self._observe(TrialEnded(trial))

    def _warn_of_shortfall(self, blocks: Sequence[Block]) -> None:
        """Warn if the budget is too short for intervals.

        Only once each workload had its first block: before, the estimates were wrong in nearly every run of 10 s.
        """
        if blocks and all(block.index for block in blocks) and self._work.budget_seconds is not None:
            references = (self._work.suite.baseline, self._work.suite.control)
            if short := find_shortfall(blocks, self._estimates, references, self._schedule.remaining_seconds()):
                self._observe(WarningIssued(f"the budget is {short}"))


def shorten_to_fit(schedule: Schedule, decisions: Decisions, *, single_pass: bool) -> Schedule:
    """Return the schedule, with the next block shortened if only this makes it fit the budget.

    A shortened block has only open cells, and one pass if `single_pass`.
    """
    if schedule.has_time_for_next():
        return schedule
    block, passes = schedule.blocks[0], schedule.estimates.passes
    usual = passes.get(block.workload, 1)
    passes[block.workload] = 1 if single_pass else usual
    shorter = schedule.with_blocks((decisions.restrict_to_open_cells(block), *schedule.blocks[1:]))
    if shorter.has_time_for_next():
        return shorter
    passes[block.workload] = usual
    return schedule


def _set_passes(estimates: DurationEstimates, schedule: Schedule, decisions: Decisions, work: RemainingWork) -> None:
    """Set the passes of each workload's next block: from the suite's `rounds`, or the most informative number.

    One pass is enough if the minimum of blocks probably decides all cells. Additional passes take at most the
    workload's share of the time that is left after the minimum of blocks of all workloads.
    """
    following = {block.workload: block for block in reversed(schedule.blocks)}  # the first block of each workload wins
    costs = {name: block_duration(block, estimates) for name, block in following.items()}
    once = sum(costs[name].seconds * max(0, MIN_VALUES - block.index) for name, block in following.items())
    spare = max(0.0, schedule.remaining_seconds() - once) / max(1, len(following))
    for planned in work.suite.workloads:
        block, workload = following.get(planned.name), planned.workload
        # If a time limit decides the number of rounds, stacks have different numbers: additional rounds have no pairs.
        if block is None or workload.runs_exclusively or workload.is_adaptive or planned.limits.seconds:
            continue
        if work.suite.rounds is not None:
            estimates.passes[planned.name] = math.ceil(work.suite.rounds / workload.rounds)
        elif block.index and (components := decisions.variance_components(planned.name)):
            blocks_left = max(1, MIN_VALUES - block.index)
            is_enough, duration = decisions.are_soon_decided(planned.name, blocks_left), costs[planned.name]
            # Without this limit, two workloads of a five-minute demo took twice the rounds and left a third one block.
            max_seconds = duration.seconds + spare / blocks_left
            estimates.passes[planned.name] = 1 if is_enough else optimal_passes(components, duration, max_seconds)


def _create_skipped_trial(step: PlannedTrial, reason: str, cautions: tuple[Caution, ...]) -> Trial:
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
        cautions=cautions,
    )

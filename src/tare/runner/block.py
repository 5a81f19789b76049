"""Block of a run: one instance of every stack, measured in turns.

Every stack has one turn in each round, in random order: a disturbance that is longer than a turn then hits all stacks
alike. A workload of one round is measured one stack at a time. Where a block starts each stack several times, the
median start counts: a burst of other load on the machine hits only some of the starts.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, nullcontext, suppress
from dataclasses import dataclass, field

from tare.hosts.awake import AwakeCpus
from tare.hosts.facts import parse_meminfo
from tare.hosts.process import raise_if_interrupted
from tare.model.trial import Caution, Limits
from tare.plugins.technology import Technology
from tare.plugins.workload import Workload
from tare.runner.context import InstanceSpec, RunContext, assign_slots, outer_limits
from tare.runner.events import RunObserver, TrialBegins
from tare.runner.inside_check import InsideCheck
from tare.runner.sanity_checks import reject_faster_than_bare_metal, time_cautions
from tare.runner.schedule import rounds_by_label
from tare.runner.shared_instances import SharedInstances
from tare.runner.trial import FinishedTrial, TrialRun
from tare.runner.trial_log import TrialLog, has_time_for_another_start, mark_as_warm_up, merge_starts
from tare.runner.turn_lengths import ProbePair, run_probes
from tare.runner.turn_scheduler import TurnScheduler
from tare.suites.plan import Block, PlannedTrial
from tare.suites.stacks import StackOverride
from tare.suites.suite import PlannedWorkload
from tare.telemetry.sampler import Sampler, lost_telemetry_caution, run_sampler

_ONCE: Mapping[str, int] = {}
_USABLE_MEMORY_SHARE = 0.8  # of the available memory: loads and the page cache need the rest
_MEMORY_RESERVE_FACTOR = 1.5  # times the observed footprint, which is read once and may have been higher before
_IN_GROUPS = Caution(
    "in-groups", "not all instances fit into memory together: it took turns with the baseline, not with every stack"
)

PlannedTrials = tuple[PlannedTrial, ...]
TurnChooser = Callable[[Sequence[ProbePair], float], tuple[PlannedWorkload, Mapping[str, int]]]
"""Function that gets probes of several lengths of turns, and the seconds that they took. It returns the workload with
the length that it chose, and the passes of each stack."""


@dataclass(frozen=True)
class BlockOptions:
    """Options of one block.

    `passes` has the number of times that each stack measures the workload; 1 if it is missing. `cautions` are added to
    all trials. `choose` chooses the length of turns; None if it is known or fixed.
    """

    passes: Mapping[str, int] = field(default_factory=dict)
    cautions: Collection[Caution] = ()
    choose: TurnChooser | None = None


_USUAL = BlockOptions()


@dataclass
class BlockRunner:
    """Runner of blocks. `references` are the names of the baseline and of its A/A control, in this order.

    `programs` has the per-stack overrides of commands and images. `inside_check` compares the conditions that stacks
    give a process; None to skip the comparison. `awake_cpus` are kept awake while stacks take turns. `workloads` are
    those that may share instances; () starts an instance for each trial.
    """

    context: RunContext
    stacks: Mapping[str, Sequence[Technology]]
    references: Sequence[str]
    seed: int
    programs: Mapping[str, StackOverride] = field(default_factory=dict)
    inside_check: InsideCheck | None = None
    awake_cpus: Sequence[int] = ()
    workloads: Collection[PlannedWorkload] = ()
    _observed_bytes: dict[tuple[str, str], int] = field(default_factory=dict)
    _labels: dict[str, frozenset[str]] = field(default_factory=dict)  # labels of a complete round, by workload
    _warmed_up: set[tuple[str, str]] = field(default_factory=set)  # workloads and stacks that were started before
    # Of a block that starts each stack repeatedly: later starts take over the footprint and write no telemetry, as both
    # take as long as a quick start.
    _first_starts: dict[PlannedTrial, TrialLog] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Create the set of shared instances, empty at first."""
        self._awake = AwakeCpus(self.context.ledger, self.awake_cpus, f"{self.context.network.prefix}-awake")
        self.shared = SharedInstances(self.context.ledger, self.workloads)
        # A stack has the same slot in all blocks: its instance may outlive a block.
        self._slots = assign_slots(self.stacks)

    def run(
        self,
        block: Block,
        planned: PlannedWorkload,
        observe: RunObserver,
        options: BlockOptions = _USUAL,
    ) -> Iterator[FinishedTrial]:
        """Run a block and yield its trials: one by one, or all at the end where stacks take turns.

        If the baseline's first command times out in a workload that has never worked, the block ends:
        stacks without a turn yield no trial. Closing the iterator removes the instances of the block.
        """
        self.context.await_machines()  # their available memory is read below
        self.shared.begin_block(block.workload)
        if planned.workload.runs_exclusively:
            several = self._start_repeatedly if planned.workload.rounds > 1 else self._run_together
            for attempt in several(block, planned, observe):
                attempt.log.cautions += options.cautions
                yield attempt.to_finished_trial()
            return
        target = self.context.telemetry.folder / f"{block.name}.parquet"
        # Undoing in the background is safe here: instances have different slots, so no name is used again.
        with (
            run_sampler(target, self.context.telemetry.backend_for(self.context.host)) as sampler,
            self.context.ledger.undo_in_background(),
        ):
            ended = tuple(self._run_together(block, planned, observe, options, sampler))
        self._compare_with_bare_metal(ended, planned.workload)
        for attempt in ended:
            if sampler.failure_reason and attempt.log.status == "ok":
                attempt.log.cautions.append(lost_telemetry_caution(sampler.failure_reason))
            attempt.log.cautions += options.cautions
            yield attempt.to_finished_trial()

    def _run_together(
        self,
        block: Block,
        planned: PlannedWorkload,
        observe: RunObserver,
        options: BlockOptions = _USUAL,
        sampler: Sampler | None = None,
    ) -> Iterator[TrialRun]:
        """Start the stacks of a block and let them take turns; yield each trial when it has ended.

        Instances that do not fit into memory together run in groups, one group after the other. The baseline and the
        control stay and take turns with every group; each group then measures one pass.
        """
        workload, limits = planned.workload, self.context.restrict_limits(planned.limits)
        # The seed names the block: a resumed run then has the same order as a run without a stop.
        chance = random.Random(f"{self.seed}/{block.workload}/{block.index}/turns")  # noqa: S311 - nothing secret
        passes = options.passes
        staying, groups = self.split_by_memory(block.trials, workload, limits)
        shared: SharedInstances | None = self.shared
        if len(groups) > 1 and not workload.runs_exclusively:  # the next group needs the memory of this one
            self.shared.close()
            shared = None
        labels = () if workload.runs_exclusively else self._labels.get(block.workload, ())
        turns = TurnScheduler(chance, observe, not workload.runs_exclusively, labels, self.references)

        with ExitStack() as held:
            stay, first = [self._create_attempt(step, workload, limits, shared, sampler) for step in staying], 0
            for group in groups:
                if turns.is_hopeless:
                    break
                with ExitStack() as exits:
                    come = [self._create_attempt(step, workload, limits, shared, sampler) for step in group]
                    for attempt in come if first else [*stay, *come]:
                        self._start(attempt, held if attempt in stay else exits, observe)
                    exits.enter_context(nullcontext() if workload.runs_exclusively else self._awake.keep_awake())
                    if options.choose and not first:
                        planned, passes = self._choose_turn_length([*stay, *come], planned, options)
                        workload = planned.workload
                    if not workload.runs_exclusively:
                        time.sleep(max(0.0, *(each.settled_at - time.monotonic() for each in (*stay, *come))))
                    turns.run_turns([*stay, *come], first)
                    # With groups, the baseline measures once with each of them: more passes would multiply its time.
                    _run_more_passes(turns, come, workload.rounds, passes if len(groups) == 1 else _ONCE, first)
                    if sampler and group is groups[-1]:
                        sampler.stop_when_unused()
                    for attempt in turns.select_counted(come):
                        self._end(attempt, planned)
                        attempt.log.cautions += [_IN_GROUPS] if stay and len(groups) > 1 else []
                        yield attempt
                # The next group continues the round numbers of the staying stacks, whose turns it is paired with.
                first = max([each.rounds for each in stay if each.rounds > first] or [first + workload.rounds])
            for attempt in turns.select_counted(stay):
                self._end(attempt, planned, len(groups))
                yield attempt

    def _create_attempt(
        self,
        step: PlannedTrial,
        workload: Workload,
        limits: Limits,
        shared: SharedInstances | None,
        sampler: Sampler | None,
    ) -> TrialRun:
        stack, image = tuple(self.stacks[step.stack]), self.context.images.for_stack(step.stack)
        spec = InstanceSpec(stack, image, limits, self._slots[step.stack], sampler=sampler)
        spec = self.shared.add_ports(spec, step.workload)
        overridden = self._apply_overrides(workload, step.stack)
        earlier = self._first_starts.get(step)
        return TrialRun(self.context, step, spec, overridden, self.inside_check, shared, self._awake, earlier)

    def _start(self, attempt: TrialRun, exits: ExitStack, observe: RunObserver) -> None:
        """Start an attempt, which `exits` removes."""
        self.context.await_machines()
        observe(TrialBegins(attempt.step))
        exits.enter_context(attempt)
        raise_if_interrupted()  # code in between may have swallowed the KeyboardInterrupt
        attempt.start()

    def _choose_turn_length(
        self, attempts: Sequence[TrialRun], planned: PlannedWorkload, options: BlockOptions
    ) -> tuple[PlannedWorkload, Mapping[str, int]]:
        """Give the turns of all attempts the length that is chosen by those of the baseline and the control.

        Return the workload and its passes; unchanged if the baseline or the control does not run.
        """
        running = {each.step.stack: each for each in attempts if each.is_running}
        if not options.choose or not running.keys() >= set(self.references):
            return planned, options.passes
        chance = random.Random(f"{self.seed}/{planned.name}/lengths")  # noqa: S311 - nothing secret
        pairs, began = list[ProbePair](), time.monotonic()
        with suppress(Exception):  # the trials will meet the same error, and report it
            baseline, control = (running[each] for each in self.references)
            pairs = run_probes(baseline, control, chance)
        planned, passes = options.choose(pairs, time.monotonic() - began)
        for each in attempts:
            each.workload = self._apply_overrides(planned.workload, each.step.stack)
        return planned, passes

    def close(self) -> None:
        """Remove all that outlives a block: shared instances, and the threads that keep CPUs awake."""
        with closing(self._awake):
            self.shared.close()

    def _start_repeatedly(self, block: Block, planned: PlannedWorkload, observe: RunObserver) -> Iterator[TrialRun]:
        """Start each stack of a block once per round of the workload, slow stacks less often; yield a trial per stack.

        The first start of a stack in the run is a warm-up, unless starts are cold or each provisions a machine.
        """
        workload = planned.workload
        chance = random.Random(f"{self.seed}/{block.workload}/{block.index}/starts")  # noqa: S311 - nothing secret

        def start(step: PlannedTrial) -> TrialRun:
            [ended] = self._run_together(block.with_steps((step,)), planned, observe)
            return ended

        self._first_starts.clear()
        starts: dict[PlannedTrial, list[TrialRun]] = {step: [] for step in block.trials}
        for step in block.trials:
            is_provisioned = self.stacks[step.stack][-1].provisions_machine
            if not (workload.starts_cold or is_provisioned or (step.workload, step.stack) in self._warmed_up):
                starts[step].append(start(step))
                mark_as_warm_up(starts[step][0].log)
                self.shared.remove(step.stack)
                self._warmed_up.add((step.workload, step.stack))
        going = [step for step in block.trials if all(each.log.status == "ok" for each in starts[step])]
        continued: list[PlannedTrial] = []
        for number in range(workload.rounds):
            for step in going:
                starts[step].append(start(step))
                self._first_starts.setdefault(step, starts[step][-1].log)
                counted = [each.log for each in starts[step][-number - 1 :]]
                if number + 1 < workload.rounds and has_time_for_another_start(counted):
                    # Now, and not right before its next start: bare metal then took 12 instead of 2 ms.
                    self.shared.remove(step.stack)
                    continued.append(step)
            going, continued = continued, []
            chance.shuffle(going)  # in a fixed order, a stack would always start after the same other one
        for each in starts.values():
            each[-1].log = merge_starts(workload, [attempt.log for attempt in each])
            yield each[-1]

    def _compare_with_bare_metal(self, ended: Sequence[TrialRun], workload: Workload) -> None:
        """Fail trials that are faster than bare metal by an impossible factor.

        Stacks with another program or another kernel than Linux are not compared: both can really be faster. Workloads
        with unknown paths are not compared either: they may measure a disk cache that only one of the stacks has.
        """
        if workload.has_unknown_paths:
            return
        able = [each for each in ended if each.log.status == "ok" and each.step.stack in self.references]
        bare = next((each for each in able if self._families(each.step.stack) == {"bare metal"}), None)
        for each in ended if bare else ():
            overrides = each.step.stack in self.programs or each.step.stack in self.context.images.by_stack
            if bare and not overrides and self._families(each.step.stack).isdisjoint(("bare metal", "unikernel")):
                reject_faster_than_bare_metal(each.log, bare.log)

    def _families(self, stack: str) -> set[str]:
        return {technology.family for technology in self.stacks[stack]}

    def _apply_overrides(self, workload: Workload, stack: str) -> Workload:
        """Return the workload with the command and image of a stack's override."""
        overridden = self.programs[stack].apply_to_workload(workload) if stack in self.programs else workload
        image = self.context.images.by_stack.get(stack)
        return overridden.adapt_to_image(image) if image else overridden

    def split_by_memory(
        self, steps: PlannedTrials, workload: Workload, limits: Limits
    ) -> tuple[PlannedTrials, tuple[PlannedTrials, ...]]:
        """Return the steps that stay for the whole block, and groups of steps that fit into memory with them."""
        if workload.runs_exclusively:
            return (), tuple((step,) for step in steps)
        room = self._usable_memory_bytes() + self.shared.memory_bytes
        needed = {step: self._estimate_memory_bytes(step, limits) for step in steps}
        if sum(needed.values()) <= room:
            return (), (tuple(steps),)
        staying = tuple(step for step in steps if step.stack in self.references)
        room -= sum(needed[step] for step in staying)
        groups: list[list[PlannedTrial]] = []
        left = 0.0
        for step in steps:
            if step in staying:
                continue
            if not groups or needed[step] > left:
                groups.append([])
                left = room
            groups[-1].append(step)
            left -= needed[step]
        return staying, tuple(tuple(group) for group in groups) or ((),)

    def _usable_memory_bytes(self) -> float:
        available = parse_meminfo(self.context.host.read("/proc/meminfo")).available_bytes
        return float("inf") if available is None else available * _USABLE_MEMORY_SHARE

    def _estimate_memory_bytes(self, step: PlannedTrial, limits: Limits) -> float:
        """Return the bytes to reserve for an instance: from its observed footprint, or its limit before the first one.

        The observed footprint may exceed the limit: a machine also has a monitor process. The limit of a nested stack
        is that of its outer machine.
        """
        observed = self._observed_bytes.get((step.workload, step.stack))
        if observed is not None:
            return observed * _MEMORY_RESERVE_FACTOR
        inner = len(self.stacks[step.stack]) - 1
        return (outer_limits(limits, inner) if inner else limits).memory_bytes

    def _end(self, attempt: TrialRun, planned: PlannedWorkload, group_count: int = 1) -> None:
        """End an attempt that has measured `group_count` times, and record its memory and labels for later blocks."""
        attempt.end()
        log, step = attempt.log, attempt.step
        if log.footprint and (cost := log.footprint.total_memory_bytes) is not None:
            self._observed_bytes[step.workload, step.stack] = cost
        if log.status == "ok":
            self._labels[step.workload] = frozenset(rounds_by_label(log.turns))
        if self.inside_check:
            self.inside_check.record_differences(step.stack, log)
        if planned.limits.seconds is not None:
            log.cautions += time_cautions(log.measured_seconds, group_count * planned.limits.seconds)


def _run_more_passes(
    turns: TurnScheduler, attempts: Sequence[TrialRun], rounds: int, passes: Mapping[str, int], first_round: int
) -> None:
    """Let attempts measure again, as often as `passes` has it for their stacks; a pass has `rounds` rounds."""
    for number in range(1, max(passes.values(), default=1)):
        able = [each for each in attempts if each.is_running and each not in turns.ended_early]
        again = [each for each in able if passes.get(each.step.stack, 1) > number]
        # Stacks that measured for a fixed time have different numbers of rounds: additional rounds could not be paired.
        if any(each.rounds != number * rounds for each in again):
            break
        turns.run_turns(again, first_round)

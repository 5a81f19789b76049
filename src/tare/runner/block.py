"""Block: an instance of every stack, whose measurements take turns.

In each round every stack has a turn, in random order: what disturbs the machine for longer than a turn disturbs all of
them. A workload of one round is measured one stack at a time. Where a block starts each stack several times, the median
start counts, not one that a burst on the machine has hit.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import chain
from statistics import median
from time import monotonic

from tare.contracts.technologies import Technology
from tare.contracts.workloads import Workload
from tare.hosts.facts import parse_meminfo
from tare.hosts.process import heed_stop
from tare.model.trials import Caution, Raw, Trial
from tare.runner.context import Testbed, assign_slots, outer_limits
from tare.runner.events import RunObserver, TrialBegins, TurnEnded, TurnOfStack, TurnsBegin
from tare.runner.sanity_checks import reject_faster_than_bare_metal, time_cautions
from tare.runner.schedule import SLOW, rounds_by_label
from tare.runner.trial import TrialRun
from tare.runner.values import read_values
from tare.suites.own_program import OwnProgram
from tare.suites.plan import Block, Step
from tare.telemetry.sampler import not_kept, sampling, way_to

FinishedTrial = tuple[Trial, tuple[Raw, ...]]

_STARTS_SECONDS = 1.0  # of a block, for all starts of a stack; the first may take longer


def has_time_for_another_start(ended: Sequence[FinishedTrial]) -> bool:
    """Return whether another start of this stack would end in time. None follows a failure."""
    trials = [trial for trial, _ in ended]
    return trials[-1].status == "ok" and sum(trial.seconds for trial in trials) + trials[-1].seconds <= _STARTS_SECONDS


def mark_as_warm_up(ended: FinishedTrial) -> FinishedTrial:
    """Mark the outputs of a start that only fills caches: they count for nothing."""
    trial, raw = ended
    return trial, tuple(replace(each, warm_up=True) for each in raw)


def merge_starts(workload: Workload, ended: Sequence[FinishedTrial]) -> FinishedTrial:
    """Return several starts as one trial: its turns are the starts, all else is that of the usual one or a failed one.

    Starts whose outputs are marked as warming up do not count.
    """
    raw = tuple(chain.from_iterable(each for _, each in ended))
    seconds = sum(trial.seconds for trial, _ in ended)
    failed = next((trial for trial, _ in ended if trial.status != "ok"), None)
    if failed is not None:
        return replace(failed, seconds=seconds), raw
    counted = [trial for trial, outputs in ended if not all(each.warm_up for each in outputs)]
    usual = sorted(counted, key=_ready_seconds)[(len(counted) - 1) // 2]
    turns = (replace(turn, number=number) for number, trial in enumerate(counted) for turn in trial.turns)
    values = read_values(workload, raw)
    first, last = ended[0][0], ended[-1][0]
    one = replace(usual, seconds=seconds, started=first.started, ended=last.ended, values=values, turns=tuple(turns))
    return replace(one, cautions=_merge_cautions(counted)), raw


def _ready_seconds(trial: Trial) -> float:
    """Return when the instance answered; a technology may report more of its start after that."""
    return next(mark.seconds for mark in trial.timeline if mark.name == "ready")


def _merge_cautions(starts: Sequence[Trial]) -> tuple[Caution, ...]:
    """Return the cautions of each kind of the first start that has it: later ones differ in their numbers alone."""
    found: list[Caution] = []
    for start in starts:
        known = {caution.kind for caution in found}
        found += [caution for caution in start.cautions if caution.kind not in known]
    return tuple(found)


Steps = tuple[Step, ...]

_ONCE: Mapping[str, int] = {}
_LEAST_ROUNDS = 3  # of a stack that is far slower than the others
_FEWEST = 3  # stacks: of two, neither is the slow one
_ROOM = 0.8  # share of the memory that can be had which instances may fill
_SPARE = 1.5  # times what an instance was seen to cost
_IN_GROUPS = Caution(
    "in-groups", "not all instances fit into memory together: it took turns with the baseline, not with every stack"
)


@dataclass
class BlockRunner:
    """Measures blocks. `references` are the names of the baseline and of its A/A control.

    `seconds` is how long a trial may measure, None for as long as it takes. `programs` are those that stacks run of
    their own.
    """

    testbed: Testbed
    stacks: Mapping[str, Sequence[Technology]]
    references: Collection[str]
    seed: int
    seconds: float | None = None
    programs: Mapping[str, OwnProgram] = field(default_factory=dict)
    _seen: dict[tuple[str, str], int] = field(default_factory=dict)
    _labels: dict[str, frozenset[str]] = field(default_factory=dict)  # of a whole round of each workload
    _warm: set[tuple[str, str]] = field(default_factory=set)  # workloads and stacks with a start before

    def measured(
        self, block: Block, workload: Workload, report: RunObserver, passes: Mapping[str, int] = _ONCE
    ) -> Iterator[FinishedTrial]:
        """Measure a block; yield each trial when it has ended, those of stacks that take turns when all have.

        If the first command of the baseline does not end in time, though the workload has not worked before, the block
        ends: stacks that had no turn until then yield no trial. `passes` is how often stacks measure the workload; once
        where nothing is said. What is left of the block is gone when the iterator is closed.
        """
        self.testbed.await_machines()  # that they are asked for their memory
        if workload.alone:
            several = self._starts if workload.rounds > 1 else self._ended_in
            yield from several(block, workload, report, self.testbed)
            return
        target = self.testbed.run.telemetry / f"{block.name}.parquet"
        # Each instance has a slot of its own: nothing that is made has an earlier name.
        with (
            self.testbed.ledger.overlapping(),
            sampling(target, way_to(self.testbed.host, self.testbed.run.sample_seconds)) as sampler,
        ):
            together = replace(self.testbed, start=replace(self.testbed.start, sampler=sampler))
            ended = tuple(self._ended_in(block, workload, report, together, passes))
        bare = self._bare_metal(ended, workload)
        for trial, raw in ended:
            able = trial if bare is None or not self._costs(trial.stack) else reject_faster_than_bare_metal(trial, bare)
            yield _doubted(able, sampler.trouble), raw

    def _ended_in(
        self,
        block: Block,
        workload: Workload,
        report: RunObserver,
        testbed: Testbed,
        passes: Mapping[str, int] = _ONCE,
    ) -> Iterator[FinishedTrial]:
        """Measure a block on this testbed.

        Where not all instances fit into memory together, they come in groups, one after the other; the baseline and
        the control stay and have turns with each. Then each group measures once.
        """
        chance = random.Random(f"{self.seed}/{block.workload}/{block.index}/turns")  # noqa: S311 - nothing secret
        staying, groups = self.groups(block.steps, workload)
        passes = passes if len(groups) == 1 else _ONCE
        labels = () if workload.alone else self._labels.get(block.workload, ())
        turns = _TurnScheduler(chance, report, not workload.alone, labels, self.references)
        slots = assign_slots({step.stack: self.stacks[step.stack] for step in block.steps})

        def start_stack(exits: ExitStack, step: Step) -> TrialRun:
            testbed.await_machines()
            report(TrialBegins(step))
            here = testbed.slot(slots[step.stack]).of(step.stack)
            own = self._of_stack(workload, step.stack, here)
            attempt = exits.enter_context(TrialRun(here, step, self.stacks[step.stack], own))
            heed_stop()
            attempt.start()
            return attempt

        with ExitStack() as held:
            stay = [start_stack(held, step) for step in staying]
            first = 0
            for group in groups:
                if turns.is_hopeless:
                    break
                with ExitStack() as exits:
                    come = [start_stack(exits, step) for step in group]
                    turns.work([*stay, *come], first)
                    for number in range(1, max(passes.values(), default=1)):
                        able = [each for each in come if each.is_going and each not in turns.ended_early]
                        again = [each for each in able if passes.get(each.step.stack, 1) > number]
                        if any(each.rounds != number * workload.rounds for each in again):
                            break  # a time decided how many rounds each stack had: further ones are no pairs
                        turns.work(again, first)
                    for attempt in turns.tried(come):
                        trial, raw = self._ended(attempt)
                        apart = (_IN_GROUPS,) if stay and len(groups) > 1 else ()
                        yield replace(trial, cautions=(*trial.cautions, *apart)), raw
                first = max([each.rounds for each in stay if each.rounds > first] or [first + workload.rounds])
            for attempt in turns.tried(stay):
                yield self._ended(attempt, len(groups))

    def _starts(
        self, block: Block, workload: Workload, report: RunObserver, testbed: Testbed
    ) -> Iterator[FinishedTrial]:
        """Start each stack of a block as often as the workload has rounds, slow ones less often.

        One start of each stack before its first block warms up, unless all starts are to be cold, or a machine is lent
        for each.
        """
        chance = random.Random(f"{self.seed}/{block.workload}/{block.index}/starts")  # noqa: S311 - nothing secret

        def start(step: Step) -> FinishedTrial:
            [ended] = self._ended_in(replace(block, steps=(step,)), workload, report, testbed)
            return ended

        ended: dict[Step, list[FinishedTrial]] = {step: [] for step in block.steps}
        for step in block.steps:
            lent = self.stacks[step.stack][-1].gives_machine  # each start requests another machine
            if not (workload.starts_cold or lent or (step.workload, step.stack) in self._warm):
                ended[step].append(mark_as_warm_up(start(step)))
                self._warm.add((step.workload, step.stack))
        going = [step for step in block.steps if all(trial.status == "ok" for trial, _ in ended[step])]
        for number in range(workload.rounds):
            for step in going:
                ended[step].append(start(step))
            going = [step for step in going if has_time_for_another_start(ended[step][-number - 1 :])]
            chance.shuffle(going)
        yield from (merge_starts(workload, starts) for starts in ended.values())

    def _bare_metal(self, ended: Sequence[FinishedTrial], workload: Workload) -> Trial | None:
        """Return the block's trial on bare metal, of a workload that is known not to measure caches of disks."""
        if workload.writes_anywhere:
            return None
        trials = (trial for trial, _ in ended if trial.status == "ok" and trial.stack in self.references)
        return next((trial for trial in trials if self._families(trial.stack) == {"bare metal"}), None)

    def _costs(self, stack: str) -> bool:
        """Return whether a stack runs the same program as the baseline on the machine's kernel or on another Linux."""
        own = stack in self.programs or stack in self.testbed.run.own
        return not own and self._families(stack).isdisjoint(("bare metal", "unikernel"))

    def _families(self, stack: str) -> set[str]:
        return {technology.family for technology in self.stacks[stack]}

    def _of_stack(self, workload: Workload, stack: str, testbed: Testbed) -> Workload:
        """Return the workload as this stack runs it, with its own command and in its own image."""
        own = self.programs[stack].workload(workload) if stack in self.programs else workload
        return own.in_image(testbed.image) if stack in testbed.run.own else own

    def groups(self, steps: Steps, workload: Workload) -> tuple[Steps, tuple[Steps, ...]]:
        """Divide the steps of a block into those that stay for all of it, and groups that are there together."""
        if workload.alone:
            return (), tuple((step,) for step in steps)
        room = self._room()
        if sum(self._needed(step) for step in steps) <= room:
            return (), (tuple(steps),)
        staying = tuple(step for step in steps if step.stack in self.references)
        room -= sum(self._needed(step) for step in staying)
        groups: list[list[Step]] = []
        left = 0.0
        for step in steps:
            if step in staying:
                continue
            if not groups or self._needed(step) > left:
                groups.append([])
                left = room
            groups[-1].append(step)
            left -= self._needed(step)
        return staying, tuple(tuple(group) for group in groups) or ((),)

    def _room(self) -> float:
        available = parse_meminfo(self.testbed.host.read("/proc/meminfo")).available_bytes
        return float("inf") if available is None else available * _ROOM

    def _needed(self, step: Step) -> float:
        """Return the memory that an instance takes: its limit, or that of the machine around it, until one was seen.

        What was seen may be more than the limit: a machine has its monitor beside it.
        """
        seen = self._seen.get((step.workload, step.stack))
        if seen is not None:
            return seen * _SPARE
        limits, inner = self.testbed.limits, len(self.stacks[step.stack]) - 1
        return (outer_limits(limits, inner) if inner else limits).memory_bytes

    def _ended(self, attempt: TrialRun, times: int = 1) -> FinishedTrial:
        """End an attempt, which has measured so many times: beside each of the groups."""
        trial, raw = attempt.end()
        if trial.footprint and (cost := trial.footprint.all_memory_bytes) is not None:
            self._seen[trial.workload, trial.stack] = cost
        if trial.status == "ok":
            self._labels[trial.workload] = frozenset(rounds_by_label(trial.turns))
        late = () if self.seconds is None else time_cautions(trial, times * self.seconds)
        if self.testbed.run.inside:
            trial = self.testbed.run.inside.describe(trial)
        return replace(trial, cautions=(*trial.cautions, *late)), raw


def _doubted(trial: Trial, trouble: str) -> Trial:
    """Doubt a trial whose block's telemetry was not kept."""
    if trial.status != "ok" or not trouble:
        return trial
    return replace(trial, cautions=(*trial.cautions, not_kept(trouble)))


@dataclass
class _TurnScheduler:
    """Lets attempts take turns until none has more to do.

    `labels` are those of a whole round, empty where they are unknown. The others do not wait for a stack that is far
    slower: its turns end when it has had a few whole rounds, unless it is one of the `references`. Until a workload has
    worked, the references have the first turns of all, so that a command without an end is noticed by its first
    time-out. Then `is_hopeless` is true, and no more turns are taken.
    """

    chance: random.Random
    report: RunObserver
    side_by_side: bool
    labels: Collection[str] = ()
    references: Collection[str] = ()
    count: int = 0
    since: float = 0.0
    ended_early: list[TrialRun] = field(default_factory=list)
    is_hopeless: bool = False
    _tried: set[str] = field(default_factory=set)

    def tried(self, attempts: Sequence[TrialRun]) -> list[TrialRun]:
        """Return the attempts that count: where the workload is hopeless, those that had a turn or failed to start."""
        return [each for each in attempts if not (self.is_hopeless and each.is_going) or each.step.trial in self._tried]

    def work(self, attempts: Sequence[TrialRun], first_round: int) -> None:
        self.since = self.since or monotonic()
        for attempt in attempts:
            attempt.measure_from(first_round)
        going = list(attempts)
        while going:
            if self.side_by_side:
                self.report(TurnsBegin(self.count, len(going)))
            self.chance.shuffle(going)
            if not (self.labels or self._tried):
                first = list(self.references)
                going.sort(key=lambda each: first.index(each.step.stack) if each.step.stack in first else len(first))
            going = [attempt for attempt in going if self._has_more(attempt)]
            if self.is_hopeless:
                return
            slow = self._far_slower(going)
            self.ended_early += slow
            going = [attempt for attempt in going if attempt not in slow]
            self.count += 1

    def _has_more(self, attempt: TrialRun) -> bool:
        heed_stop()
        if self.is_hopeless:
            return False
        self.report(TurnOfStack(attempt.step))
        raw = attempt.take_turn(self.count, self.since)
        is_first = not (self.labels or self._tried)
        self._tried.add(attempt.step.trial)
        self.is_hopeless = is_first and attempt.timed_out and attempt.step.stack in self.references
        if raw is not None:
            self.report(TurnEnded(attempt.step, raw))
        return raw is not None

    def _far_slower(self, going: Sequence[TrialRun]) -> list[TrialRun]:
        if not self.labels or len(going) < _FEWEST:
            return []
        usual = SLOW * median(attempt.turned_seconds for attempt in going)
        return [
            attempt
            for attempt in going
            if attempt.step.stack not in self.references
            and attempt.turned_seconds > usual
            and attempt.rounds_of_all(self.labels) >= _LEAST_ROUNDS
        ]

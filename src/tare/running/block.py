"""One block: an instance of every stack, whose measurements take turns.

In each round every stack has a turn, in random order: what disturbs the machine for longer than a turn disturbs all of
them. A workload of one round is measured as one stack after the other, each alone on the machine.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from time import monotonic

from tare.contracts.technologies import Technology
from tare.contracts.workloads import Workload
from tare.hosts.facts import parse_meminfo
from tare.model.trials import Caution, Raw, Trial
from tare.running.doubts import time_cautions
from tare.running.progress import ProgressReporter, TrialBegins, TurnEnded, TurnsBegin
from tare.running.testbed import Testbed, around, slots_for
from tare.running.trial import TrialRun
from tare.suites.own_program import OwnProgram
from tare.suites.plan import Block, Step
from tare.telemetry.sampler import not_kept, sampling, way_to

Steps = tuple[Step, ...]
Ended = tuple[Trial, tuple[Raw, ...]]

_ROOM = 0.8  # share of the memory that can be had which instances may fill
_SPARE = 1.5  # times what an instance was seen to cost
_IN_GROUPS = Caution(
    "in-groups", "not all instances fit into memory together: it took turns with the baseline, not with every stack"
)


@dataclass
class Rounds:
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

    def measured(self, block: Block, workload: Workload, report: ProgressReporter) -> Iterator[Ended]:
        """Measure a block; yield each trial when it has ended, those of stacks that take turns when all have.

        What is left of it is gone when the iterator is closed.
        """
        self.testbed.await_machines()  # that they are asked for their memory
        if workload.rounds == 1:
            yield from self._ended_in(block, workload, report, self.testbed)
            return
        target = self.testbed.run.telemetry / f"{block.name}.parquet"
        # Each instance has a slot of its own: nothing that is made has an earlier name.
        with (
            self.testbed.ledger.overlapping(),
            sampling(target, way_to(self.testbed.host, self.testbed.run.sample_seconds)) as sampler,
        ):
            together = replace(self.testbed, start=replace(self.testbed.start, sampler=sampler))
            ended = tuple(self._ended_in(block, workload, report, together))
        yield from ((_doubted(trial, sampler.trouble), raw) for trial, raw in ended)

    def _ended_in(
        self, block: Block, workload: Workload, report: ProgressReporter, testbed: Testbed
    ) -> Iterator[Ended]:
        """Measure a block on this testbed.

        Where not all instances fit into memory together, they come in groups, one after the other; the baseline and
        the control stay and have turns with each.
        """
        chance = random.Random(f"{self.seed}/{block.workload}/{block.index}/turns")  # noqa: S311 - nothing secret
        staying, groups = self.groups(block.steps, workload)
        turns = _Turns(chance, report, side_by_side=workload.rounds > 1)
        slots = slots_for({step.stack: self.stacks[step.stack] for step in block.steps})

        def started(exits: ExitStack, step: Step) -> TrialRun:
            testbed.await_machines()
            report(TrialBegins(step))
            here = testbed.slot(slots[step.stack]).of(step.stack)
            own = self._of_stack(workload, step.stack, here)
            attempt = exits.enter_context(TrialRun(here, step, self.stacks[step.stack], own))
            attempt.start()
            return attempt

        with ExitStack() as held:
            stay = [started(held, step) for step in staying]
            first = 0
            for group in groups:
                with ExitStack() as exits:
                    come = [started(exits, step) for step in group]
                    turns.work([*stay, *come], first)
                    for attempt in come:
                        trial, raw = self._ended(attempt)
                        apart = (_IN_GROUPS,) if stay and len(groups) > 1 else ()
                        yield replace(trial, cautions=(*trial.cautions, *apart)), raw
                first = max([each.rounds for each in stay if each.rounds > first] or [first + workload.rounds])
            for attempt in stay:
                yield self._ended(attempt, len(groups))

    def _of_stack(self, workload: Workload, stack: str, testbed: Testbed) -> Workload:
        """Return the workload as this stack runs it, with its own command and in its own image."""
        own = self.programs[stack].workload(workload) if stack in self.programs else workload
        return own.in_image(testbed.image) if stack in testbed.run.own else own

    def groups(self, steps: Steps, workload: Workload) -> tuple[Steps, tuple[Steps, ...]]:
        """Divide the steps of a block into those that stay for all of it, and groups that are there together."""
        if workload.rounds == 1:
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
        return (around(limits, inner) if inner else limits).memory_bytes

    def _ended(self, attempt: TrialRun, times: int = 1) -> Ended:
        """End an attempt, which has measured so many times: beside each of the groups."""
        trial, raw = attempt.end()
        if trial.footprint and (cost := trial.footprint.all_memory_bytes) is not None:
            self._seen[trial.workload, trial.stack] = cost
        late = () if self.seconds is None else time_cautions(trial, times * self.seconds)
        return replace(trial, cautions=(*trial.cautions, *late)), raw


def _doubted(trial: Trial, trouble: str) -> Trial:
    """Doubt a trial whose block's telemetry was not kept."""
    if trial.status != "ok" or not trouble:
        return trial
    return replace(trial, cautions=(*trial.cautions, not_kept(trouble)))


@dataclass
class _Turns:
    """Lets attempts take turns until none has more to do."""

    chance: random.Random
    report: ProgressReporter
    side_by_side: bool
    count: int = 0
    since: float = 0.0

    def work(self, attempts: Sequence[TrialRun], first_round: int) -> None:
        self.since = self.since or monotonic()
        for attempt in attempts:
            attempt.measure_from(first_round)
        going = list(attempts)
        while going:
            if self.side_by_side:
                self.report(TurnsBegin(self.count, len(going)))
            self.chance.shuffle(going)
            going = [attempt for attempt in going if self._has_more(attempt)]
            self.count += 1

    def _has_more(self, attempt: TrialRun) -> bool:
        raw = attempt.take_turn(self.count, self.since)
        if raw is not None:
            self.report(TurnEnded(attempt.step, raw))
        return raw is not None

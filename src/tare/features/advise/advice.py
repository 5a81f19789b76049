"""Which stack an application should take: what it needs comes first, then what it costs.

The cost is the bill of `cost_model.py`, corrected by reference applications where there are enough. A stack that
does not have what is needed is excluded, and one whose cost is not known well enough is not ranked. Two stacks tie
where their intervals overlap.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from tare.features.advise.calibration import Calibration, ReferencePrediction, apply_calibration, fit_calibration
from tare.features.advise.capacity import MachinePlan, MachineType, find_cheapest_plan
from tare.features.advise.cost_model import (
    CORRECTION,
    ApplicationProfile,
    CostBreakdown,
    CostEstimate,
    CostItem,
    OperationCounts,
    predict,
)
from tare.features.advise.unit_costs import PriceList, read_price_list
from tare.features.compare.comparability import machine_differences
from tare.model.errors import UsageError
from tare.model.isolation import LEVELS, Isolation, IsolationLevel
from tare.model.journal import Run
from tare.model.machine import Facts
from tare.model.trial import Trial
from tare.model.units import format_duration, format_size
from tare.report.tradeoff import UNKNOWN, find_isolation
from tare.statistics.summarize import summarize

Decision = Literal["ranked", "cannot tell", "excluded"]
_SIDE_LABELS = ("for the profile", "for the prices")


@dataclass(frozen=True)
class Requirements:
    """What a stack must have: isolation of at least this level, None for any; at most this memory and start-up."""

    isolation: IsolationLevel | None = None
    memory_bytes: float | None = None
    start_seconds: float | None = None


@dataclass(frozen=True)
class AdviceOptions:
    """What the user asked for. `node_hourly_price` is that of an hour of a machine like that of the prices.

    `load_per_second` is in units of work a second, and `machine_types` are machines that could do it. Prices of another
    machine count only `across_machines`.
    """

    requirements: Requirements = field(default_factory=Requirements)
    node_hourly_price: float | None = None
    load_per_second: float | None = None
    machine_types: tuple[MachineType, ...] = ()
    across_machines: bool = False


@dataclass(frozen=True)
class ReferenceRun:
    """A reference application: its basket, and its time over that of bare metal as measured on a machine, by stack."""

    name: str
    operations: OperationCounts
    relative_times: Mapping[str, CostEstimate]
    machine: Facts


@dataclass(frozen=True)
class Candidate:
    """Stack with its predicted cost and what else a choice needs.

    `isolation` is None if it is unknown. `cost` is the time of a unit of work, or its CPU time where the application
    waited for requests; `cost` and `cpu` are relative to bare metal, corrected where there is a `calibration`.
    `memory_bytes` and `start_seconds` are None where they are unknown. `cautions` are the kinds of those of its prices
    and the baseline's. `unmet` are the needs that it does not meet, `problems` why its cost is unknown. Only one that
    is ranked has ranks, from `best_rank` to `worst_rank`. `hourly_price` is the price of the work of one machine on
    bare metal, `machines` the cheapest ones for the load.
    """

    stack: str
    isolation: Isolation | None
    breakdown: CostBreakdown
    cost: CostEstimate
    cpu: CostEstimate
    calibration: Calibration | None = None
    memory_bytes: int | None = None
    start_seconds: float | None = None
    cautions: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    best_rank: int = 0
    worst_rank: int = 0
    hourly_price: float | None = None
    machines: MachinePlan | None = None

    @property
    def isolation_level(self) -> str:
        """The level of isolation, or that it is unknown."""
        return self.isolation.level if self.isolation else UNKNOWN

    @property
    def decision(self) -> Decision:
        """Whether it is ranked, and why not."""
        return "excluded" if self.unmet else "cannot tell" if self.problems else "ranked"

    @property
    def cost_items(self) -> tuple[CostItem, ...]:
        """The lines of the bill, with that of the correction."""
        if self.calibration is None:
            return self.breakdown.items
        return (*self.breakdown.items, CostItem(CORRECTION, CostEstimate(self.cost.value - self.breakdown.cost.value)))


@dataclass(frozen=True)
class Advice:
    """What came of it: candidates in the order of their cost, those that are not ranked last.

    `stacks_to_try` are the two stacks whose measurement settles the most; fewer where there are fewer.
    `reference_count` is the number of reference applications, `machine_differences` what is different about the
    machines.
    """

    application: ApplicationProfile
    prices: Run
    baseline: str
    options: AdviceOptions
    candidates: tuple[Candidate, ...]
    reference_count: int
    machine_differences: tuple[str, ...]
    unpriced_kinds: tuple[str, ...]
    stacks_to_try: tuple[str, ...]

    @property
    def by_cpu(self) -> bool:
        """Whether stacks are ranked by CPU time, as the application waited for requests."""
        return self.application.operations.by_cpu

    def with_decision(self, decision: Decision) -> tuple[Candidate, ...]:
        """Return the candidates of a decision."""
        return tuple(each for each in self.candidates if each.decision == decision)

    @property
    def is_settled(self) -> bool:
        """Whether one stack is surely the cheapest of those that can be had."""
        ranked = self.with_decision("ranked")
        return bool(ranked) and ranked[0].worst_rank == 1 and not self.with_decision("cannot tell")


def advise(
    application: ApplicationProfile, run: Run, options: AdviceOptions, references: Sequence[ReferenceRun] = ()
) -> Advice:
    """Rank the stacks of a price list for an application.

    Raises UsageError for a run that is none, and for references of another machine.
    """
    prices = read_price_list(run)
    if not prices.stacks:
        raise UsageError(f"{run.folder}: has no stack but {prices.baseline}", "measure others with `tare prices`")
    unlike = _find_machine_differences(application, run)
    doubts = () if options.across_machines else tuple(f"prices of another machine: {each}" for each in unlike)
    _require_one_machine(references, run, options)
    adviser = _Adviser(run, application, options, prices, fit_calibrations(references, prices), doubts)
    ranked = _rank(
        _flag_wide_intervals([adviser.make_candidate(bill) for bill in predict(application.operations, prices)])
    )
    return Advice(
        application,
        run,
        prices.baseline,
        options,
        ranked,
        len(references),
        unlike,
        tuple(
            kind
            for kind, count in application.operations.counts.items()
            if count > 0 and kind not in prices.known_kinds
        ),
        _select_to_try(ranked),
    )


def _require_one_machine(references: Sequence[ReferenceRun], run: Run, options: AdviceOptions) -> None:
    """Raise UsageError for a reference of another machine than the prices are of."""
    for each in references if not options.across_machines else ():
        if apart := machine_differences(
            each.machine, run.record.instance_machine, ("for the reference", "for the prices")
        ):
            hint = "give references of the machine of the prices, or say --across-machines"
            raise UsageError(f"{each.name}: a reference of another machine: {'; '.join(apart)}", hint)


def fit_calibrations(references: Sequence[ReferenceRun], prices: PriceList) -> Mapping[str, Calibration]:
    """Return the correction of each stack that enough references were measured in, and have a bill without doubts."""
    seen: dict[str, list[ReferencePrediction]] = {stack: [] for stack in prices.stacks}
    for each in references:
        for bill in predict(each.operations, prices):
            if bill.stack in each.relative_times and not bill.problems:
                seen[bill.stack].append(ReferencePrediction(bill.cost, each.relative_times[bill.stack]))
    return {stack: found for stack, own in seen.items() if (found := fit_calibration(own))}


def measured_times(run: Run) -> Mapping[str, CostEstimate]:
    """Return the times of the stacks of a run over that of its baseline, over all its workloads together."""
    standings = [each for each in summarize(run).overall.standings if each.speed > 0]
    return {
        each.stack: CostEstimate(1 / each.speed, *(1 / end if end else None for end in (each.high, each.low)))
        for each in standings
    }


def _find_machine_differences(application: ApplicationProfile, run: Run) -> tuple[str, ...]:
    own, other = application.machine, run.record.instance_machine
    apart = machine_differences(own, other, _SIDE_LABELS)
    if own.kernel != other.kernel:
        apart += (f"kernel: {own.kernel or 'unknown'} for the profile, {other.kernel or 'unknown'} for the prices",)
    return apart


@dataclass(frozen=True)
class _Adviser:
    """Makes candidates of bills, by what the trials of the prices say of a stack beside the prices."""

    run: Run
    application: ApplicationProfile
    options: AdviceOptions
    prices: PriceList
    calibrations: Mapping[str, Calibration]
    problems: tuple[str, ...]

    @cached_property
    def isolation(self) -> Mapping[str, Isolation]:
        """The isolation of each stack that is known."""
        return find_isolation(self.run, self.prices.stacks)

    def make_candidate(self, breakdown: CostBreakdown) -> Candidate:
        """Return the candidate of a bill, without what depends on the others."""
        stack, correction, by_cpu = (
            breakdown.stack,
            self.calibrations.get(breakdown.stack),
            self.application.operations.by_cpu,
        )
        cost = apply_calibration(breakdown.cost, correction) if correction else breakdown.cost
        cpu = cost if by_cpu else breakdown.cpu.times(cost.value / breakdown.cost.value)
        memory = self._total_memory_bytes(stack)
        start = self._median(stack, lambda trial: max((mark.seconds for mark in trial.timeline), default=None))
        machines, doubts = self._plan_machines(cpu, memory)
        if cost.low is None or cost.high is None:
            doubts = ("prices of a single block", *doubts)
        return Candidate(
            stack=stack,
            isolation=self.isolation.get(stack),
            breakdown=breakdown,
            cost=cost,
            cpu=cpu,
            calibration=correction,
            memory_bytes=memory,
            start_seconds=start,
            cautions=self._caution_kinds(stack),
            unmet=tuple(_find_unmet(self.options.requirements, self.isolation.get(stack), memory, start)),
            problems=(*self.problems, *breakdown.problems, *doubts),
            hourly_price=None
            if self.options.node_hourly_price is None
            else self.options.node_hourly_price * cost.value,
            machines=machines,
        )

    def _plan_machines(self, cpu: CostEstimate, memory: int | None) -> tuple[MachinePlan | None, tuple[str, ...]]:
        """Return the machines for the load, or a doubt: without kinds of machines, those like that of the prices."""
        asked, machine = self.options, self.run.record.instance_machine
        kinds = asked.machine_types or (
            (MachineType(machine.cpus, asked.node_hourly_price),) if machine.cpus > 0 else ()
        )
        if asked.load_per_second is None or not kinds:
            return None, ()
        found = find_cheapest_plan(
            kinds, asked.load_per_second, self.application.operations.cpu_seconds * cpu.value, memory
        )
        return found, () if found else (f"no kind of machine has {format_size(memory or 0)} of memory",)

    def _total_memory_bytes(self, stack: str) -> int | None:
        """Return the memory of the application and what the stack adds to it."""
        own, least = (self._median(each, _footprint_bytes) for each in (stack, self.prices.baseline))
        if own is None or least is None or self.application.memory_bytes is None:
            return None
        return int(self.application.memory_bytes + max(own - least, 0))

    def _caution_kinds(self, stack: str) -> tuple[str, ...]:
        """Return the kinds of cautions that its trials and the baseline's have."""
        stacks = {stack, self.prices.baseline}
        own = (trial for trial in self.run.trials if trial.stack in stacks and trial.status == "ok")
        return tuple(dict.fromkeys(caution.kind for trial in own for caution in trial.cautions))

    def _median(self, stack: str, read: Callable[[Trial], float | None]) -> float | None:
        values = [read(trial) for trial in self.run.trials if trial.stack == stack and trial.status == "ok"]
        known = [value for value in values if value is not None]
        return statistics.median(known) if known else None


def _footprint_bytes(trial: Trial) -> float | None:
    return trial.footprint.total_memory_bytes if trial.footprint else None


def _find_unmet(
    requirements: Requirements, isolation: Isolation | None, memory: int | None, start: float | None
) -> Iterator[str]:
    """Yield the needs that a stack does not meet; what is unknown does not meet one."""
    if requirements.isolation and (
        isolation is None or LEVELS.index(isolation.level) < LEVELS.index(requirements.isolation)
    ):
        yield f"isolation: {isolation.level if isolation else UNKNOWN}"
    if requirements.memory_bytes is not None and (memory is None or memory > requirements.memory_bytes):
        yield f"memory: {'unknown' if memory is None else format_size(memory)}"
    if requirements.start_seconds is not None and (start is None or start > requirements.start_seconds):
        yield f"start-up: {'unknown' if start is None else format_duration(start)}"


def _flag_wide_intervals(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Doubt the wide intervals that reach down to where the cheapest of the narrow ones may be."""
    ends = [
        each.cost.high for each in candidates if each.decision == "ranked" and each.cost.is_narrow and each.cost.high
    ]
    return [
        each if each.cost.is_narrow or (ends and (each.cost.low or 0.0) > min(ends)) else _with_width_problem(each)
        for each in candidates
    ]


def _with_width_problem(candidate: Candidate) -> Candidate:
    cost, widest = candidate.cost, candidate.breakdown.widest_item
    if cost.low is None or cost.high is None:
        return candidate
    by_what = f", mostly for {widest.title}" if widest and not candidate.calibration else ""
    doubt = f"the interval is too wide: from {cost.low:.2f} to {cost.high:.2f} times bare metal{by_what}"
    return replace(candidate, problems=(*candidate.problems, doubt))


def _rank(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Rank the candidates by their costs: one is before another where its interval lies below that of the other."""
    ranked = [each for each in candidates if each.decision == "ranked"]
    placed = [
        replace(
            each,
            best_rank=1 + sum(_is_before(other, each) for other in ranked),
            worst_rank=len(ranked) - sum(_is_before(each, other) for other in ranked),
        )
        for each in ranked
    ]
    others = [each for each in candidates if each.decision != "ranked"]
    return (
        *sorted(placed, key=lambda each: each.cost.value),
        *sorted(others, key=lambda each: (each.decision == "excluded", each.cost.value)),
    )


def _is_before(one: Candidate, other: Candidate) -> bool:
    return one.cost.high is not None and other.cost.low is not None and one.cost.high < other.cost.low


def _select_to_try(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Return the stack that is ranked first, and the one that could still be cheaper by the most."""
    open_ones = [each for each in candidates if each.decision != "excluded"]
    first = open_ones[:1]
    rest = sorted(open_ones[1:], key=lambda each: each.cost.low if each.cost.low is not None else each.cost.value)
    return tuple(each.stack for each in (*first, *rest[:1]))

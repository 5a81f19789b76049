"""Ranking of stacks for an application: by requirements first, then by cost.

The cost is the prediction of `cost_model.py`, calibrated on reference applications if there are enough. A stack that
does not meet a requirement is excluded. A stack whose cost is too uncertain is not ranked. Two stacks tie if their
intervals overlap.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

from tare.features.advise.application_profile import ApplicationProfile, OperationCounts
from tare.features.advise.calibration import Calibration, ReferencePrediction, apply_calibration, fit_calibration
from tare.features.advise.capacity import MachinePlan, MachineType, find_cheapest_plan
from tare.features.advise.cost_model import CORRECTION, CostBreakdown, CostEstimate, CostItem, predict
from tare.features.advise.unit_costs import PriceList, read_price_list
from tare.features.compare.comparability import machine_differences
from tare.model.errors import UsageError
from tare.model.isolation import LEVELS, Isolation, IsolationLevel
from tare.model.machine import Facts
from tare.model.run_folder import Run
from tare.model.trial import Trial
from tare.model.units import format_duration, format_size
from tare.report.tradeoff import UNKNOWN, find_isolation
from tare.statistics.summarize import summarize

Decision = Literal["ranked", "cannot tell", "excluded"]
_SIDE_LABELS = ("for the profile", "for the price list")


@dataclass(frozen=True)
class Requirements:
    """Requirements: the least isolation, and the most memory and start-up time. None stands for any."""

    isolation: IsolationLevel | None = None
    memory_bytes: float | None = None
    start_seconds: float | None = None


@dataclass(frozen=True)
class AdviceOptions:
    """Options of `tare advise`.

    `node_hourly_price` is the price per hour of a machine like the one that the unit costs were measured on.
    `load_per_second` is in units of work per second. `machine_types` are candidates for that load. Unit costs of
    another machine are used only with `across_machines`. None stands for "not given".
    """

    requirements: Requirements = field(default_factory=Requirements)
    node_hourly_price: float | None = None
    load_per_second: float | None = None
    machine_types: tuple[MachineType, ...] = ()
    across_machines: bool = False


@dataclass(frozen=True)
class ReferenceRun:
    """Reference application: operation counts, and measured times relative to bare metal by stack."""

    name: str
    operations: OperationCounts
    relative_times: Mapping[str, CostEstimate]
    machine: Facts


@dataclass(frozen=True)
class Candidate:
    """Stack with its predicted cost and the other figures that a choice needs.

    `cost` is the time of a unit of work, or its CPU time if the application waited for requests. `cost` and `cpu` are
    relative to bare metal, and corrected if there is a `calibration`. `cautions` are the cautions of the trials that
    measured the unit costs of the stack and of the baseline. `unmet` lists requirements that the stack does not meet,
    `problems` the reasons why its cost is unknown. Only a ranked stack has ranks, from `best_rank` to `worst_rank`.
    `hourly_price` is the price of the work that a machine does in an hour on bare metal. `machines` is the cheapest
    plan for the load. None stands for unknown, or not requested.
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
        """The level of isolation, or the text for an unknown one."""
        return self.isolation.level if self.isolation else UNKNOWN

    @property
    def decision(self) -> Decision:
        """Whether the stack is ranked; an unmet requirement counts before an unknown cost."""
        return "excluded" if self.unmet else "cannot tell" if self.problems else "ranked"

    @property
    def cost_items(self) -> tuple[CostItem, ...]:
        """The items of the cost breakdown, and an item for the calibration if there is one."""
        if self.calibration is None:
            return self.breakdown.items
        return (*self.breakdown.items, CostItem(CORRECTION, CostEstimate(self.cost.value - self.breakdown.cost.value)))


@dataclass(frozen=True)
class Advice:
    """Advice: candidates by increasing cost, those without a rank last.

    `stacks_to_try` are the two stacks whose measurement would settle the most, or fewer if there are fewer.
    `machine_differences` are the differences between the machines of the profile and of the price list.
    `unpriced_kinds` are operation kinds of the application that the price list lacks.
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
        """Whether stacks are ranked by CPU time, because the application waited for requests."""
        return self.application.operations.by_cpu

    def with_decision(self, decision: Decision) -> tuple[Candidate, ...]:
        """Return the candidates with this decision, in order of cost."""
        return tuple(each for each in self.candidates if each.decision == decision)

    @property
    def is_settled(self) -> bool:
        """Whether one stack is certainly the cheapest of those that meet the requirements."""
        ranked = self.with_decision("ranked")
        return bool(ranked) and ranked[0].worst_rank == 1 and not self.with_decision("cannot tell")


def advise(
    application: ApplicationProfile, run: Run, options: AdviceOptions, references: Sequence[ReferenceRun] = ()
) -> Advice:
    """Rank the stacks of a price list for an application.

    Raises UsageError for a run that is not a price list, and for references of another machine.
    """
    prices = read_price_list(run)
    if not prices.stacks:
        raise UsageError(f"{run.folder}: has no stack but {prices.baseline}", "measure others with `tare prices`")
    differences = _find_machine_differences(application, run)
    problems = (
        () if options.across_machines else tuple(f"unit costs of another machine: {each}" for each in differences)
    )
    _require_one_machine(references, run, options)
    adviser = _Adviser(run, application, options, prices, fit_calibrations(references, prices), problems)
    breakdowns = predict(application.operations, prices)
    ranked = _rank(_flag_wide_intervals([adviser.make_candidate(breakdown) for breakdown in breakdowns]))
    return Advice(
        application,
        run,
        prices.baseline,
        options,
        ranked,
        len(references),
        differences,
        tuple(
            kind
            for kind, count in application.operations.counts.items()
            if count > 0 and kind not in prices.known_kinds
        ),
        _select_to_try(ranked),
    )


def _require_one_machine(references: Sequence[ReferenceRun], run: Run, options: AdviceOptions) -> None:
    """Raise UsageError for a reference that was measured on another machine than the price list."""
    for each in references if not options.across_machines else ():
        if apart := machine_differences(
            each.machine, run.record.instance_machine, ("for the reference", "for the price list")
        ):
            hint = "give references of the machine of the price list, or add --across-machines"
            raise UsageError(f"{each.name}: a reference of another machine: {'; '.join(apart)}", hint)


def fit_calibrations(references: Sequence[ReferenceRun], prices: PriceList) -> Mapping[str, Calibration]:
    """Return the calibrations by stack; stacks with too few references are missing.

    A reference counts for a stack if it was measured there and its predicted cost has no problems.
    """
    predictions: dict[str, list[ReferencePrediction]] = {stack: [] for stack in prices.stacks}
    for reference in references:
        for breakdown in predict(reference.operations, prices):
            stack = breakdown.stack
            if stack in reference.relative_times and not breakdown.problems:
                predictions[stack].append(ReferencePrediction(breakdown.cost, reference.relative_times[stack]))
    return {stack: calibration for stack, several in predictions.items() if (calibration := fit_calibration(several))}


def measured_times(run: Run) -> Mapping[str, CostEstimate]:
    """Return the times of a run's stacks relative to its baseline, over all workloads together.

    Stacks without a value in every workload are missing.
    """
    standings = [each for each in summarize(run).overall.standings if each.speed > 0]
    return {
        each.stack: CostEstimate(1 / each.speed, *(1 / end if end else None for end in (each.high, each.low)))
        for each in standings
    }


def _find_machine_differences(application: ApplicationProfile, run: Run) -> tuple[str, ...]:
    profiled, priced = application.machine, run.record.instance_machine
    differences = machine_differences(profiled, priced, _SIDE_LABELS)
    # Runs may be compared across kernels, but unit costs are mostly costs of the kernel.
    if profiled.kernel != priced.kernel:
        kernels = f"{profiled.kernel or 'unknown'} for the profile, {priced.kernel or 'unknown'} for the price list"
        differences += (f"kernel: {kernels}",)
    return differences


@dataclass(frozen=True)
class _Adviser:
    """Factory of candidates: adds isolation, memory, start-up and machines to a cost breakdown."""

    run: Run
    application: ApplicationProfile
    options: AdviceOptions
    prices: PriceList
    calibrations: Mapping[str, Calibration]
    problems: tuple[str, ...]

    @cached_property
    def isolation(self) -> Mapping[str, Isolation]:
        """The isolation by stack; stacks of unknown isolation are missing."""
        return find_isolation(self.run, self.prices.stacks)

    def make_candidate(self, breakdown: CostBreakdown) -> Candidate:
        """Return the candidate of a cost breakdown, without ranks, which depend on the other candidates."""
        stack, calibration = breakdown.stack, self.calibrations.get(breakdown.stack)
        cost = apply_calibration(breakdown.cost, calibration) if calibration else breakdown.cost
        # References are compared by time: their correction of CPU time is the same factor.
        by_cpu = self.application.operations.by_cpu
        cpu = cost if by_cpu else breakdown.cpu.times(cost.value / breakdown.cost.value)
        memory = self._total_memory_bytes(stack)
        start = self._median(stack, lambda trial: max((mark.seconds for mark in trial.timeline), default=None))
        machines, problems = self._plan_machines(cpu, memory)
        if cost.low is None or cost.high is None:
            problems = ("unit costs of a single block", *problems)
        return Candidate(
            stack=stack,
            isolation=self.isolation.get(stack),
            breakdown=breakdown,
            cost=cost,
            cpu=cpu,
            calibration=calibration,
            memory_bytes=memory,
            start_seconds=start,
            cautions=self._caution_kinds(stack),
            unmet=tuple(_find_unmet(self.options.requirements, self.isolation.get(stack), memory, start)),
            problems=(*self.problems, *breakdown.problems, *problems),
            hourly_price=None
            if self.options.node_hourly_price is None
            else self.options.node_hourly_price * cost.value,
            machines=machines,
        )

    def _plan_machines(self, cpu: CostEstimate, memory: int | None) -> tuple[MachinePlan | None, tuple[str, ...]]:
        """Return the cheapest machines for the load, and a problem if no machine type has the memory.

        Without machine types, plan with machines like the one that the unit costs were measured on. Return None without
        a load.
        """
        options, machine = self.options, self.run.record.instance_machine
        machine_types = options.machine_types or (
            (MachineType(machine.cpus, options.node_hourly_price),) if machine.cpus > 0 else ()
        )
        if options.load_per_second is None or not machine_types:
            return None, ()
        cpu_seconds = self.application.operations.cpu_seconds * cpu.value
        plan = find_cheapest_plan(machine_types, options.load_per_second, cpu_seconds, memory)
        return plan, () if plan else (f"no machine type has {format_size(memory or 0)} of memory",)

    def _total_memory_bytes(self, stack: str) -> int | None:
        """Return the application's memory plus the stack's footprint beyond the baseline's; None if unknown."""
        in_stack, on_baseline = (self._median(each, _footprint_bytes) for each in (stack, self.prices.baseline))
        if in_stack is None or on_baseline is None or self.application.memory_bytes is None:
            return None
        return int(self.application.memory_bytes + max(in_stack - on_baseline, 0))

    def _caution_kinds(self, stack: str) -> tuple[str, ...]:
        """Return the caution kinds of the trials of the stack and of the baseline."""
        stacks = {stack, self.prices.baseline}
        trials = (trial for trial in self.run.trials if trial.stack in stacks and trial.status == "ok")
        return tuple(dict.fromkeys(caution.kind for trial in trials for caution in trial.cautions))

    def _median(self, stack: str, read: Callable[[Trial], float | None]) -> float | None:
        values = [read(trial) for trial in self.run.trials if trial.stack == stack and trial.status == "ok"]
        known = [value for value in values if value is not None]
        return statistics.median(known) if known else None


def _footprint_bytes(trial: Trial) -> float | None:
    return trial.footprint.total_memory_bytes if trial.footprint else None


def _find_unmet(
    requirements: Requirements, isolation: Isolation | None, memory: int | None, start: float | None
) -> Iterator[str]:
    """Yield a text for each requirement that a stack does not meet; an unknown figure does not meet any."""
    if requirements.isolation and (
        isolation is None or LEVELS.index(isolation.level) < LEVELS.index(requirements.isolation)
    ):
        yield f"isolation: {isolation.level if isolation else UNKNOWN}"
    if requirements.memory_bytes is not None and (memory is None or memory > requirements.memory_bytes):
        yield f"memory: {'unknown' if memory is None else format_size(memory)}"
    if requirements.start_seconds is not None and (start is None or start > requirements.start_seconds):
        yield f"start-up: {'unknown' if start is None else format_duration(start)}"


def _flag_wide_intervals(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Add a problem to candidates with a wide interval, unless it lies above the cheapest narrow one.

    A stack that is certainly dearer than another one can be ranked without knowing by how much.
    """
    bounds = [
        each.cost.high for each in candidates if each.decision == "ranked" and each.cost.is_narrow and each.cost.high
    ]
    return [
        each if each.cost.is_narrow or (bounds and (each.cost.low or 0.0) > min(bounds)) else _with_width_problem(each)
        for each in candidates
    ]


def _with_width_problem(candidate: Candidate) -> Candidate:
    cost, widest = candidate.cost, candidate.breakdown.widest_item
    if cost.low is None or cost.high is None:
        return candidate
    cause = f", mostly for {widest.title}" if widest and not candidate.calibration else ""
    problem = f"the interval is too wide: from {cost.low:.2f} to {cost.high:.2f} times bare metal{cause}"
    return replace(candidate, problems=(*candidate.problems, problem))


def _rank(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Order the candidates by cost, and give the ranked ones their best and worst rank.

    A candidate is surely before another if its interval lies below that of the other.
    """
    ranked = [each for each in candidates if each.decision == "ranked"]
    with_ranks = [
        replace(
            each,
            best_rank=1 + sum(_is_before(other, each) for other in ranked),
            worst_rank=len(ranked) - sum(_is_before(each, other) for other in ranked),
        )
        for each in ranked
    ]
    others = [each for each in candidates if each.decision != "ranked"]
    return (
        *sorted(with_ranks, key=lambda each: each.cost.value),
        *sorted(others, key=lambda each: (each.decision == "excluded", each.cost.value)),
    )


def _is_before(one: Candidate, other: Candidate) -> bool:
    return one.cost.high is not None and other.cost.low is not None and one.cost.high < other.cost.low


def _select_to_try(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Return the first stack, and the stack that could be cheaper by the most (lowest lower bound)."""
    open_ones = [each for each in candidates if each.decision != "excluded"]
    first = open_ones[:1]
    rest = sorted(open_ones[1:], key=lambda each: each.cost.low if each.cost.low is not None else each.cost.value)
    return tuple(each.stack for each in (*first, *rest[:1]))

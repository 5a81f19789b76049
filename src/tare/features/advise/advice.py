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

from tare.features.advise.calibration import Correction, Reference, corrected, learn
from tare.features.advise.capacity import Kind, Machines, cheapest
from tare.features.advise.cost_model import CORRECTION, Application, Basket, Bill, Estimate, Line, predict
from tare.features.advise.unit_costs import PriceList, price_list
from tare.features.compare.comparability import unlike_machines
from tare.model.errors import UsageError
from tare.model.isolation import LEVELS, Isolation, IsolationLevel
from tare.model.journal import Run
from tare.model.machine import Facts
from tare.model.trial import Trial
from tare.model.units import format_duration, format_size
from tare.report.tradeoff import UNKNOWN, isolation_of
from tare.statistics.summarize import summarize

Decision = Literal["ranked", "cannot tell", "excluded"]
_FOR_PROFILES = ("for the profile", "for the prices")


@dataclass(frozen=True)
class Needs:
    """What a stack must have: isolation of at least this level, None for any; at most this memory and start-up."""

    isolation: IsolationLevel | None = None
    memory_bytes: float | None = None
    start_seconds: float | None = None


@dataclass(frozen=True)
class Asked:
    """What the user asked for. `node_price` is that of an hour of a machine like that of the prices.

    `load` is in units of work a second, and `kinds` are machines that could do it. Prices of another machine count only
    `across_machines`.
    """

    needs: Needs = field(default_factory=Needs)
    node_price: float | None = None
    load: float | None = None
    kinds: tuple[Kind, ...] = ()
    across_machines: bool = False


@dataclass(frozen=True)
class Measured:
    """A reference application: its basket, and its time over that of bare metal as measured on a machine, by stack."""

    name: str
    basket: Basket
    times: Mapping[str, Estimate]
    machine: Facts


@dataclass(frozen=True)
class Candidate:
    """Stack with its predicted cost and what else a choice needs.

    `isolation` is None if it is unknown. `cost` is the time of a unit of work, or its CPU time where the application
    waited for requests; `cost` and `cpu` are relative to bare metal, corrected where there is a `correction`.
    `memory_bytes` and `start_seconds` are None where they are unknown. `cautions` are the kinds of those of its prices
    and the baseline's. `unmet` are the needs that it does not meet, `doubts` why its cost is unknown. Only one that is
    ranked has ranks, from `best` to `worst`. `hourly` is the price of the work of one machine on bare metal, `machines`
    the cheapest ones for the load.
    """

    stack: str
    isolation: Isolation | None
    bill: Bill
    cost: Estimate
    cpu: Estimate
    correction: Correction | None = None
    memory_bytes: int | None = None
    start_seconds: float | None = None
    cautions: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    best: int = 0
    worst: int = 0
    hourly: float | None = None
    machines: Machines | None = None

    @property
    def isolation_level(self) -> str:
        """The level of isolation, or that it is unknown."""
        return self.isolation.level if self.isolation else UNKNOWN

    @property
    def decision(self) -> Decision:
        """Whether it is ranked, and why not."""
        return "excluded" if self.unmet else "cannot tell" if self.doubts else "ranked"

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines of the bill, with that of the correction."""
        if self.correction is None:
            return self.bill.lines
        return (*self.bill.lines, Line(CORRECTION, Estimate(self.cost.value - self.bill.cost.value)))


@dataclass(frozen=True)
class Advice:
    """What came of it: candidates in the order of their cost, those that are not ranked last.

    `to_try` are the two stacks whose measurement settles the most; fewer where there are fewer.
    `references` is the number of reference applications, `unlike` what is different about the machines.
    """

    application: Application
    prices: Run
    baseline: str
    asked: Asked
    candidates: tuple[Candidate, ...]
    references: int
    unlike: tuple[str, ...]
    unpriced: tuple[str, ...]
    to_try: tuple[str, ...]

    @property
    def by_cpu(self) -> bool:
        """Whether stacks are ranked by CPU time, as the application waited for requests."""
        return self.application.basket.by_cpu

    def of(self, decision: Decision) -> tuple[Candidate, ...]:
        """Return the candidates of a decision."""
        return tuple(each for each in self.candidates if each.decision == decision)

    @property
    def is_settled(self) -> bool:
        """Whether one stack is surely the cheapest of those that can be had."""
        ranked = self.of("ranked")
        return bool(ranked) and ranked[0].worst == 1 and not self.of("cannot tell")


def advise(application: Application, run: Run, asked: Asked, references: Sequence[Measured] = ()) -> Advice:
    """Rank the stacks of a price list for an application.

    Raises UsageError for a run that is none, and for references of another machine.
    """
    prices = price_list(run)
    if not prices.stacks:
        raise UsageError(f"{run.folder}: has no stack but {prices.baseline}", "measure others with `tare prices`")
    unlike = _unlike(application, run)
    doubts = () if asked.across_machines else tuple(f"prices of another machine: {each}" for each in unlike)
    _require_one_machine(references, run, asked)
    adviser = _Adviser(run, application, asked, prices, corrections(references, prices), doubts)
    ranked = _ranked(_doubted([adviser.candidate(bill) for bill in predict(application.basket, prices)]))
    return Advice(
        application,
        run,
        prices.baseline,
        asked,
        ranked,
        len(references),
        unlike,
        tuple(kind for kind, count in application.basket.counts.items() if count > 0 and kind not in prices.known),
        _to_try(ranked),
    )


def _require_one_machine(references: Sequence[Measured], run: Run, asked: Asked) -> None:
    """Raise UsageError for a reference of another machine than the prices are of."""
    for each in references if not asked.across_machines else ():
        if apart := unlike_machines(each.machine, run.record.measured_on, ("for the reference", "for the prices")):
            hint = "give references of the machine of the prices, or say --across-machines"
            raise UsageError(f"{each.name}: a reference of another machine: {'; '.join(apart)}", hint)


def corrections(references: Sequence[Measured], prices: PriceList) -> Mapping[str, Correction]:
    """Return the correction of each stack that enough references were measured in, and have a bill without doubts."""
    seen: dict[str, list[Reference]] = {stack: [] for stack in prices.stacks}
    for each in references:
        for bill in predict(each.basket, prices):
            if bill.stack in each.times and not bill.doubts:
                seen[bill.stack].append(Reference(bill.cost, each.times[bill.stack]))
    return {stack: found for stack, own in seen.items() if (found := learn(own))}


def measured_times(run: Run) -> Mapping[str, Estimate]:
    """Return the times of the stacks of a run over that of its baseline, over all its workloads together."""
    standings = [each for each in summarize(run).overall.standings if each.speed > 0]
    return {
        each.stack: Estimate(1 / each.speed, *(1 / end if end else None for end in (each.high, each.low)))
        for each in standings
    }


def _unlike(application: Application, run: Run) -> tuple[str, ...]:
    own, other = application.machine, run.record.measured_on
    apart = unlike_machines(own, other, _FOR_PROFILES)
    if own.kernel != other.kernel:
        apart += (f"kernel: {own.kernel or 'unknown'} for the profile, {other.kernel or 'unknown'} for the prices",)
    return apart


@dataclass(frozen=True)
class _Adviser:
    """Makes candidates of bills, by what the trials of the prices say of a stack beside the prices."""

    run: Run
    application: Application
    asked: Asked
    prices: PriceList
    corrections: Mapping[str, Correction]
    doubts: tuple[str, ...]

    @cached_property
    def isolation(self) -> Mapping[str, Isolation]:
        """The isolation of each stack that is known."""
        return isolation_of(self.run, self.prices.stacks)

    def candidate(self, bill: Bill) -> Candidate:
        """Return the candidate of a bill, without what depends on the others."""
        stack, correction, by_cpu = bill.stack, self.corrections.get(bill.stack), self.application.basket.by_cpu
        cost = corrected(bill.cost, correction) if correction else bill.cost
        cpu = cost if by_cpu else bill.cpu.times(cost.value / bill.cost.value)
        memory = self._memory(stack)
        start = self._median(stack, lambda trial: max((mark.seconds for mark in trial.timeline), default=None))
        machines, doubts = self._machines(cpu, memory)
        if cost.low is None or cost.high is None:
            doubts = ("prices of a single block", *doubts)
        return Candidate(
            stack=stack,
            isolation=self.isolation.get(stack),
            bill=bill,
            cost=cost,
            cpu=cpu,
            correction=correction,
            memory_bytes=memory,
            start_seconds=start,
            cautions=self._cautions(stack),
            unmet=tuple(_unmet(self.asked.needs, self.isolation.get(stack), memory, start)),
            doubts=(*self.doubts, *bill.doubts, *doubts),
            hourly=None if self.asked.node_price is None else self.asked.node_price * cost.value,
            machines=machines,
        )

    def _machines(self, cpu: Estimate, memory: int | None) -> tuple[Machines | None, tuple[str, ...]]:
        """Return the machines for the load, or a doubt: without kinds of machines, those like that of the prices."""
        asked, machine = self.asked, self.run.record.measured_on
        kinds = asked.kinds or ((Kind(machine.cpus, asked.node_price),) if machine.cpus > 0 else ())
        if asked.load is None or not kinds:
            return None, ()
        found = cheapest(kinds, asked.load, self.application.basket.cpu_seconds * cpu.value, memory)
        return found, () if found else (f"no kind of machine has {format_size(memory or 0)} of memory",)

    def _memory(self, stack: str) -> int | None:
        """Return the memory of the application and what the stack adds to it."""
        own, least = (self._median(each, _memory) for each in (stack, self.prices.baseline))
        if own is None or least is None or self.application.memory_bytes is None:
            return None
        return int(self.application.memory_bytes + max(own - least, 0))

    def _cautions(self, stack: str) -> tuple[str, ...]:
        """Return the kinds of cautions that its trials and the baseline's have."""
        stacks = {stack, self.prices.baseline}
        own = (trial for trial in self.run.trials if trial.stack in stacks and trial.status == "ok")
        return tuple(dict.fromkeys(caution.kind for trial in own for caution in trial.cautions))

    def _median(self, stack: str, read: Callable[[Trial], float | None]) -> float | None:
        values = [read(trial) for trial in self.run.trials if trial.stack == stack and trial.status == "ok"]
        known = [value for value in values if value is not None]
        return statistics.median(known) if known else None


def _memory(trial: Trial) -> float | None:
    return trial.footprint.all_memory_bytes if trial.footprint else None


def _unmet(needs: Needs, isolation: Isolation | None, memory: int | None, start: float | None) -> Iterator[str]:
    """Yield the needs that a stack does not meet; what is unknown does not meet one."""
    if needs.isolation and (isolation is None or LEVELS.index(isolation.level) < LEVELS.index(needs.isolation)):
        yield f"isolation: {isolation.level if isolation else UNKNOWN}"
    if needs.memory_bytes is not None and (memory is None or memory > needs.memory_bytes):
        yield f"memory: {'unknown' if memory is None else format_size(memory)}"
    if needs.start_seconds is not None and (start is None or start > needs.start_seconds):
        yield f"start-up: {'unknown' if start is None else format_duration(start)}"


def _doubted(found: Sequence[Candidate]) -> list[Candidate]:
    """Doubt the wide intervals that reach down to where the cheapest of the narrow ones may be."""
    ends = [each.cost.high for each in found if each.decision == "ranked" and each.cost.is_narrow and each.cost.high]
    return [
        each if each.cost.is_narrow or (ends and (each.cost.low or 0.0) > min(ends)) else _with_width_doubted(each)
        for each in found
    ]


def _with_width_doubted(candidate: Candidate) -> Candidate:
    cost, widest = candidate.cost, candidate.bill.widest
    if cost.low is None or cost.high is None:
        return candidate
    by_what = f", mostly for {widest.title}" if widest and not candidate.correction else ""
    doubt = f"the interval is too wide: from {cost.low:.2f} to {cost.high:.2f} times bare metal{by_what}"
    return replace(candidate, doubts=(*candidate.doubts, doubt))


def _ranked(found: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Rank the candidates by their costs: one is before another where its interval lies below that of the other."""
    ranked = [each for each in found if each.decision == "ranked"]
    placed = [
        replace(
            each,
            best=1 + sum(_is_before(other, each) for other in ranked),
            worst=len(ranked) - sum(_is_before(each, other) for other in ranked),
        )
        for each in ranked
    ]
    others = [each for each in found if each.decision != "ranked"]
    return (
        *sorted(placed, key=lambda each: each.cost.value),
        *sorted(others, key=lambda each: (each.decision == "excluded", each.cost.value)),
    )


def _is_before(one: Candidate, other: Candidate) -> bool:
    return one.cost.high is not None and other.cost.low is not None and one.cost.high < other.cost.low


def _to_try(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Return the stack that is ranked first, and the one that could still be cheaper by the most."""
    open_ones = [each for each in candidates if each.decision != "excluded"]
    first = open_ones[:1]
    rest = sorted(open_ones[1:], key=lambda each: each.cost.low if each.cost.low is not None else each.cost.value)
    return tuple(each.stack for each in (*first, *rest[:1]))

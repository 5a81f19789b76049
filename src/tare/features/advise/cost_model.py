"""Linear cost model: operation counts times unit costs, line by line.

The time of a unit of work is a sum over kinds of work: how many of each the unit needs, times what one of them takes.
Counts come from a profile on bare metal, prices from microbenchmarks. Saavedra and Smith predict the times of programs
so ("Analysis of benchmark characteristics and benchmark performance prediction", ACM Transactions on Computer Systems
14 (1996), 344-384), of operations of a language; the kinds of work here are what a stack can make dearer: the entries
into the kernel that lmbench measures (McVoy and Staelin, "lmbench: portable tools for performance analysis", USENIX
Annual Technical Conference 1996, 279-294), and the network path. Only differences to bare metal are predicted:

    extra(kind) = effort · count · (price in the stack - price on bare metal)
    effort      = CPU seconds in the kernel / sum of count · price on bare metal               between 1 and 4
    extra(user) = seconds of user code · (ratio - 1)         ratio: price in the stack over that on bare metal
    extra(rest) = seconds in the kernel that even this does not explain · (ratio of user code - 1)
    time in the stack = elapsed time on bare metal + sum of extras / CPUs in use
    CPU in the stack = CPU time on bare metal + sum of extras, without those of syncs, which wait

The cost is the time over that on bare metal. Where an application waited for requests, nobody knows the time of one:
the cost is then the CPU time over that on bare metal.

The effort is how much longer the kernel takes for the application than for the microbenchmarks, which do one thing in a
loop and have all of it in their caches. So counts say what the time in the kernel is for, and the kernel's own clock
how much it is. A sync, which mostly waits, is part of the sum as far as the kernel has time left for it.

CPUs in use are CPU time over elapsed time on bare metal, and at least one: what costs CPU time costs elapsed time where
a CPU is always in use, and where one thing is done after the other. Whole blocks of prices are drawn anew for the
intervals, so that what disturbed a block disturbs all stacks and kinds of it together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

import numpy as np

from tare.features.advise.profiler.profile import Profile, Usage, count_operations, with_possible_rate
from tare.features.advise.unit_costs import SEED, PriceList, ResampledUnitCosts
from tare.model.errors import UsageError
from tare.model.machine import Facts
from tare.model.operations import OPERATION_KINDS, SYNC, USER
from tare.statistics.bootstrap import DRAW_COUNT, Draws, bootstrap_bounds, bootstrap_means, bootstrap_weights

SATURATED_SHARE = 0.85  # of the time: a thread that used a CPU for so much of it had no more to use
REST = "rest"  # the line of time in the kernel that no price explains
CORRECTION = "correction"  # the line of what reference applications teach
_HINT = "give a profile and a price list as tare has written them"
_MAX_MISSING_SHARE = 0.02  # of the time: kinds without a price
_MUCH_UNEXPLAINED_SHARE = 0.25  # of the time: kernel time that no price explains, and that may be any work
_MAX_SCALING_FACTOR = 4.0
_MAX_INTERVAL_RATIO = 1.5  # the upper end of an interval of times over the lower one
_TINY_SECONDS = 1e-30  # seconds
_MIN_PREDICTION = 1e-3  # of the time on bare metal: the least that a prediction may be
_TITLES = {work.name: work.title for work in OPERATION_KINDS} | {
    REST: "other time in the kernel",
    CORRECTION: "correction",
}


@dataclass(frozen=True)
class CostEstimate:
    """An estimate and the ends of its interval of 90 %; the ends are None where there are too few blocks for one."""

    value: float
    low: float | None = None
    high: float | None = None

    def times(self, factor: float) -> CostEstimate:
        """Multiply the estimate and its interval."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return CostEstimate(self.value * factor, low, high)

    @property
    def is_narrow(self) -> bool:
        """Whether the interval says enough to decide by."""
        return self.low is not None and self.high is not None and self.high <= _MAX_INTERVAL_RATIO * self.low


@dataclass(frozen=True)
class CostItem:
    """What a kind of work costs beyond bare metal: `share` is of the cost there, and below 0 for a gain.

    A unit of work has `count` of it, and each takes `price` seconds on bare metal and `ratio` times as long in the
    stack. These are None where it has no such.
    """

    kind: str
    share: CostEstimate
    count: float | None = None
    price: float | None = None
    ratio: float | None = None

    @property
    def title(self) -> str:
        """The name of many of it."""
        return title_of(self.kind)


@dataclass(frozen=True)
class CostBreakdown:
    """What a unit of work costs in a stack, and its `cpu` time, both times those of bare metal. Dear lines come first.

    `cost` is the time, or `cpu` where an application waited for requests. `problems` say what is not covered, so that
    nothing can be told. `block_count` is the least number behind a line.
    """

    stack: str
    cost: CostEstimate
    cpu: CostEstimate
    items: tuple[CostItem, ...]
    block_count: int
    problems: tuple[str, ...] = ()

    @property
    def is_finite(self) -> bool:
        """Whether all of it is a number."""
        found = (self.cost, self.cpu, *(line.share for line in self.items))
        return all(math.isfinite(end) for each in found for end in (each.value, each.low, each.high) if end is not None)

    @property
    def widest_item(self) -> CostItem | None:
        """The line that makes the interval wide."""
        return max(self.items, key=lambda line: (line.share.high or 0.0) - (line.share.low or 0.0), default=None)


def predict(operations: OperationCounts, prices: PriceList) -> tuple[CostBreakdown, ...]:
    """Return the bill of each stack of the price list, in its order; raises UsageError for absurd numbers."""
    model = _Model(operations, prices.kinds, prices.resampled_costs)
    with np.errstate(over="ignore", invalid="ignore"):
        bills = tuple(model.break_down_cost(stack, at) for at, stack in enumerate(prices.stacks))
    if not all(bill.is_finite for bill in bills):
        raise UsageError("the profile or the prices have numbers that nothing can be computed with", _HINT)
    return bills


def estimate(draws: Draws, blocks: int) -> CostEstimate:
    """Return the first draw, and the interval of the others; no interval of less than two blocks."""
    return CostEstimate(float(draws[0]), *(bootstrap_bounds(draws) if blocks >= 2 else ()))


def title_of(kind: str) -> str:
    """Return the name of many of a kind of work."""
    return _TITLES.get(kind, kind)


@dataclass(frozen=True)
class OperationCounts:
    """What a unit of an application's work needs on bare metal.

    `counts` has units by kind of work, of user code CPU seconds. A kind that could not be counted is missing.
    They are means over the times that the application was watched; `repetitions` has those of each time.
    `elapsed_seconds` is the time from one unit to the next. It is not the time of a unit where the application waited
    for requests: `by_cpu` says so, and what a stack costs is then CPU time.
    """

    counts: Mapping[str, float]
    cpu_seconds: float
    elapsed_seconds: float
    repetitions: tuple[Mapping[str, float], ...] = ()
    by_cpu: bool = False

    @property
    def cpus_in_use(self) -> float:
        """CPUs that were in use at a time, at least one."""
        return max(self.mean_cpus, 1.0)

    @property
    def mean_cpus(self) -> float:
        """CPUs in use, as a mean over the time."""
        return self.cpu_seconds / self.elapsed_seconds

    @property
    def is_saturated(self) -> bool:
        """Whether it had no CPU time left, so that CPU time decides its throughput."""
        return not self.by_cpu and self.mean_cpus >= SATURATED_SHARE

    @property
    def cost_seconds(self) -> float:
        """Seconds on bare metal that costs are relative to: CPU time where CPUs were in use, or the only measure."""
        return self.cpu_seconds if self.by_cpu else self.elapsed_seconds * self.cpus_in_use

    @property
    def kernel_seconds(self) -> float:
        """CPU seconds in the kernel."""
        return max(self.cpu_seconds - self.counts.get(USER.name, 0.0), 0.0)


@dataclass(frozen=True)
class ApplicationProfile:
    """An application as its profile has it.

    `name` says what was watched, `command` is its command line where tare started it, `unit` names a unit of its work,
    `memory_bytes` is what it takes on bare metal. `missing` says what is not known of it, `cautions` what makes its
    profile doubtful, a sentence each.
    """

    name: str
    operations: OperationCounts
    machine: Facts
    unit: str = "unit of work"
    command: tuple[str, ...] = ()
    memory_bytes: int | None = None
    missing: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()


def combine_profiles(*given: Profile) -> ApplicationProfile:
    """Return the application of one or more profiles of it.

    Raises UsageError for a profile without CPU time, and for profiles of different units or machines.
    """
    profiles = tuple(map(with_possible_rate, given))
    first = profiles[0]
    for each in profiles:
        if each.cpu_seconds <= 0:
            raise UsageError(f"the profile of {each.name} has no CPU time", "watch the application while it works")
        if each.unit != first.unit:
            what = f"a {each.unit} is the unit of {each.name}, and a {first.unit} that of {first.name}"
            raise UsageError(what, "give several profiles only of one application")
        if (each.machine.cpu_model, each.machine.kernel) != (first.machine.cpu_model, first.machine.kernel):
            raise UsageError(f"{each.name}: profiles of different machines", "give profiles of one machine and kernel")
    baskets = tuple(map(count_operations, profiles))
    counts = {kind: fmean(own[kind] for own in baskets) for kind in baskets[0] if all(kind in own for own in baskets)}
    memory = [size for each in profiles if (size := _memory_bytes(each.usage)) is not None]
    return ApplicationProfile(
        first.name,
        OperationCounts(
            counts,
            fmean(each.cpu_seconds for each in profiles),
            fmean(each.elapsed_seconds for each in profiles),
            baskets,
            by_cpu=first.unit != "run" and fmean(map(_busiest_cpu_share, profiles)) < SATURATED_SHARE,
        ),
        first.machine,
        "second of its work" if first.unit == "second" else first.unit,
        first.command,
        max(memory, default=None),
        tuple(dict.fromkeys(missing for each in profiles for missing in each.missing)),
        tuple(dict.fromkeys(caution for each in profiles for caution in each.cautions)),
    )


def _busiest_cpu_share(profile: Profile) -> float:
    """Return the share of the time in which its busiest thread used a CPU, or all CPUs of the machine were in use.

    Where its threads are unknown, it is that of one CPU.
    """
    usage = profile.usage
    used = (usage.user_seconds + usage.system_seconds) / profile.seconds
    if usage.busiest_thread_seconds is None:
        return min(used, 1.0)
    return min(max(usage.busiest_thread_seconds / profile.seconds, used / max(profile.machine.cpus, 1)), 1.0)


def _memory_bytes(usage: Usage) -> int | None:
    return usage.resident_bytes if usage.proportional_bytes is None else usage.proportional_bytes


@dataclass(frozen=True)
class _Model:
    """The basket, and all draws of the prices of these kinds; the first draw is the estimate."""

    operations: OperationCounts
    kinds: tuple[str, ...]
    resampled_costs: ResampledUnitCosts

    @cached_property
    def counts(self) -> Draws:
        """The counts by draw and kind, drawn anew from the repetitions where there are several."""
        counts = np.array([self.operations.counts.get(kind, 0.0) for kind in self.kinds])
        many = self.operations.repetitions
        if len(many) < 2:
            return np.broadcast_to(counts, (DRAW_COUNT + 1, len(counts)))
        own = np.array([[each.get(kind, 0.0) for each in many] for kind in self.kinds])
        weights = bootstrap_weights(len(many), np.random.default_rng([SEED, len(self.kinds)]))
        means = bootstrap_means(own, np.ones(own.shape, dtype=bool), weights)
        return np.asarray(np.maximum(counts + means - means[0], 0.0))

    @cached_property
    def seconds(self) -> Draws:
        """Seconds of a unit of work on bare metal by draw and kind, as the prices have it; 0 for an unknown price."""
        return np.asarray(np.nan_to_num(self.counts * self.resampled_costs.native))

    @cached_property
    def explained_seconds(self) -> Draws:
        """Seconds in the kernel that prices explain, by draw; of syncs, as far as time is left for them."""
        inside = [at for at, kind in enumerate(self.kinds) if kind not in {USER.name, SYNC.name}]
        busy = self.seconds[:, inside].sum(axis=-1)
        waits = self.seconds[:, self._kind_indexes(SYNC.name)].sum(axis=-1)
        return np.asarray(busy + np.clip(self.operations.kernel_seconds - busy, 0.0, waits))

    @cached_property
    def scaling_factor(self) -> Draws:
        """How many times as long as its price says work in the kernel takes, by draw; 1 where some is unknown."""
        used = {kind for kind, count in self.operations.counts.items() if count > 0}
        priced = {kind for at, kind in enumerate(self.kinds) if not np.isnan(self.resampled_costs.native[0, at])}
        if not (used <= priced <= self.operations.counts.keys()):
            return np.ones(len(self.explained_seconds))
        ratio = self.operations.kernel_seconds / np.maximum(self.explained_seconds, _TINY_SECONDS)
        return np.asarray(np.where(self.explained_seconds > 0, np.clip(ratio, 1.0, _MAX_SCALING_FACTOR), 1.0))

    @cached_property
    def unexplained_seconds(self) -> Draws:
        """Seconds in the kernel that nothing explains, by draw."""
        return np.asarray(
            np.maximum(self.operations.kernel_seconds - self.scaling_factor * self.explained_seconds, 0.0)
        )

    @cached_property
    def _scaling_factors(self) -> Draws:
        """The effort by draw and kind: user code has none."""
        efforts = np.repeat(self.scaling_factor[:, np.newaxis], len(self.kinds), axis=-1)
        efforts[:, self._kind_indexes(USER.name)] = 1.0
        return efforts

    def _kind_indexes(self, *kinds: str) -> list[int]:
        """Return where kinds are; nothing for those without a price."""
        return [self.kinds.index(kind) for kind in kinds if kind in self.kinds]

    def break_down_cost(self, stack: str, row: int) -> CostBreakdown:
        """Return the bill of a stack."""
        basket, counts = self.operations, self.operations.counts
        extras = (
            np.nan_to_num(self.counts * (self.resampled_costs.prices[:, row] - self.resampled_costs.native))
            * self._scaling_factors
        )
        own_code = self._kind_indexes(USER.name)  # no stack runs it faster than bare metal
        extras[:, own_code] = np.maximum(extras[:, own_code], 0.0)
        rest = self.unexplained_seconds * (self._unexplained_ratio(row) - 1)
        if basket.by_cpu:
            extras[:, self._kind_indexes(SYNC.name)] = 0.0  # which wait
        total = extras.sum(axis=-1) + rest
        waits = extras[:, self._kind_indexes(SYNC.name)].sum(axis=-1)
        priced = [
            at for at in self._kind_indexes(*counts) if counts[self.kinds[at]] > 0 and not self._is_unpriced(row, at)
        ]
        blocks = int(min((self.resampled_costs.blocks[row, at] for at in priced), default=0))
        scale = basket.cost_seconds
        lines = [self._cost_item(row, at, estimate(extras[:, at] / scale, blocks)) for at in priced]
        if self.unexplained_seconds[0] > 0:
            lines.append(CostItem(REST, estimate(rest / scale, blocks)))
        return CostBreakdown(
            stack,
            estimate(np.maximum(1 + total / scale, _MIN_PREDICTION), blocks),
            estimate(np.maximum(1 + (total - waits) / basket.cpu_seconds, _MIN_PREDICTION), blocks),
            tuple(sorted(lines, key=lambda line: -abs(line.share.value))),
            blocks,
            self._find_problems(row, scale),
        )

    def _is_unpriced(self, row: int, at: int) -> bool:
        """Return whether a stack has no price of a kind."""
        return bool(np.isnan(self.resampled_costs.prices[0, row, at]))

    def _cost_item(self, row: int, at: int, share: CostEstimate) -> CostItem:
        price, own, kind = (
            float(self.resampled_costs.native[0, at]),
            float(self.resampled_costs.prices[0, row, at]),
            self.kinds[at],
        )
        return CostItem(kind, share, self.operations.counts[kind], price, own / price if price else None)

    def _unexplained_ratio(self, row: int) -> Draws:
        """Return how many times as long kernel time takes that no price explains, by draw: as user code does.

        It may be other work, too: kinds that the profile lacks and, where much is unexplained, those that it has. The
        ratio is then drawn between the least and the largest of theirs.
        """
        basket, counts = self.operations, self.operations.counts
        is_much = self.unexplained_seconds[0] > _MUCH_UNEXPLAINED_SHARE * basket.cost_seconds
        lacking = [each for each in self.kinds if each not in counts or (is_much and counts[each] > 0)]
        priced = [
            at
            for at in self._kind_indexes(USER.name, *lacking)
            if not self._is_unpriced(row, at) and self.resampled_costs.native[0, at] > 0
        ]
        own = [at for at in priced if self.kinds[at] != SYNC.name]
        if not own:
            return np.ones(len(self.resampled_costs.native))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.nan_to_num(
                self.resampled_costs.prices[:, row, own] / self.resampled_costs.native[:, own], nan=1.0
            )
        logs = np.log(np.clip(ratios, _MIN_PREDICTION, 1 / _MIN_PREDICTION))
        low, high = logs.min(axis=-1), logs.max(axis=-1)
        share = np.random.default_rng([SEED, len(self.kinds), row]).uniform(size=len(self.resampled_costs.native))
        share[0] = 0.5
        return np.asarray(np.exp(low + share * (high - low)))

    def _find_problems(self, row: int, scale: float) -> tuple[str, ...]:
        """Return what of the work is not covered."""
        doubts, unpriced, whole = [], [], "CPU time" if self.operations.by_cpu else "time"
        for kind, count in self.operations.counts.items():
            at = self.kinds.index(kind) if kind in self.kinds else None
            is_wait = kind == SYNC.name and self.operations.by_cpu
            if count <= 0 or is_wait or (at is not None and not self._is_unpriced(row, at)):
                continue
            if at is None or np.isnan(self.resampled_costs.native[0, at]):
                unpriced.append(kind)
            elif (share := self.seconds[0, at] / scale) > _MAX_MISSING_SHARE:
                doubts.append(f"no price of {title_of(kind)}, which are {share:.0%} of the {whole}")
        unexplained = float(self.unexplained_seconds[0]) / scale
        if unpriced and unexplained > _MAX_MISSING_SHARE:
            names = ", ".join(map(title_of, unpriced))
            doubts.append(f"no price of {names}, which are up to {unexplained:.0%} of the {whole}")
        if USER.name in unpriced:
            doubts.append("no price of user code")
        return tuple(doubts)

"""Linear cost model: operation counts times unit costs, summed over operation kinds.

Counts come from a profile on bare metal, unit costs ("prices") from microbenchmarks. Saavedra and Smith predict times
of programs from operations of a language ("Analysis of benchmark characteristics and benchmark performance prediction",
ACM Transactions on Computer Systems 14 (1996), 344-384). The operation kinds here are those that a stack can make
slower: the entries into the kernel that lmbench measures (McVoy and Staelin, "lmbench: portable tools for performance
analysis", USENIX Annual Technical Conference 1996, 279-294), and the network path. The model predicts differences to
bare metal only:

    extra(kind) = factor · count · (price in the stack - price on bare metal)
    factor      = CPU seconds in the kernel / sum of count · price on bare metal               between 1 and 4
    extra(user) = seconds of user code · (ratio - 1)         ratio: price in the stack over that on bare metal
    extra(rest) = unexplained seconds in the kernel · (ratio of user code - 1)
    time in the stack = elapsed time on bare metal + sum of extras / CPUs in use
    CPU in the stack = CPU time on bare metal + sum of extras, without those of syncs, which wait

The cost is the time in the stack over the time on bare metal. If the application waited for requests, the time of a
request is unknown, and the cost is the ratio of CPU times.

The scaling factor is how much longer the kernel takes for the application than for the microbenchmarks, which repeat
one operation with warm caches. Counts thus say which operations use the kernel's time, and the kernel's clock says how
much time they use. A sync, which mostly waits, is part of the sum as far as the kernel has time left for it.

CPUs in use are CPU time over elapsed time on bare metal, and at least one: extra CPU time is extra elapsed time if a
CPU is always in use, and if steps run one after another. Intervals are from a block bootstrap of the prices: a
disturbance of a block affects all stacks and kinds of the block together.
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

SATURATED_SHARE = 0.85  # of the time: a thread that used a CPU for longer had no CPU time left
REST = "rest"  # cost item of kernel time that no price explains
CORRECTION = "correction"  # cost item of the calibration on reference applications
_HINT = "give a profile and a price list as tare has written them"
_MAX_MISSING_SHARE = 0.02  # of the time: more of it in kinds without a price makes a stack "cannot tell"
_MUCH_UNEXPLAINED_SHARE = 0.25  # of the time: more unexplained kernel time may be any kind of work
_MAX_SCALING_FACTOR = 4.0  # measured applications have 0.8 to 2.5 (docs/advice.md): more is a missing kind
_MAX_INTERVAL_RATIO = 1.5  # upper over lower bound of an interval of times
_TINY_SECONDS = 1e-30  # avoids a division by zero; np.where drops the quotient
_MIN_PREDICTION = 1e-3  # of the time on bare metal; keeps logarithms of predictions finite
_TITLES = {work.name: work.title for work in OPERATION_KINDS}
_TITLES |= {REST: "other time in the kernel", CORRECTION: "correction"}


@dataclass(frozen=True)
class CostEstimate:
    """Estimate with the bounds of its 90 % interval; the bounds are None with fewer than two blocks."""

    value: float
    low: float | None = None
    high: float | None = None

    def times(self, factor: float) -> CostEstimate:
        """Return the estimate and its interval multiplied by `factor`."""
        low, high = (None if bound is None else bound * factor for bound in (self.low, self.high))
        return CostEstimate(self.value * factor, low, high)

    @property
    def is_narrow(self) -> bool:
        """Whether the interval is narrow enough for a decision."""
        return self.low is not None and self.high is not None and self.high <= _MAX_INTERVAL_RATIO * self.low


@dataclass(frozen=True)
class CostItem:
    """Extra cost of an operation kind: `share` of the cost on bare metal, negative for a gain.

    A unit of work has `count` operations of the kind. An operation takes `price` seconds on bare metal and `ratio`
    times as long in the stack. These three are None for `REST` and `CORRECTION`.
    """

    kind: str
    share: CostEstimate
    count: float | None = None
    price: float | None = None
    ratio: float | None = None

    @property
    def title(self) -> str:
        """The kind's name for users, in the plural."""
        return title_of(self.kind)


@dataclass(frozen=True)
class CostBreakdown:
    """Predicted cost of a unit of work in a stack, relative to bare metal; the largest `items` come first.

    `cost` is the time, or equals `cpu` (CPU time) if the application waited for requests. `problems` name work that the
    prices do not cover; a stack with any is not ranked. `block_count` is the smallest number of blocks of an item.
    """

    stack: str
    cost: CostEstimate
    cpu: CostEstimate
    items: tuple[CostItem, ...]
    block_count: int
    problems: tuple[str, ...] = ()

    @property
    def is_finite(self) -> bool:
        """Whether all values and bounds are finite."""
        estimates = (self.cost, self.cpu, *(item.share for item in self.items))
        numbers = (number for each in estimates for number in (each.value, each.low, each.high))
        return all(math.isfinite(number) for number in numbers if number is not None)

    @property
    def widest_item(self) -> CostItem | None:
        """The item with the widest interval; None without items."""
        return max(self.items, key=lambda item: (item.share.high or 0.0) - (item.share.low or 0.0), default=None)


def predict(operations: OperationCounts, prices: PriceList) -> tuple[CostBreakdown, ...]:
    """Return the cost breakdown of each stack of the price list, in its order.

    Raises UsageError if counts or prices are so large that a prediction is not finite.
    """
    model = _Model(operations, prices.kinds, prices.resampled_costs)
    with np.errstate(over="ignore", invalid="ignore"):  # the check below reports overflow as an error of the input
        breakdowns = tuple(model.break_down_cost(stack, at) for at, stack in enumerate(prices.stacks))
    if not all(breakdown.is_finite for breakdown in breakdowns):
        raise UsageError("the profile or the prices have numbers that nothing can be computed with", _HINT)
    return breakdowns


def estimate(draws: Draws, blocks: int) -> CostEstimate:
    """Return the first draw as the estimate, with bootstrap bounds from two blocks on."""
    return CostEstimate(float(draws[0]), *(bootstrap_bounds(draws) if blocks >= 2 else ()))


def title_of(kind: str) -> str:
    """Return the name of an operation kind for users, in the plural; the kind itself if unknown."""
    return _TITLES.get(kind, kind)


@dataclass(frozen=True)
class OperationCounts:
    """Operations and time that a unit of an application's work needs on bare metal.

    `counts` has the number of operations by kind, for user code its CPU seconds; a kind that could not be counted is
    missing. Counts are means over all profiles, and `repetitions` has the counts of each profile. `elapsed_seconds` is
    the time from one unit to the next. If the application waited for requests, that is not the time of a unit: `by_cpu`
    is then true, and costs are CPU time.
    """

    counts: Mapping[str, float]
    cpu_seconds: float
    elapsed_seconds: float
    repetitions: tuple[Mapping[str, float], ...] = ()
    by_cpu: bool = False

    @property
    def mean_cpus(self) -> float:
        """Mean number of CPUs in use."""
        return self.cpu_seconds / self.elapsed_seconds

    @property
    def is_saturated(self) -> bool:
        """Whether CPU time limits the application's throughput."""
        return not self.by_cpu and self.mean_cpus >= SATURATED_SHARE

    @property
    def cost_seconds(self) -> float:
        """CPU seconds on bare metal that extra costs are divided by; idle time of a single CPU counts."""
        return self.cpu_seconds if self.by_cpu else self.elapsed_seconds * max(self.mean_cpus, 1.0)

    @property
    def kernel_seconds(self) -> float:
        """CPU seconds in the kernel."""
        return max(self.cpu_seconds - self.counts.get(USER.name, 0.0), 0.0)


@dataclass(frozen=True)
class ApplicationProfile:
    """Application as the cost model needs it, combined from one or more profiles.

    `name` names the processes that were watched. `command` is the command line, empty if tare did not start the
    application. `unit` names a unit of its work. `memory_bytes` is its memory on bare metal, None if unknown. `missing`
    and `cautions` are sentences about unknown and doubtful figures of its profiles.
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
    """Combine one or more profiles of an application.

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
    repetitions = tuple(map(count_operations, profiles))
    counted_kinds = [kind for kind in repetitions[0] if all(kind in counts for counts in repetitions)]
    memory = [size for each in profiles if (size := _memory_bytes(each.usage)) is not None]
    return ApplicationProfile(
        first.name,
        OperationCounts(
            {kind: fmean(counts[kind] for counts in repetitions) for kind in counted_kinds},
            fmean(each.cpu_seconds for each in profiles),
            fmean(each.elapsed_seconds for each in profiles),
            repetitions,
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
    """Return the larger of two shares of the time: busiest thread on a CPU, and all CPUs of the machine in use.

    If the busiest thread is unknown, return the share of one CPU, at most 1.
    """
    usage = profile.usage
    used = (usage.user_seconds + usage.system_seconds) / profile.seconds
    if usage.busiest_thread_seconds is None:
        return min(used, 1.0)
    return min(max(usage.busiest_thread_seconds / profile.seconds, used / max(profile.machine.cpus, 1)), 1.0)


def _memory_bytes(usage: Usage) -> int | None:
    # Resident sizes count a page that processes share once for each of them.
    return usage.resident_bytes if usage.proportional_bytes is None else usage.proportional_bytes


@dataclass(frozen=True)
class _Model:
    """Operation counts, and bootstrap draws of the prices of `kinds`; the first draw is the estimate."""

    operations: OperationCounts
    kinds: tuple[str, ...]
    resampled_costs: ResampledUnitCosts

    @cached_property
    def counts(self) -> Draws:
        """The counts (axes: draw, kind), resampled from the repetitions if there are several."""
        counts = np.array([self.operations.counts.get(kind, 0.0) for kind in self.kinds])
        repetitions = self.operations.repetitions
        if len(repetitions) < 2:
            return np.broadcast_to(counts, (DRAW_COUNT + 1, len(counts)))
        by_repetition = np.array([[each.get(kind, 0.0) for each in repetitions] for kind in self.kinds])
        weights = bootstrap_weights(len(repetitions), np.random.default_rng([SEED, len(self.kinds)]))
        means = bootstrap_means(by_repetition, np.ones(by_repetition.shape, dtype=bool), weights)
        return np.asarray(np.maximum(counts + means - means[0], 0.0))

    @cached_property
    def seconds(self) -> Draws:
        """Predicted seconds of a unit of work on bare metal (axes: draw, kind); 0 for an unknown price."""
        return np.asarray(np.nan_to_num(self.counts * self.resampled_costs.native))

    @cached_property
    def explained_seconds(self) -> Draws:
        """Seconds in the kernel that prices explain, by draw."""
        in_kernel = [at for at, kind in enumerate(self.kinds) if kind not in {USER.name, SYNC.name}]
        busy = self.seconds[:, in_kernel].sum(axis=-1)
        # The price of a sync is mostly time that it waits for the disk, which is no CPU time of the kernel.
        waits = self.seconds[:, self._kind_indexes(SYNC.name)].sum(axis=-1)
        return np.asarray(busy + np.clip(self.operations.kernel_seconds - busy, 0.0, waits))

    @cached_property
    def scaling_factor(self) -> Draws:
        """Time in the kernel over the sum of prices, by draw; 1 if a count or a price is unknown."""
        used = {kind for kind, count in self.operations.counts.items() if count > 0}
        priced = {kind for at, kind in enumerate(self.kinds) if not np.isnan(self.resampled_costs.native[0, at])}
        if not (used <= priced <= self.operations.counts.keys()):
            return np.ones(len(self.explained_seconds))
        ratio = self.operations.kernel_seconds / np.maximum(self.explained_seconds, _TINY_SECONDS)
        return np.asarray(np.where(self.explained_seconds > 0, np.clip(ratio, 1.0, _MAX_SCALING_FACTOR), 1.0))

    @cached_property
    def unexplained_seconds(self) -> Draws:
        """Seconds in the kernel that prices times the scaling factor do not explain, by draw."""
        return np.asarray(
            np.maximum(self.operations.kernel_seconds - self.scaling_factor * self.explained_seconds, 0.0)
        )

    @cached_property
    def _scaling_factors(self) -> Draws:
        """The scaling factor (axes: draw, kind); 1 for user code, whose seconds are measured."""
        factors = np.repeat(self.scaling_factor[:, np.newaxis], len(self.kinds), axis=-1)
        factors[:, self._kind_indexes(USER.name)] = 1.0
        return factors

    def _kind_indexes(self, *kinds: str) -> list[int]:
        """Return the indexes of those of `kinds` that have a price."""
        return [self.kinds.index(kind) for kind in kinds if kind in self.kinds]

    def break_down_cost(self, stack: str, row: int) -> CostBreakdown:
        """Return the cost breakdown of a stack; `row` is its index in the price list."""
        counts = self.operations.counts
        differences = self.resampled_costs.prices[:, row] - self.resampled_costs.native
        extras = np.nan_to_num(self.counts * differences) * self._scaling_factors
        user_code = self._kind_indexes(USER.name)  # no stack runs it faster than bare metal
        extras[:, user_code] = np.maximum(extras[:, user_code], 0.0)
        rest = self.unexplained_seconds * (self._unexplained_ratio(row) - 1)
        if self.operations.by_cpu:
            extras[:, self._kind_indexes(SYNC.name)] = 0.0  # syncs wait, and CPU time is the cost
        total = extras.sum(axis=-1) + rest
        waits = extras[:, self._kind_indexes(SYNC.name)].sum(axis=-1)
        needed = self._kind_indexes(*(kind for kind, count in counts.items() if count > 0))
        priced = [at for at in needed if not self._is_unpriced(row, at)]
        blocks = int(min((self.resampled_costs.blocks[row, at] for at in priced), default=0))
        scale = self.operations.cost_seconds
        items = [self._cost_item(row, at, estimate(extras[:, at] / scale, blocks)) for at in priced]
        if self.unexplained_seconds[0] > 0:
            items.append(CostItem(REST, estimate(rest / scale, blocks)))
        return CostBreakdown(
            stack,
            estimate(np.maximum(1 + total / scale, _MIN_PREDICTION), blocks),
            estimate(np.maximum(1 + (total - waits) / self.operations.cpu_seconds, _MIN_PREDICTION), blocks),
            tuple(sorted(items, key=lambda item: -abs(item.share.value))),
            blocks,
            self._find_problems(row, scale),
        )

    def _is_unpriced(self, row: int, at: int) -> bool:
        return bool(np.isnan(self.resampled_costs.prices[0, row, at]))

    def _cost_item(self, row: int, at: int, share: CostEstimate) -> CostItem:
        kind, native = self.kinds[at], float(self.resampled_costs.native[0, at])
        ratio = float(self.resampled_costs.prices[0, row, at]) / native if native else None
        return CostItem(kind, share, self.operations.counts[kind], native, ratio)

    def _unexplained_ratio(self, row: int) -> Draws:
        """Return the ratio (stack over bare metal) that unexplained kernel time is predicted with, by draw.

        That is the ratio of user code if user code is the only candidate. Other candidates are kinds that the profile
        lacks and, if much time is unexplained, those that it has. With several candidates, each draw takes a ratio
        between the smallest and the largest of theirs, so that the interval shows that the kind is unknown.
        """
        counts, native = self.operations.counts, self.resampled_costs.native
        is_much = self.unexplained_seconds[0] > _MUCH_UNEXPLAINED_SHARE * self.operations.cost_seconds
        lacking = [kind for kind in self.kinds if kind not in counts or (is_much and counts[kind] > 0)]
        candidates = [
            at
            for at in self._kind_indexes(USER.name, *lacking)
            if not self._is_unpriced(row, at) and native[0, at] > 0 and self.kinds[at] != SYNC.name
        ]
        if not candidates:
            return np.ones(len(native))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.nan_to_num(self.resampled_costs.prices[:, row, candidates] / native[:, candidates], nan=1.0)
        logs = np.log(np.clip(ratios, _MIN_PREDICTION, 1 / _MIN_PREDICTION))
        low, high = logs.min(axis=-1), logs.max(axis=-1)
        share = np.random.default_rng([SEED, len(self.kinds), row]).uniform(size=len(native))
        share[0] = 0.5  # the first draw is the estimate: the geometric middle
        return np.asarray(np.exp(low + share * (high - low)))

    def _find_problems(self, row: int, scale: float) -> tuple[str, ...]:
        """Return a text for each part of the work that prices do not cover; `scale` is the cost in seconds."""
        problems, unpriced, whole = [], [], "CPU time" if self.operations.by_cpu else "time"
        for kind, count in self.operations.counts.items():
            at = self.kinds.index(kind) if kind in self.kinds else None
            is_wait = kind == SYNC.name and self.operations.by_cpu
            if count <= 0 or is_wait or (at is not None and not self._is_unpriced(row, at)):
                continue
            if at is None or np.isnan(self.resampled_costs.native[0, at]):
                unpriced.append(kind)
            elif (share := self.seconds[0, at] / scale) > _MAX_MISSING_SHARE:
                problems.append(f"no price of {title_of(kind)}, which are {share:.0%} of the {whole}")
        unexplained = float(self.unexplained_seconds[0]) / scale
        if unpriced and unexplained > _MAX_MISSING_SHARE:
            names = ", ".join(map(title_of, unpriced))
            problems.append(f"no price of {names}, which are up to {unexplained:.0%} of the {whole}")
        if USER.name in unpriced:
            problems.append("no price of user code")
        return tuple(problems)

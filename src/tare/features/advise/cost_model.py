"""Linear cost model: operation counts times unit costs, summed over operation kinds.

Counts come from a profile on bare metal, unit costs from microbenchmarks. Saavedra and Smith predict times
of programs from operations of a language ("Analysis of benchmark characteristics and benchmark performance prediction",
ACM Transactions on Computer Systems 14 (1996), 344-384). The operation kinds here are those that a stack can make
slower: the entries into the kernel that lmbench measures (McVoy and Staelin, "lmbench: portable tools for performance
analysis", USENIX Annual Technical Conference 1996, 279-294), and the network path. The model predicts differences to
bare metal only:

    extra(kind) = factor · count · (unit cost in the stack - unit cost on bare metal)
    factor      = CPU seconds in the kernel / sum of count · unit cost on bare metal           between 1 and 4
    extra(user) = seconds of user code · (ratio - 1)         ratio: unit cost in the stack over that on bare metal
    extra(rest) = unexplained seconds in the kernel · (ratio of user code - 1)
    time in the stack = elapsed time on bare metal + sum of extras / CPUs in use
    CPU in the stack = CPU time on bare metal + sum of extras, without those of syncs, which wait

The cost is the time in the stack over the time on bare metal. If the application waited for requests, the time of a
request is unknown, and the cost is the ratio of CPU times.

The scaling factor is how much longer the kernel takes for the application than for the microbenchmarks, which repeat
one operation with warm caches. Counts thus say which operations use the kernel's time, and the kernel's clock says how
much time they use. A sync, which mostly waits, is part of the sum as far as the kernel has time left for it.

CPUs in use are CPU time over elapsed time on bare metal, and at least one: extra CPU time is extra elapsed time if a
CPU is always in use, and if steps run one after another. Intervals are from a block bootstrap of the unit costs: a
disturbance of a block affects all stacks and kinds of the block together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tare.features.advise.application_profile import OperationCounts
from tare.features.advise.unit_costs import SEED, PriceList, ResampledUnitCosts
from tare.model.errors import UsageError
from tare.model.operations import OPERATION_KINDS, SYNC, USER
from tare.statistics.bootstrap import DRAW_COUNT, Draws, bootstrap_bounds, bootstrap_means, bootstrap_weights

REST = "rest"  # cost item of kernel time that no price explains
CORRECTION = "correction"  # cost item of the calibration on reference applications
_HINT = "give a profile and a price list as tare has written them"
_MAX_MISSING_SHARE = 0.02  # of the time: more of it in kinds without a unit cost makes a stack "cannot tell"
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
        raise UsageError("the profile or the price list has values that are out of range", _HINT)
    return breakdowns


def estimate(draws: Draws, blocks: int) -> CostEstimate:
    """Return the first draw as the estimate, with bootstrap bounds from two blocks on."""
    return CostEstimate(float(draws[0]), *(bootstrap_bounds(draws) if blocks >= 2 else ()))


def title_of(kind: str) -> str:
    """Return the name of an operation kind for users, in the plural; the kind itself if unknown."""
    return _TITLES.get(kind, kind)


@dataclass(frozen=True)
class _Model:
    """Model of an application: its operation counts, and bootstrap draws of the prices of `kinds`.

    The first axis of all arrays is the draw, and the first draw is the estimate. A column is the index of a kind, a row
    the index of a stack in the price list.
    """

    operations: OperationCounts
    kinds: tuple[str, ...]
    resampled_costs: ResampledUnitCosts

    # --- on bare metal -----------------------------------------------------------------------------------------------

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
    def used_kinds(self) -> tuple[str, ...]:
        """The kinds that the application uses, with or without a price."""
        return tuple(kind for kind, count in self.operations.counts.items() if count > 0)

    @cached_property
    def seconds(self) -> Draws:
        """Predicted seconds of a unit of work on bare metal (axes: draw, kind); 0 for an unknown price."""
        return np.asarray(np.nan_to_num(self.counts * self.resampled_costs.native))

    @cached_property
    def explained_seconds(self) -> Draws:
        """Seconds in the kernel that prices explain, by draw."""
        in_kernel = [column for column, kind in enumerate(self.kinds) if kind not in {USER.name, SYNC.name}]
        busy = self.seconds[:, in_kernel].sum(axis=-1)
        # The price of a sync is mostly time that it waits for the disk, which is no CPU time of the kernel.
        waits = self.seconds[:, self._columns_of(SYNC.name)].sum(axis=-1)
        return np.asarray(busy + np.clip(self.operations.kernel_seconds - busy, 0.0, waits))

    @cached_property
    def scaling_factor(self) -> Draws:
        """Time in the kernel over the sum of prices, by draw; 1 if a count or a price is unknown."""
        priced_kinds = {kind for kind in self.kinds if not np.isnan(self._native_price(kind))}
        has_all_prices = priced_kinds.issuperset(self.used_kinds)
        has_all_counts = priced_kinds <= self.operations.counts.keys()
        if not (has_all_prices and has_all_counts):
            return np.ones(len(self.explained_seconds))
        ratio = self.operations.kernel_seconds / np.maximum(self.explained_seconds, _TINY_SECONDS)
        return np.asarray(np.where(self.explained_seconds > 0, np.clip(ratio, 1.0, _MAX_SCALING_FACTOR), 1.0))

    @cached_property
    def unexplained_seconds(self) -> Draws:
        """Seconds in the kernel that prices times the scaling factor do not explain, by draw."""
        return np.asarray(
            np.maximum(self.operations.kernel_seconds - self.scaling_factor * self.explained_seconds, 0.0)
        )

    # --- in a stack --------------------------------------------------------------------------------------------------

    def break_down_cost(self, stack: str, row: int) -> CostBreakdown:
        """Return the cost breakdown of a stack."""
        operations = self.operations
        extras = self._extra_seconds(row)
        rest = self.unexplained_seconds * (self._unexplained_ratio(row) - 1)
        total = extras.sum(axis=-1) + rest
        waits = extras[:, self._columns_of(SYNC.name)].sum(axis=-1)
        priced_kinds = [kind for kind in self.used_kinds if kind in self.kinds and not np.isnan(self._price(row, kind))]
        columns = self._columns_of(*priced_kinds)
        blocks = int(min(self.resampled_costs.blocks[row, columns], default=0))

        def estimate_share(seconds: Draws) -> CostEstimate:
            return estimate(seconds / operations.cost_seconds, blocks)

        def estimate_cost(extra_seconds: Draws, native_seconds: float) -> CostEstimate:
            return estimate(np.maximum(1 + extra_seconds / native_seconds, _MIN_PREDICTION), blocks)

        items = [
            self._cost_item(row, kind, estimate_share(extras[:, column]))
            for kind, column in zip(priced_kinds, columns, strict=True)
        ]
        if self.unexplained_seconds[0] > 0:
            items.append(CostItem(REST, estimate_share(rest)))
        return CostBreakdown(
            stack,
            cost=estimate_cost(total, operations.cost_seconds),
            cpu=estimate_cost(total - waits, operations.cpu_seconds),
            items=tuple(sorted(items, key=lambda item: -abs(item.share.value))),
            block_count=blocks,
            problems=self._find_problems(row),
        )

    def _extra_seconds(self, row: int) -> Draws:
        """Return the seconds that a unit of work takes longer in a stack than on bare metal (axes: draw, kind)."""
        differences = self.resampled_costs.prices[:, row] - self.resampled_costs.native
        factors = np.repeat(self.scaling_factor[:, np.newaxis], len(self.kinds), axis=-1)
        user_code = self._columns_of(USER.name)
        factors[:, user_code] = 1.0  # its seconds were measured, not predicted
        extras = np.nan_to_num(self.counts * differences) * factors
        extras[:, user_code] = np.maximum(extras[:, user_code], 0.0)  # no stack runs it faster than bare metal
        if self.operations.by_cpu:
            extras[:, self._columns_of(SYNC.name)] = 0.0  # syncs wait, and CPU time is the cost
        return np.asarray(extras)

    def _unexplained_ratio(self, row: int) -> Draws:
        """Return the ratio (stack over bare metal) that unexplained kernel time is predicted with, by draw.

        That is the ratio of user code if user code is the only candidate. Other candidates are kinds that the profile
        lacks and, if much time is unexplained, those that it has. With several candidates, each draw takes a ratio
        between the smallest and the largest of theirs, so that the interval shows that the kind is unknown.
        """
        counts, native = self.operations.counts, self.resampled_costs.native
        is_much = self.unexplained_seconds[0] > _MUCH_UNEXPLAINED_SHARE * self.operations.cost_seconds
        possible = [kind for kind in self.kinds if kind not in counts or (is_much and counts[kind] > 0)]
        candidates = [
            kind
            for kind in (USER.name, *possible)
            if kind in self.kinds
            and kind != SYNC.name
            and not np.isnan(self._price(row, kind))
            and self._native_price(kind) > 0
        ]
        if not candidates:
            return np.ones(len(native))
        columns = self._columns_of(*candidates)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.nan_to_num(self.resampled_costs.prices[:, row, columns] / native[:, columns], nan=1.0)
        logs = np.log(np.clip(ratios, _MIN_PREDICTION, 1 / _MIN_PREDICTION))
        low, high = logs.min(axis=-1), logs.max(axis=-1)
        share = np.random.default_rng([SEED, len(self.kinds), row]).uniform(size=len(native))
        share[0] = 0.5  # the first draw is the estimate: the geometric middle
        return np.asarray(np.exp(low + share * (high - low)))

    def _find_problems(self, row: int) -> tuple[str, ...]:
        """Return a text for each part of the work that prices do not cover."""
        cost_seconds = self.operations.cost_seconds
        whole = "CPU time" if self.operations.by_cpu else "time"
        lacking = [
            kind
            for kind in self.used_kinds
            if np.isnan(self._price(row, kind)) and not (kind == SYNC.name and self.operations.by_cpu)
        ]
        # Without a price on bare metal, a kind has no seconds: its time is part of the unexplained seconds.
        unexplained_kinds = [kind for kind in lacking if np.isnan(self._native_price(kind))]
        problems = []
        for kind in lacking:
            if kind not in unexplained_kinds:
                share = self.seconds[0, self.kinds.index(kind)] / cost_seconds
                if share > _MAX_MISSING_SHARE:
                    problems.append(f"no unit cost of {title_of(kind)}, which are {share:.0%} of the {whole}")
        unexplained_share = float(self.unexplained_seconds[0]) / cost_seconds
        if unexplained_kinds and unexplained_share > _MAX_MISSING_SHARE:
            names = ", ".join(map(title_of, unexplained_kinds))
            problems.append(f"no unit cost of {names}, which are up to {unexplained_share:.0%} of the {whole}")
        if USER.name in unexplained_kinds:
            problems.append("no unit cost of user code")
        return tuple(problems)

    def _cost_item(self, row: int, kind: str, share: CostEstimate) -> CostItem:
        native = self._native_price(kind)
        ratio = self._price(row, kind) / native if native else None
        return CostItem(kind, share, self.operations.counts[kind], native, ratio)

    # --- the price list ----------------------------------------------------------------------------------------------

    def _columns_of(self, *kinds: str) -> list[int]:
        """Return the columns of those of `kinds` that are in the price list."""
        return [self.kinds.index(kind) for kind in kinds if kind in self.kinds]

    def _native_price(self, kind: str) -> float:
        """Return the estimated price of a kind on bare metal; NaN if there is none."""
        return float(self.resampled_costs.native[0, self.kinds.index(kind)]) if kind in self.kinds else math.nan

    def _price(self, row: int, kind: str) -> float:
        """Return the estimated price of a kind in a stack; NaN if there is none."""
        return float(self.resampled_costs.prices[0, row, self.kinds.index(kind)]) if kind in self.kinds else math.nan

"""The bill: what a unit of an application's work costs in a stack beyond bare metal, line by line.

The time of a unit of work is a sum over kinds of work: how many of each the unit needs, times what one of them takes.
Counts come from a profile on bare metal, prices from microbenchmarks. Saavedra and Smith predict the times of programs
so ("Analysis of benchmark characteristics and benchmark performance prediction", ACM Transactions on Computer Systems
14 (1996), 344-384), of operations of a language; the kinds of work here are what a stack can make dearer: the entries
into the kernel that lmbench measures (McVoy and Staelin, "lmbench: portable tools for performance analysis", USENIX
Annual Technical Conference 1996, 279-294), and the network path. Only differences to bare metal are predicted:

    extra(kind) = count · price on bare metal · (ratio - 1)         ratio: price in the stack over that on bare metal
    extra(user) = seconds of user code · (ratio - 1)
    extra(rest) = seconds in the kernel that no price explains · (ratio of user code - 1)       but see _rest_ratio
    time in the stack = elapsed time on bare metal + sum of extras / CPUs in use
    CPU in the stack = CPU time on bare metal + sum of extras, without those of syncs, which wait

CPUs in use are CPU time over elapsed time on bare metal, and at least one: what costs CPU time costs elapsed time where
a CPU is always in use, and where one thing is done after the other.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy
from numpy.typing import NDArray

from tare.answers.price_list import PriceList, Sheet
from tare.errors import UsageError
from tare.model.work import SYNC, USER, WORK

CONFIDENCE = 0.9
REST = "rest"  # the line of time in the kernel that no price explains
CORRECTION = "correction"  # the line of what reference applications teach
_DRAWS = 2000
_HINT = "give a profile and a price list as tare has written them"
_SATURATED = 0.85  # of a CPU in use all the time, from here on
_MOST_MISSING = 0.02  # of the time: kinds without a price
_MOST_UNEXPLAINED = 0.25  # of the time: kernel time that no price explains
_WIDEST = 1.5  # the upper end of an interval of times over the lower one
_LEAST = 1e-3  # of the time on bare metal: the least that a prediction may be
_TITLES = {work.name: work.title for work in WORK} | {REST: "other time in the kernel", CORRECTION: "correction"}

Draws = NDArray[np.float64]


@dataclass(frozen=True)
class Basket:
    """What a unit of an application's work needs on bare metal.

    `counts` has units by kind of work, of user code CPU seconds. `repetitions` are the same, of each time that it was
    watched; empty for one.
    """

    counts: Mapping[str, float]
    cpu_seconds: float
    elapsed_seconds: float
    repetitions: tuple[Mapping[str, float], ...] = ()

    @property
    def cpus_in_use(self) -> float:
        """CPUs that were in use at a time, at least one."""
        return max(self.cpu_seconds / self.elapsed_seconds, 1.0)

    @property
    def is_saturated(self) -> bool:
        """Whether it had no CPU time left, so that CPU time decides its throughput."""
        return self.cpu_seconds / self.elapsed_seconds >= _SATURATED

    @property
    def kernel_seconds(self) -> float:
        """CPU seconds in the kernel."""
        return max(self.cpu_seconds - self.counts.get(USER.name, 0.0), 0.0)


@dataclass(frozen=True)
class Estimate:
    """An estimate and the ends of its interval of 90 %; the ends are None where there are too few blocks for one."""

    value: float
    low: float | None = None
    high: float | None = None

    def times(self, factor: float) -> Estimate:
        """Multiply the estimate and its interval."""
        low, high = (None if end is None else end * factor for end in (self.low, self.high))
        return Estimate(self.value * factor, low, high)

    @property
    def is_narrow(self) -> bool:
        """Whether the interval says enough to decide by."""
        return self.low is not None and self.high is not None and self.high <= _WIDEST * self.low


@dataclass(frozen=True)
class Line:
    """What a kind of work costs beyond bare metal: `share` is of the time on bare metal, and below 0 for a gain.

    A unit of work has `count` of it, and each takes `price` seconds on bare metal and `ratio` times as long in the
    stack. These are None where it has no such.
    """

    kind: str
    share: Estimate
    count: float | None = None
    price: float | None = None
    ratio: float | None = None

    @property
    def title(self) -> str:
        """The name of many of it."""
        return title_of(self.kind)


@dataclass(frozen=True)
class Bill:
    """What a unit of work costs in a stack: `time` and `cpu` are times those of bare metal. Dear lines come first.

    `doubts` say what is not covered, so that nothing can be told. `blocks` is the least number behind a line.
    """

    stack: str
    time: Estimate
    cpu: Estimate
    lines: tuple[Line, ...]
    blocks: int
    doubts: tuple[str, ...] = ()

    @property
    def is_finite(self) -> bool:
        """Whether all of it is a number."""
        found = (self.time, self.cpu, *(line.share for line in self.lines))
        return all(math.isfinite(end) for each in found for end in (each.value, each.low, each.high) if end is not None)

    @property
    def widest(self) -> Line | None:
        """The line that makes the interval wide."""
        return max(self.lines, key=lambda line: (line.share.high or 0.0) - (line.share.low or 0.0), default=None)


def predict(basket: Basket, prices: PriceList, seed: int = 1) -> tuple[Bill, ...]:
    """Return the bill of each stack of the price list, in its order; raises UsageError for absurd numbers."""
    drawn = [_drawn(sheet, np.random.default_rng([seed, at])) for at, sheet in enumerate(prices.sheets)]
    model = _Model(
        basket,
        tuple(kind for sheet in prices.sheets for kind in sheet.kinds),
        np.concatenate([each.levels for each in drawn], axis=-1),
        np.concatenate([each.ratios for each in drawn], axis=-1),
        np.concatenate([sheet.both.sum(axis=-1) for sheet in prices.sheets], axis=-1),
        np.random.default_rng([seed, len(drawn)]),
    )
    with np.errstate(over="ignore", invalid="ignore"):
        bills = tuple(model.bill(stack, at) for at, stack in enumerate(prices.stacks))
    if not all(bill.is_finite for bill in bills):
        raise UsageError("the profile or the prices have numbers that nothing can be computed with", _HINT)
    return bills


@dataclass(frozen=True)
class _Drawn:
    """Means of logarithms over blocks: the first draw is the estimate. NaN where there is no block."""

    levels: Draws  # axes: draw, kind
    ratios: Draws  # axes: draw, stack, kind


def _drawn(sheet: Sheet, chance: np.random.Generator) -> _Drawn:
    """Draw whole blocks anew, so that what disturbed a block disturbs all stacks and kinds of it together.

    The draws lie wider by a factor for few blocks (Hesterberg, "What teachers should know about the bootstrap", The
    American Statistician 69 (2015), 371-386: the expanded percentile interval).
    """
    blocks = sheet.known.shape[-1]
    weights = np.vstack([np.ones(blocks), chance.multinomial(blocks, np.full(blocks, 1 / blocks), size=_DRAWS)])
    return _Drawn(_means(sheet.levels, sheet.known, weights), _means(sheet.logs, sheet.both, weights))


def _means(logs: Draws, present: NDArray[np.bool_], weights: Draws) -> Draws:
    total = np.einsum("db,...b->d...", weights, present.astype(float))
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.einsum("db,...b->d...", weights, np.where(present, logs, 0.0)) / total
    means = np.where(np.isnan(means), means[0], means)  # a draw without any of its blocks
    return np.asarray(means[0] + _expansion(present.sum(axis=-1)) * (means - means[0]))


def _expansion(count: NDArray[np.int64]) -> Draws:
    """Return how much wider than the draws an interval of so many values is; 1 for a single one, which has none."""
    freedom, tail = np.maximum(count - 1, 1), (1 + CONFIDENCE) / 2
    wider = scipy.stats.t.ppf(tail, freedom) / scipy.stats.norm.ppf(tail) * np.sqrt((freedom + 1) / freedom)
    return np.where(count > 1, wider, 1.0)


@dataclass(frozen=True)
class _Model:
    """All draws of all prices, and of the basket."""

    basket: Basket
    kinds: tuple[str, ...]
    levels: Draws
    ratios: Draws
    blocks: NDArray[np.int64]  # axes: stack, kind
    chance: np.random.Generator

    @cached_property
    def native(self) -> Draws:
        """Seconds of a unit of work on bare metal by draw and kind, as the prices have it; 0 for an unknown price."""
        prices = np.exp(self.levels)
        if USER.name in self.kinds:
            prices[:, self.kinds.index(USER.name)] = 1.0  # a second of user code is a second
        return np.asarray(np.nan_to_num(self._counts() * prices))

    @cached_property
    def rest(self) -> Draws:
        """Seconds in the kernel that no price explains, by draw."""
        inside = [at for at, kind in enumerate(self.kinds) if kind not in {USER.name, SYNC.name}]
        return np.asarray(np.maximum(self.basket.kernel_seconds - self.native[:, inside].sum(axis=-1), 0.0))

    def _counts(self) -> Draws:
        """Draw the counts anew from the repetitions, if there are several."""
        counts = np.array([self.basket.counts.get(kind, 0.0) for kind in self.kinds])
        many = len(self.basket.repetitions)
        if many < 2:
            return np.broadcast_to(counts, (_DRAWS + 1, len(counts)))
        own = np.array([[each.get(kind, 0.0) for kind in self.kinds] for each in self.basket.repetitions])
        weights = self.chance.multinomial(many, np.full(many, 1 / many), size=_DRAWS) / many
        means = np.vstack([own.mean(axis=0), weights @ own])
        wider = _expansion(np.array(many)) * (means - means[0])
        return np.asarray(np.maximum(counts + wider, 0.0))

    def bill(self, stack: str, row: int) -> Bill:
        """Return the bill of a stack."""
        basket, ratios = self.basket, np.exp(self.ratios[:, row])
        extras = np.nan_to_num(self.native * (ratios - 1))
        used = [at for at, kind in enumerate(self.kinds) if basket.counts.get(kind, 0.0) > 0]
        rest = self.rest * (self._rest_ratio(row) - 1)
        total = extras.sum(axis=-1) + rest
        waits = extras[:, self.kinds.index(SYNC.name)] if SYNC.name in self.kinds else 0.0
        priced = [at for at in used if not np.isnan(self.ratios[0, row, at])]
        blocks = int(min((self.blocks[row, at] for at in priced), default=0))
        scale = basket.elapsed_seconds * basket.cpus_in_use
        shares = [(self.kinds[at], extras[:, at] / scale, at) for at in priced]
        lines = [
            Line(
                kind,
                estimate(share, blocks),
                basket.counts[kind],
                float(np.exp(self.levels[0, at])) if kind != USER.name else 1.0,
                float(ratios[0, at]),
            )
            for kind, share, at in shares
        ]
        if self.rest[0] > 0:
            lines.append(Line(REST, estimate(rest / scale, blocks)))
        return Bill(
            stack,
            estimate(np.maximum(1 + total / scale, _LEAST), blocks),
            estimate(np.maximum(1 + (total - waits) / basket.cpu_seconds, _LEAST), blocks),
            tuple(sorted(lines, key=lambda line: -abs(line.share.value))),
            blocks,
            self._doubts(row, scale),
        )

    def _rest_ratio(self, row: int) -> Draws:
        """Return how many times as long kernel time takes that no price explains, by draw: as user code does.

        If the profile lacks kinds of work, it may be any of these: the ratio is drawn between the least and the most.
        """
        ratios = self.ratios[:, row]
        user = ratios[:, self.kinds.index(USER.name)] if USER.name in self.kinds else np.zeros(len(ratios))
        lacking = [
            at
            for at, kind in enumerate(self.kinds)
            if kind not in self.basket.counts and kind != SYNC.name and not np.isnan(ratios[0, at])
        ]
        known = np.vstack([np.nan_to_num(user), *(ratios[:, at] for at in lacking)])
        low, high = known.min(axis=0), known.max(axis=0)
        share = np.random.default_rng([len(lacking), row]).uniform(size=len(ratios))
        share[0] = 0.5
        return np.asarray(np.exp(low + share * (high - low)))

    def _doubts(self, row: int, scale: float) -> tuple[str, ...]:
        """Return what of the work is not covered."""
        doubts, unpriced = [], []
        for kind, count in self.basket.counts.items():
            at = self.kinds.index(kind) if kind in self.kinds else None
            if count <= 0 or (at is not None and not np.isnan(self.ratios[0, row, at])):
                continue
            if at is None or np.isnan(self.levels[0, at]):
                unpriced.append(kind)
            elif (share := self.native[0, at] / scale) > _MOST_MISSING:
                doubts.append(f"no price of {title_of(kind)}, which are {share:.0%} of the time")
        unexplained = float(self.rest[0]) / scale
        if unpriced and unexplained > _MOST_MISSING:
            doubts.append(
                f"no price of {', '.join(map(title_of, unpriced))}, which are up to {unexplained:.0%} of the time"
            )
        elif unexplained > _MOST_UNEXPLAINED:
            doubts.append(f"no price explains {unexplained:.0%} of the time, which is spent in the kernel")
        if USER.name in unpriced:
            doubts.append("no price of user code")
        return tuple(doubts)


def title_of(kind: str) -> str:
    """Return the name of many of a kind of work."""
    return _TITLES.get(kind, kind)


def estimate(draws: Draws, blocks: int) -> Estimate:
    """Return the first draw, and the interval of the others; no interval of less than two blocks."""
    if blocks < 2:
        return Estimate(float(draws[0]))
    low, high = np.quantile(draws[1:], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Estimate(float(draws[0]), float(low), float(high))

"""How many times the baseline's value a stack has, compared inside blocks.

A block holds one trial of every stack, close together in time, so that what disturbs the machine disturbs both sides
of a ratio (`tare.statistics.headlines`). The logarithms of the ratios of the blocks are averaged and given an interval
that holds at every look (`tare.statistics.anytime`), and both are transformed back: the estimate is a geometric mean,
as ratios need (Fleming and Wallace, "How not to lie with statistics: the correct way to summarize benchmark results",
Communications of the ACM 29 (1986), 218-221). Pairing within blocks is Fisher's (The Design of Experiments, 1935).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tare.model.trial import Better
from tare.statistics.anytime import SINGLE_STATEMENT_EVIDENCE, log_evidence, widths_per_deviation
from tare.statistics.cells import DECIDING, Side, Spread, verdict_of_side
from tare.statistics.dependence import autocorrelation_of_rows, explaining_correlation, pooled_autocorrelation
from tare.statistics.descriptive import moments
from tare.statistics.moderated_variance import ModeratedVariance, moderate_variances

MARGIN = 0.03
# Logarithms of equal ratios differ by rounding alone below this.
ROUNDING = 1e-12
# exp() of more than this is no longer a finite number.
LARGEST_LOGARITHM = 700.0


@dataclass(frozen=True)
class BaselineRows:
    """The row of the stack that others are compared with and, if it has one, of its A/A control."""

    row: int
    control: int | None = None


@dataclass(frozen=True)
class Ratio:
    """Stack over baseline: the geometric mean over `n` blocks and its interval.

    `low` and `high` are None where there are too few blocks for an interval, which follows from the `spread`. `side` is
    what the interval says, and `evidence` the logarithm of the e-value for it. `zero_width` says that all blocks gave
    the very same ratio, so that the interval has no width: it is no measurement, or coarser than its noise.
    `correlation` is the lag-1 autocorrelation of the log ratios. `widening` is the factor by which the
    interval is wider because blocks depend on each other, its own or, as `in_all_stacks` says, those of all stacks
    together. `offset` is the logarithm by which the baseline differs from itself: the interval is wider by as much.
    `tolerated_autocorrelation` is the lag-1 autocorrelation up to which it would be decided; None where it is not.
    """

    ratio: float
    low: float | None
    high: float | None
    n: int
    side: Side
    evidence: float
    zero_width: bool
    correlation: float
    spread: Spread | None = None
    widening: float = 1.0
    in_all_stacks: bool = False
    offset: float = 0.0
    tolerated_autocorrelation: float | None = None

    @property
    def is_decided(self) -> bool:
        """Whether the interval decides how the two compare."""
        return self.side in DECIDING


@dataclass(frozen=True)
class RatioComparison:
    """Rows of log ratios, compared with 0: arrays of one shape.

    `borrowed` are the degrees of freedom that deviations have beyond n - 1. `difference_evidence` and
    `equivalence_evidence` are the logarithms of the e-values against a difference of 0, and against one of the margin
    or more; 0 is then everything up to the `offset`. Whatever the true difference is, only one of the two statements
    can be false. `needed_evidence` is the evidence that a statement needs, by default one that is made alone.
    """

    mean: NDArray[np.float64]
    count: NDArray[np.int64]
    deviation: NDArray[np.float64]
    borrowed: NDArray[np.float64]
    correlation: NDArray[np.float64]
    widening: NDArray[np.float64]
    in_all_stacks: NDArray[np.bool_]
    offset: NDArray[np.float64]
    difference_evidence: NDArray[np.float64]
    equivalence_evidence: NDArray[np.float64]
    limit: float
    needed_evidence: NDArray[np.float64] | float = SINGLE_STATEMENT_EVIDENCE

    @cached_property
    def evidence(self) -> NDArray[np.float64]:
        """Evidence for the better founded of the two statements."""
        return np.maximum(self.difference_evidence, self.equivalence_evidence)

    @cached_property
    def is_decided(self) -> NDArray[np.bool_]:
        """Where the intervals decide how the two compare."""
        away = np.abs(self.mean)
        return np.asarray(
            np.isfinite(self.half_widths) & ((away + self.half_widths < self.limit) | (away > self.half_widths))
        )

    @cached_property
    def tolerated_autocorrelation(self) -> NDArray[np.float64]:
        """Return the lag-1 autocorrelation of blocks that would widen the intervals until they no longer decide.

        It means something where an interval decides. It is counted from independent blocks, in place of the `widening`
        that was found.
        """
        away = np.abs(self.mean)
        room = np.where(away + self.half_widths < self.limit, self.limit - away, away) - self.offset
        return explaining_correlation(room, (self.half_widths - self.offset) / self.widening)

    @cached_property
    def half_widths(self) -> NDArray[np.float64]:
        """Return half the width of the intervals, infinite where there are too few blocks.

        An interval holds all against which there is less evidence than `needed_evidence`.
        """
        widths = widths_per_deviation(self.count, self.borrowed, self.needed_evidence)
        known = np.isfinite(widths)
        return np.where(known, np.where(known, widths, 0.0) * self.deviation * self.widening + self.offset, np.inf)

    def relative_widths(self, precision: float) -> NDArray[np.float64]:
        """Return half the width of the intervals, in those that are asked for: at most 1 is narrow enough.

        Asked for is this share of the mean's logarithm, or a factor of 1 and this share, whichever is wider.
        """
        return np.asarray(self.half_widths / np.maximum(precision * np.abs(self.mean), np.log1p(precision)))

    def with_rows(self, other: RatioComparison, mask: NDArray[np.bool_]) -> RatioComparison:
        """Return the comparison with another one's rows where the mask is true."""
        names = [each.name for each in fields(self) if each.name != "limit"]
        arrays = {name: np.where(mask, getattr(other, name), getattr(self, name)) for name in names}
        return RatioComparison(limit=self.limit, **arrays)

    def with_needed_evidence(self, evidence: NDArray[np.float64] | float) -> RatioComparison:
        """Return the comparison with statements that need this evidence."""
        return replace(self, needed_evidence=evidence)

    def ratio_at(self, index: tuple[int, ...]) -> Ratio | None:
        """Take one row out; None where it is empty."""
        count, mean, half = int(self.count[index]), float(self.mean[index]), float(self.half_widths[index])
        if count == 0:
            return None
        deviation = float(self.deviation[index] * self.widening[index])
        known, side = np.isfinite(half), classify_side(mean, half, self.limit)
        return Ratio(
            ratio=exp_bounded(mean),
            low=exp_bounded(mean - half) if known else None,
            high=exp_bounded(mean + half) if known else None,
            n=count,
            side=side,
            evidence=float(self.evidence[index]),
            spread=Spread(deviation, float(self.borrowed[index]), float(self.offset[index])),
            zero_width=bool(count > 1 and self.deviation[index] == 0 and self.offset[index] == 0),
            correlation=float(self.correlation[index]),
            widening=float(self.widening[index]),
            in_all_stacks=bool(self.in_all_stacks[index]),
            offset=float(self.offset[index]),
            tolerated_autocorrelation=float(self.tolerated_autocorrelation[index]) if side in DECIDING else None,
        )


@dataclass(frozen=True)
class CommonWidening:
    """What all stacks together add to the doubt about rows.

    `factor` widens standard deviations, as blocks depend on each other. `offset` is a difference of logarithms that
    means nothing, because the baseline differs as much from itself.
    """

    factor: NDArray[np.float64]
    offset: NDArray[np.float64]


_NO_WIDENING = CommonWidening(np.array(1.0), np.array(0.0))


def compare(
    logs: NDArray[np.float64],
    present: NDArray[np.bool_],
    margin: float = MARGIN,
    common: CommonWidening = _NO_WIDENING,
    borrows: bool = False,
) -> RatioComparison:
    """Compare rows of log ratios (last axis: blocks) with 0; only those count that are present.

    `margin` is a share: ratios between 1 / (1 + margin) and 1 + margin count as equivalent. Where the first axis are
    stacks of one workload, standard deviations may borrow from each other (`tare.statistics.moderated_variance`).
    """
    seen = moments(logs, present)
    mean = np.where(np.abs(seen.mean) < ROUNDING, 0.0, seen.mean)
    own_deviation = np.where(seen.deviation < ROUNDING, 0.0, seen.deviation)
    found = (
        moderate_variances(own_deviation, seen.count)
        if borrows
        else ModeratedVariance(own_deviation, np.zeros(mean.shape))
    )
    deviation, borrowed = found.deviation, found.borrowed
    own, is_rounding = autocorrelation_of_rows(logs, present, mean), deviation == 0
    factor = np.where(is_rounding, 1.0, np.maximum(own.factor, common.factor))
    wide = deviation * factor
    limit, offset = float(np.log1p(margin)), np.broadcast_to(common.offset, mean.shape)
    beyond, within = np.abs(mean) - offset, limit - offset - np.abs(mean)
    return RatioComparison(
        mean=mean,
        count=seen.count,
        deviation=deviation,
        borrowed=borrowed,
        correlation=np.where(is_rounding, 0.0, own.correlation),
        widening=factor,
        in_all_stacks=(factor > 1) & (common.factor >= own.factor),
        offset=offset,
        difference_evidence=log_evidence(np.maximum(beyond, 0.0), wide, seen.count, borrowed),
        equivalence_evidence=np.where(within > 0, log_evidence(within, wide, seen.count, borrowed), -np.inf),
        limit=limit,
    )


def compare_together(
    logs: NDArray[np.float64], present: NDArray[np.bool_], margin: float, reference: BaselineRows
) -> RatioComparison:
    """Compare stacks (first axis) with the baseline, each in the light of all; its own row, of zeros, is among them.

    Where all stacks together depend on the blocks before (`tare.statistics.dependence`), all intervals are wider.
    Where the interval of the A/A control excludes 0, something on the machine
    makes differences of that size by itself, so the intervals of the others are wider by as much.
    """
    control = reference.control
    factor = pooled_autocorrelation(_relative_to_common_level(logs, present, reference), present).factor
    first = compare(logs, present, margin, CommonWidening(factor, _NO_WIDENING.offset), borrows=True)
    if control is None:
        return first
    offset = np.zeros(first.mean.shape)
    away = np.abs(first.mean[control])
    offset[:] = np.where(away > first.half_widths[control], away, 0.0)
    offset[control] = 0.0
    return compare(logs, present, margin, CommonWidening(factor, offset), borrows=True) if offset.any() else first


def _relative_to_common_level(
    logs: NDArray[np.float64], present: NDArray[np.bool_], reference: BaselineRows
) -> NDArray[np.float64]:
    """Return what all stacks differ by from the same: the mean of the baseline and its control.

    The control's row is its difference to the baseline alone, so each of these two lies half of it away from the mean.
    """
    if reference.control is None:
        return logs
    half = np.where(present[reference.control], logs[reference.control] / 2, 0.0)
    level = logs.copy()
    level[reference.control], level[reference.row] = half, -half
    return level


def block_ratio(stack: Sequence[float], baseline: Sequence[float], margin: float = MARGIN) -> Ratio | None:
    """Compare values block by block; None for no block at all.

    Raises ValueError where a value is not above zero: it has no logarithm, and a ratio of it says nothing.
    """
    pairs = np.array([stack, baseline], dtype=float)
    if not (np.isfinite(pairs) & (pairs > 0)).all():
        raise ValueError("a ratio needs values above zero")
    logs = np.log(pairs[0]) - np.log(pairs[1])
    return compare(logs, np.ones(logs.shape, dtype=bool), margin).ratio_at(())


def ratio_fields(ratio: Ratio, better: Better) -> dict[str, Any]:
    """Return the fields of a cell with a ratio, and the verdict of its interval."""
    names = ("n", "ratio", "low", "high", "evidence", "spread", "correlation", "widening", "tolerated_autocorrelation")
    return {"verdict": verdict_of_side(ratio.side, better), **{name: getattr(ratio, name) for name in names}}


def exp_bounded(logarithm: float) -> float:
    """Transform a logarithm back; never infinite, whatever the interval of a few wild blocks is."""
    return float(np.exp(min(max(logarithm, -LARGEST_LOGARITHM), LARGEST_LOGARITHM)))


def classify_side(mean: float, half: float, limit: float) -> Side:
    """Return what an interval of logarithms, so wide on either side of the mean, says."""
    if not np.isfinite(half):
        return "too few blocks"
    if abs(mean) + half < limit:
        return "equivalent"
    if abs(mean) <= half:
        return "undecided"
    return "more" if mean > 0 else "less"

"""Ratios of stacks to the baseline, compared within blocks, with their intervals.

A block has one trial of every stack, close together in time: a disturbance of the machine then hits both sides of a
ratio (`tare.statistics.headlines`). The mean of the blocks' log ratios gets an interval that holds at every look
(`tare.statistics.anytime`). Both are transformed back: the estimate is a geometric mean, as ratios need (Fleming and
Wallace, "How not to lie with statistics: the correct way to summarize benchmark results", Communications of the ACM 29
(1986), 218-221). Pairing within blocks is Fisher's (The Design of Experiments, 1935).
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
from tare.statistics.moderated_variance import ModeratedVariance, VariancePrior, moderate_variances

MARGIN = 0.03
# Logarithms of equal ratios differ by rounding alone below this.
ROUNDING = 1e-12
# exp() of more than this is no longer a finite number.
LARGEST_LOGARITHM = 700.0


@dataclass(frozen=True)
class BaselineRows:
    """Rows of the baseline and of its A/A control; `control` is None without one."""

    row: int
    control: int | None = None


@dataclass(frozen=True)
class Ratio:
    """Ratio of a stack to the baseline: the geometric mean over `n` blocks, with its interval.

    - `low` and `high`: bounds of the interval; None if there are too few blocks. They follow from `spread`.
    - `side`: the interval's statement; `evidence` is the logarithm of the e-value for it.
    - `zero_width`: all blocks have exactly the same ratio, so that the interval has no width. The value is then no
      measurement, or its steps exceed its noise.
    - `correlation`: lag-1 autocorrelation of the log ratios. `widening` is the factor for it in the interval's width;
      with `in_all_stacks`, it comes from the autocorrelation of all stacks together.
    - `offset`: logarithm of the difference in the A/A comparison, by which the interval is wider.
    - `tolerated_autocorrelation`: lag-1 autocorrelation up to which the ratio would be decided; None if undecided.
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
        """Whether the interval decides how the stack compares with the baseline."""
        return self.side in DECIDING


@dataclass(frozen=True)
class RatioComparison:
    """Comparison of rows of log ratios with 0: arrays of one shape.

    - `borrowed`: degrees of freedom of the deviations in addition to n - 1.
    - `difference_evidence`: logarithm of the e-value against a difference of at most `offset`.
    - `equivalence_evidence`: logarithm of the e-value against a difference of the margin or more. For any true
      difference, only one of the two statements can be false.
    - `needed_evidence`: evidence that a statement needs; by default that of a single statement.
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
        """Evidence for the statement that has more: that the stacks differ, or that they are equivalent."""
        return np.maximum(self.difference_evidence, self.equivalence_evidence)

    @cached_property
    def is_decided(self) -> NDArray[np.bool_]:
        """Mask of the rows whose intervals decide: inside the margin, or without 0."""
        away = np.abs(self.mean)
        return np.asarray(
            np.isfinite(self.half_widths) & ((away + self.half_widths < self.limit) | (away > self.half_widths))
        )

    @cached_property
    def tolerated_autocorrelation(self) -> NDArray[np.float64]:
        """The lag-1 autocorrelation of blocks that would widen the intervals until they no longer decide.

        Meaningless for intervals that do not decide. It is relative to independent blocks, without `widening`.
        """
        away = np.abs(self.mean)
        room = np.where(away + self.half_widths < self.limit, self.limit - away, away) - self.offset
        return explaining_correlation(room, (self.half_widths - self.offset) / self.widening)

    @cached_property
    def half_widths(self) -> NDArray[np.float64]:
        """Half the widths of the intervals; infinite for too few blocks.

        An interval has all differences against which there is less evidence than `needed_evidence`.
        """
        widths = widths_per_deviation(self.count, self.borrowed, self.needed_evidence)
        known = np.isfinite(widths)
        return np.where(known, np.where(known, widths, 0.0) * self.deviation * self.widening + self.offset, np.inf)

    def relative_widths(self, precision: float) -> NDArray[np.float64]:
        """Return half the widths of the intervals as multiples of the requested width: at most 1 is narrow enough.

        Requested is the share `precision` of the mean's logarithm, or a factor of 1 + `precision`, whichever is wider.
        """
        return np.asarray(self.half_widths / np.maximum(precision * np.abs(self.mean), np.log1p(precision)))

    def with_rows(self, other: RatioComparison, mask: NDArray[np.bool_]) -> RatioComparison:
        """Return the comparison with the rows of `other` where `mask` is true."""
        names = [each.name for each in fields(self) if each.name != "limit"]
        arrays = {name: np.where(mask, getattr(other, name), getattr(self, name)) for name in names}
        return RatioComparison(limit=self.limit, **arrays)

    def with_needed_evidence(self, evidence: NDArray[np.float64] | float) -> RatioComparison:
        """Return the comparison with another threshold for the evidence of statements."""
        return replace(self, needed_evidence=evidence)

    def ratio_at(self, index: tuple[int, ...]) -> Ratio | None:
        """Return the ratio of one row; None if no block has it."""
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
    """Widening of all intervals of a workload by what its stacks show together.

    `factor` widens standard deviations for autocorrelated blocks. `offset` is a difference of logarithms without
    meaning, because the A/A comparison shows the same difference.
    """

    factor: NDArray[np.float64]
    offset: NDArray[np.float64]


_NO_WIDENING = CommonWidening(np.array(1.0), np.array(0.0))


@dataclass(frozen=True)
class Moderation:
    """Knowledge that moderates the variances of a workload's stacks, in addition to their blocks.

    `errors` are the variances of the log ratios that rounds explain (axes as the ratios; 0 if unknown). `prior` is that
    of the whole run, by stack. Both are None if unknown.
    """

    errors: NDArray[np.float64] | None = None
    prior: VariancePrior | None = None


_BY_STACKS_ALONE = Moderation()


def compare(
    logs: NDArray[np.float64],
    present: NDArray[np.bool_],
    margin: float = MARGIN,
    common: CommonWidening = _NO_WIDENING,
    moderation: Moderation | None = None,
) -> RatioComparison:
    """Compare rows of log ratios (last axis: blocks) with 0; only values that are `present` count.

    `margin` is a share: ratios between 1 / (1 + margin) and 1 + margin count as equivalent. With a moderation, the
    first axis must be the stacks of one workload, whose variances are moderated (`tare.statistics.moderated_variance`).
    """
    described = moments(logs, present)
    mean = np.where(np.abs(described.mean) < ROUNDING, 0.0, described.mean)
    plain_deviation = np.where(described.deviation < ROUNDING, 0.0, described.deviation)
    moderated = (
        moderate_variances(
            plain_deviation, described.count, explained_variances(moderation.errors, present), moderation.prior
        )
        if moderation
        else ModeratedVariance(plain_deviation, np.zeros(mean.shape))
    )
    deviation, borrowed = moderated.deviation, moderated.borrowed
    of_row, is_rounding = autocorrelation_of_rows(logs, present, mean), deviation == 0
    factor = np.where(is_rounding, 1.0, np.maximum(of_row.factor, common.factor))
    wide = deviation * factor
    # A difference up to the offset means nothing, so that both statements have to hold beyond it.
    limit, offset = float(np.log1p(margin)), np.broadcast_to(common.offset, mean.shape)
    beyond, within = np.abs(mean) - offset, limit - offset - np.abs(mean)
    return RatioComparison(
        mean=mean,
        count=described.count,
        deviation=deviation,
        borrowed=borrowed,
        correlation=np.where(is_rounding, 0.0, of_row.correlation),
        widening=factor,
        in_all_stacks=(factor > 1) & (common.factor >= of_row.factor),
        offset=offset,
        difference_evidence=log_evidence(np.maximum(beyond, 0.0), wide, described.count, borrowed),
        equivalence_evidence=np.where(within > 0, log_evidence(within, wide, described.count, borrowed), -np.inf),
        limit=limit,
    )


def explained_variances(errors: NDArray[np.float64] | None, present: NDArray[np.bool_]) -> NDArray[np.float64] | None:
    """Return the mean variance of each row that rounds explain, over its blocks; 0 if unknown in all of them."""
    if errors is None:
        return None
    known = present & (errors > 0)
    return np.asarray(np.where(known, errors, 0.0).sum(axis=-1) / np.maximum(known.sum(axis=-1), 1))


def compare_together(
    logs: NDArray[np.float64],
    present: NDArray[np.bool_],
    margin: float,
    reference: BaselineRows,
    moderation: Moderation = _BY_STACKS_ALONE,
) -> RatioComparison:
    """Compare stacks (first axis, including the baseline's row of zeros) with the baseline, all stacks together.

    All intervals are wider if the blocks of all stacks together are autocorrelated (`tare.statistics.dependence`). If
    the interval of the A/A control excludes 0, the machine by itself makes differences of that size: the intervals of
    the other stacks are wider by this difference.
    """
    control = reference.control
    factor = pooled_autocorrelation(_relative_to_common_level(logs, present, reference), present).factor
    first = compare(logs, present, margin, CommonWidening(factor, _NO_WIDENING.offset), moderation)
    if control is None:
        return first
    offset = np.zeros(first.mean.shape)
    is_different = first.difference_evidence[control] > SINGLE_STATEMENT_EVIDENCE
    offset[:] = np.where(is_different, np.abs(first.mean[control]), 0.0)
    offset[control] = 0.0  # the control's interval shows the difference itself
    return compare(logs, present, margin, CommonWidening(factor, offset), moderation) if offset.any() else first


def _relative_to_common_level(
    logs: NDArray[np.float64], present: NDArray[np.bool_], reference: BaselineRows
) -> NDArray[np.float64]:
    """Return the log ratios of all stacks to a common level: the mean of the baseline and its control.

    The row of the control is its difference to the baseline, so that each of the two is half of it away from the mean.
    """
    if reference.control is None:
        return logs
    half = np.where(present[reference.control], logs[reference.control] / 2, 0.0)
    level = logs.copy()
    level[reference.control], level[reference.row] = half, -half
    return level


def block_ratio(stack: Sequence[float], baseline: Sequence[float], margin: float = MARGIN) -> Ratio | None:
    """Return the ratio of values that are paired by block; None without a block.

    Raises ValueError if a value is not above zero: it has no logarithm.
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
    """Return e to the power of a logarithm, bounded to a finite number: a few wild blocks give huge intervals."""
    return float(np.exp(min(max(logarithm, -LARGEST_LOGARITHM), LARGEST_LOGARITHM)))


def classify_side(mean: float, half: float, limit: float) -> Side:
    """Return the statement of an interval of logarithms that reaches `half` on either side of the mean."""
    if not np.isfinite(half):
        return "too few blocks"
    if abs(mean) + half < limit:
        return "equivalent"
    if abs(mean) <= half:
        return "undecided"
    return "more" if mean > 0 else "less"

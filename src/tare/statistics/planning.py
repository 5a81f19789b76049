"""Planning of blocks and rounds: variance components, and the number of blocks that a margin needs.

A *stack* is a technology, or several nested ones, in which workloads are measured. A *block* starts a fresh instance of
every stack. In each *round* of a block, every stack has one *turn*, a short measurement. Each turn gives a ratio to the
baseline's turn of the same round, and the median of the logarithms of these ratios is the block's value. A *headline*
is a combination of metrics by which a workload is decided. A *key* is one metric at one point of a sweep; a headline is
the weighted mean of its keys.

The variance of a block's value has two components: the variance of its rounds, which additional rounds lower, and the
variance between fresh instances, which only additional blocks lower (Kalibera and Jones, "Rigorous benchmarking in
reasonable time", ISMM 2013, 63-74, section 6).

A stack is *decided* if the interval of its mean ratio shows that it differs from the baseline, or that it is equivalent
to the baseline within a margin. The evidence for such a statement is an e-value (`anytime.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tare.statistics.anytime import log_evidence, min_value_count, widths_per_deviation
from tare.statistics.descriptive import centers, variance_of_median
from tare.statistics.headlines import Headline, turn_logs
from tare.statistics.moderated_variance import bias_of_log
from tare.statistics.ratios import BaselineRows, RatioComparison

MAX_BLOCKS = 10_000
# Numbers of additional blocks for which `extra_blocks_needed` computes the evidence, all at once. Their steps are
# geometric, because an estimate needs no exact number. The least is 1.
_BLOCK_COUNTS = np.unique(np.geomspace(1, MAX_BLOCKS, 120).astype(np.int64))
# Median of the absolute value of a standard normal variable. In half of all runs, the error of a mean is smaller than
# this number of standard errors.
_MEDIAN_ERROR = 0.6745
_MIN_ROUNDS = 3  # fewer rounds do not show the variance within a block
# Prior for the variance between fresh instances, which few blocks show only roughly. The prior counts like an estimate
# with ten degrees of freedom. Between instances of Redis and nginx, the standard deviation was a quarter of that of
# rounds, so that the variance was a sixteenth; instances of dhrystone did not differ measurably.
_PRIOR_VARIANCE_RATIO, _PRIOR_FREEDOM = 1 / 16, 10.0


def blocks_needed(deviation: float, margin: float) -> int | None:
    """Return the estimated number of blocks until a stack that equals the baseline is found equivalent.

    `deviation` is the standard deviation of the blocks' values across blocks. `margin` is a share, such as 0.03. After
    this number of blocks, the interval lies within the margin in half of all runs of such a stack: in those whose mean
    has at most the median error. A stack whose true difference is the margin needs fewer blocks, because its interval
    only has to exclude 0, and the error of its mean is as often in favor as not. None for more than 10,000 blocks.
    """
    counts = range(min_value_count(), MAX_BLOCKS + 1)
    index = bisect_right(counts, -np.log1p(margin), key=lambda blocks: -_median_reach(blocks) * deviation)
    return counts[index] if index < len(counts) else None


def margin_reached(deviation: float, blocks: int) -> float | None:
    """Return the smallest margin, a share, within which `blocks` blocks find a stack equivalent in half of all runs.

    `deviation` is that of `blocks_needed`. None for too few blocks, which give no interval.
    """
    if blocks < min_value_count():
        return None
    return float(np.expm1(_median_reach(blocks) * deviation))


def _median_reach(blocks: int) -> float:
    """Return the distance of an interval's farther bound from the true mean, in standard deviations of the values.

    The mean of the `blocks` values is assumed to have the median error.
    """
    return float(widths_per_deviation(np.array(blocks)) + _MEDIAN_ERROR / np.sqrt(blocks))


def extra_blocks_needed(comparison: RatioComparison, needed_evidence: float) -> NDArray[np.float64]:
    """Return the estimated number of additional blocks until each stack is decided, at least 1 even if it is already.

    Each row of `comparison` is a stack. A stack is decided when the evidence that the stack differs from the baseline,
    or the evidence that both are equivalent, reaches `needed_evidence`, the logarithm of an e-value. A stack differs if
    the distance of its log ratio from 0 exceeds the `offset` of the comparison, which is the difference in the A/A
    comparison. A stack is equivalent if this distance plus the offset is below `limit`, the logarithm of 1 plus the
    margin. The estimate assumes that additional blocks change neither mean nor deviation. Infinite for more than 10,000
    blocks.
    """
    distance, offset = np.abs(comparison.mean)[..., np.newaxis], comparison.offset[..., np.newaxis]
    deviation = (comparison.deviation * comparison.widening)[..., np.newaxis]  # widened for autocorrelation
    borrowed_freedom = comparison.borrowed[..., np.newaxis]  # degrees of freedom: see `moderated_variance.py`
    beyond_offset, below_limit = distance - offset, comparison.limit - offset - distance
    count = comparison.count[..., np.newaxis] + _BLOCK_COUNTS
    different = log_evidence(np.maximum(beyond_offset, 0.0), deviation, count, borrowed_freedom)
    equivalent = log_evidence(np.maximum(below_limit, 0.0), deviation, count, borrowed_freedom)
    equivalent = np.where(below_limit > 0, equivalent, -np.inf)
    is_enough = np.maximum(different, equivalent) >= needed_evidence
    return np.where(is_enough.any(axis=-1), _BLOCK_COUNTS[is_enough.argmax(axis=-1)], np.inf)


def extra_blocks_until_narrow(count: NDArray[np.int64], relative_widths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the estimated number of additional blocks until each stack's interval has the requested width.

    `count` is the present number of blocks. `relative_widths` are the present widths as multiples of the requested
    width; a width falls with the square root of the number of blocks. Infinite for a stack without an interval; 0 or
    less for an interval that is narrow enough.
    """
    known = np.isfinite(relative_widths)
    return np.where(known, count * (np.where(known, relative_widths, 1.0) ** 2 - 1), np.inf)


@dataclass(frozen=True)
class VarianceComponents:
    """Variance components of the value of a typical stack's blocks, which are log ratios to the baseline.

    `within` is the variance that a block of a single round would have from its rounds: a block of n rounds has
    `within / n`. `between` is the additional variance between blocks, which fresh instances cause.
    """

    within: float
    between: float


def headline_variance_components(head: Headline, reference: BaselineRows) -> VarianceComponents | None:
    """Estimate the components of a workload's headline; None if it has no keys or `variance_components` is None."""
    return variance_components(*turn_logs(head.grid, head.keys), head.weights, reference.row) if head.keys else None


def variance_components(
    logs: NDArray[np.float64], usable: NDArray[np.bool_], weights: NDArray[np.float64], row: int
) -> VarianceComponents | None:
    """Estimate the components from the logarithms of the values of all turns.

    The axes of `logs` and of `usable`, the mask of existing turns, are stack, key, block and round. `weights` are the
    weights of the keys, and `row` is the baseline's index on the stack axis. A block of a stack counts if each key has
    three rounds or more with turns of both the stack and the baseline. None if there is no such block, or all rounds
    are equal. The result describes a typical stack: the logarithms of variances are averaged, so that a noisy stack
    does not decide for all.
    """
    both = usable & usable[row]
    counts = both.sum(axis=-1)
    present = (counts >= _MIN_ROUNDS).all(axis=1)
    present[row] = False
    if not present.any():
        return None
    ratios = logs - logs[row]
    middle = centers(ratios, both)
    rounds = np.maximum(counts, 1)
    one_round = variance_of_median(ratios, both, middle)  # not yet divided by the number of rounds
    within, explained = (
        _geometric_mean_variance(np.einsum("skb,k->sb", each, weights**2)[present], rounds.min(axis=1)[present] - 1.0)
        for each in (one_round, one_round / rounds)
    )
    if not within:
        return None
    blocks = present.sum(axis=1)
    several = np.flatnonzero(blocks > 1)
    freedom = float((blocks[several] - 1).sum())
    values = np.einsum("skb,k->sb", middle, weights)
    observed = np.array([np.var(values[stack][present[stack]], ddof=1) for stack in several])
    unexplained = max(0.0, _geometric_mean_variance(observed, blocks[several] - 1.0) - explained)
    prior = _PRIOR_VARIANCE_RATIO * within
    between = (_PRIOR_FREEDOM * prior + freedom * unexplained) / (_PRIOR_FREEDOM + freedom)
    return VarianceComponents(within, between)


def _geometric_mean_variance(variances: NDArray[np.float64], freedom: NDArray[np.float64]) -> float:
    """Return the geometric mean of the positive ones of estimated variances; 0 if there are none.

    A variance of 0 is left out: it has no logarithm, and equal values are no sample of noise. The logarithms are
    corrected for the bias that they have with these degrees of `freedom`.
    """
    positive = variances > 0
    if not positive.any():
        return 0.0
    return float(np.exp(np.mean(np.log(variances[positive]) - bias_of_log(freedom[positive]))))

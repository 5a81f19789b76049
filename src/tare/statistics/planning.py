"""Planning of blocks and rounds: variance components, and the number of blocks that a margin needs.

The variance of a block's value has two components: that of its rounds, which additional rounds lower, and that between
fresh instances, which only additional blocks lower (Kalibera and Jones, "Rigorous benchmarking in reasonable time",
ISMM 2013, 63-74, section 6).
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
# Geometric steps: an estimate needs no exact number, and evidence is computed for all of these at once.
_BLOCK_COUNTS = np.unique(np.geomspace(1, MAX_BLOCKS, 120).astype(np.int64))
_MEDIAN = 0.6745  # median of the absolute value of a standard normal variable: the typical error of a mean
_MIN_ROUNDS = 3
# Prior for the variance between fresh instances, until blocks show it: the standard deviation is a quarter of that of
# rounds, as Redis and nginx showed (dhrystone: nothing), with ten degrees of freedom.
_USUAL_SHARE, _USUAL_FREEDOM = 1 / 16, 10.0


def blocks_needed(deviation: float, margin: float) -> int | None:
    """Return the estimated number of blocks until a stack that equals the baseline is found equivalent.

    `deviation` is the standard deviation of the log ratios within blocks, `margin` a share. After this number of
    blocks, half of such runs are decided: with a typical error of the mean, the interval lies within the margin. A
    difference as large as the margin is found somewhat sooner. None for more than 10,000 blocks.
    """
    counts = range(min_value_count(), MAX_BLOCKS + 1)
    index = bisect_right(counts, -np.log1p(margin), key=lambda blocks: -_reach_in_deviations(blocks) * deviation)
    return counts[index] if index < len(counts) else None


def margin_reached(deviation: float, blocks: int) -> float | None:
    """Return the margin, a share, within which `blocks` blocks find a stack equivalent; None for too few blocks."""
    if blocks < min_value_count():
        return None
    return float(np.expm1(_reach_in_deviations(blocks) * deviation))


def _reach_in_deviations(blocks: int) -> float:
    """Return how far a typical interval after `blocks` blocks reaches from the truth, in standard deviations."""
    return float(widths_per_deviation(np.array(blocks)) + _MEDIAN / np.sqrt(blocks))


def extra_blocks_needed(comparison: RatioComparison, needed_evidence: float) -> NDArray[np.float64]:
    """Return the estimated number of additional blocks until each row has `needed_evidence`.

    `needed_evidence` is the logarithm of an e-value. The estimate assumes that mean and deviation stay as they are.
    Infinite for more than 10,000 blocks.
    """
    away, wide = np.abs(comparison.mean)[..., np.newaxis], (comparison.deviation * comparison.widening)[..., np.newaxis]
    borrowed = comparison.borrowed[..., np.newaxis]
    room = comparison.limit - comparison.offset[..., np.newaxis] - away
    count = comparison.count[..., np.newaxis] + _BLOCK_COUNTS
    different = log_evidence(np.maximum(away - comparison.offset[..., np.newaxis], 0.0), wide, count, borrowed)
    equivalent = np.where(room > 0, log_evidence(np.maximum(room, 0.0), wide, count, borrowed), -np.inf)
    is_enough = np.maximum(different, equivalent) >= needed_evidence
    return np.where(is_enough.any(axis=-1), _BLOCK_COUNTS[is_enough.argmax(axis=-1)], np.inf)


def extra_blocks_until_narrow(count: NDArray[np.int64], times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the estimated number of additional blocks until each row's interval has the requested width.

    `times` are the widths as multiples of the requested one, which fall with the square root of the number of blocks.
    Infinite for a row without an interval; 0 or less for an interval that is narrow enough.
    """
    known = np.isfinite(times)
    return np.where(known, count * (np.where(known, times, 1.0) ** 2 - 1), np.inf)


@dataclass(frozen=True)
class VarianceComponents:
    """Variances of log ratios to the baseline: of rounds within a block, and between blocks in addition to rounds."""

    within: float
    between: float


def headline_variance_components(head: Headline, reference: BaselineRows) -> VarianceComponents | None:
    """Estimate the components of a workload's headline; None without keys, or as in `variance_components`."""
    return variance_components(*turn_logs(head.grid, head.keys), head.weights, reference.row) if head.keys else None


def variance_components(
    logs: NDArray[np.float64], usable: NDArray[np.bool_], weights: NDArray[np.float64], row: int
) -> VarianceComponents | None:
    """Estimate the components from the logarithms of the turns of all stacks.

    None if no block has three rounds, or all rounds are equal. The axes are stack, key, block and round; `weights` are
    those of the keys, `row` is the baseline's. The result is that of a typical stack: the logarithms of variances are
    averaged, so that a noisy stack does not decide for all.
    """
    both = usable & usable[row]
    counts = both.sum(axis=-1)
    present = (counts >= _MIN_ROUNDS).all(axis=1)
    present[row] = False
    if not present.any():
        return None
    ratios = logs - logs[row]
    middle = centers(ratios, both)
    of_round, rounds = variance_of_median(ratios, both, middle), np.maximum(counts, 1)
    within, explained = (
        _geometric_mean_variance(np.einsum("skb,k->sb", each, weights**2)[present], rounds.min(axis=1)[present] - 1.0)
        for each in (of_round, of_round / rounds)
    )
    if not within:
        return None
    blocks = present.sum(axis=1)
    several = np.flatnonzero(blocks > 1)
    freedom = float((blocks[several] - 1).sum())
    values = np.einsum("skb,k->sb", middle, weights)
    observed = np.array([np.var(values[stack][present[stack]], ddof=1) for stack in several])
    unexplained = max(0.0, _geometric_mean_variance(observed, blocks[several] - 1.0) - explained)
    between = (_USUAL_FREEDOM * _USUAL_SHARE * within + freedom * unexplained) / (_USUAL_FREEDOM + freedom)
    return VarianceComponents(within, between)


def _geometric_mean_variance(variances: NDArray[np.float64], freedom: NDArray[np.float64]) -> float:
    """Return the geometric mean of estimated variances, corrected for the bias of their logarithms; 0 if all are 0."""
    positive = variances > 0
    if not positive.any():
        return 0.0
    return float(np.exp(np.mean(np.log(variances[positive]) - bias_of_log(freedom[positive]))))

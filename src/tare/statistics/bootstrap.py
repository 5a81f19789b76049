"""Block bootstrap and bootstrap intervals of ratios of means.

Bootstrap intervals are corrected for bias and acceleration (BCa), by SciPy: Efron, "Better bootstrap confidence
intervals", Journal of the American Statistical Association 82 (1987), 171-185. With few values, they are too narrow:
for five normal values, a 95 % interval misses the mean in about one case of seven.

Block bootstrap draws are expanded by a factor for few values, for which the plain bootstrap is too narrow: by the
missing variance, and by the ratio of Student's t to the normal distribution (the expanded percentile interval:
Hesterberg, "What teachers should know about the bootstrap", The American Statistician 69 (2015), 371-386).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from tare.statistics.anytime import CONFIDENCE

_RESAMPLES = 9999
_ROUNDING = 1e-12  # relative to the largest value: a smaller range of values is rounding
DRAW_COUNT = 2000
RESAMPLED_CONFIDENCE = 0.9
Draws = NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """Estimate and its 95 % interval; None for a number that does not exist."""

    estimate: float | None = None
    low: float | None = None
    high: float | None = None


def bootstrap_share(values: Sequence[float], baseline: Sequence[float], seed: int) -> Interval:
    """Return the mean as a share of the baseline's mean ("percent of bare metal"), with its interval.

    Both sides are resampled independently, because the blocks of published values are unknown. The share is None for
    values that are zero or negative. The interval is None if a side has one value or neither side varies. Raises
    ValueError for non-finite values.
    """
    (ours, scale), (theirs, their_scale) = _scale_to_largest(values), _scale_to_largest(baseline)
    if not ours.size or not theirs.size or min(ours.min(), theirs.min()) <= 0:
        return Interval()
    share = scale / their_scale
    estimate = float(ours.mean() / theirs.mean()) * share
    if not np.isfinite(estimate):
        return Interval()
    if min(len(ours), len(theirs)) < 2 or not (_varies(ours) or _varies(theirs)):
        return Interval(estimate)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy warns and returns NaN for degenerate samples: checked below
        result = scipy.stats.bootstrap(
            (ours, theirs),
            lambda one, two, axis: one.mean(axis=axis) / two.mean(axis=axis),
            n_resamples=_RESAMPLES,
            confidence_level=CONFIDENCE,
            method="BCa",
            rng=seed,
            vectorized=True,
        ).confidence_interval
    low, high = float(result.low) * share, float(result.high) * share
    return Interval(estimate, low, high) if np.isfinite([low, high]).all() else Interval(estimate)


def _scale_to_largest(values: Sequence[float]) -> tuple[NDArray[np.float64], float]:
    """Return the values divided by the largest absolute value, so that no square overflows, and that value."""
    array = np.asarray(values, dtype=float)
    if not np.isfinite(array).all():
        raise ValueError("an interval needs finite values")
    scale = float(np.abs(array).max(initial=0.0)) or 1.0
    return array / scale, scale


def _varies(shares: NDArray[np.float64]) -> bool:
    return bool(np.ptp(shares) > _ROUNDING)


def bootstrap_weights(count: int, chance: np.random.Generator) -> Draws:
    """Return how often each of `count` values is in each draw; the first draw has every value once."""
    # Numbers of draws in place of indexes: the means of all draws are then one matrix product.
    drawn = chance.multinomial(count, np.full(count, 1 / count), size=DRAW_COUNT)
    return np.vstack([np.ones(count), drawn])


def bootstrap_means(values: Draws, present: NDArray[np.bool_], weights: Draws) -> Draws:
    """Return the block bootstrap means along the last axis, of values that are `present`; first axis: draws.

    The first draw is the estimate; NaN if no value is present.
    """
    total = np.einsum("db,...b->d...", weights, present.astype(float))
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.einsum("db,...b->d...", weights, np.where(present, values, 0.0)) / total
    means = np.where(np.isnan(means), means[0], means)  # a draw that has none of the present values
    return np.asarray(means[0] + _expansion_factor(present.sum(axis=-1)) * (means - means[0]))


def bootstrap_bounds(draws: Draws) -> tuple[float, float]:
    """Return the bounds of the 90 % interval of a statistic, from its values in all draws."""
    low, high = np.quantile(draws[1:], [(1 - RESAMPLED_CONFIDENCE) / 2, (1 + RESAMPLED_CONFIDENCE) / 2])
    return float(low), float(high)


def _expansion_factor(count: NDArray[np.int64]) -> Draws:
    """Return the factor that expands draws of `count` values; 1 for a single value, which has no interval."""
    freedom, tail = np.maximum(count - 1, 1), (1 + RESAMPLED_CONFIDENCE) / 2
    wider = scipy.stats.t.ppf(tail, freedom) / scipy.stats.norm.ppf(tail) * np.sqrt((freedom + 1) / freedom)
    return np.where(count > 1, wider, 1.0)

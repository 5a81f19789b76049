"""Means of values that are drawn anew, such as over whole blocks, so that what is computed of them has an interval.

The draws lie farther from the estimate than plain ones do, by a factor for few values: by what the plain bootstrap is
too narrow, and by what Student's t is wider than the normal distribution (Hesterberg, "What teachers should know about
the bootstrap", The American Statistician 69 (2015), 371-386: the expanded percentile interval).
"""

from __future__ import annotations

import numpy as np
import scipy
from numpy.typing import NDArray

DRAWS = 2000
CONFIDENCE = 0.9

Draws = NDArray[np.float64]


def drawn_weights(count: int, chance: np.random.Generator) -> Draws:
    """Return how often each of so many values is in each draw; the first draw has each of them once."""
    drawn = chance.multinomial(count, np.full(count, 1 / count), size=DRAWS)
    return np.vstack([np.ones(count), drawn])


def drawn_means(values: Draws, present: NDArray[np.bool_], weights: Draws) -> Draws:
    """Return the means along the last axis, of values that are present, of all draws (first axis).

    The first draw is the estimate. It is NaN where no value is present.
    """
    total = np.einsum("db,...b->d...", weights, present.astype(float))
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.einsum("db,...b->d...", weights, np.where(present, values, 0.0)) / total
    means = np.where(np.isnan(means), means[0], means)  # a draw without any of the values
    return np.asarray(means[0] + _expansion(present.sum(axis=-1)) * (means - means[0]))


def ends_of(draws: Draws) -> tuple[float, float]:
    """Return the ends of the interval of what was computed of all draws."""
    low, high = np.quantile(draws[1:], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def _expansion(count: NDArray[np.int64]) -> Draws:
    """Return the factor for so many values; 1 for a single one, which has no interval."""
    freedom, tail = np.maximum(count - 1, 1), (1 + CONFIDENCE) / 2
    wider = scipy.stats.t.ppf(tail, freedom) / scipy.stats.norm.ppf(tail) * np.sqrt((freedom + 1) / freedom)
    return np.where(count > 1, wider, 1.0)

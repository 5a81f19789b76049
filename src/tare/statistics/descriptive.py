"""Descriptive statistics: center, spread, percentiles and quantization.

Center: a disturbance of tenths of a second hits only some turns of a block, and hits them hard. A mean follows each of
them. A median follows none as long as fewer than half are hit (its breakdown point: Hampel, "A general qualitative
definition of robustness", Annals of Mathematical Statistics 42 (1971), 1887-1896). docs/decisions/turns.md has the
alternatives that were tried.

Quantization: a value that is read in steps hides differences below a step. If steps are smaller than the standard
deviation, the spread of the values is that of the noise except for a twelfth of the squared step (Sheppard, "On the
calculation of the most probable values of frequency-constants, for data arranged according to equidistant division of
a scale", Proceedings of the London Mathematical Society 29 (1898), 353-380). Larger steps hide the noise: equal values
have no spread, but are uncertain by the step (JCGM 100:2008, "Guide to the expression of uncertainty in measurement",
F.2.2.1).

Percentiles: the n-th percentile is the smallest value that at least n % of all values do not exceed (nearest rank).
With fewer values than `min_percentile_count`, it would be the largest value, which depends on chance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_EQUAL = 1e-12  # logarithms of equal values differ by rounding alone below this
_MEDIAN_VARIANCE_FACTOR = np.pi / 2  # variance of a median of normal values, in variances of their mean
DEVIATIONS_PER_MAD = 1.4826  # normal standard deviation, in median absolute deviations


@dataclass(frozen=True)
class Description:
    """Description of values, in their unit. `sd` is None for a single value, `relative_sd` also for a mean of 0."""

    n: int
    mean: float
    sd: float | None
    relative_sd: float | None
    minimum: float
    maximum: float


@dataclass(frozen=True)
class Moments:
    """Counts, means, standard deviations and extremes along the last axis of an array; all 0 without a value."""

    count: NDArray[np.int64]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]


def describe(values: Sequence[float]) -> Description | None:
    """Return the description of values; None without values."""
    return describe_row(moments(np.asarray(values, dtype=float), np.ones(len(values), dtype=bool)), ())


def moments(values: NDArray[np.float64], present: NDArray[np.bool_]) -> Moments:
    """Return the moments of all rows of an array; only values that are `present` count.

    The deviation from the mean is computed in a second pass: the one-pass formula cancels digits of values that are
    large and close together (Chan, Golub and LeVeque, The American Statistician 37 (1983), 242-247).
    """
    count = present.sum(axis=-1)
    some = np.maximum(count, 1)
    mean = np.where(present, values, 0.0).sum(axis=-1) / some
    squares = np.where(present, values - mean[..., np.newaxis], 0.0) ** 2
    deviation = np.sqrt(squares.sum(axis=-1) / np.maximum(count - 1, 1))
    minimum = np.where(present, values, np.inf).min(axis=-1, initial=np.inf)
    maximum = np.where(present, values, -np.inf).max(axis=-1, initial=-np.inf)
    none = count == 0
    return Moments(count, mean, deviation, np.where(none, 0.0, minimum), np.where(none, 0.0, maximum))


def describe_row(moments: Moments, index: tuple[int, ...]) -> Description | None:
    """Return the description of one row of moments; None for a row without values."""
    count = int(moments.count[index])
    if count == 0:
        return None
    mean = float(moments.mean[index])
    deviation = float(moments.deviation[index]) if count >= 2 else None
    relative = deviation / abs(mean) if deviation is not None and mean != 0 else None
    return Description(count, mean, deviation, relative, float(moments.minimum[index]), float(moments.maximum[index]))


def centers(values: NDArray[np.float64], present: NDArray[np.bool_], axis: int = -1) -> NDArray[np.float64]:
    """Return the medians along an axis, of the values that are `present`; 0 without a value."""
    values, present = np.moveaxis(values, axis, -1), np.moveaxis(present, axis, -1)
    if values.shape[-1] == 1:
        return np.where(present, values, 0.0)[..., 0]
    is_whole = bool(present.all())
    ordered = np.sort(values if is_whole else np.where(present, values, np.inf), axis=-1)
    if is_whole:  # nearly all blocks, and three times as fast as the general case
        last = values.shape[-1] - 1
        return np.asarray((ordered[..., last // 2] + ordered[..., (last + 1) // 2]) / 2)
    count = present.sum(axis=-1)[..., np.newaxis]
    middle = [np.take_along_axis(ordered, np.maximum(at, 0), axis=-1) for at in ((count - 1) // 2, count // 2)]
    return np.where(count > 0, np.where(count > 0, middle[0] + middle[1], 0.0) / 2, 0.0)[..., 0]


def variance_of_median(
    values: NDArray[np.float64], present: NDArray[np.bool_], median: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the variances of medians along the last axis, times the number of values.

    They follow from the median absolute deviation, which single wild values do not move (Rousseeuw and Croux,
    "Alternatives to the median absolute deviation", Journal of the American Statistical Association 88 (1993),
    1273-1283).
    """
    scale = DEVIATIONS_PER_MAD * centers(np.abs(values - median[..., np.newaxis]), present)
    return np.asarray(scale**2 * _MEDIAN_VARIANCE_FACTOR)


def are_quantized(logs: NDArray[np.float64], present: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return for each row (last axis: blocks) whether values repeat, and otherwise differ by more than their SD.

    Continuous noise repeats no value. Rows of fewer than two values are not quantized.
    """
    ordered = np.sort(np.where(present, logs, np.inf), axis=-1)
    is_pair = np.isfinite(ordered[..., 1:])
    gaps = np.where(is_pair, ordered[..., 1:] - np.where(is_pair, ordered[..., :-1], 0.0), np.inf)
    is_tie = gaps < _EQUAL
    step = np.where(is_tie, np.inf, gaps).min(axis=-1, initial=np.inf)
    return np.asarray(is_tie.any(axis=-1) & (step > moments(logs, present).deviation))


def min_percentile_count(percent: int) -> int:
    """Return the number of values with which one exceeds a percentile: 20 for the 95th, 100 for the 99th."""
    return -(-100 // (100 - percent))


def percentile(values: Sequence[float], percent: int) -> float | None:
    """Return a percentile, from the 1st to the 99th; None for too few values."""
    if len(values) < min_percentile_count(percent):
        return None
    return sorted(values)[-(-len(values) * percent // 100) - 1]

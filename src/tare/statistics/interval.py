"""The interval in which the true mean lies, after Student.

Student (W. S. Gosset), "The probable error of a mean", Biometrika 6 (1908), 1-25.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tare.statistics.describe import moments

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Interval:
    """A mean, and the interval around it that holds the true mean at the asked confidence; units of the values."""

    mean: float
    low: float
    high: float
    n: int


def student_interval(values: Sequence[float], confidence: float = CONFIDENCE) -> Interval | None:
    """Give mean and t interval, `mean ± t(n-1) * s / sqrt(n)`; None for fewer than two values, which have no spread."""
    found = moments(np.asarray(values, dtype=float), np.ones(len(values), dtype=bool))
    if found.count < 2:
        return None
    half = float(half_widths(found.deviation, found.count, confidence))
    mean = float(found.mean)
    return Interval(mean, mean - half, mean + half, int(found.count))


def half_widths(
    deviation: NDArray[np.float64], count: NDArray[np.int64], confidence: float = CONFIDENCE
) -> NDArray[np.float64]:
    """Give half the width of the t interval for each standard deviation and count; 0 where the count is below two."""
    freedom = np.maximum(count - 1, 1).astype(float)
    half = quantiles(freedom, confidence) * deviation / np.sqrt(np.maximum(count, 1))
    return np.where(count >= 2, half, 0.0)


def quantiles(freedom: NDArray[np.float64], confidence: float = CONFIDENCE) -> NDArray[np.float64]:
    """Give the two-sided quantile of Student's t distribution for each number of degrees of freedom."""
    from scipy.special import stdtrit  # noqa: PLC0415 - half a second that only commands with statistics have to wait

    return np.asarray(stdtrit(freedom, 0.5 + confidence / 2), dtype=float)

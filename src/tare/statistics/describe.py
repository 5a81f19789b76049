"""What a handful of values looks like: mean, standard deviation (n-1), relative standard deviation, extremes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Description:
    """Values in short, in their own unit. `sd` is None for a single value, `relative_sd` also for a mean of 0."""

    n: int
    mean: float
    sd: float | None
    relative_sd: float | None
    minimum: float
    maximum: float


@dataclass(frozen=True)
class Moments:
    """Counts, means, standard deviations and extremes along the last axis of an array; all 0 where nothing is there."""

    count: NDArray[np.int64]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64]
    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]


def describe(values: Sequence[float]) -> Description | None:
    """Describe values; None where there are none."""
    return description(moments(np.asarray(values, dtype=float), np.ones(len(values), dtype=bool)), ())


def moments(values: NDArray[np.float64], present: NDArray[np.bool_]) -> Moments:
    """Describe all rows of an array at once; only values that are present count.

    The deviation is taken around the mean in a second pass, because the one-pass formula cancels where values are
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


def description(moments: Moments, index: tuple[int, ...]) -> Description | None:
    """Take one row out of the moments; None where nothing was present."""
    count = int(moments.count[index])
    if count == 0:
        return None
    mean = float(moments.mean[index])
    deviation = float(moments.deviation[index]) if count >= 2 else None
    relative = deviation / abs(mean) if deviation is not None and mean != 0 else None
    return Description(count, mean, deviation, relative, float(moments.minimum[index]), float(moments.maximum[index]))

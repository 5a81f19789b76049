"""Bootstrap intervals: what the mean might have been, had other values of the same kind been drawn.

Efron, "Better bootstrap confidence intervals", Journal of the American Statistical Association 82 (1987), 171-185:
corrected for bias and acceleration (BCa), by SciPy. Few values make them too narrow: the mean behind five normal ones
lies outside of a 95 % interval in about one case of seven.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

CONFIDENCE = 0.95
_RESAMPLES = 9999
_ROUNDING = 1e-12  # of the largest value: values that vary less do not vary


@dataclass(frozen=True)
class Interval:
    """An estimate and its 95 % interval; `reason` says why a number is None."""

    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    reason: str = ""


def bootstrap_mean(values: Sequence[float], seed: int) -> Interval:
    """Return the interval of the mean, in the unit of the values. Raises ValueError for values that are not finite."""
    ours, scale = _scaled(values)
    if not ours.size:
        return Interval(reason="there is no value")
    if len(ours) < 2:
        return Interval(float(ours[0]) * scale, reason="there is only one value")
    if not _varies(ours):
        return Interval(float(ours.mean()) * scale, reason="all values are equal")
    return _accelerated((ours,), scale, seed)


def bootstrap_share(values: Sequence[float], baseline: Sequence[float], seed: int) -> Interval:
    """Return the mean as a share of the baseline's mean ("percent of bare metal"), with its interval.

    Both sides are drawn anew, independently of each other: blocks are not known here. Raises ValueError for values that
    are not finite.
    """
    (ours, scale), (theirs, their_scale) = _scaled(values), _scaled(baseline)
    if not ours.size or not theirs.size:
        return Interval(reason="the baseline has no value" if ours.size else "there is no value")
    if min(ours.min(), theirs.min()) <= 0:
        return Interval(reason="a value is zero or negative, so a share has no meaning")
    share = scale / their_scale
    estimate = float(ours.mean() / theirs.mean()) * share
    if not np.isfinite(estimate):
        return Interval(reason="the share is larger than numbers can hold")
    if min(len(ours), len(theirs)) < 2:
        return Interval(
            estimate, reason="there is only one value" if len(ours) < 2 else "the baseline has only one value"
        )
    if not _varies(ours) and not _varies(theirs):
        return Interval(estimate, reason="neither side varies")
    return _accelerated((ours, theirs), share, seed)


def _accelerated(sides: tuple[NDArray[np.float64], ...], scale: float, seed: int) -> Interval:
    """Draw the values of one side, or of both, anew, and multiply their mean or the ratio of their means by `scale`."""

    def statistic(*drawn: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
        means = [np.asarray(values.mean(axis=axis)) for values in drawn]
        return means[0] if len(means) == 1 else means[0] / means[1]

    estimate = float(statistic(*sides, axis=-1)) * scale
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SciPy warns where it then gives NaN, which is asked for below
        result = scipy.stats.bootstrap(
            sides,
            statistic,
            n_resamples=_RESAMPLES,
            confidence_level=CONFIDENCE,
            method="BCa",
            rng=seed,
            vectorized=True,
        ).confidence_interval
    low, high = float(result.low) * scale, float(result.high) * scale
    if not np.isfinite([low, high]).all():
        return Interval(estimate, reason="the values vary too little for an interval")
    return Interval(estimate, low, high)


def _scaled(values: Sequence[float]) -> tuple[NDArray[np.float64], float]:
    """Divide values by the largest, so that no square overflows."""
    array = np.asarray(values, dtype=float)
    if not np.isfinite(array).all():
        raise ValueError("an interval needs finite values")
    scale = float(np.abs(array).max(initial=0.0)) or 1.0
    return array / scale, scale


def _varies(shares: NDArray[np.float64]) -> bool:
    return bool(np.ptp(shares) > _ROUNDING)

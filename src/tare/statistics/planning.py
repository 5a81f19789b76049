"""How many blocks a margin will need, from how much the blocks of a pilot or an earlier run differed."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from numpy.typing import NDArray

from tare.statistics.anytime import least_count, log_evidence, widths_per_deviation
from tare.statistics.ratios import Comparison

MOST_BLOCKS = 10_000
_AHEAD = np.unique(np.geomspace(1, MOST_BLOCKS, 120).astype(np.int64))
_MEDIAN = 0.6745  # of the absolute value of a standard normal variable: how far a mean typically is from the truth


def blocks_needed(deviation: float, margin: float) -> int | None:
    """Return about how many blocks it takes until a stack that equals the baseline is found equivalent.

    `deviation` is the standard deviation of the log ratios within blocks, `margin` a share. It is the number at which
    half of such runs are decided: the interval, around a mean that is as far from the truth as typical, lies within the
    margin. A difference of the margin's size is found somewhat sooner. None where it would be over 10,000.
    """
    counts = range(least_count(), MOST_BLOCKS + 1)
    found = bisect_right(counts, -np.log1p(margin), key=lambda blocks: -_reach(blocks) * deviation)
    return counts[found] if found < len(counts) else None


def margin_reached(deviation: float, blocks: int) -> float | None:
    """Return the margin, a share, within which so many blocks find a stack equivalent; None where they are too few."""
    if blocks < least_count():
        return None
    return float(np.expm1(_reach(blocks) * deviation))


def _reach(blocks: int) -> float:
    """Return how far the typical interval of so many blocks reaches, in standard deviations: less with each block."""
    return float(widths_per_deviation(np.array(blocks)) + _MEDIAN / np.sqrt(blocks))


def further_blocks(comparison: Comparison, needed: float) -> NDArray[np.float64]:
    """Return about how many more blocks each row needs until its evidence is `needed`, the logarithm of an e-value.

    It is taken that the mean and the deviation stay as they are. Infinite beyond 10,000.
    """
    away, wide = np.abs(comparison.mean)[..., np.newaxis], (comparison.deviation * comparison.widening)[..., np.newaxis]
    borrowed = comparison.borrowed[..., np.newaxis]
    room = comparison.limit - comparison.offset[..., np.newaxis] - away
    count = comparison.count[..., np.newaxis] + _AHEAD
    different = log_evidence(np.maximum(away - comparison.offset[..., np.newaxis], 0.0), wide, count, borrowed)
    alike = np.where(room > 0, log_evidence(np.maximum(room, 0.0), wide, count, borrowed), -np.inf)
    is_enough = np.maximum(different, alike) >= needed
    return np.where(is_enough.any(axis=-1), _AHEAD[is_enough.argmax(axis=-1)], np.inf)


def blocks_until_narrow(count: NDArray[np.int64], times: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return about how many more blocks each row needs whose interval is so many times as wide as is asked for.

    Infinite where there is no interval yet, and nothing or less where it is narrow enough.
    """
    known = np.isfinite(times)
    return np.where(known, count * (np.where(known, times, 1.0) ** 2 - 1), np.inf)

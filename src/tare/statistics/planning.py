"""How many blocks a margin will need, from how much the blocks of a pilot or an earlier run differed."""

from __future__ import annotations

import numpy as np

from tare.statistics.anytime import least_count, widths_per_deviation

MOST_BLOCKS = 10_000
_MEDIAN = 0.6745  # of the absolute value of a standard normal variable: how far a mean typically is from the truth


def blocks_needed(deviation: float, margin: float) -> int | None:
    """Give about how many blocks it takes until a stack that equals the baseline is found equivalent.

    `deviation` is the standard deviation of the log ratios within blocks, `margin` a share. It is the number at which
    half of such runs are decided: the interval, around a mean that is as far from the truth as typical, lies within the
    margin. A difference of the margin's size is told from none somewhat sooner. None where it would be over 10,000.
    """
    counts = np.arange(least_count(), MOST_BLOCKS + 1)
    reach = (widths_per_deviation(counts) + _MEDIAN / np.sqrt(counts)) * deviation
    enough = np.nonzero(reach < np.log1p(margin))[0]
    return int(counts[enough[0]]) if enough.size else None


def margin_reached(deviation: float, blocks: int) -> float | None:
    """Give the margin, a share, within which so many blocks find a stack equivalent; None where they are too few."""
    if blocks < least_count():
        return None
    width = float(widths_per_deviation(np.array(blocks))) + _MEDIAN / blocks**0.5
    return float(np.expm1(width * deviation))

"""Where an interval lies beside a region: inside of it, outside, or across its border; and how surely.

What a published claim says of a ratio is a region: all above 1, or all within a tolerance of a size. The interval is
one of `tare.statistics.anytime`: it holds the ratios against which the e-value has not reached 20. So it excludes a
border exactly where the evidence against that border is large enough, and the evidence of many claims can be judged
together (`tare.statistics.anytime.e_bh`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tare.statistics.anytime import log_evidence, widths_per_deviation

Place = Literal["inside", "outside", "across", "unknown"]


@dataclass(frozen=True)
class Region:
    """The ratios, or values, from `low` to `high`: 0 and infinity where it has no end."""

    low: float = 0.0
    high: float = math.inf


@dataclass(frozen=True)
class Seen:
    """An estimate with its interval, which is as wide on either side as a factor; none for too few blocks."""

    estimate: float
    low: float | None
    high: float | None
    n: int

    def inverse(self) -> Seen:
        """Return that of the inverse quantity."""
        low, high = (None if end is None else 1 / end for end in (self.high, self.low))
        return Seen(1 / self.estimate, low, high, self.n)


@dataclass(frozen=True)
class Placed:
    """Where an interval lies, and the logarithm of the e-value for that; 0 where nothing is decided."""

    place: Place
    evidence: float = 0.0


def place(seen: Seen, region: Region) -> Placed:
    """Return where the interval lies beside the region."""
    if seen.low is None or seen.high is None:
        return Placed("unknown")
    borders = [border for border in (region.low, region.high) if 0 < border < math.inf]
    if region.low <= seen.low and seen.high <= region.high:
        return Placed("inside", min((_evidence(seen, border) for border in borders), default=math.inf))
    if seen.high < region.low:
        return Placed("outside", _evidence(seen, region.low))
    if seen.low > region.high:
        return Placed("outside", _evidence(seen, region.high))
    return Placed("across")


def _evidence(seen: Seen, border: float) -> float:
    """Return the logarithm of the e-value against the true ratio being on the border.

    The standard deviation is the one that makes the interval as wide as it is.
    """
    assert seen.low is not None  # noqa: S101 - only asked for intervals
    assert seen.high is not None  # noqa: S101
    count = np.array(seen.n)
    deviation = math.log(seen.high / seen.low) / 2 / float(widths_per_deviation(count))
    return float(log_evidence(np.array(math.log(seen.estimate)), np.array(deviation), count, at=math.log(border)))

"""Where an interval lies beside a region: inside of it, outside, or across its border; and how surely.

What a published claim says of a ratio is a region: all above 1, or all within a tolerance of a size. The interval is
that of 95 % alone (`tare.statistics.anytime`): it holds the ratios against which the e-value has not reached 20. So it
excludes a border exactly where the evidence against that border is large enough, and the evidence of many claims can be
judged together (`tare.statistics.anytime.e_bh`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from tare.statistics.anytime import log_evidence, widths_per_deviation
from tare.statistics.cells import Spread

Place = Literal["inside", "outside", "across", "unknown"]


@dataclass(frozen=True)
class Region:
    """The ratios, or values, from `low` to `high`: 0 and infinity where it has no end."""

    low: float = 0.0
    high: float = math.inf


@dataclass(frozen=True)
class Seen:
    """An estimate from so many blocks, and what its interval follows from; the interval is None for too few blocks."""

    estimate: float
    n: int
    spread: Spread | None

    @cached_property
    def half(self) -> float:
        """Half the width of the interval, a logarithm; infinite for too few blocks."""
        if self.spread is None:
            return math.inf
        width = float(widths_per_deviation(np.array(self.n), np.array(self.spread.borrowed)))
        return width * self.spread.deviation + self.spread.offset if width < math.inf else math.inf

    @property
    def low(self) -> float | None:
        """The lower end of the interval."""
        return self.estimate * math.exp(-self.half) if self.half < math.inf else None

    @property
    def high(self) -> float | None:
        """The upper end of the interval."""
        return self.estimate * math.exp(self.half) if self.half < math.inf else None

    def inverse(self) -> Seen:
        """Return that of the inverse quantity."""
        return Seen(1 / self.estimate, self.n, self.spread)


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
    """Return the logarithm of the e-value against the true ratio being on the border."""
    assert seen.spread is not None  # noqa: S101 - only asked for intervals
    away = max(abs(math.log(seen.estimate / border)) - seen.spread.offset, 0.0)
    deviation, borrowed = np.array(seen.spread.deviation), np.array(seen.spread.borrowed)
    return float(log_evidence(np.array(away), deviation, np.array(seen.n), borrowed))

"""How many times the baseline's value a stack has, compared inside blocks.

A block holds one trial of every stack, close together in time, so that what disturbs the machine disturbs both sides
of a ratio. The logarithms of the ratios of the blocks are averaged and given Student's t interval, and both are
transformed back: the estimate is a geometric mean, as ratios need (Fleming and Wallace, "How not to lie with
statistics: the correct way to summarize benchmark results", Communications of the ACM 29 (1986), 218-221). Pairing
within blocks is Fisher's (The Design of Experiments, 1935).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tare.statistics.describe import Moments, moments
from tare.statistics.interval import half_widths

# Logarithms of equal ratios differ by rounding alone below this.
ROUNDING = 1e-12
# exp() of more than this is no longer a finite number.
LARGEST_LOGARITHM = 700.0


@dataclass(frozen=True)
class Ratio:
    """Stack over baseline: the geometric mean over `n` blocks and its 95 % interval.

    `low` and `high` are None for fewer than two blocks. `zero_width` says that all blocks gave the very same ratio, so
    that the interval has no width: the measurement is coarser than its noise, or not a measurement.
    """

    ratio: float
    low: float | None
    high: float | None
    n: int
    zero_width: bool

    @property
    def separated(self) -> bool:
        """Whether the interval excludes 1."""
        if self.low is None or self.high is None:
            return False
        return self.low > 1 + ROUNDING or self.high < 1 - ROUNDING


def block_ratio(stack: Sequence[float], baseline: Sequence[float]) -> Ratio | None:
    """Compare values block by block; None for no block at all.

    Raises ValueError where a value is not above zero: it has no logarithm, and a ratio of it says nothing.
    """
    pairs = np.array([stack, baseline], dtype=float)
    if not (np.isfinite(pairs) & (pairs > 0)).all():
        raise ValueError("a ratio needs values above zero")
    logs = np.log(pairs[0]) - np.log(pairs[1])
    return ratio_at(moments(logs, np.ones(logs.shape, dtype=bool)), ())


def ratio_at(logs: Moments, place: tuple[int, ...]) -> Ratio | None:
    """Make the ratio of one row of moments of log ratios; None where the row is empty."""
    count = int(logs.count[place])
    if count == 0:
        return None
    mean, deviation = logs.mean[place], logs.deviation[place]
    ratio = backwards(float(mean))
    if count < 2:
        return Ratio(ratio, None, None, count, zero_width=False)
    if deviation < ROUNDING:
        return Ratio(ratio, ratio, ratio, count, zero_width=True)
    half = float(half_widths(np.asarray(deviation), np.asarray(count)))
    return Ratio(ratio, backwards(float(mean) - half), backwards(float(mean) + half), count, zero_width=False)


def backwards(logarithm: float) -> float:
    """Transform a logarithm back; never infinite, whatever the interval of two wild blocks is."""
    return float(np.exp(min(max(logarithm, -LARGEST_LOGARITHM), LARGEST_LOGARITHM)))


def log_differences(
    logs: NDArray[np.float64], usable: NDArray[np.bool_], reference: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Subtract the reference row (first axis: stacks) from all; usable only where both sides are."""
    both = usable & usable[reference]
    return np.where(both, logs - logs[reference], 0.0), both

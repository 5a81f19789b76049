"""How many times the baseline's value a stack has, compared inside blocks.

A block holds one trial of every stack, close together in time, so that what disturbs the machine disturbs both sides
of a ratio. The logarithms of the ratios of the blocks are averaged and given an interval that holds at every look
(`tare.statistics.anytime`), and both are transformed back: the estimate is a geometric mean, as ratios need (Fleming
and Wallace, "How not to lie with statistics: the correct way to summarize benchmark results", Communications of the
ACM 29 (1986), 218-221). Pairing within blocks is Fisher's (The Design of Experiments, 1935).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tare.statistics.anytime import log_evidence, widths_per_deviation
from tare.statistics.cells import Claim
from tare.statistics.correlation import serial_correlation, widening
from tare.statistics.describe import moments

MARGIN = 0.03
# Logarithms of equal ratios differ by rounding alone below this.
ROUNDING = 1e-12
# exp() of more than this is no longer a finite number.
LARGEST_LOGARITHM = 700.0


@dataclass(frozen=True)
class Ratio:
    """Stack over baseline: the geometric mean over `n` blocks and its 95 % interval.

    `low` and `high` are None where there are too few blocks for an interval. `claim` is what the interval says by
    itself, and `evidence` the logarithm of the e-value for it. `zero_width` says that all blocks gave the very same
    ratio, so that the interval has no width: the measurement is coarser than its noise, or not a measurement.
    `correlation` is that of each block's log ratio with the one before it; `widened` says that the interval was made
    wider for it.
    """

    ratio: float
    low: float | None
    high: float | None
    n: int
    claim: Claim
    evidence: float
    zero_width: bool
    correlation: float
    widened: bool

    @property
    def decided(self) -> bool:
        """Whether the interval by itself says how the two stand to each other."""
        return self.claim in ("more", "less", "equivalent")


@dataclass(frozen=True)
class Comparison:
    """Rows of log ratios, compared with 0: arrays of one shape.

    `half` is half the width of the interval, infinite where there are too few blocks. `different` and `alike` are the
    logarithms of the e-values against a difference of 0, and against one of the margin or more. Whatever the true
    difference is, only one of the two claims can be false.
    """

    mean: NDArray[np.float64]
    half: NDArray[np.float64]
    count: NDArray[np.int64]
    deviation: NDArray[np.float64]
    correlation: NDArray[np.float64]
    widened: NDArray[np.bool_]
    different: NDArray[np.float64]
    alike: NDArray[np.float64]
    limit: float

    @property
    def evidence(self) -> NDArray[np.float64]:
        """Evidence for the better founded of the two claims."""
        return np.maximum(self.different, self.alike)

    def at(self, place: tuple[int, ...]) -> Ratio | None:
        """Take one row out; None where it is empty."""
        count, mean, half = int(self.count[place]), float(self.mean[place]), float(self.half[place])
        if count == 0:
            return None
        known = np.isfinite(half)
        return Ratio(
            ratio=backwards(mean),
            low=backwards(mean - half) if known else None,
            high=backwards(mean + half) if known else None,
            n=count,
            claim=_claim(mean, half, self.limit),
            evidence=float(self.evidence[place]),
            zero_width=count > 1 and self.deviation[place] == 0,
            correlation=float(self.correlation[place]),
            widened=bool(self.widened[place]),
        )


def compare(logs: NDArray[np.float64], present: NDArray[np.bool_], margin: float = MARGIN) -> Comparison:
    """Compare rows of log ratios (last axis: blocks) with 0; only those count that are present.

    `margin` is a share: ratios between 1 / (1 + margin) and 1 + margin count as equivalent.
    """
    found = moments(logs, present)
    mean = np.where(np.abs(found.mean) < ROUNDING, 0.0, found.mean)
    deviation = np.where(found.deviation < ROUNDING, 0.0, found.deviation)
    correlation = np.where(deviation > 0, serial_correlation(logs, present, mean), 0.0)
    factor = widening(correlation, found.count)
    wide, widths = deviation * factor, widths_per_deviation(found.count)
    known = np.isfinite(widths)
    limit = float(np.log1p(margin))
    nearer = np.minimum(
        log_evidence(mean, wide, found.count, at=limit), log_evidence(mean, wide, found.count, at=-limit)
    )
    return Comparison(
        mean=mean,
        half=np.where(known, np.where(known, widths, 0.0) * wide, np.inf),
        count=found.count,
        deviation=deviation,
        correlation=correlation,
        widened=factor > 1,
        different=log_evidence(mean, wide, found.count),
        alike=np.where(np.abs(mean) < limit, nearer, -np.inf),
        limit=limit,
    )


def block_ratio(stack: Sequence[float], baseline: Sequence[float], margin: float = MARGIN) -> Ratio | None:
    """Compare values block by block; None for no block at all.

    Raises ValueError where a value is not above zero: it has no logarithm, and a ratio of it says nothing.
    """
    pairs = np.array([stack, baseline], dtype=float)
    if not (np.isfinite(pairs) & (pairs > 0)).all():
        raise ValueError("a ratio needs values above zero")
    logs = np.log(pairs[0]) - np.log(pairs[1])
    return compare(logs, np.ones(logs.shape, dtype=bool), margin).at(())


def backwards(logarithm: float) -> float:
    """Transform a logarithm back; never infinite, whatever the interval of a few wild blocks is."""
    return float(np.exp(min(max(logarithm, -LARGEST_LOGARITHM), LARGEST_LOGARITHM)))


def log_differences(
    logs: NDArray[np.float64], usable: NDArray[np.bool_], reference: int
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Subtract the reference row (first axis: stacks) from all; usable only where both sides are."""
    both = usable & usable[reference]
    return np.where(both, logs - logs[reference], 0.0), both


def _claim(mean: float, half: float, limit: float) -> Claim:
    if not np.isfinite(half):
        return "too few blocks"
    if abs(mean) + half < limit:
        return "equivalent"
    if abs(mean) <= half:
        return "undecided"
    return "more" if mean > 0 else "less"

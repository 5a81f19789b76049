"""What moved values beside the stacks: the block, as the machine drifts, and the place within it.

The logarithms of a workload's headline are taken as a sum of three effects, of stack, block and place in the block's
order, and an error; the first two are swept out by subtracting row and column means in turn until none is left (for a
slope that is estimated so: Frisch and Waugh, "Partial time regressions as compared with individual trends",
Econometrica 1 (1933), 387-401). The slope of the place has Student's interval. It decides nothing: the order is
random, so a slope makes intervals wider and does not move them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
_TURNS = 100
_CLOSE = 1e-12


@dataclass(frozen=True)
class Effects:
    """Shares: 0.01 is 1 %.

    `blocks` is the standard deviation of the block effects, `error` that of what is left. `place` is by how much a
    value is higher one place later in the order of a block, `low` and `high` its 95 % interval.
    """

    blocks: float
    error: float
    place: float
    low: float
    high: float

    @property
    def ordered(self) -> bool:
        """Whether the place within a block mattered."""
        return not self.low <= 0 <= self.high


def find_effects(logs: NDArray[np.float64], usable: NDArray[np.bool_], positions: NDArray[np.int64]) -> Effects | None:
    """Estimate the effects; the arrays have the axes stack and block. None where there are too few values."""
    from scipy.special import stdtrit  # noqa: PLC0415 - half a second that only commands with statistics have to wait

    stacks, blocks = usable.any(axis=1).sum(), usable.any(axis=0).sum()
    freedom = int(usable.sum() - stacks - blocks)
    if stacks < 2 or freedom < 1:
        return None
    values, order = swept(logs, usable), swept(positions.astype(float), usable)
    spread = float((order**2).sum())
    if spread < _CLOSE:
        return None
    slope = float((values * order).sum()) / spread
    error = float(((values - slope * order) ** 2).sum()) / freedom
    half = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * (error / spread) ** 0.5
    rest = np.where(usable, logs - slope * positions, 0.0)
    rest = np.where(usable, rest - _means(rest, usable, 1), 0.0)
    means = _means(rest, usable, 0)[0][usable.any(axis=0)]
    each = float(usable.sum() / blocks)
    variance = max(0.0, float(means.var(ddof=1)) - error / each) if blocks > 1 else 0.0
    return Effects(variance**0.5, error**0.5, slope, slope - half, slope + half)


def swept(values: NDArray[np.float64], usable: NDArray[np.bool_], turns: int = _TURNS) -> NDArray[np.float64]:
    """Subtract the means of stacks (first axis) and of blocks (last axis) in turn; what is left of rounding is 0."""
    left = np.where(usable, values, 0.0)
    for _ in range(turns):
        before = left
        for axis in (-1, 0):
            left = np.where(usable, left - _means(left, usable, axis), 0.0)
        if np.abs(left - before).max(initial=0.0) < _CLOSE:
            break
    return np.where(np.abs(left) < _CLOSE, 0.0, left)


def _means(values: NDArray[np.float64], usable: NDArray[np.bool_], axis: int) -> NDArray[np.float64]:
    count = np.maximum(usable.sum(axis=axis, keepdims=True), 1)
    return np.asarray(values.sum(axis=axis, keepdims=True) / count)

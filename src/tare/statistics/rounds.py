"""The log ratios of a stack's values to the baseline's in each block, taken round by round.

In a round every stack of a block has one turn, close together in time and in random order: what disturbs the machine
for longer than a round disturbs all of them. So the ratio is taken within each round, and the center of the rounds is
the block's one value (pairs in time: Bulej and others, "Duet benchmarking: improving measurement accuracy in the
cloud", ICPE 2020, 100-107). The baseline has two turns in each round, its own and that of the A/A control. A stack is
compared with either by itself, and the mean of both centers counts: a quarter less variance than one of them has. (The
center of the ratios to the mean of the two is no longer right in the middle: a turn of theirs that is hit raises such
a ratio half as far, and twice as often, as one of the stack's lowers it.) The control is compared with the baseline.
Where stacks are measured one after the other, a block is a single round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tare.statistics.center import center
from tare.statistics.grid import Grid
from tare.statistics.ratios import Reference


@dataclass(frozen=True)
class Differences:
    """Log ratios to the baseline (axes: stack, key, block), and where there are any: rounds that both sides have."""

    logs: NDArray[np.float64]
    both: NDArray[np.bool_]


def beside_center(logs: NDArray[np.float64], usable: NDArray[np.bool_], row: int) -> Differences:
    """Return the center of the log ratios of the rounds that both sides have."""
    both = usable & usable[row]
    return Differences(center(logs - logs[row], both), np.asarray(both.any(axis=-1)))


def beside_mean(logs: NDArray[np.float64], usable: NDArray[np.bool_], row: int) -> Differences:
    """Return the log ratio of the means over the rounds that both sides have: it hides no slow turn."""
    both = usable & usable[row]
    turns, present = np.exp(logs), np.asarray(both.any(axis=-1))
    sums = [np.where(both, each, 0.0).sum(axis=-1) for each in (turns, turns[row])]
    above, below = (np.log(np.where(present, each, 1.0)) for each in sums)
    return Differences(above - below, present)


Beside = Callable[[NDArray[np.float64], NDArray[np.bool_], int], Differences]


def differences(grid: Grid, reference: Reference, keys: Sequence[int] | None = None) -> Differences:
    """Compare all stacks with the reference, at all keys or at these; the reference's own row is 0."""
    return beside_baseline(*logs_of_turns(grid, keys), reference)


def logs_of_turns(grid: Grid, keys: Sequence[int] | None = None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the logarithms of the turns (axes: stack, key, block, round), and which there are."""
    own = slice(None) if keys is None else list(keys)
    usable = grid.taken[:, own] & grid.positive[:, own, :, np.newaxis]
    return np.log(np.where(usable, grid.turns[:, own], 1.0)), usable


def usual_levels(grid: Grid, keys: Sequence[int] | None = None) -> NDArray[np.float64]:
    """Return the logarithm of a usual turn of each block (axes: stack, key, block); 0 where there is none."""
    return center(*logs_of_turns(grid, keys))


def beside_baseline(
    logs: NDArray[np.float64], usable: NDArray[np.bool_], reference: Reference, beside: Beside = beside_center
) -> Differences:
    """Compare stacks (first axis) with the baseline and its control, or the one that is there (last axis: rounds)."""
    own = beside(logs, usable, reference.row)
    if reference.control is None:
        return own
    other = beside(logs, usable, reference.control)
    mean = (np.where(own.both, own.logs, other.logs) + np.where(other.both, other.logs, own.logs)) / 2
    both = own.both | other.both
    for row in (reference.row, reference.control):
        mean[row], both[row] = own.logs[row], own.both[row]
    return Differences(mean, both)

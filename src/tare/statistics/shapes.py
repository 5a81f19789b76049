"""Shapes of distributions: outliers, heavy tails and two groups of blocks.

The interval of a cell assumes that its blocks are normal noise around a mean. If they do not look so, a note says it,
next to the strip of the raw points. No value is ever left out for it.

Each finding is a score above a limit that 0.7 % of rows of normal noise exceed; at most 2 % get any note. The scores
find much only with many blocks, or in obvious cases. Out of 4000 rows of each type, as
`tests/unit/statistics/test_shapes.py` simulates them, these got a note:

    in %                                                       n = 15   n = 30   n = 100
    Student's t with 3 degrees of freedom: blocks far away         12       31        78
                                           heavy tails              6       13        54
                                           either                  17       37        86
    30 % of values 6 % away, 2 % noise:    two groups               6       14        56
    30 % of values 12 % away, 2 % noise:   two groups              75       94       100

Evenly spread values, as from a steady drift, also count as two groups; skewed values hardly ever do. If about half of
the values or more repeat others, the only finding is that the measurement is quantized.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tare.statistics.ratios import ROUNDING, exp_bounded

_MIN_COUNT = 5
_MIN_GROUP = 3
_MIN_SHARE = 0.2
_MOST_NAMED_BLOCKS = 6  # blocks; more are only counted
# Of normal noise, the median absolute deviation is this share of the standard deviation.
_MEDIAN_DEVIATION = 0.6745
# Count of values, and limits: `distance` above, `evenness` below, `groups` above. Of normal noise, 0.7 % of rows are,
# in simulations of 400,000 rows of up to 51 values, and of 20 million values beyond. Counts between are interpolated.
_LIMITS = np.array(
    (
        (5, 22.68, 0.693, 22.55),
        (6, 11.44, 0.673, 22.56),
        (7, 12.19, 0.658, 18.76),
        (8, 8.82, 0.649, 15.12),
        (9, 9.15, 0.649, 12.48),
        (10, 7.57, 0.652, 10.71),
        (11, 7.66, 0.655, 9.28),
        (12, 6.79, 0.660, 8.36),
        (13, 6.90, 0.663, 7.61),
        (15, 6.37, 0.671, 6.59),
        (17, 6.02, 0.676, 5.88),
        (21, 5.57, 0.686, 4.98),
        (25, 5.25, 0.695, 4.44),
        (31, 5.03, 0.704, 3.95),
        (40, 4.77, 0.714, 3.52),
        (51, 4.65, 0.724, 3.20),
        (70, 4.50, 0.735, 2.89),
        (100, 4.42, 0.745, 2.64),
        (150, 4.39, 0.755, 2.43),
        (200, 4.37, 0.760, 2.31),
        (300, 4.39, 0.767, 2.19),
        (500, 4.47, 0.774, 2.08),
    )
)


@dataclass(frozen=True)
class ShapeScores:
    """Scores of rows, for comparison with those of normal noise.

    `distance` is in scaled median absolute deviations. `evenness` is Geary's ratio. `groups` is the sum of squares
    between over that within the best two groups, of which the lower has `size` values; `low` and `high` are the means
    of the groups. `distinct` counts the different values of a row.
    """

    count: NDArray[np.int64]
    distinct: NDArray[np.int64]
    distance: NDArray[np.float64]
    evenness: NDArray[np.float64]
    groups: NDArray[np.float64]
    size: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


@dataclass(frozen=True)
class Shapes:
    """Shapes of rows of logarithms. `is_far` is a mask of single values; all other arrays have one entry per row.

    `distinct` is the number of different values in quantized rows, else 0. `is_heavy_tailed` marks rows with more
    distant values than normal noise has. `size` is the size of the lower of two groups; 0 for a single group. `low`
    and `high` are the means of the groups.
    """

    count: NDArray[np.int64]
    distinct: NDArray[np.int64]
    is_far: NDArray[np.bool_]
    is_heavy_tailed: NDArray[np.bool_]
    size: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def describe(self, index: tuple[int, ...], blocks: Sequence[int]) -> tuple[str, ...]:
        """Return notes on the shape of a row of log ratios; `blocks` are the displayed numbers of its columns."""
        count, size, distinct = int(self.count[index]), int(self.size[index]), int(self.distinct[index])
        if distinct:
            return (f"only {distinct} different ratios in {count} blocks: the measurement is coarser than its noise",)
        if size:
            low, high = _format_percents(float(self.low[index]), float(self.high[index]))
            return (f"two groups of blocks: {size} around {low}, {count - size} around {high}",)
        far = [block for block, away in zip(blocks, self.is_far[index], strict=True) if away]
        notes: tuple[str, ...] = ()
        if far:
            lie, block = ("lies", "block") if len(far) == 1 else ("lie", "blocks")
            notes += (f"{len(far)} of {count} blocks {lie} far from the others: {block} {_join_numbers(far)}",)
        if self.is_heavy_tailed[index]:
            notes += ("heavy tails: more blocks lie far out than normal noise explains",)
        return notes


def find_shapes(logs: NDArray[np.float64], present: NDArray[np.bool_]) -> Shapes:
    """Return the shapes of rows of logarithms (last axis: blocks); only values that are `present` count.

    A row gets one diagnosis. A quantized row cannot be judged further. In a row of two groups, distance depends on the
    group. A single distant value explains a heavy tail.
    """
    scored = compute_scores(logs, present)
    limits = [np.interp(np.log(np.maximum(scored.count, 1)), np.log(_LIMITS[:, 0]), row) for row in _LIMITS.T[1:]]
    enough = scored.count >= _MIN_COUNT
    coarse = enough & (2 * scored.distinct <= scored.count + 1)
    judged = enough & ~coarse
    two = judged & (scored.groups > limits[2])
    far = (judged & ~two)[..., np.newaxis] & (scored.distance > limits[0][..., np.newaxis])
    return Shapes(
        count=scored.count,
        distinct=np.where(coarse & (scored.distinct > 1), scored.distinct, 0),
        is_far=far[..., : logs.shape[-1]],
        is_heavy_tailed=judged & ~two & (scored.evenness < limits[1]) & (far.sum(axis=-1) != 1),
        size=np.where(two, scored.size, 0),
        low=np.where(two, scored.low, 0.0),
        high=np.where(two, scored.high, 0.0),
    )


def compute_scores(logs: NDArray[np.float64], present: NDArray[np.bool_]) -> ShapeScores:
    """Return the scores of rows; values that differ only by rounding count as equal."""
    if logs.shape[-1] == 0:  # the greatest of nothing is an error
        logs, present = np.zeros((*logs.shape[:-1], 1)), np.zeros((*logs.shape[:-1], 1), dtype=bool)
    count = present.sum(axis=-1)
    some = np.maximum(count, 1)
    mean = np.where(present, logs, 0.0).sum(axis=-1) / some
    away = np.where(present, logs - mean[..., np.newaxis], 0.0)
    ordered = np.sort(np.where(present, away, np.inf), axis=-1)
    known = np.arange(logs.shape[-1]) < count[..., np.newaxis]
    ordered_away = np.where(known, ordered, 0.0)
    steps = known[..., 1:] & (np.diff(ordered_away, axis=-1) > ROUNDING)
    size, groups, low, high = _find_best_split(ordered_away, count)
    return ShapeScores(
        count=count,
        distinct=np.minimum(count, 1 + steps.sum(axis=-1)),
        distance=_median_distances(away, present, _sorted_median(ordered, count)),
        evenness=_deviation_ratio(away, some),
        groups=groups,
        size=size,
        low=mean + low,
        high=mean + high,
    )


def _median_distances(
    away: NDArray[np.float64], present: NDArray[np.bool_], median: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return each value's distance from the median of its row in median absolute deviations, scaled to normal noise.

    Hampel, "The influence curve and its role in robust estimation", Journal of the American Statistical Association 69
    (1974), 383-393; with limits that depend on the count as Davies and Gather, "The identification of multiple
    outliers", the same journal 88 (1993), 782-792. 0 where that deviation is 0: more than half of the values are equal.
    """
    distance = np.where(present, np.abs(away - median[..., np.newaxis]), 0.0)
    ordered = np.sort(np.where(present, distance, np.inf), axis=-1)
    scale = (_sorted_median(ordered, present.sum(axis=-1)) / _MEDIAN_DEVIATION)[..., np.newaxis]
    return np.where(scale > ROUNDING, distance / np.where(scale > ROUNDING, scale, 1.0), 0.0)


def _deviation_ratio(away: NDArray[np.float64], count: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the mean absolute deviation over the standard deviation: the fewer and farther the far values, the less.

    Geary, "The ratio of the mean deviation to the standard deviation as a test of normality", Biometrika 27 (1935),
    310-332. 1 where all values are equal.
    """
    deviation = np.sqrt((away**2).sum(axis=-1) / count)
    mean = np.abs(away).sum(axis=-1) / count
    return np.where(deviation > ROUNDING, mean / np.where(deviation > ROUNDING, deviation, 1.0), 1.0)


def _find_best_split(
    ordered: NDArray[np.float64], count: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Split sorted rows with a mean of 0 where the ratio of squares between and within both parts is largest.

    Engelman and Hartigan, "Percentage points of a test for clusters", Journal of the American Statistical Association
    64 (1969), 1647-1648; but a group has at least three values and a fifth of all, so that a few outliers make none.
    Return the size of the lower group, the ratio (0 for a row that cannot be split), and the means of both groups.
    """
    sums = ordered.cumsum(axis=-1)
    below, n = np.arange(1, ordered.shape[-1] + 1), count[..., np.newaxis]
    least = np.maximum(np.ceil(_MIN_SHARE * n), _MIN_GROUP)
    allowed = (below >= least) & (n - below >= least)
    between = np.where(allowed, sums**2 * (1 / below + 1 / np.maximum(n - below, 1)), 0.0)
    at = between.argmax(axis=-1)[..., np.newaxis]
    best = np.take_along_axis(between, at, axis=-1)[..., 0]
    total = (ordered**2).sum(axis=-1)
    within = np.maximum(total - best, ROUNDING * total)
    ratio = np.where(best > 0, best / np.where(best > 0, within, 1.0), 0.0)
    share, size = np.take_along_axis(sums, at, axis=-1)[..., 0], at[..., 0] + 1
    return size, ratio, share / size, -share / np.maximum(count - size, 1)


def _sorted_median(ordered: NDArray[np.float64], count: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the median of each sorted row; 0 for a row without values."""
    some = np.maximum(count, 1)[..., np.newaxis]
    both = np.take_along_axis(ordered, np.concatenate([(some - 1) // 2, some // 2], axis=-1), axis=-1)
    return np.where(count > 0, np.where(count[..., np.newaxis] > 0, both, 0.0).mean(axis=-1), 0.0)


def _format_percents(low: float, high: float) -> tuple[str, str]:
    """Format two log ratios in percent, with enough decimals to show their difference."""
    shares = (100 * exp_bounded(low), 100 * exp_bounded(high))
    decimals = int(np.clip(np.ceil(-np.log10(max(shares[1] - shares[0], 1e-9))), 0, 9))
    first, second = (f"{share:.{decimals}f} %" if share < 1e6 else f"{share:.3g} %" for share in shares)
    return first, second


def _join_numbers(numbers: list[int]) -> str:
    texts = [str(number) for number in numbers[:_MOST_NAMED_BLOCKS]]
    if len(numbers) > _MOST_NAMED_BLOCKS:
        return f"{', '.join(texts)} and {len(numbers) - _MOST_NAMED_BLOCKS} more"
    return f"{', '.join(texts[:-1])} and {texts[-1]}" if len(texts) > 1 else texts[0]

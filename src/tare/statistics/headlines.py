"""One value for each workload and stack, for the matrix.

Metrics named `average` or `total`, or ending in `-average`, already sum their workload up and are taken where there are
any. Otherwise all metrics are taken that have the direction of the first one. A metric that is swept counts with the
geometric mean over its points, several metrics with the geometric mean over them; both are taken of the ratio of each
block (Fleming and Wallace 1986, as in `ratios`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tare.statistics.cells import HeadlineRule
from tare.statistics.grid import Grid


@dataclass(frozen=True)
class Headline:
    """A rule, the keys of the grid that it takes, and the log of the headline for each stack and block where usable."""

    rule: HeadlineRule
    keys: tuple[int, ...]
    logs: NDArray[np.float64]
    usable: NDArray[np.bool_]


def headline(grid: Grid) -> Headline:
    """Choose the metrics of a workload's headline and take their mean logarithm, metric by metric, in each block.

    A block is usable for a stack when it has every point of every chosen metric, all above zero.
    """
    names, rule = choose(grid)
    stacks, _, blocks = grid.values.shape
    logs, usable = np.zeros((stacks, blocks)), np.ones((stacks, blocks), dtype=bool)
    keys: list[int] = []
    for name in names:
        own = [index for index, key in enumerate(grid.keys) if key.metric == name]
        good = grid.present[:, own] & (grid.values[:, own] > 0)
        logs += np.log(np.where(good, grid.values[:, own], 1.0)).mean(axis=1) / len(names)
        usable &= good.all(axis=1)
        keys += own
    return Headline(rule, tuple(keys), logs, usable & bool(keys))


def choose(grid: Grid) -> tuple[tuple[str, ...], HeadlineRule]:
    """Choose the metrics that have values, and say so in a sentence."""
    seen = [metric for metric in grid.metrics if any(key.metric == metric.name for key in grid.keys)]
    sums = [metric for metric in seen if sums_up(metric.name)]
    chosen = sums or seen
    if not chosen:
        better = grid.metrics[0].better if grid.metrics else "higher"
        return (), HeadlineRule(grid.workload, (), better, "no trial of this workload has a value")
    chosen = [metric for metric in chosen if metric.better == chosen[0].better]
    names = tuple(metric.name for metric in chosen)
    points = max(sum(key.metric == name for key in grid.keys) for name in names)
    text = _sentence([metric.title for metric in chosen], points)
    return names, HeadlineRule(grid.workload, names, chosen[0].better, text)


def sums_up(metric: str) -> bool:
    """Whether a metric's name says that it already sums up its workload."""
    return metric in ("average", "total") or metric.endswith("-average")


def _sentence(titles: list[str], points: int) -> str:
    text = titles[0] if len(titles) == 1 else f"geometric mean of {', '.join(titles[:-1])} and {titles[-1]}"
    if points > 1 and len(titles) == 1:
        return f"{text}, geometric mean over {points} points"
    return f"{text}, each over {points} points" if points > 1 else text

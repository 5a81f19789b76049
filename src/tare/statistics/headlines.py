"""The headlines of a workload: one value for each stack and block, of the metrics that the workload declares for it.

Metrics of which more is better make one headline, those of which less is better another: throughput and latency are
compared and decided apart. A metric that is swept counts with the geometric mean over its points, several metrics with
the geometric mean over them; both are taken of the ratio of each block (Fleming and Wallace 1986, as in `ratios`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tare.model.trials import Metric
from tare.statistics.cells import HeadlineRule
from tare.statistics.grid import Grid
from tare.statistics.ratios import Reference, compare
from tare.statistics.rounds import Differences, differences, usual_levels


@dataclass(frozen=True)
class Headline:
    """A rule, the keys of the grid that it takes and what each weighs; `logs` and `usable` are of stacks and blocks."""

    rule: HeadlineRule
    grid: Grid
    keys: tuple[int, ...]
    weights: NDArray[np.float64]
    logs: NDArray[np.float64]
    usable: NDArray[np.bool_]

    def differences(self, reference: Reference) -> Differences:
        """Compare the headline with the reference's: mean log ratios, of blocks that have all keys of both sides."""
        return self.of(differences(self.grid, reference, self.keys))

    def quantity_half(self) -> NDArray[np.float64]:
        """Return half the width of the 95 % intervals of the stacks' own quantities, in logarithms; infinite without.

        They are for a headline that is read as a quantity, such as a time to start: what the baseline's own varies
        by is no part of them.
        """
        return compare(self.logs, self.usable, borrows=True).half

    def of(self, found: Differences) -> Differences:
        """Take the weighted mean over the keys, which are those of the headline."""
        both = np.asarray(found.both.all(axis=1) & bool(self.keys))
        return Differences(np.where(both, np.einsum("skb,k->sb", found.logs, self.weights), 0.0), both)


def headlines(grid: Grid) -> tuple[Headline, ...]:
    """Take the headlines of a workload, one for each direction; the first has the workload's own name.

    A workload without any value has one headline, which is empty.
    """
    declared = [metric for metric in grid.metrics if metric.headline]
    seen = [metric for metric in declared if any(key.metric == metric.name for key in grid.keys)]
    if not seen:
        better = declared[0].better if declared else "higher"
        rule = HeadlineRule(grid.workload, grid.workload, (), better, "no trial of this workload has a value")
        return (_headline(grid, rule),)
    heads: list[Headline] = []
    for better in dict.fromkeys(metric.better for metric in seen):
        metrics = [metric for metric in seen if metric.better == better]
        names = tuple(metric.name for metric in metrics)
        name = f"{grid.workload} {'+'.join(names)}" if heads else grid.workload
        overall = all(metric.overall for metric in metrics)
        rule = HeadlineRule(name, grid.workload, names, better, _sentence(grid, metrics), overall)
        heads.append(_headline(grid, rule))
    return tuple(heads)


def _headline(grid: Grid, rule: HeadlineRule) -> Headline:
    """Take the mean logarithm of a usual turn, metric by metric, in each block.

    A block is usable for a stack when it has every point of every metric, all above zero.
    """
    own = [[index for index, key in enumerate(grid.keys) if key.metric == name] for name in rule.metrics]
    keys = tuple(index for indexes in own for index in indexes)
    weights = np.array([1 / len(indexes) / len(own) for indexes in own for _ in indexes])
    good = grid.positive[:, keys]
    logs = usual_levels(grid, keys)
    usable = np.asarray(good.all(axis=1) & bool(keys))
    return Headline(rule, grid, keys, weights, np.einsum("skb,k->sb", logs, weights), usable)


def _sentence(grid: Grid, metrics: Sequence[Metric]) -> str:
    titles = [metric.title for metric in metrics]
    points = max(sum(key.metric == metric.name for key in grid.keys) for metric in metrics)
    text = titles[0] if len(titles) == 1 else f"geometric mean of {', '.join(titles[:-1])} and {titles[-1]}"
    if points > 1 and len(titles) == 1:
        return f"{text}, geometric mean over {points} points"
    return f"{text}, each over {points} points" if points > 1 else text

"""Compute log ratios per round and the headline value of each stack and block.

In a round every stack of a block has one turn, close together in time and in random order: what disturbs the machine
for longer than a round disturbs all of them. So the ratio is taken within each round, and the center of the rounds is
the block's one value (pairs in time: Bulej and others, "Duet benchmarking: improving measurement accuracy in the
cloud", ICPE 2020, 100-107). The baseline has two turns in each round, its own and that of the A/A control. A stack is
compared with either by itself, and the mean of both centers counts: a quarter less variance than one of them has. (The
center of the ratios to the mean of the two is no longer right in the middle: a turn of theirs that is hit raises such
a ratio half as far, and twice as often, as one of the stack's lowers it.) The control is compared with the baseline.
Where stacks are measured one after the other, a block is a single round.

Metrics of which more is better make one headline, those of which less is better another: throughput and latency are
compared and decided apart. A metric that is swept counts with the geometric mean over its points, several metrics with
the geometric mean over them; both are taken of the ratio of each block (Fleming and Wallace 1986, as in `ratios`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tare.model.trial import Metric
from tare.statistics.cells import HeadlineRule
from tare.statistics.descriptive import centers
from tare.statistics.grid import Grid
from tare.statistics.ratios import BaselineRows, compare


@dataclass(frozen=True)
class LogRatios:
    """Log ratios to the baseline (axes: stack, key, block), and where there are any: rounds that both sides have."""

    logs: NDArray[np.float64]
    both: NDArray[np.bool_]


def center_relative_to(logs: NDArray[np.float64], usable: NDArray[np.bool_], row: int) -> LogRatios:
    """Return the center of the log ratios of the rounds that both sides have."""
    both = usable & usable[row]
    return LogRatios(centers(logs - logs[row], both), np.asarray(both.any(axis=-1)))


def mean_relative_to(logs: NDArray[np.float64], usable: NDArray[np.bool_], row: int) -> LogRatios:
    """Return the log ratio of the means over the rounds that both sides have: it hides no slow turn."""
    both = usable & usable[row]
    turns, present = np.exp(logs), np.asarray(both.any(axis=-1))
    sums = [np.where(both, each, 0.0).sum(axis=-1) for each in (turns, turns[row])]
    above, below = (np.log(np.where(present, each, 1.0)) for each in sums)
    return LogRatios(above - below, present)


RelativeTo = Callable[[NDArray[np.float64], NDArray[np.bool_], int], LogRatios]


def log_ratios(grid: Grid, reference: BaselineRows, keys: Sequence[int] | None = None) -> LogRatios:
    """Compare all stacks with the reference, at all keys or at these; the reference's own row is 0."""
    return relative_to_baseline(*turn_logs(grid, keys), reference)


def turn_logs(grid: Grid, keys: Sequence[int] | None = None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the logarithms of the turns (axes: stack, key, block, round), and which there are."""
    own = slice(None) if keys is None else list(keys)
    usable = grid.has_turn[:, own] & grid.positive[:, own, :, np.newaxis]
    return np.log(np.where(usable, grid.turns[:, own], 1.0)), usable


def usual_logs(grid: Grid, keys: Sequence[int] | None = None) -> NDArray[np.float64]:
    """Return the logarithm of a usual turn of each block (axes: stack, key, block); 0 where there is none."""
    return centers(*turn_logs(grid, keys))


def relative_to_baseline(
    logs: NDArray[np.float64],
    usable: NDArray[np.bool_],
    reference: BaselineRows,
    relative_to: RelativeTo = center_relative_to,
) -> LogRatios:
    """Compare stacks (first axis) with the baseline and its control, or the one that is there (last axis: rounds)."""
    own = relative_to(logs, usable, reference.row)
    if reference.control is None:
        return own
    other = relative_to(logs, usable, reference.control)
    mean = (np.where(own.both, own.logs, other.logs) + np.where(other.both, other.logs, own.logs)) / 2
    both = own.both | other.both
    for row in (reference.row, reference.control):
        mean[row], both[row] = own.logs[row], own.both[row]
    return LogRatios(mean, both)


@dataclass(frozen=True)
class Headline:
    """A rule, the keys of the grid that it takes and what each weighs; `logs` and `usable` are of stacks and blocks."""

    rule: HeadlineRule
    grid: Grid
    keys: tuple[int, ...]
    weights: NDArray[np.float64]
    logs: NDArray[np.float64]
    usable: NDArray[np.bool_]

    def log_ratios(self, reference: BaselineRows) -> LogRatios:
        """Compare the headline with the reference's: mean log ratios, of blocks that have all keys of both sides."""
        return self.average_keys(log_ratios(self.grid, reference, self.keys))

    def quantity_half_widths(self) -> NDArray[np.float64]:
        """Return half the width of the 95 % intervals of the stacks' own quantities, in logarithms; infinite without.

        They are for a headline that is read as a quantity, such as a time to start: what the baseline's own varies
        by is no part of them.
        """
        return compare(self.logs, self.usable, borrows=True).half_widths

    def average_keys(self, found: LogRatios) -> LogRatios:
        """Take the weighted mean over the keys, which are those of the headline."""
        both = np.asarray(found.both.all(axis=1) & bool(self.keys))
        return LogRatios(np.where(both, np.einsum("skb,k->sb", found.logs, self.weights), 0.0), both)


def create_headlines(grid: Grid) -> tuple[Headline, ...]:
    """Take the headlines of a workload, one for each direction; the first has the workload's own name.

    A workload without any value has one headline, which is empty.
    """
    declared = [metric for metric in grid.metrics if metric.headline]
    seen = [metric for metric in declared if any(key.metric == metric.name for key in grid.keys)]
    if not seen:
        better = declared[0].better if declared else "higher"
        rule = HeadlineRule(grid.workload, grid.workload, (), better, "no trial of this workload has a value")
        return (_create_headline(grid, rule),)
    heads: list[Headline] = []
    for better in dict.fromkeys(metric.better for metric in seen):
        metrics = [metric for metric in seen if metric.better == better]
        names = tuple(metric.name for metric in metrics)
        name = f"{grid.workload} {'+'.join(names)}" if heads else grid.workload
        overall = all(metric.overall for metric in metrics)
        rule = HeadlineRule(name, grid.workload, names, better, _describe_rule(grid, metrics), overall)
        heads.append(_create_headline(grid, rule))
    return tuple(heads)


def _create_headline(grid: Grid, rule: HeadlineRule) -> Headline:
    """Take the mean logarithm of a usual turn, metric by metric, in each block.

    A block is usable for a stack when it has every point of every metric, all above zero.
    """
    own = [[index for index, key in enumerate(grid.keys) if key.metric == name] for name in rule.metrics]
    keys = tuple(index for indexes in own for index in indexes)
    weights = np.array([1 / len(indexes) / len(own) for indexes in own for _ in indexes])
    good = grid.positive[:, keys]
    logs = usual_logs(grid, keys)
    usable = np.asarray(good.all(axis=1) & bool(keys))
    return Headline(rule, grid, keys, weights, np.einsum("skb,k->sb", logs, weights), usable)


def _describe_rule(grid: Grid, metrics: Sequence[Metric]) -> str:
    titles = [metric.title for metric in metrics]
    points = max(sum(key.metric == metric.name for key in grid.keys) for metric in metrics)
    text = titles[0] if len(titles) == 1 else f"geometric mean of {', '.join(titles[:-1])} and {titles[-1]}"
    if points > 1 and len(titles) == 1:
        return f"{text}, geometric mean over {points} points"
    return f"{text}, each over {points} points" if points > 1 else text

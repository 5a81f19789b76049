"""Headlines: log ratios per round, and the headline value of each stack and block.

In a round every stack of a block has one turn, close together in time and in random order: a disturbance that is longer
than a round hits all of them. So the ratio is computed within each round, and the median of the rounds is the value of
the block (pairs in time: Bulej and others, "Duet benchmarking: improving measurement accuracy in the cloud", ICPE 2020,
100-107). If stacks are measured one after the other, a block is a single round.

The baseline has two turns in each round, its regular turn and that of the A/A control. A stack is compared with each of
the two, and the mean of both medians counts, which has a quarter less variance. (The median of ratios to the mean of
the two would be biased: a disturbed turn of a baseline raises such a ratio half as far, and twice as often, as a
disturbed turn of the stack lowers it.) The control is compared only with the baseline.

Metrics with higher values as better make one headline, metrics with lower values as better another: throughput and
latency are decided separately. A swept metric counts with the geometric mean over its points, several metrics with the
geometric mean over the metrics, both of the ratios in each block (Fleming and Wallace 1986, as in `ratios`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tare.model.trial import Metric
from tare.statistics.cells import HeadlineRule
from tare.statistics.descriptive import centers, moments, variance_of_median
from tare.statistics.grid import Grid
from tare.statistics.moderated_variance import VariancePrior, VarianceRatios, variance_ratios
from tare.statistics.ratios import (
    ROUNDING,
    BaselineRows,
    Moderation,
    RatioComparison,
    compare,
    compare_together,
    explained_variances,
)

_MIN_ROUNDS = 5  # fewer rounds of a block do not show how much they differ
# Variance of the mean of a stack's medians relative to two baselines, in variances of the median of its ratios to their
# mean, for normal values: the two medians have a correlation of a third.
_TWO_BASELINES = 8 / 9


@dataclass(frozen=True)
class LogRatios:
    """Log ratios to the baseline (axes: stack, key, block). `both` is the mask of blocks with rounds of both sides.

    `errors` are the variances of the log ratios that the rounds of each block explain, 0 if unknown; None without any.
    """

    logs: NDArray[np.float64]
    both: NDArray[np.bool_]
    errors: NDArray[np.float64] | None = None

    def compare(
        self,
        margin: float,
        reference: BaselineRows,
        prior: VariancePrior | None = None,
        at: Sequence[int] | None = None,
    ) -> RatioComparison:
        """Compare all stacks with the baseline, by all blocks or the ones `at` these places.

        `prior` is that of the run's variance ratios.
        """
        blocks = slice(None) if at is None else list(at)
        errors = None if self.errors is None else self.errors[..., blocks]
        moderation = Moderation(errors, prior)
        return compare_together(self.logs[..., blocks], self.both[..., blocks], margin, reference, moderation)

    def variance_ratios(self) -> VarianceRatios:
        """Return the variances between blocks over those that rounds explain."""
        described, explained = moments(self.logs, self.both), explained_variances(self.errors, self.both)
        deviation = np.where(described.deviation < ROUNDING, 0.0, described.deviation)
        return variance_ratios(
            deviation, described.count, np.zeros(deviation.shape) if explained is None else explained
        )


def center_relative_to(logs: NDArray[np.float64], usable: NDArray[np.bool_], row: int) -> LogRatios:
    """Return the medians of the log ratios to a row, over the rounds that both sides have."""
    both = usable & usable[row]
    return LogRatios(centers(logs - logs[row], both), np.asarray(both.any(axis=-1)))


def mean_relative_to(logs: NDArray[np.float64], usable: NDArray[np.bool_], row: int) -> LogRatios:
    """Return the log ratios of the means over the rounds that both sides have; unlike medians, they show slow turns."""
    both = usable & usable[row]
    turns, present = np.exp(logs), np.asarray(both.any(axis=-1))
    sums = [np.where(both, each, 0.0).sum(axis=-1) for each in (turns, turns[row])]
    above, below = (np.log(np.where(present, each, 1.0)) for each in sums)
    return LogRatios(above - below, present)


RelativeTo = Callable[[NDArray[np.float64], NDArray[np.bool_], int], LogRatios]


def log_ratios(grid: Grid, reference: BaselineRows, keys: Sequence[int] | None = None) -> LogRatios:
    """Return the log ratios of all stacks to the baseline, at all keys or at `keys`; 0 in the baseline's row."""

    def compare_turns(logs: NDArray[np.float64], usable: NDArray[np.bool_]) -> LogRatios:
        ratios = relative_to_baseline(logs, usable, reference)
        return replace(ratios, errors=errors_of_rounds(logs, usable, reference))

    return compare_by_clock(grid, keys, compare_turns)


def compare_by_clock(
    grid: Grid,
    keys: Sequence[int] | None,
    compare_turns: Callable[[NDArray[np.float64], NDArray[np.bool_]], LogRatios],
) -> LogRatios:
    """Return what `compare_turns` returns for the turns' logarithms and their mask, each cell by its clock.

    Both sides of a ratio have the same clock: the baseline is compared by CPU time with some stacks, and by wall time
    with those whose CPU time is unknown.
    """
    selected = slice(None) if keys is None else list(keys)
    by_wall_time = compare_turns(*_logs_of(grid.turns, grid, keys))
    by_cpu_time = grid.by_cpu_time[:, selected, np.newaxis]
    if not by_cpu_time.any():
        return by_wall_time
    other = compare_turns(*_logs_of(grid.cpu_turns, grid, keys))
    errors = by_wall_time.errors
    if errors is not None and other.errors is not None:
        errors = np.where(by_cpu_time, other.errors, errors)
    return LogRatios(np.where(by_cpu_time, other.logs, by_wall_time.logs), by_wall_time.both, errors)


def turn_logs(grid: Grid, keys: Sequence[int] | None = None) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the logarithms of the turns (axes: stack, key, block, round), and the mask of existing turns.

    Each stack's turns are by the clock by which the stack is compared.
    """
    return _logs_of(grid.compared_turns, grid, keys)


def _logs_of(
    turns: NDArray[np.float64], grid: Grid, keys: Sequence[int] | None
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    selected = slice(None) if keys is None else list(keys)
    usable = grid.has_turn[:, selected] & grid.positive[:, selected, :, np.newaxis]
    return np.log(np.where(usable, turns[:, selected], 1.0)), usable


def usual_logs(grid: Grid, keys: Sequence[int] | None = None) -> NDArray[np.float64]:
    """Return the logarithm of the median turn of each block (axes: stack, key, block); 0 without a turn."""
    return centers(*turn_logs(grid, keys))


def relative_to_baseline(
    logs: NDArray[np.float64],
    usable: NDArray[np.bool_],
    reference: BaselineRows,
    relative_to: RelativeTo = center_relative_to,
) -> LogRatios:
    """Return the mean log ratios of stacks (first axis) to the baseline and its control; the last axis are rounds.

    In blocks with only one of the two, the ratio is to that one.
    """
    plain = relative_to(logs, usable, reference.row)
    if reference.control is None:
        return plain
    other = relative_to(logs, usable, reference.control)
    mean = (np.where(plain.both, plain.logs, other.logs) + np.where(other.both, other.logs, plain.logs)) / 2
    both = plain.both | other.both
    # The control has only the baseline to be compared with: relative to itself, it would always be equal.
    for row in (reference.row, reference.control):
        mean[row], both[row] = plain.logs[row], plain.both[row]
    return LogRatios(mean, both)


def errors_of_rounds(
    logs: NDArray[np.float64], usable: NDArray[np.bool_], reference: BaselineRows
) -> NDArray[np.float64] | None:
    """Return the variances of blocks' log ratios that their rounds (last axis) explain; None with few rounds.

    The ratio of a round is that to the mean of both baselines, if it has both.
    """
    if logs.shape[-1] < _MIN_ROUNDS:
        return None
    level, has_level, factor = logs[reference.row], usable[reference.row], 1.0
    if reference.control is not None:
        other, has_other = logs[reference.control], usable[reference.control]
        level = (np.where(has_level, level, other) + np.where(has_other, other, level)) / 2
        has_level, factor = has_level | has_other, _TWO_BASELINES
    errors = _errors_relative_to(logs, level, usable & has_level) * factor
    for row in (reference.row, reference.control):
        if row is not None:
            alone = slice(row, row + 1)
            both = usable[alone] & usable[reference.row]
            errors[alone] = _errors_relative_to(logs[alone], logs[reference.row], both)
    return errors


def _errors_relative_to(
    logs: NDArray[np.float64], level: NDArray[np.float64], both: NDArray[np.bool_]
) -> NDArray[np.float64]:
    ratios, counts = logs - level, both.sum(axis=-1)
    variances = variance_of_median(ratios, both, centers(ratios, both))
    is_known = (counts >= _MIN_ROUNDS) & (variances > ROUNDING**2)
    return np.where(is_known, variances / np.maximum(counts, 1), 0.0)


@dataclass(frozen=True)
class Headline:
    """Headline: a rule, its keys in the grid with their weights, and `logs` and `usable` with the axes stack, block."""

    rule: HeadlineRule
    grid: Grid
    keys: tuple[int, ...]
    weights: NDArray[np.float64]
    logs: NDArray[np.float64]
    usable: NDArray[np.bool_]

    def log_ratios(self, reference: BaselineRows) -> LogRatios:
        """Return the headline's log ratios to the baseline, for blocks with all keys of both sides."""
        return self.average_keys(log_ratios(self.grid, reference, self.keys))

    def quantity_half_widths(self) -> NDArray[np.float64]:
        """Return half the widths of the 95 % intervals of the stacks' quantities, in logarithms; infinite without one.

        They are for headlines that are read as quantities, such as a start time, and exclude the baseline's variance.
        """
        return compare(self.logs, self.usable, moderation=Moderation()).half_widths

    def average_keys(self, ratios: LogRatios) -> LogRatios:
        """Return the weighted mean of log ratios over the headline's keys, which must be those of `ratios`."""
        both = np.asarray(ratios.both.all(axis=1) & bool(self.keys))
        logs = np.where(both, np.einsum("skb,k->sb", ratios.logs, self.weights), 0.0)
        if ratios.errors is None:
            return LogRatios(logs, both)
        is_known = both & (ratios.errors > 0).all(axis=1)
        errors = np.where(is_known, np.einsum("skb,k->sb", ratios.errors, self.weights**2), 0.0)
        return LogRatios(logs, both, errors)


def create_headlines(grid: Grid) -> tuple[Headline, ...]:
    """Return the headlines of a workload, one for each direction; the first one has the workload's name.

    A workload without any value has one empty headline.
    """
    declared = [metric for metric in grid.metrics if metric.headline]
    measured = [metric for metric in declared if any(key.metric == metric.name for key in grid.keys)]
    if not measured:
        better = declared[0].better if declared else "higher"
        rule = HeadlineRule(grid.workload, grid.workload, (), better, "no trial of this workload has a value")
        return (_create_headline(grid, rule),)
    heads: list[Headline] = []
    for better in dict.fromkeys(metric.better for metric in measured):
        metrics = [metric for metric in measured if metric.better == better]
        names = tuple(metric.name for metric in metrics)
        name = f"{grid.workload} {'+'.join(names)}" if heads else grid.workload
        overall = all(metric.overall for metric in metrics)
        rule = HeadlineRule(name, grid.workload, names, better, _describe_rule(grid, metrics), overall)
        heads.append(_create_headline(grid, rule))
    return tuple(heads)


def _create_headline(grid: Grid, rule: HeadlineRule) -> Headline:
    """Return the headline of a rule: the mean logarithm of usual turns in each block, with equal weights of metrics.

    A block is usable for a stack if the stack has every point of every metric there, all above zero.
    """
    by_metric = [[index for index, key in enumerate(grid.keys) if key.metric == name] for name in rule.metrics]
    keys = tuple(index for indexes in by_metric for index in indexes)
    # Metrics count equally, however many points each has.
    weights = np.array([1 / len(indexes) / len(by_metric) for indexes in by_metric for _ in indexes])
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

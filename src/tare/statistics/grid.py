"""A workload's values as one array: stack, metric and point, block. All arithmetic is then done on whole arrays."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tare.journal import WorkloadRecord
from tare.model import Metric, Trial

# Values beyond this cannot be squared; no quantity that a machine measures comes near.
LARGEST = 1e150


@dataclass(frozen=True)
class Key:
    """What is compared: a metric at a point of the sweep, or off it."""

    metric: str
    point: float | None


@dataclass(frozen=True)
class Grid:
    """`values` and `present` have the axes stack, key, block.

    `absurd` counts values that are no finite number, or in another unit than the metric's.
    `places` are those of the trials in the order of their blocks, with the axes stack and block.
    `blocks` are the numbers of the blocks, from 0.
    """

    workload: str
    metrics: tuple[Metric, ...]
    stacks: tuple[str, ...]
    keys: tuple[Key, ...]
    values: NDArray[np.float64]
    present: NDArray[np.bool_]
    absurd: NDArray[np.int64]
    places: NDArray[np.int64]
    blocks: tuple[int, ...]

    def metric(self, name: str) -> Metric:
        """Find the definition of a metric by its name."""
        return next(metric for metric in self.metrics if metric.name == name)


@dataclass
class Arranging:
    """The values of one workload's trials, taken in one by one while a run goes on."""

    record: WorkloadRecord
    stacks: tuple[str, ...]
    _metrics: dict[str, Metric] = field(default_factory=dict)
    _keys: dict[tuple[str, float | None], int] = field(default_factory=dict)
    _places: tuple[array[int], ...] = field(default_factory=lambda: tuple(array("q") for _ in range(4)))
    _values: array[float] = field(default_factory=lambda: array("d"))

    def __post_init__(self) -> None:
        self._metrics = {metric.name: metric for metric in self.record.metrics}
        self._stack_at = {stack: index for index, stack in enumerate(self.stacks)}

    def add(self, trial: Trial) -> None:
        """Take the values of a trial in, if it has a result. Of each stack and block there may be one trial."""
        if trial.status != "ok":
            return
        stacks, keys, blocks, orders = self._places
        for value in trial.values:
            metric = self._metrics.get(value.metric)
            if metric is None:
                # What nobody declared is no part of a headline, unless nothing is declared at all.
                is_all = not self.record.metrics
                metric = Metric(value.metric, value.metric, value.unit, value.better, headline=is_all)
                self._metrics[value.metric] = metric
            stacks.append(self._stack_at[trial.stack])
            keys.append(self._keys.setdefault((value.metric, value.point), len(self._keys)))
            blocks.append(trial.block)
            orders.append(trial.order)
            alike = value.unit == metric.unit or not value.unit or not metric.unit
            self._values.append(value.value if alike else math.nan)

    def grid(self) -> Grid:
        """Give what has been taken in as arrays. Repeats within a trial are averaged: they are no blocks."""
        keys, moved = self._sorted_keys()
        stack, key, number, order = (np.array(cells, dtype=np.int64) for cells in self._places)
        blocks, block = np.unique(number, return_inverse=True)
        shape = (len(self.stacks), len(keys), len(blocks))
        sums, counts, absurd = np.zeros(shape), np.zeros(shape, dtype=np.int64), np.zeros(shape[:2], dtype=np.int64)
        orders = np.zeros((len(self.stacks), len(blocks)), dtype=np.int64)
        if len(number):
            values = np.array(self._values, dtype=float)
            finite = np.isfinite(values) & (np.abs(values) < LARGEST)
            cells = (stack, moved[key], block)
            np.add.at(sums, cells, np.where(finite, values, 0.0))
            np.add.at(counts, cells, finite)
            np.add.at(absurd, cells[:2], ~finite)
            orders[stack, block] = order
        values = sums / np.maximum(counts, 1)
        metrics, numbers = tuple(self._metrics.values()), tuple(blocks.tolist())
        return Grid(self.record.name, metrics, self.stacks, keys, values, counts > 0, absurd, orders, numbers)

    def _sorted_keys(self) -> tuple[tuple[Key, ...], NDArray[np.int64]]:
        """Sort the keys by metric, then point; gives them, and where each has moved to."""
        rank = {name: index for index, name in enumerate(self._metrics)}

        def order(key: tuple[str, float | None]) -> tuple[int, bool, float]:
            return rank[key[0]], key[1] is not None, key[1] or 0.0

        keys = sorted(self._keys, key=order)
        moved = np.zeros(len(keys), dtype=np.int64)
        moved[[self._keys[key] for key in keys]] = np.arange(len(keys))
        return tuple(Key(*key) for key in keys), moved


def arrange(record: WorkloadRecord, stacks: tuple[str, ...], trials: Sequence[Trial]) -> Grid:
    """Put the values of one workload's trials into a grid."""
    arranging = Arranging(record, stacks)
    for trial in trials:
        arranging.add(trial)
    return arranging.grid()

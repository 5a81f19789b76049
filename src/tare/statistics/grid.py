"""A workload's values as arrays: stack, metric and point, block, and round. All arithmetic is done on whole arrays."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tare.model.journal import WorkloadRecord
from tare.model.trial import Metric, Trial

# Values beyond this cannot be squared; no quantity that a machine measures comes near.
LARGEST_VALUE = 1e150


@dataclass(frozen=True)
class GridKey:
    """What is compared: a metric at a point of the sweep, or off it."""

    metric: str
    point: float | None


@dataclass(frozen=True)
class Grid:
    """`values` and `present` have the axes stack, key, block; `turns` and `has_turn` also have that of the rounds.

    A value is the mean of its turns. Where there was a single turn, it is that of round 0.
    `rejected_counts` counts values that are no finite number, or in another unit than the metric's.
    `positions` are those of the trials in the order of their blocks, with the axes stack and block.
    `blocks` are the numbers of the blocks, from 0.
    """

    workload: str
    metrics: tuple[Metric, ...]
    stacks: tuple[str, ...]
    keys: tuple[GridKey, ...]
    values: NDArray[np.float64]
    present: NDArray[np.bool_]
    turns: NDArray[np.float64]
    has_turn: NDArray[np.bool_]
    rejected_counts: NDArray[np.int64]
    positions: NDArray[np.int64]
    blocks: tuple[int, ...]

    @cached_property
    def positive(self) -> NDArray[np.bool_]:
        """Where there is a value that has a logarithm, as have all its turns."""
        return np.asarray(self.present & (self.values > 0) & ~(self.has_turn & (self.turns <= 0)).any(axis=-1))

    def select_blocks(self, blocks: Collection[int]) -> Grid:
        """Return the grid of some of the blocks, with the keys that have a value there."""
        at = np.flatnonzero([block in blocks for block in self.blocks])
        keys = np.flatnonzero(self.present[:, :, at].any(axis=(0, 2)))
        own = np.ix_(np.arange(len(self.stacks)), keys, at)
        return replace(
            self,
            keys=tuple(self.keys[key] for key in keys),
            values=self.values[own],
            present=self.present[own],
            turns=self.turns[own],
            has_turn=self.has_turn[own],
            rejected_counts=self.rejected_counts[:, keys],
            positions=self.positions[:, at],
            blocks=tuple(self.blocks[index] for index in at),
        )

    def find_metric(self, name: str) -> Metric:
        """Find the definition of a metric by its name."""
        return next(metric for metric in self.metrics if metric.name == name)


@dataclass
class GridBuilder:
    """The values of one workload's trials, taken in one by one while a run goes on."""

    record: WorkloadRecord
    stacks: tuple[str, ...]
    _metrics: dict[str, Metric] = field(default_factory=dict)
    _keys: dict[tuple[str, float | None], int] = field(default_factory=dict)
    # Of each value: stack, key, block, order, first round and number of turns.
    _positions: array[int] = field(default_factory=lambda: array("q"))
    _values: array[float] = field(default_factory=lambda: array("d"))
    _turns: array[float] = field(default_factory=lambda: array("d"))

    def __post_init__(self) -> None:
        self._metrics = {metric.name: metric for metric in self.record.metrics}
        self._stack_at = {stack: index for index, stack in enumerate(self.stacks)}

    def add(self, trial: Trial) -> None:
        """Take the values of a trial in, if it has a result. Of each stack and block there may be one trial."""
        if trial.status != "ok":
            return
        stack, keys = self._stack_at[trial.stack], self._keys
        for value in trial.values:
            metric = self._metrics.get(value.metric)
            if metric is None:
                # What nobody declared is no part of a headline, unless nothing is declared at all.
                is_all = not self.record.metrics
                metric = Metric(value.metric, value.metric, value.unit, value.better, headline=is_all)
                self._metrics[value.metric] = metric
            key = keys.setdefault((value.metric, value.point), len(keys))
            # What has no turns is of the whole trial, and compared with what others have of theirs.
            first = trial.first_round if value.turns else 0
            self._positions.extend((stack, key, trial.block, trial.order, first, len(value.turns) or 1))
            alike = value.unit == metric.unit or not value.unit or not metric.unit
            self._values.append(value.value if alike else math.nan)
            self._turns.extend(value.turns or (value.value,))

    def grid(self) -> Grid:
        """Return what has been taken in as arrays. Repeats within a trial are averaged: they are no blocks."""
        keys, moved = self._sort_keys()
        placed = np.array(self._positions, dtype=np.int64).reshape(-1, 6).T
        stack, key, number, order, _, counts = placed
        blocks, block = np.unique(number, return_inverse=True)
        shape = (len(self.stacks), len(keys), len(blocks))
        places = np.ravel_multi_index((stack, moved[key], block), shape) if len(number) else number
        values, good = np.array(self._values, dtype=float), self._find_good(counts)
        mean, present = _means(values, good, places, shape)
        turns, taken = mean[..., np.newaxis], present[..., np.newaxis]
        if len(self._turns) > len(values):
            turns, taken = self._arrange_by_round(good, places, shape, placed)
        orders = np.zeros((len(self.stacks), len(blocks)), dtype=np.int64)
        orders[stack, block] = order
        return Grid(
            workload=self.record.name,
            metrics=tuple(self._metrics.values()),
            stacks=self.stacks,
            keys=keys,
            values=mean,
            present=present,
            turns=turns,
            has_turn=taken,
            rejected_counts=np.bincount(places, ~good, math.prod(shape)).reshape(shape).sum(axis=-1).astype(np.int64),
            positions=orders,
            blocks=tuple(blocks.tolist()),
        )

    def _find_good(self, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which values are numbers, as are all their turns, of which there are so many."""
        good = _are_numbers(np.array(self._values, dtype=float))
        if len(self._turns) == len(good):
            return good
        of_turns = _are_numbers(np.array(self._turns, dtype=float))
        return good & np.logical_and.reduceat(of_turns, _turn_starts(counts))

    def _arrange_by_round(
        self, good: NDArray[np.bool_], places: NDArray[np.int64], shape: tuple[int, ...], placed: NDArray[np.int64]
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Put the turns of values, which belong to these places, where their rounds are."""
        firsts, counts = placed[4:]
        rounds = np.arange(len(self._turns)) - np.repeat(_turn_starts(counts) - firsts, counts)
        most = int(rounds.max()) + 1
        at = np.repeat(places, counts) * most + rounds
        return _means(np.array(self._turns, dtype=float), np.repeat(good, counts), at, (*shape, most))

    def _sort_keys(self) -> tuple[tuple[GridKey, ...], NDArray[np.int64]]:
        """Sort the keys by metric, then point; return them, and where each has moved to."""
        rank = {name: index for index, name in enumerate(self._metrics)}

        def sort_key(key: tuple[str, float | None]) -> tuple[int, bool, float]:
            return rank[key[0]], key[1] is not None, key[1] or 0.0

        keys = sorted(self._keys, key=sort_key)
        moved = np.zeros(len(keys), dtype=np.int64)
        moved[[self._keys[key] for key in keys]] = np.arange(len(keys))
        return tuple(GridKey(*key) for key in keys), moved


def build_grid(record: WorkloadRecord, stacks: tuple[str, ...], trials: Sequence[Trial]) -> Grid:
    """Put the values of one workload's trials into a grid."""
    arranging = GridBuilder(record, stacks)
    for trial in trials:
        arranging.add(trial)
    return arranging.grid()


def _turn_starts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each value's turns begin, of which there are so many."""
    return np.asarray(np.cumsum(counts) - counts)


def _are_numbers(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.isfinite(values) & (np.abs(values) < LARGEST_VALUE)


def _means(
    values: NDArray[np.float64], good: NDArray[np.bool_], places: NDArray[np.int64], shape: tuple[int, ...]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Put good values where they belong in a flat array of this shape: the mean of each, and where there are any."""
    size = math.prod(shape)
    counts = np.bincount(places, good, size)
    sums = np.bincount(places, np.where(good, values, 0.0), size)
    return (sums / np.maximum(counts, 1)).reshape(shape), (counts > 0).reshape(shape)

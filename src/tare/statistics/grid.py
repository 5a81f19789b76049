"""Grid of a workload: its values as arrays over stack, metric and point, block, and round."""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tare.model.run_folder import WorkloadRecord
from tare.model.trial import Metric, Trial
from tare.statistics.cpu_time import is_cpu_bound, turns_by_cpu_time

# Values beyond this cannot be squared; no quantity that a machine measures comes near.
LARGEST_VALUE = 1e150


@dataclass(frozen=True)
class GridKey:
    """Key of a value: a metric and a point of the sweep; `point` is None for a metric without a sweep."""

    metric: str
    point: float | None


@dataclass(frozen=True)
class Grid:
    """Grid of values. `values` and `present` have the axes stack, key, block; `turns` and `has_turn` also the round.

    - A value is the mean of its turns. A value without turns is the turn of round 0.
    - `rejected_counts` counts values that are not finite, or in another unit than the metric's.
    - `positions` are those of the trials in the order of their blocks, with the axes stack and block.
    - `blocks` are the numbers of the blocks, from 0.
    - `cpu_turns` are turns by CPU time (`tare.statistics.cpu_time`), or as in `turns` where that is unknown.
    - `by_cpu_time` is the mask of the stacks and keys that are compared by CPU time.
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
    cpu_turns: NDArray[np.float64]
    by_cpu_time: NDArray[np.bool_]

    @cached_property
    def compared_turns(self) -> NDArray[np.float64]:
        """Turns by CPU time for the stacks and keys that are compared by it; those of `turns` for the others."""
        by_cpu_time = self.by_cpu_time[..., np.newaxis, np.newaxis]
        return np.where(by_cpu_time, self.cpu_turns, self.turns) if by_cpu_time.any() else self.turns

    @cached_property
    def positive(self) -> NDArray[np.bool_]:
        """Mask of the values that are above 0 with all their turns, and so have logarithms."""
        return np.asarray(self.present & (self.values > 0) & ~(self.has_turn & (self.turns <= 0)).any(axis=-1))

    def select_blocks(self, blocks: Collection[int]) -> Grid:
        """Return the grid of these blocks, without keys that have no value there."""
        at = np.flatnonzero([block in blocks for block in self.blocks])
        keys = np.flatnonzero(self.present[:, :, at].any(axis=(0, 2)))
        selected = np.ix_(np.arange(len(self.stacks)), keys, at)
        return replace(
            self,
            keys=tuple(self.keys[key] for key in keys),
            values=self.values[selected],
            present=self.present[selected],
            turns=self.turns[selected],
            has_turn=self.has_turn[selected],
            rejected_counts=self.rejected_counts[:, keys],
            positions=self.positions[:, at],
            blocks=tuple(self.blocks[index] for index in at),
            cpu_turns=self.cpu_turns[selected],
            by_cpu_time=self.by_cpu_time[:, keys],
        )

    def find_metric(self, name: str) -> Metric:
        """Return the definition of a metric by its name."""
        return next(metric for metric in self.metrics if metric.name == name)


@dataclass
class GridBuilder:
    """Builder of a workload's grid, to which a running run adds its trials one by one.

    `references` are the baseline and its control; without them, nothing is compared by CPU time.
    """

    record: WorkloadRecord
    stacks: tuple[str, ...]
    references: tuple[str, ...] = ()
    _metrics: dict[str, Metric] = field(default_factory=dict)
    _keys: dict[tuple[str, float | None], int] = field(default_factory=dict)
    # For each value six numbers: stack, key, block, order, first round, number of turns. Flat arrays, because a run may
    # have millions of values.
    _positions: array[int] = field(default_factory=lambda: array("q"))
    _values: array[float] = field(default_factory=lambda: array("d"))
    _turns: array[float] = field(default_factory=lambda: array("d"))
    _cpu_turns: array[float] = field(default_factory=lambda: array("d"))  # NaN if unknown
    _first_blocks: dict[str, int] = field(default_factory=dict)  # of each stack
    # Whether a CPU limited a stack there, by stack, metric and point.
    _is_cpu_bound: dict[tuple[str, str, float | None], bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._metrics = {metric.name: metric for metric in self.record.metrics}
        self._stack_at = {stack: index for index, stack in enumerate(self.stacks)}

    def add(self, trial: Trial) -> None:
        """Add the values of a trial, if it has a result. A stack may have only one trial in a block."""
        if trial.status != "ok":
            return
        stack, keys = self._stack_at[trial.stack], self._keys
        for value in trial.values:
            metric = self._metrics.get(value.metric)
            if metric is None:
                # An undeclared metric is not part of a headline, unless the workload declares no metric at all.
                is_headline = not self.record.metrics
                metric = Metric(value.metric, value.metric, value.unit, value.better, headline=is_headline)
                self._metrics[value.metric] = metric
            key = keys.setdefault((value.metric, value.point), len(keys))
            # A value without turns belongs to its whole trial: put all of them into round 0, to be comparable.
            first = trial.first_round if value.turns else 0
            self._positions.extend((stack, key, trial.block, trial.order, first, len(value.turns) or 1))
            has_equal_unit = value.unit == metric.unit or not value.unit or not metric.unit
            self._values.append(value.value if has_equal_unit else math.nan)
            turns = value.turns or (value.value,)
            self._turns.extend(turns)
            self._cpu_turns.extend(turns_by_cpu_time(value) or (math.nan,) * len(turns))
        if self.references and trial.block <= self._first_blocks.get(trial.stack, trial.block):
            self._first_blocks[trial.stack] = trial.block
            for value in trial.values:
                self._is_cpu_bound[trial.stack, value.metric, value.point] = is_cpu_bound(trial, value)

    def grid(self) -> Grid:
        """Return the grid of all trials so far. Repeated values within a trial are averaged: they are no blocks."""
        keys, moved = self._sort_keys()
        columns = np.array(self._positions, dtype=np.int64).reshape(-1, 6).T
        stack, key, number, order, _, counts = columns
        blocks, block = np.unique(number, return_inverse=True)
        shape = (len(self.stacks), len(keys), len(blocks))
        places = np.ravel_multi_index((stack, moved[key], block), shape) if len(number) else number
        values, good = np.array(self._values, dtype=float), self._find_good(counts)
        mean, present = _means(values, good, places, shape)
        turns, has_turn = mean[..., np.newaxis], present[..., np.newaxis]
        if len(self._turns) > len(values):
            turns, has_turn = self._arrange_by_round(self._turns, good, places, shape, columns)
        cpu_turns, by_cpu_time = turns, np.zeros(shape[:2], dtype=bool)
        if len(self._turns) > len(values) and any(self._is_cpu_bound.values()):
            by_cpu, has_cpu = self._arrange_by_round(self._cpu_turns, good, places, shape, columns)
            by_cpu_time = self._choose_clock(keys, has_turn, has_cpu & np.isfinite(by_cpu))
            cpu_turns = np.where(by_cpu_time[..., np.newaxis, np.newaxis], by_cpu, turns)
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
            has_turn=has_turn,
            rejected_counts=np.bincount(places, ~good, math.prod(shape)).reshape(shape).sum(axis=-1).astype(np.int64),
            positions=orders,
            blocks=tuple(blocks.tolist()),
            cpu_turns=cpu_turns,
            by_cpu_time=by_cpu_time,
        )

    def _choose_clock(
        self, keys: tuple[GridKey, ...], has_turn: NDArray[np.bool_], has_cpu_turn: NDArray[np.bool_]
    ) -> NDArray[np.bool_]:
        """Return the mask of stacks and keys to compare by CPU time.

        It is known for all turns, and a CPU limits the stack in its first block; both also hold for the references.
        """
        is_bound = [
            [self._is_cpu_bound.get((stack, key.metric, key.point), False) for key in keys] for stack in self.stacks
        ]
        fits = (has_turn == has_cpu_turn).all(axis=(2, 3)) & np.array(is_bound, dtype=bool).reshape(has_turn.shape[:2])
        rows = [self._stack_at[stack] for stack in self.references]
        return np.asarray(fits & fits[rows].all(axis=0) & has_turn.any(axis=(2, 3)))

    def _find_good(self, counts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return the mask of the values that are numbers with all their turns; `counts` are the numbers of turns."""
        good = _are_numbers(np.array(self._values, dtype=float))
        if len(self._turns) == len(good):
            return good
        of_turns = _are_numbers(np.array(self._turns, dtype=float))
        return good & np.logical_and.reduceat(of_turns, _turn_starts(counts))

    @staticmethod
    def _arrange_by_round(
        turns: array[float],
        good: NDArray[np.bool_],
        places: NDArray[np.int64],
        shape: tuple[int, ...],
        columns: NDArray[np.int64],
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """Return turns and their mask with an additional axis of rounds; `places` are flat indexes of the values."""
        firsts, counts = columns[4:]
        rounds = np.arange(len(turns)) - np.repeat(_turn_starts(counts) - firsts, counts)
        most = int(rounds.max()) + 1
        at = np.repeat(places, counts) * most + rounds
        return _means(np.array(turns, dtype=float), np.repeat(good, counts), at, (*shape, most))

    def _sort_keys(self) -> tuple[tuple[GridKey, ...], NDArray[np.int64]]:
        """Return the keys sorted by metric, then point, and the new index of each key."""
        rank = {name: index for index, name in enumerate(self._metrics)}

        def sort_key(key: tuple[str, float | None]) -> tuple[int, bool, float]:
            return rank[key[0]], key[1] is not None, key[1] or 0.0

        keys = sorted(self._keys, key=sort_key)
        moved = np.zeros(len(keys), dtype=np.int64)
        moved[[self._keys[key] for key in keys]] = np.arange(len(keys))
        return tuple(GridKey(*key) for key in keys), moved


def build_grid(record: WorkloadRecord, stacks: tuple[str, ...], trials: Sequence[Trial]) -> Grid:
    """Return the grid of the values of a workload's trials."""
    builder = GridBuilder(record, stacks)
    for trial in trials:
        builder.add(trial)
    return builder.grid()


def _turn_starts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of the first turn of each value; `counts` are the numbers of turns."""
    return np.asarray(np.cumsum(counts) - counts)


def _are_numbers(values: NDArray[np.float64]) -> NDArray[np.bool_]:
    return np.isfinite(values) & (np.abs(values) < LARGEST_VALUE)


def _means(
    values: NDArray[np.float64], good: NDArray[np.bool_], places: NDArray[np.int64], shape: tuple[int, ...]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the means of the good values at each place of an array of this shape, and the mask of places with any."""
    size = math.prod(shape)
    counts = np.bincount(places, good, size)
    sums = np.bincount(places, np.where(good, values, 0.0), size)
    return (sums / np.maximum(counts, 1)).reshape(shape), (counts > 0).reshape(shape)

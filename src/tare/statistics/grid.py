"""A workload's values as one array: stack, metric and point, block. All arithmetic is then done on whole arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    """`values` and `present` have the axes stack, key, block; `absurd` counts values that are no finite number."""

    workload: str
    metrics: tuple[Metric, ...]
    stacks: tuple[str, ...]
    keys: tuple[Key, ...]
    values: NDArray[np.float64]
    present: NDArray[np.bool_]
    absurd: NDArray[np.int64]

    def metric(self, name: str) -> Metric:
        """Find the definition of a metric by its name."""
        return next(metric for metric in self.metrics if metric.name == name)


def arrange(record: WorkloadRecord, stacks: tuple[str, ...], trials: Sequence[Trial]) -> Grid:
    """Put the values of one workload's trials into a grid. Repeats within a trial are averaged: they are no blocks."""
    ok = [trial for trial in trials if trial.status == "ok"]
    metrics = _metrics(record, ok)
    keys = _keys(metrics, ok)
    stack_at = {stack: index for index, stack in enumerate(stacks)}
    key_at = {key: index for index, key in enumerate(keys)}
    block_at = {block: index for index, block in enumerate(sorted({trial.block for trial in ok}))}
    places, values = [], []
    for trial in ok:
        for value in trial.values:
            key = key_at[Key(value.metric, value.point)]
            places.append((stack_at[trial.stack], key, block_at[trial.block]))
            values.append(value.value)
    return _fill(record, metrics, (stacks, keys, len(block_at)), (places, values))


def _fill(
    record: WorkloadRecord,
    metrics: tuple[Metric, ...],
    axes: tuple[tuple[str, ...], tuple[Key, ...], int],
    entries: tuple[list[tuple[int, int, int]], list[float]],
) -> Grid:
    stacks, keys, blocks = axes
    shape = (len(stacks), len(keys), blocks)
    sums, counts, absurd = np.zeros(shape), np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    if entries[0]:
        places = tuple(np.array(entries[0]).T)
        values = np.array(entries[1], dtype=float)
        finite = np.isfinite(values) & (np.abs(values) < LARGEST)
        np.add.at(sums, places, np.where(finite, values, 0.0))
        np.add.at(counts, places, finite)
        np.add.at(absurd, places, ~finite)
    return Grid(
        record.name,
        metrics,
        stacks,
        keys,
        sums / np.maximum(counts, 1),
        counts > 0,
        absurd.sum(axis=-1, dtype=np.int64),
    )


def _metrics(record: WorkloadRecord, trials: Sequence[Trial]) -> tuple[Metric, ...]:
    """Give the declared metrics, then those that only the trials know."""
    known = {metric.name: metric for metric in record.metrics}
    for trial in trials:
        for value in trial.values:
            known.setdefault(value.metric, Metric(value.metric, value.metric, value.unit, value.better))
    return tuple(known.values())


def _keys(metrics: tuple[Metric, ...], trials: Sequence[Trial]) -> tuple[Key, ...]:
    place = {metric.name: index for index, metric in enumerate(metrics)}
    found = {Key(value.metric, value.point) for trial in trials for value in trial.values}

    def order(key: Key) -> tuple[int, bool, float]:
        return place[key.metric], key.point is not None, key.point or 0.0

    return tuple(sorted(found, key=order))

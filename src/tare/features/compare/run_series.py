"""Digests of runs: the cells and log ratios that a comparison of several runs needs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from tare.features.compare.changes import stack_logs
from tare.features.compare.comparability import units_of
from tare.model.errors import UsageError, did_you_mean
from tare.model.run_folder import Run
from tare.statistics.cells import Cell
from tare.statistics.summarize import summarize
from tare.statistics.summary import Summary

_MAX_NAMED = 4
SeriesKey = tuple[str, str]  # headline, stack
Logs = TypeVar("Logs")


@dataclass(frozen=True)
class RunDigest(Generic[Logs]):
    """Digest of a run: for each headline and stack, the cell, and the logarithms of its blocks or a summary of these.

    Logarithms are of ratios to the baseline; for the baseline itself, of its values. `lost` are stacks that failed in a
    headline although the baseline has values. `measured` has the metrics and points of each workload, `units` the
    entries of `units_of`.
    """

    folder: Path
    started: str
    baseline: str
    stacks: tuple[str, ...]
    cells: Mapping[SeriesKey, tuple[Cell, Logs]]
    lost: frozenset[SeriesKey]
    measured: Mapping[str, set[tuple[str, float | None]]]
    units: frozenset[tuple[str, str, str]]

    def is_copy_of(self, other: RunDigest[Any]) -> bool:
        """Return whether two runs have exactly the same values."""
        mine, theirs = ({key: cell for key, (cell, _) in each.cells.items()} for each in (self, other))
        return mine == theirs


FullRunDigest = RunDigest[NDArray[np.float64]]


def digest_run(
    run: Run,
    baseline: str,
    stacks: Collection[str],
    margin: float | None,
    reduce: Callable[[Cell, NDArray[np.float64]], tuple[Cell, Logs]],
) -> RunDigest[Logs]:
    """Compare the stacks of a run (all if `stacks` is empty) with the baseline, and return its digest.

    `reduce` makes the entry of a headline and stack from its cell and logarithms. A caller that reads thousands of runs
    drops here what it does not need.
    """
    require_stack(run, baseline)
    chosen = [stack for stack in stacks_of(run) if stack not in (baseline, run.record.control)]
    if stacks:
        chosen = [stack for stack in chosen if stack in stacks]
    summary = summarize(select_stacks(run, baseline, (baseline, *chosen), margin))
    cells: dict[SeriesKey, tuple[Cell, Logs]] = {}
    lost = set()
    for cell in summary.headlines:
        if cell.stack != baseline and cell.ratios:
            cells[cell.headline, cell.stack] = reduce(cell, np.log(cell.ratios))
        elif cell.stack != baseline and cell.failures and not cell.skipped and _has_baseline(summary, cell):
            lost.add((cell.headline, cell.stack))
    for head in summary.headline_data:
        logs = stack_logs(head, baseline)
        if logs.size:
            cells[head.rule.name, baseline] = reduce(summary.headline(head.rule.name, baseline), logs)
    points = {workload: measured_points(summary, workload) for workload in summary.workloads}
    units = frozenset(units_of(run, {baseline, *chosen}))
    return RunDigest(run.folder, run.record.started, baseline, stacks_of(run), cells, frozenset(lost), points, units)


def stacks_of(run: Run) -> tuple[str, ...]:
    """Return the stacks of a run, including those that only its trials have (added after its start)."""
    return tuple(dict.fromkeys([*run.record.stacks, *(trial.stack for trial in run.trials)]))


def require_stack(run: Run, stack: str) -> str:
    """Return `stack`; raises UsageError if the run does not have it."""
    names = stacks_of(run)
    if stack not in names:
        hint = did_you_mean(stack, names, f"it has {', '.join(names)}" if names else "it has none")
        raise UsageError(f"{run.folder}: has no stack {stack}", hint)
    return stack


def select_stacks(run: Run, baseline: str, stacks: Sequence[str], margin: float | None) -> Run:
    """Return the run with these stacks only.

    Verdicts hold for all comparisons together: stacks that the user did not ask for would make them need more blocks.
    """
    control = run.record.control if run.record.control in stacks and baseline == run.record.baseline else ""
    record = replace(
        run.record,
        baseline=baseline,
        control=control,
        margin=run.record.margin if margin is None else margin,
        stacks=tuple(stack for stack in run.record.stacks if stack in stacks),
    )
    return replace(run, record=record, trials=tuple(trial for trial in run.trials if trial.stack in stacks))


def measured_points(summary: Summary, workload: str) -> set[tuple[str, float | None]]:
    """Return the metrics of a workload's headlines with their points; the point is None for a metric without any."""
    metrics = {metric for rule in summary.rules_of(workload) for metric in rule.metrics}
    return {(cell.metric, cell.point) for cell in summary.cells_of(workload) if cell.metric in metrics}


def format_points(points: set[tuple[str, float | None]]) -> str:
    """Format metrics and points as text, at most four of them."""
    ordered = sorted(points, key=lambda each: (each[0], each[1] is not None, each[1] or 0.0))
    texts = [metric if point is None else f"{metric} at {point:g}" for metric, point in ordered[:_MAX_NAMED]]
    return ", ".join(texts) + (f" and {len(ordered) - _MAX_NAMED} more" if len(ordered) > _MAX_NAMED else "")


def _has_baseline(summary: Summary, cell: Cell) -> bool:
    return bool(summary.headline(cell.headline, summary.baseline).trials)


def require_stacks(runs: Sequence[RunDigest[Any]], stacks: Collection[str]) -> None:
    """Raise UsageError if a requested stack is in no run."""
    known = list(dict.fromkeys(stack for run in runs for stack in run.stacks))
    for stack in stacks:
        if stack not in known:
            raise UsageError(f"no run has a stack {stack}", did_you_mean(stack, known, f"there are {', '.join(known)}"))


def drop_incomparable_workloads(runs: Sequence[RunDigest[Logs]]) -> tuple[list[RunDigest[Logs]], tuple[str, ...]]:
    """Return the runs without workloads that the last run measured at other points, and a statement for each.

    The headline of a workload is a mean over its points: with other points, it would be another quantity.
    """
    comparable, statements = [], []
    for run in runs:
        wrong = {}
        for workload, points in run.measured.items():
            latest = next((each.measured[workload] for each in reversed(runs) if each.measured.get(workload)), points)
            if points and points != latest:
                wrong[workload] = points ^ latest
        statements += [
            f"left out of {run.folder.name}: {workload}: only it or the last run has {format_points(points)}"
            for workload, points in wrong.items()
        ]
        cells = {key: entry for key, entry in run.cells.items() if entry[0].workload not in wrong}
        comparable.append(replace(run, cells=cells))
    return comparable, tuple(statements)

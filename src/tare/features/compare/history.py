"""What `tare history` answers: how stacks stood to the baseline from run to run, and where that has changed.

Each run is compared within itself, block by block, as in `tare compare`. What is followed is a stack's ratio to the
baseline, and the baseline's own value to that of its first run, which shows what all stacks have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tare.features.compare.change_points import MIN_RUNS_PER_LEVEL, ChangePoint, change_points, estimate_autocorrelation
from tare.features.compare.changes import LogRatioSample, make_cell_like, summarize_logs
from tare.features.compare.comparability import machine_differences, require_same_units, run_differences
from tare.features.compare.run_series import (
    FullRunDigest,
    SeriesKey,
    digest_run,
    drop_incomparable_workloads,
    require_stacks,
)
from tare.features.compare.two_runs import CompareOptions, GateCondition, GateOutcome, verdicts_of
from tare.model.errors import TareError, UsageError
from tare.model.journal import RunRecord, load_record, load_run
from tare.statistics.cells import Cell, verdict_of_side
from tare.statistics.ratios import classify_side, exp_bounded

HISTORY_CONDITIONS: tuple[GateCondition, ...] = ("worse", "better", "different")
MIN_RUNS = 2 * MIN_RUNS_PER_LEVEL
_MIN_CORRELATION = 0.2  # correlation of neighboring runs


@dataclass(frozen=True)
class LevelChange:
    """A change of level: `cell` has the ratio of after to before with its interval, and the verdict.

    The other numbers are places of runs in the history: the first of the new level, the earliest and the latest that it
    may be, and the one that brought it to light. `other_differences` is what else differs between the run before the
    earliest and the latest. From the run `robust_from` on, it would be found even if noise lasted from run to run (a
    correlation of 0.5); None if that is not so yet.
    """

    cell: Cell
    at: int
    earliest: int
    latest: int
    detected_at: int
    robust_from: int | None
    other_differences: tuple[str, ...]


@dataclass(frozen=True)
class HeadlineSeries:
    """A stack in a headline: its cell in each run, None where it has no value, and the changes of its level.

    That of the baseline is `is_baseline`: its cells have the ratio to the first one.
    """

    headline: str
    stack: str
    is_baseline: bool
    cells: tuple[Cell | None, ...]
    changes: tuple[LevelChange, ...] = ()

    @property
    def latest(self) -> Cell:
        """The last value."""
        return next(cell for cell in reversed(self.cells) if cell is not None)

    @property
    def count(self) -> int:
        """The number of runs with a value."""
        return sum(cell is not None for cell in self.cells)


@dataclass(frozen=True)
class HistoryGate:
    """What must not have changed; the series that have, or have no value any more; and the baseline's own changes."""

    fail_on: tuple[GateCondition, ...] = ()
    failing: tuple[tuple[HeadlineSeries, LevelChange], ...] = ()
    lost: tuple[SeriesKey, ...] = ()
    baseline_changes: tuple[tuple[HeadlineSeries, LevelChange], ...] = ()
    answer: GateOutcome = "passed"


@dataclass(frozen=True)
class History:
    """The runs in the order of time, by folder and record, and what became of each stack and headline."""

    folders: tuple[Path, ...]
    records: tuple[RunRecord, ...]
    baseline: str
    margin: float
    series: tuple[HeadlineSeries, ...]
    statements: tuple[str, ...]
    gate: HistoryGate

    @property
    def changes(self) -> tuple[tuple[HeadlineSeries, LevelChange], ...]:
        """All changes, each with its series, in the order of time."""
        every = [(one, step) for one in self.series for step in one.changes]
        return tuple(sorted(every, key=lambda each: each[1].at))


def follow_runs(folders: Sequence[Path], options: CompareOptions, progress: Callable[[int], None]) -> History:
    """Follow stacks through runs, of which only one is in memory; raises UsageError or TareError.

    `progress` is told how many have been read.
    """
    ordered = _sort_by_time(folders, options)
    last = ordered[-1][1]
    baseline = options.baseline or last.baseline
    runs: list[FullRunDigest] = []
    for number, (folder, _) in enumerate(ordered, start=1):
        runs.append(
            digest_run(load_run(folder), baseline, options.stacks, options.margin, lambda cell, logs: (cell, logs))
        )
        progress(number)
    _require_comparable(runs, options, baseline)
    margin = last.margin if options.margin is None else options.margin
    kept, left_out = drop_incomparable_workloads(runs)
    series = _follow_series(kept, baseline, margin)
    if not any(not one.is_baseline or one.stack in options.stacks for one in series):
        what = f"nothing can be compared with {baseline} in these runs"
        raise TareError(what, f"`tare show {runs[-1].folder}` lists the trials with their reasons")
    return History(
        folders=tuple(folder for folder, _ in ordered),
        records=tuple(record for _, record in ordered),
        baseline=baseline,
        margin=margin,
        series=series,
        statements=(*_suite_statements(ordered), *left_out, *_autocorrelation_statements(series)),
        gate=_judge_gate(options, series, runs),
    )


def _sort_by_time(folders: Sequence[Path], options: CompareOptions) -> list[tuple[Path, RunRecord]]:
    """Return the runs in the order of time; raises UsageError where they cannot follow each other."""
    if len(folders) < 2:
        raise UsageError("a history needs two runs or more", "tare history RUN RUN …")
    seen: dict[Path, Path] = {}
    for folder in folders:
        if (real := folder.resolve()) in seen:
            raise UsageError(f"{seen[real]} and {folder} are the same run", "name each run once")
        seen[real] = folder
    ordered = sorted(((folder, load_record(folder)) for folder in folders), key=lambda each: each[1].started)
    for (one, before), (other, after) in pairwise(ordered):
        apart = machine_differences(before.machine, after.machine, ("before", "after"))
        if apart and not options.across_machines:
            raise UsageError(
                f"{one} and {other} are of unlike machines: {'; '.join(apart)}",
                "follow the runs of one machine, or say --across-machines",
            )
    return ordered


def _require_comparable(runs: Sequence[FullRunDigest], options: CompareOptions, baseline: str) -> None:
    """Raise UsageError where values are no values of the same, or no run has what was asked for."""
    for before, after in pairwise(runs):
        if before.cells and before.is_copy_of(after):
            raise UsageError(f"{before.folder} and {after.folder} are the same run", "name each run once")
    require_same_units(unit for run in runs for unit in run.units)
    require_stacks(runs, options.stacks)
    if not options.stacks and all(set(run.stacks) == {baseline} for run in runs):
        raise UsageError(f"the runs have no stack but {baseline}", f"follow it: --stack {baseline}")


def _suite_statements(ordered: Sequence[tuple[Path, RunRecord]]) -> Iterator[str]:
    suites = list(dict.fromkeys(record.suite for _, record in ordered))
    if len(suites) > 1:
        yield f"the runs are of several suites: {', '.join(suites)}"


@dataclass(frozen=True)
class _SeriesValues:
    """A stack in a headline: its cell in each run, the places of the runs that have a value, and these values."""

    cells: tuple[Cell | None, ...]
    run_indexes: tuple[int, ...]
    samples: tuple[LogRatioSample, ...]

    @property
    def last(self) -> Cell:
        """The last value."""
        return next(cell for cell in reversed(self.cells) if cell is not None)


def _follow_series(runs: Sequence[FullRunDigest], baseline: str, margin: float) -> tuple[HeadlineSeries, ...]:
    """Follow each stack in each headline. The changes of level hold for all series together."""
    keys = dict.fromkeys(key for run in reversed(runs) for key in run.cells)
    followed = {key: _collect_values(runs, key, baseline) for key in sorted(keys, key=lambda key: key[1] == baseline)}
    differ = cache(lambda earliest, latest, stack: _differences(runs, earliest, latest, {stack, baseline}))
    series = []
    for (headline, stack), one in followed.items():
        means = np.array([each.mean for each in one.samples])
        errors = np.array([each.deviation / np.sqrt(each.count) for each in one.samples])
        steps = []
        for point in change_points(means, errors, len(followed)):
            changed = differ(one.run_indexes[point.earliest - 1], one.run_indexes[point.latest], stack)
            steps.append(_to_level_change(one, point, margin, changed))
        series.append(HeadlineSeries(headline, stack, stack == baseline, one.cells, tuple(steps)))
    return tuple(series)


def _collect_values(runs: Sequence[FullRunDigest], key: SeriesKey, baseline: str) -> _SeriesValues:
    """Collect the values of a stack; of the baseline, cells have the ratio to the first value."""
    found = [run.cells.get(key) for run in runs]
    own = key[1] == baseline
    samples = [summarize_logs(logs, None if own else cell.widening) for cell, logs in filter(None, found)]
    cells = [
        replace(each[0], ratio=exp_bounded(float(each[1].mean()) - samples[0].mean))
        if each and own
        else each and each[0]
        for each in found
    ]
    return _SeriesValues(tuple(cells), tuple(place for place, each in enumerate(found) if each), tuple(samples))


def _differences(runs: Sequence[FullRunDigest], earliest: int, latest: int, stacks: set[str]) -> tuple[str, ...]:
    return run_differences(load_run(runs[earliest].folder), load_run(runs[latest].folder), stacks)


def _to_level_change(
    values: _SeriesValues, point: ChangePoint, margin: float, other_differences: tuple[str, ...]
) -> LevelChange:
    side = classify_side(point.log_change, point.half_width, float(np.log1p(margin)))
    if side not in ("equivalent", "more", "less"):  # more runs have widened it since it was found
        side = "more" if point.log_change > 0 else "less"
    last, finite = values.last, np.isfinite(point.half_width)
    cell = make_cell_like(
        last,
        verdict_of_side(side, last.better),
        n=len(values.run_indexes),
        ratio=exp_bounded(point.log_change),
        low=exp_bounded(point.log_change - point.half_width) if finite else None,
        high=exp_bounded(point.log_change + point.half_width) if finite else None,
    )
    at, earliest, latest, found = (
        values.run_indexes[each] for each in (point.at, point.earliest, point.latest, point.detected_at)
    )
    firm = None if point.robust_from is None else values.run_indexes[point.robust_from]
    return LevelChange(cell, at, earliest, latest, found, firm, other_differences)


def _autocorrelation_statements(series: Sequence[HeadlineSeries]) -> Iterator[str]:
    """State that runs resemble the ones before them, where they do: then noise looks like a change."""
    correlation, by_chance = estimate_autocorrelation(
        [piece for one in series for piece in _logs_by_level(one)], len(series)
    )
    if correlation > max(by_chance, _MIN_CORRELATION):
        yield (
            f"each run resembles the one before it, beside the changes (correlation {correlation:.1f}): "
            "what lasts for some runs may look like a change"
        )


def _logs_by_level(series: HeadlineSeries) -> Iterator[NDArray[np.float64]]:
    """Yield the logarithms of a series between its changes."""
    ends = [0, *(step.at for step in series.changes), len(series.cells)]
    for begin, end in pairwise(ends):
        ratios = [cell.ratio for cell in series.cells[begin:end] if cell is not None and cell.ratio is not None]
        yield np.log(np.array(ratios, dtype=float))


def _judge_gate(
    options: CompareOptions, series: Sequence[HeadlineSeries], runs: Sequence[FullRunDigest]
) -> HistoryGate:
    if not options.fail_on:
        return HistoryGate()
    last = len(runs) - 1
    verdicts = verdicts_of(options.fail_on)
    news = [
        (one, step)
        for one in series
        for step in one.changes
        if step.cell.verdict in verdicts
        and step.robust_from is not None
        and (runs[step.robust_from].started >= options.since if options.since else step.robust_from == last)
    ]
    judged = tuple((one, step) for one, step in news if not one.is_baseline or one.stack in options.stacks)
    moved = () if options.stacks else tuple((one, step) for one, step in news if one.is_baseline)
    before = {key for run in runs[:-1] for key in run.cells}
    lost = tuple(sorted(runs[-1].lost & before))
    answer: GateOutcome = "passed"
    if judged or lost:
        answer = "failed"
    elif moved or max(one.count for one in series) < MIN_RUNS:
        answer = "cannot tell"
    return HistoryGate(options.fail_on, judged, lost, moved, answer)

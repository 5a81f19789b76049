"""History: ratios of stacks to the baseline from run to run, and their change points.

Each run is compared within itself, block by block, as in `tare compare`. A series is the ratio of a stack to the
baseline, or the value of the baseline relative to its first run, which shows changes that all stacks have in common.
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
from tare.features.compare.run_comparison import CompareOptions, GateCondition, verdicts_of
from tare.features.compare.run_series import (
    FullRunDigest,
    SeriesKey,
    digest_run,
    drop_incomparable_workloads,
    require_stacks,
)
from tare.model.errors import TareError, UsageError
from tare.model.run_folder import RunRecord, load_record, load_run
from tare.report.answer import GateOutcome
from tare.statistics.cells import Cell, verdict_of_side
from tare.statistics.ratios import classify_side, exp_bounded

HISTORY_CONDITIONS: tuple[GateCondition, ...] = ("worse", "better", "different")
MIN_RUNS = 2 * MIN_RUNS_PER_LEVEL
_MIN_CORRELATION = 0.2  # a weaker correlation of neighboring runs is not reported


@dataclass(frozen=True)
class LevelChange:
    """Change of level: `cell` has the ratio of after to before with its interval, and the verdict.

    The numbers are indexes of runs in the history. `at` is the first run of the new level, between `earliest` and
    `latest` with 95 % of the evidence, and `detected_at` the run at which the change was detected. `other_differences`
    lists differences between the run before `earliest` and the run `latest`. From the run `robust_from` on, the change
    would be detected even at an autocorrelation of 0.5; None if it would not yet.
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
    """Series of a stack in a headline: a cell for each run, None without a value, and the changes of level.

    Cells of the baseline (`is_baseline`) have the ratio to its first value.
    """

    headline: str
    stack: str
    is_baseline: bool
    cells: tuple[Cell | None, ...]
    changes: tuple[LevelChange, ...] = ()

    @property
    def latest(self) -> Cell:
        """The cell of the last run with a value."""
        return next(cell for cell in reversed(self.cells) if cell is not None)

    @property
    def count(self) -> int:
        """The number of runs with a value."""
        return sum(cell is not None for cell in self.cells)


@dataclass(frozen=True)
class HistoryGate:
    """Gate of a history: its conditions, the changes that failed it, and series that lost their value.

    `confounding` are changes of the baseline itself, for which the gate cannot tell.
    """

    fail_on: tuple[GateCondition, ...] = ()
    failing: tuple[tuple[HeadlineSeries, LevelChange], ...] = ()
    lost: tuple[SeriesKey, ...] = ()
    confounding: tuple[tuple[HeadlineSeries, LevelChange], ...] = ()
    outcome: GateOutcome = "passed"


@dataclass(frozen=True)
class History:
    """Runs in order of time, with a series for each stack and headline.

    `statements` are sentences about the runs; `folders` and `records` have an entry for each run.
    """

    folders: tuple[Path, ...]
    records: tuple[RunRecord, ...]
    baseline: str
    margin: float
    series: tuple[HeadlineSeries, ...]
    statements: tuple[str, ...]
    gate: HistoryGate

    @property
    def changes(self) -> tuple[tuple[HeadlineSeries, LevelChange], ...]:
        """All changes with their series, in order of time."""
        changes = [(series, change) for series in self.series for change in series.changes]
        return tuple(sorted(changes, key=lambda pair: pair[1].at))


def follow_runs(folders: Sequence[Path], options: CompareOptions, progress: Callable[[int], None]) -> History:
    """Follow stacks through runs; raises UsageError or TareError.

    `progress` is called with the number of runs read. Only one run is in memory at a time.
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
    comparable, left_out = drop_incomparable_workloads(runs)
    series = _follow_series(comparable, baseline, margin)
    if not any(not one.is_baseline or one.stack in options.stacks for one in series):
        message = f"nothing can be compared with {baseline} in these runs"
        raise TareError(message, f"see the reasons: tare show {runs[-1].folder}")
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
    """Return the runs in order of time; raises UsageError for a repeated run or different machines."""
    if len(folders) < 2:
        raise UsageError("a history needs two runs or more", "tare history RUN RUN …")
    seen: dict[Path, Path] = {}
    for folder in folders:
        if (real := folder.resolve()) in seen:
            raise UsageError(f"{seen[real]} and {folder} are the same run", "name each run once")
        seen[real] = folder
    ordered = sorted(((folder, load_record(folder)) for folder in folders), key=lambda each: each[1].started)
    for (one, before), (other, after) in pairwise(ordered):
        differences = machine_differences(before.machine, after.machine, ("before", "after"))
        if differences and not options.across_machines:
            raise UsageError(
                f"{one} and {other} are of different machines: {'; '.join(differences)}",
                "follow the runs of one machine, or say --across-machines",
            )
    return ordered


def _require_comparable(runs: Sequence[FullRunDigest], options: CompareOptions, baseline: str) -> None:
    """Raise UsageError for copies of a run, different units, or requested stacks that no run has."""
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
    """Values of a series: a cell for each run, and index and sample of each run that has a value."""

    cells: tuple[Cell | None, ...]
    run_indexes: tuple[int, ...]
    samples: tuple[LogRatioSample, ...]

    @property
    def last(self) -> Cell:
        """The cell of the last run with a value."""
        return next(cell for cell in reversed(self.cells) if cell is not None)


def _follow_series(runs: Sequence[FullRunDigest], baseline: str, margin: float) -> tuple[HeadlineSeries, ...]:
    """Return the series of each stack and headline. The error rate of changes holds for all series together."""
    keys = dict.fromkeys(key for run in reversed(runs) for key in run.cells)
    followed = {key: _collect_values(runs, key, baseline) for key in sorted(keys, key=lambda key: key[1] == baseline)}
    # Loading two runs takes seconds, and the changes of many series lie between the same runs.
    differ = cache(lambda earliest, latest, stack: _differences(runs, earliest, latest, {stack, baseline}))
    series = []
    for (headline, stack), values in followed.items():
        means = np.array([sample.mean for sample in values.samples])
        errors = np.array([sample.deviation / np.sqrt(sample.count) for sample in values.samples])
        changes = []
        for point in change_points(means, errors, len(followed)):
            differences = differ(values.run_indexes[point.earliest - 1], values.run_indexes[point.latest], stack)
            changes.append(_to_level_change(values, point, margin, differences))
        series.append(HeadlineSeries(headline, stack, stack == baseline, values.cells, tuple(changes)))
    return tuple(series)


def _collect_values(runs: Sequence[FullRunDigest], key: SeriesKey, baseline: str) -> _SeriesValues:
    """Collect the values of a stack and headline; cells of the baseline get the ratio to its first value."""
    entries = [run.cells.get(key) for run in runs]
    is_baseline = key[1] == baseline
    samples = [summarize_logs(logs, None if is_baseline else cell.widening) for cell, logs in filter(None, entries)]
    cells = [
        replace(entry[0], ratio=exp_bounded(float(entry[1].mean()) - samples[0].mean))
        if entry and is_baseline
        else entry and entry[0]
        for entry in entries
    ]
    return _SeriesValues(tuple(cells), tuple(index for index, entry in enumerate(entries) if entry), tuple(samples))


def _differences(runs: Sequence[FullRunDigest], earliest: int, latest: int, stacks: set[str]) -> tuple[str, ...]:
    return run_differences(load_run(runs[earliest].folder), load_run(runs[latest].folder), stacks)


def _to_level_change(
    values: _SeriesValues, point: ChangePoint, margin: float, other_differences: tuple[str, ...]
) -> LevelChange:
    side = classify_side(point.log_change, point.half_width, float(np.log1p(margin)))
    if side not in ("equivalent", "more", "less"):  # later runs have widened the interval; the change stays
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
    at, earliest, latest, detected_at = (
        values.run_indexes[index] for index in (point.at, point.earliest, point.latest, point.detected_at)
    )
    robust_from = None if point.robust_from is None else values.run_indexes[point.robust_from]
    return LevelChange(cell, at, earliest, latest, detected_at, robust_from, other_differences)


def _autocorrelation_statements(series: Sequence[HeadlineSeries]) -> Iterator[str]:
    """Yield a statement if neighboring runs are correlated: noise may then look like a change."""
    correlation, by_chance = estimate_autocorrelation(
        [piece for one in series for piece in _logs_by_level(one)], len(series)
    )
    if correlation > max(by_chance, _MIN_CORRELATION):
        yield (
            f"each run resembles the one before it, apart from the changes (correlation {correlation:.1f}): "
            "noise that lasts for some runs may look like a change"
        )


def _logs_by_level(series: HeadlineSeries) -> Iterator[NDArray[np.float64]]:
    """Yield the logarithms of each level of a series."""
    bounds = [0, *(change.at for change in series.changes), len(series.cells)]
    for begin, end in pairwise(bounds):
        ratios = [cell.ratio for cell in series.cells[begin:end] if cell is not None and cell.ratio is not None]
        yield np.log(np.array(ratios, dtype=float))


def _judge_gate(
    options: CompareOptions, series: Sequence[HeadlineSeries], runs: Sequence[FullRunDigest]
) -> HistoryGate:
    if not options.fail_on:
        return HistoryGate()
    last = len(runs) - 1
    verdicts = verdicts_of(options.fail_on)
    # A gate of each night must fail once per change: at the run that makes the change robust.
    news = [
        (one, change)
        for one in series
        for change in one.changes
        if change.cell.verdict in verdicts
        and change.robust_from is not None
        and (runs[change.robust_from].started >= options.since if options.since else change.robust_from == last)
    ]
    failing = tuple((one, change) for one, change in news if not one.is_baseline or one.stack in options.stacks)
    confounding = () if options.stacks else tuple((one, change) for one, change in news if one.is_baseline)
    before = {key for run in runs[:-1] for key in run.cells}
    lost = tuple(sorted(runs[-1].lost & before))
    outcome: GateOutcome = "passed"
    if failing or lost:
        outcome = "failed"
    elif confounding or max(one.count for one in series) < MIN_RUNS:
        outcome = "cannot tell"
    elif any(one.count < MIN_RUNS for one in series):
        outcome = "undecided"
    return HistoryGate(options.fail_on, failing, lost, confounding, outcome)

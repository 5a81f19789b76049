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

from tare.features.compare.change_points import LEAST, ChangePoint, change_points, lasting
from tare.features.compare.changes import Sample, cell_like, sample
from tare.features.compare.comparability import differences, require_same_units, unlike_machines
from tare.features.compare.run_series import InFull, Key, alike, condensed, require_stacks
from tare.features.compare.two_runs import Kind, Passing, Question, verdicts_of
from tare.model.errors import TareError, UsageError
from tare.model.journal import RunRecord, load, load_record
from tare.statistics.cells import Cell, in_words
from tare.statistics.ratios import backwards, side_of

DIRECTIONS: tuple[Kind, ...] = ("worse", "better", "different")
LEAST_RUNS = 2 * LEAST
_NOTICED = 0.2  # correlation of neighboring runs


@dataclass(frozen=True)
class Step:
    """A change of level: `cell` has the ratio of after to before with its interval, and the verdict.

    The other numbers are places of runs in the history: the first of the new level, the earliest and the latest that it
    may be, and the one that brought it to light. `changed` is what else differs between the run before the earliest and
    the latest. From the run `firm` on, it would be found even if noise lasted from run to run (a correlation of 0.5);
    None if that is not so yet.
    """

    cell: Cell
    at: int
    earliest: int
    latest: int
    found: int
    firm: int | None
    changed: tuple[str, ...]


@dataclass(frozen=True)
class Series:
    """A stack in a headline: its cell in each run, None where it has no value, and the changes of its level.

    That of the baseline is `own`: its cells have the ratio to the first one.
    """

    headline: str
    stack: str
    own: bool
    cells: tuple[Cell | None, ...]
    steps: tuple[Step, ...] = ()

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

    fail_on: tuple[Kind, ...] = ()
    failing: tuple[tuple[Series, Step], ...] = ()
    lost: tuple[Key, ...] = ()
    moved: tuple[tuple[Series, Step], ...] = ()
    answer: Passing = "passed"


@dataclass(frozen=True)
class History:
    """The runs in the order of time, by folder and record, and what became of each stack and headline."""

    folders: tuple[Path, ...]
    records: tuple[RunRecord, ...]
    baseline: str
    margin: float
    series: tuple[Series, ...]
    statements: tuple[str, ...]
    gate: HistoryGate

    @property
    def steps(self) -> tuple[tuple[Series, Step], ...]:
        """All changes, each with its series, in the order of time."""
        every = [(one, step) for one in self.series for step in one.steps]
        return tuple(sorted(every, key=lambda each: each[1].at))


def history(folders: Sequence[Path], asked: Question, progress: Callable[[int], None]) -> History:
    """Follow stacks through runs, of which only one is in memory; raises UsageError or TareError.

    `progress` is told how many have been read.
    """
    ordered = _in_order(folders, asked)
    last = ordered[-1][1]
    baseline = asked.baseline or last.baseline
    runs: list[InFull] = []
    for number, (folder, _) in enumerate(ordered, start=1):
        runs.append(condensed(load(folder), baseline, asked.stacks, asked.margin, lambda cell, logs: (cell, logs)))
        progress(number)
    _require_alike(runs, asked, baseline)
    margin = last.margin if asked.margin is None else asked.margin
    kept, left_out = alike(runs)
    series = _series(kept, baseline, margin)
    if not any(not one.own or one.stack in asked.stacks for one in series):
        what = f"nothing can be compared with {baseline} in these runs"
        raise TareError(what, f"`tare show {runs[-1].folder}` lists the trials with their reasons")
    return History(
        folders=tuple(folder for folder, _ in ordered),
        records=tuple(record for _, record in ordered),
        baseline=baseline,
        margin=margin,
        series=series,
        statements=(*_suites(ordered), *left_out, *_doubts(series)),
        gate=_gate(asked, series, runs),
    )


def _in_order(folders: Sequence[Path], asked: Question) -> list[tuple[Path, RunRecord]]:
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
        apart = unlike_machines(before.machine, after.machine, ("before", "after"))
        if apart and not asked.across_machines:
            raise UsageError(
                f"{one} and {other} are of unlike machines: {'; '.join(apart)}",
                "follow the runs of one machine, or say --across-machines",
            )
    return ordered


def _require_alike(runs: Sequence[InFull], asked: Question, baseline: str) -> None:
    """Raise UsageError where values are no values of the same, or no run has what was asked for."""
    for before, after in pairwise(runs):
        if before.cells and before.is_copy_of(after):
            raise UsageError(f"{before.folder} and {after.folder} are the same run", "name each run once")
    require_same_units(unit for run in runs for unit in run.units)
    require_stacks(runs, asked.stacks)
    if not asked.stacks and all(set(run.stacks) == {baseline} for run in runs):
        raise UsageError(f"the runs have no stack but {baseline}", f"follow it: --stack {baseline}")


def _suites(ordered: Sequence[tuple[Path, RunRecord]]) -> Iterator[str]:
    suites = list(dict.fromkeys(record.suite for _, record in ordered))
    if len(suites) > 1:
        yield f"the runs are of several suites: {', '.join(suites)}"


@dataclass(frozen=True)
class _Followed:
    """A stack in a headline: its cell in each run, the places of the runs that have a value, and these values."""

    cells: tuple[Cell | None, ...]
    places: tuple[int, ...]
    samples: tuple[Sample, ...]

    @property
    def last(self) -> Cell:
        """The last value."""
        return next(cell for cell in reversed(self.cells) if cell is not None)


def _series(runs: Sequence[InFull], baseline: str, margin: float) -> tuple[Series, ...]:
    """Follow each stack in each headline. The changes of level hold for all series together."""
    keys = dict.fromkeys(key for run in reversed(runs) for key in run.cells)
    followed = {key: _followed(runs, key, baseline) for key in sorted(keys, key=lambda key: key[1] == baseline)}
    differ = cache(lambda earliest, latest, stack: _differences(runs, earliest, latest, {stack, baseline}))
    series = []
    for (headline, stack), one in followed.items():
        means = np.array([each.mean for each in one.samples])
        errors = np.array([each.deviation / np.sqrt(each.count) for each in one.samples])
        steps = []
        for point in change_points(means, errors, len(followed)):
            changed = differ(one.places[point.earliest - 1], one.places[point.latest], stack)
            steps.append(_step(one, point, margin, changed))
        series.append(Series(headline, stack, stack == baseline, one.cells, tuple(steps)))
    return tuple(series)


def _followed(runs: Sequence[InFull], key: Key, baseline: str) -> _Followed:
    """Collect the values of a stack; of the baseline, cells have the ratio to the first value."""
    found = [run.cells.get(key) for run in runs]
    own = key[1] == baseline
    samples = [sample(logs, None if own else cell.widening) for cell, logs in filter(None, found)]
    cells = [
        replace(each[0], ratio=backwards(float(each[1].mean()) - samples[0].mean)) if each and own else each and each[0]
        for each in found
    ]
    return _Followed(tuple(cells), tuple(place for place, each in enumerate(found) if each), tuple(samples))


def _differences(runs: Sequence[InFull], earliest: int, latest: int, stacks: set[str]) -> tuple[str, ...]:
    return differences(load(runs[earliest].folder), load(runs[latest].folder), stacks)


def _step(one: _Followed, point: ChangePoint, margin: float, changed: tuple[str, ...]) -> Step:
    side = side_of(point.step, point.half, float(np.log1p(margin)))
    if side not in ("equivalent", "more", "less"):  # more runs have widened it since it was found
        side = "more" if point.step > 0 else "less"
    last, finite = one.last, np.isfinite(point.half)
    cell = cell_like(
        last,
        in_words(side, last.better),
        n=len(one.places),
        ratio=backwards(point.step),
        low=backwards(point.step - point.half) if finite else None,
        high=backwards(point.step + point.half) if finite else None,
    )
    at, earliest, latest, found = (one.places[each] for each in (point.at, point.earliest, point.latest, point.found))
    firm = None if point.firm is None else one.places[point.firm]
    return Step(cell, at, earliest, latest, found, firm, changed)


def _doubts(series: Sequence[Series]) -> Iterator[str]:
    """State that runs resemble the ones before them, where they do: then noise looks like a change."""
    correlation, by_chance = lasting([piece for one in series for piece in _pieces(one)], len(series))
    if correlation > max(by_chance, _NOTICED):
        yield (
            f"each run resembles the one before it, beside the changes (correlation {correlation:.1f}): "
            "what lasts for some runs may look like a change"
        )


def _pieces(one: Series) -> Iterator[NDArray[np.float64]]:
    """Yield the logarithms of a series between its changes."""
    ends = [0, *(step.at for step in one.steps), len(one.cells)]
    for begin, end in pairwise(ends):
        ratios = [cell.ratio for cell in one.cells[begin:end] if cell is not None and cell.ratio is not None]
        yield np.log(np.array(ratios, dtype=float))


def _gate(asked: Question, series: Sequence[Series], runs: Sequence[InFull]) -> HistoryGate:
    if not asked.fail_on:
        return HistoryGate()
    last = len(runs) - 1
    verdicts = verdicts_of(asked.fail_on)
    news = [
        (one, step)
        for one in series
        for step in one.steps
        if step.cell.verdict in verdicts
        and step.firm is not None
        and (runs[step.firm].started >= asked.since if asked.since else step.firm == last)
    ]
    judged = tuple((one, step) for one, step in news if not one.own or one.stack in asked.stacks)
    moved = () if asked.stacks else tuple((one, step) for one, step in news if one.own)
    before = {key for run in runs[:-1] for key in run.cells}
    lost = tuple(sorted(runs[-1].lost & before))
    answer: Passing = "passed"
    if judged or lost:
        answer = "failed"
    elif moved or max(one.count for one in series) < LEAST_RUNS:
        answer = "cannot tell"
    return HistoryGate(asked.fail_on, judged, lost, moved, answer)

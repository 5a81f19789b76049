"""Trials behind each value of the page, and percentiles of single starts.

The page must stay small however many trials a run has. Therefore the cells share fixed numbers of rows and characters
of raw output; `values.csv`, `turns.csv` and `tare show` have the rest.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from tare.model.errors import UsageError
from tare.model.run_folder import Run, WorkloadRecord, load_raw
from tare.model.trial import MeasuredValue, RawOutput, Trial
from tare.model.units import format_duration, format_quantity
from tare.report.html.sparklines import TurnDrawings, draw_trace
from tare.report.numbers import choose_scale, point
from tare.report.trial_facts import group_commands
from tare.statistics.descriptive import min_percentile_count, percentile
from tare.statistics.summarize import workload_records
from tare.statistics.summary import Summary
from tare.telemetry.parquet import telemetry_files

_ROWS, _LETTERS = 500, 80_000  # of the whole page
_MAX_ROWS, _MAX_LETTERS = 40, 3000  # of a cell
_POINTS, _MIN_POINTS = 4_500, 20  # of the lines of telemetry of the whole page, and of one of them
_MAX_CELLS = 500
_COLUMNS = 6
_TURNS = 40
_OUTPUTS = 2


Anchors = Mapping[tuple[str, str], str]
"""Anchor of the trials of each workload and stack; without pairs that have no trials."""
_WORKLOAD, _METRIC = "startup", "total"
_PERCENTS = (50, 95, 99)


def trial_anchors(summary: Summary, run: Run) -> Anchors:
    """Return the anchor of each cell with trials that were not skipped; empty if there are too many for a page."""
    tried = {(trial.workload, trial.stack) for trial in run.trials if trial.status != "skipped"}
    if len(tried) > _MAX_CELLS:
        return {}
    return {
        (workload, stack): f"trials-{at}-{number}"
        for at, workload in enumerate(summary.workloads)
        for number, stack in enumerate(summary.stacks)
        if (workload, stack) in tried
    }


def trial_rows(
    summary: Summary, run: Run, anchors: Anchors, turns: Mapping[str, TurnDrawings]
) -> Mapping[str, list[Mapping[str, Any]]]:
    """Return the trials of all cells by workload; their blocks link to the drawings of turns."""
    trials_by_cell: dict[tuple[str, str], list[Trial]] = {cell: [] for cell in anchors}
    for trial in run.trials:
        if (trial.workload, trial.stack) in trials_by_cell:
            trials_by_cell[trial.workload, trial.stack].append(trial)
    cells = max(len(trials_by_cell), 1)
    rows = min(max(_ROWS // cells, 3), _MAX_ROWS)
    letters, points = min(_LETTERS // cells, _MAX_LETTERS), max(_POINTS // cells, _MIN_POINTS)
    units = {record.name: record.sweep.unit if record.sweep else "" for record in workload_records(run)}
    by_workload: dict[str, list[Mapping[str, Any]]] = {workload: [] for workload in summary.workloads}
    for (workload, stack), trials in trials_by_cell.items():
        shown = _choose_columns(summary, workload, trials)
        ok = next((trial for trial in trials if trial.status == "ok"), trials[0])
        traced = draw_trace(run, ok, points)
        by_workload[workload].append(
            {
                "anchor": anchors[workload, stack],
                "stack": stack,
                "count": _count_turns(trials),
                "columns": [_column_title(value, units[workload]) for value in shown],
                "rows": [_trial_row(run, trial, shown, turns.get(workload)) for trial in trials[:rows]],
                "more": max(len(trials) - rows, 0),
                "example": {
                    "trial": ok.trial,
                    "turns": list(_turn_value_texts(ok, shown, units[workload])),
                    "commands": "\n".join(_shell_lines(ok)),
                    "outputs": list(_output_excerpts(run, ok, letters)),
                    "trace": traced.svg if traced else "",
                    "used": traced.caption if traced else "",
                },
            }
        )
    return by_workload


def _count_turns(trials: Sequence[Trial]) -> str:
    states = [trial.status for trial in trials]
    return ", ".join(f"{states.count(state)} {state}" for state in ("ok", "failed") if state in states)


def _choose_columns(summary: Summary, workload: str, trials: Sequence[Trial]) -> tuple[MeasuredValue, ...]:
    """Return the values that are columns: of the headlines' metrics, evenly from the first to the last point."""
    names = {name for rule in summary.rules_of(workload) for name in rule.metrics}
    first = next((trial for trial in trials if trial.values), None)
    values = [value for value in first.values if not names or value.metric in names] if first else []
    if len(values) <= _COLUMNS:
        return tuple(values)
    return tuple(values[round(at * (len(values) - 1) / (_COLUMNS - 1))] for at in range(_COLUMNS))


def _column_title(value: MeasuredValue, unit: str) -> str:
    return f"{value.metric} at {point(value.point, unit)}" if value.point is not None else value.metric


def _trial_row(
    run: Run, trial: Trial, columns: Sequence[MeasuredValue], turns: TurnDrawings | None
) -> Mapping[str, Any]:
    """Return the row of a trial: block, anchor of its turns (`strip`), values of the columns, outcome and links."""
    values = {(value.metric, value.point): value for value in trial.values}
    cautions = ", ".join(dict.fromkeys(caution.kind for caution in trial.cautions))
    file = next(telemetry_files(run.folder, trial), None)
    return {
        "trial": trial.trial,
        "block": trial.block + 1,
        "strip": turns.of(trial.block) if turns else "",
        "numbers": [_format_value(values.get((value.metric, value.point))) for value in columns],
        "turns": _describe_turns(trial),
        "became": "; ".join(filter(None, ("" if trial.status == "ok" else trial.status, trial.reason, cautions))),
        "raw": _file_link(run, f"raw/{trial.trial}.json"),
        "telemetry": _file_link(run, f"telemetry/{file.name}") if file else "",
    }


def _format_value(value: MeasuredValue | None) -> str:
    return "" if value is None or not math.isfinite(value.value) else format_quantity(value.value, value.unit)


def _describe_turns(trial: Trial) -> str:
    """Describe a trial's turns: their number, total time, and largest share of steal time; "" without turns."""
    turns = [turn for turn in trial.turns if not turn.warm_up]
    if not turns:
        return ""
    seconds = sum(turn.seconds for turn in turns)
    steal = max(turn.steal or 0.0 for turn in turns)
    taken = f" in {format_duration(round(seconds, 2))}" if math.isfinite(seconds) else ""
    return f"{len(turns)}{taken}" + (f", up to {100 * steal:.0f} % steal time" if steal >= 0.01 else "")


def _file_link(run: Run, name: str) -> str:
    """Return the link from the page to a file of the run; "" if there is no such file."""
    folder, _, file = name.partition("/")
    # The names come from an untrusted journal: a slash could lead out of the folder.
    if "/" in file or "\0" in file or not (run.folder / folder / file).is_file():
        return ""
    return quote(f"{run.path_from_report}/{folder}/{file}")


def _turn_value_texts(trial: Trial, columns: Sequence[MeasuredValue], unit: str) -> Iterator[tuple[str, str]]:
    """Yield each column's title and the values of its turns in one unit."""
    values = {(value.metric, value.point): value for value in trial.values}
    for column in columns:
        value = values.get((column.metric, column.point))
        if value is None or not value.turns or not all(map(math.isfinite, value.turns)):
            continue
        chosen = choose_scale(max(map(abs, value.turns)), value.unit)
        numbers = ", ".join(f"{turn / chosen.factor:.4g}" for turn in value.turns[:_TURNS])
        more = f" … and {len(value.turns) - _TURNS} more" if len(value.turns) > _TURNS else ""
        yield _column_title(value, unit), f"{numbers}{more} {chosen.label}".strip()


def _shell_lines(trial: Trial) -> Iterable[str]:
    """Yield the commands of a trial as lines of a shell; similar commands are summed up in a comment."""
    for group in group_commands(trial.commands):
        yield shlex.join(group.first)
        if group.more:
            yield f"# … {group.rest}"


def _output_excerpts(run: Run, trial: Trial, letters: int) -> Iterator[tuple[str, str]]:
    """Yield the first labels with their first output, cut to `letters` characters in all."""
    if not _file_link(run, f"raw/{trial.trial}.json"):
        return
    try:
        raw = load_raw(run.folder, trial.trial)
    except UsageError as error:
        yield "raw output", str(error)
        return
    first: dict[str, RawOutput] = {}
    for each in raw:
        if not each.warm_up:
            first.setdefault(each.label, each)
    for each in list(first.values())[:_OUTPUTS]:
        text = each.text.strip("\n")
        room = letters // _OUTPUTS
        rest = f"\n… and {len(text) - room} more characters" if len(text) > room else ""
        yield each.label, text[:room] + rest


def start_rows(summary: Summary, run: Run, record: WorkloadRecord) -> list[tuple[str, int, list[str]]]:
    """Return each stack with its number of starts and their 50th, 95th and 99th percentiles as text.

    Empty for a workload other than `startup`.
    """
    if record.use != _WORKLOAD:
        return []
    starts: dict[str, list[float]] = {stack: [] for stack in summary.stacks}
    for trial in run.trials:
        if trial.workload == record.name and trial.status == "ok":
            for value in trial.values:
                seconds = (value.turns or (value.value,)) if value.metric == _METRIC else ()
                starts[trial.stack] += filter(math.isfinite, seconds)  # the run may be untrusted
    return [
        (stack, len(times), [_format_percentile(times, percent) for percent in _PERCENTS])
        for stack, times in starts.items()
        if times
    ]


def _format_percentile(starts: Sequence[float], percent: int) -> str:
    seconds = percentile(starts, percent)
    return f"needs {min_percentile_count(percent)} starts" if seconds is None else format_duration(seconds)

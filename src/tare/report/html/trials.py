"""Trials behind each number, in full, and single starts as percentiles.

The page has to stay small, however many trials a run has. So the rows and the raw output of each cell share a room;
`values.csv`, `turns.csv` and `tare show` have the rest.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from tare.model.errors import UsageError
from tare.model.journal import Run, WorkloadRecord, load_raw
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
"""The place of the trials of each workload and stack; nothing for a pair without trials."""
_WORKLOAD, _METRIC = "startup", "total"
_PERCENTS = (50, 95, 99)


def trial_anchors(summary: Summary, run: Run) -> Anchors:
    """Name the place of every cell that has trials, skipped ones apart; none where one page cannot hold so many."""
    there = {(trial.workload, trial.stack) for trial in run.trials if trial.status != "skipped"}
    if len(there) > _MAX_CELLS:
        return {}
    return {
        (workload, stack): f"trials-{at}-{number}"
        for at, workload in enumerate(summary.workloads)
        for number, stack in enumerate(summary.stacks)
        if (workload, stack) in there
    }


def trial_rows(
    summary: Summary, run: Run, anchors: Anchors, turns: Mapping[str, TurnDrawings]
) -> Mapping[str, list[Mapping[str, Any]]]:
    """Return the trials of all cells, by workload; their blocks lead to the turns that are shown."""
    own: dict[tuple[str, str], list[Trial]] = {cell: [] for cell in anchors}
    for trial in run.trials:
        if (trial.workload, trial.stack) in own:
            own[trial.workload, trial.stack].append(trial)
    cells = max(len(own), 1)
    rows = min(max(_ROWS // cells, 3), _MAX_ROWS)
    letters, points = min(_LETTERS // cells, _MAX_LETTERS), max(_POINTS // cells, _MIN_POINTS)
    units = {record.name: record.sweep.unit if record.sweep else "" for record in workload_records(run)}
    found: dict[str, list[Mapping[str, Any]]] = {workload: [] for workload in summary.workloads}
    for (workload, stack), trials in own.items():
        shown = _choose_columns(summary, workload, trials)
        ok = next((trial for trial in trials if trial.status == "ok"), trials[0])
        traced = draw_trace(run, ok, points)
        found[workload].append(
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
    return found


def _count_turns(trials: Sequence[Trial]) -> str:
    states = [trial.status for trial in trials]
    return ", ".join(f"{states.count(state)} {state}" for state in ("ok", "failed") if state in states)


def _choose_columns(summary: Summary, workload: str, trials: Sequence[Trial]) -> tuple[MeasuredValue, ...]:
    """Choose what is shown of each trial: values of the headlines' metrics, from the first to the last point."""
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
    """Return a trial: its block, whose turns are at `strip`, the values of the columns, and what became of it."""
    found = {(value.metric, value.point): value for value in trial.values}
    kinds = ", ".join(dict.fromkeys(caution.kind for caution in trial.cautions))
    file = next(telemetry_files(run.folder, trial), None)
    return {
        "trial": trial.trial,
        "block": trial.block + 1,
        "strip": turns.of(trial.block) if turns else "",
        "numbers": [_format_value(found.get((value.metric, value.point))) for value in columns],
        "turns": _describe_turns(trial),
        "became": "; ".join(filter(None, ("" if trial.status == "ok" else trial.status, trial.reason, kinds))),
        "raw": _file_link(run, f"raw/{trial.trial}.json"),
        "telemetry": _file_link(run, f"telemetry/{file.name}") if file else "",
    }


def _format_value(value: MeasuredValue | None) -> str:
    return "" if value is None or not math.isfinite(value.value) else format_quantity(value.value, value.unit)


def _describe_turns(trial: Trial) -> str:
    """Describe how many turns there were, how long they took, and the largest share of steal time."""
    own = [turn for turn in trial.turns if not turn.warm_up]
    if not own:
        return ""
    seconds = sum(turn.seconds for turn in own)
    steal = max(turn.steal or 0.0 for turn in own)
    taken = f" in {format_duration(round(seconds, 2))}" if math.isfinite(seconds) else ""
    return f"{len(own)}{taken}" + (f", up to {100 * steal:.0f} % steal time" if steal >= 0.01 else "")


def _file_link(run: Run, name: str) -> str:
    """Return the link to a file of the run from its page; empty where it has none."""
    folder, _, own = name.partition("/")
    if "/" in own or "\0" in own or not (run.folder / folder / own).is_file():
        return ""
    return quote(f"{run.path_from_report}/{folder}/{own}")


def _turn_value_texts(trial: Trial, columns: Sequence[MeasuredValue], unit: str) -> Iterator[tuple[str, str]]:
    """Yield the values of the turns of each column, in one unit."""
    found = {(value.metric, value.point): value for value in trial.values}
    for column in columns:
        value = found.get((column.metric, column.point))
        if value is None or not value.turns or not all(map(math.isfinite, value.turns)):
            continue
        chosen = choose_scale(max(map(abs, value.turns)), value.unit)
        numbers = ", ".join(f"{turn / chosen.factor:.4g}" for turn in value.turns[:_TURNS])
        more = f" … and {len(value.turns) - _TURNS} more" if len(value.turns) > _TURNS else ""
        yield _column_title(value, unit), f"{numbers}{more} {chosen.label}".strip()


def _shell_lines(trial: Trial) -> Iterable[str]:
    """Yield the lines of a shell; those of further turns are a comment."""
    for kind in group_commands(trial.commands):
        yield shlex.join(kind.first)
        if kind.more:
            yield f"# … {kind.rest}"


def _output_excerpts(run: Run, trial: Trial, letters: int) -> Iterator[tuple[str, str]]:
    """Yield the first output of the first labels that hold a value, cut to the room that there is."""
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
        rest = f"\n… and {len(text) - room} more letters" if len(text) > room else ""
        yield each.label, text[:room] + rest


def start_rows(summary: Summary, run: Run, record: WorkloadRecord) -> list[tuple[str, int, list[str]]]:
    """Return each stack with its number of starts, and their 50th, 95th and 99th percentile as text.

    Nothing for a workload that is not about starts.
    """
    if record.use != _WORKLOAD:
        return []
    starts: dict[str, list[float]] = {stack: [] for stack in summary.stacks}
    for trial in run.trials:
        if trial.workload == record.name and trial.status == "ok":
            for value in trial.values:
                own = (value.turns or (value.value,)) if value.metric == _METRIC else ()
                starts[trial.stack] += filter(math.isfinite, own)  # the run may be untrusted
    return [
        (stack, len(found), [_format_percentile(found, percent) for percent in _PERCENTS])
        for stack, found in starts.items()
        if found
    ]


def _format_percentile(starts: Sequence[float], percent: int) -> str:
    found = percentile(starts, percent)
    return f"needs {min_percentile_count(percent)} starts" if found is None else format_duration(found)

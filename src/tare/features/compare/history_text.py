"""Answer of `tare history`: ratios of stacks from run to run, and changes of their level."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

from tare.features.compare.history import MIN_RUNS, HeadlineSeries, History, LevelChange
from tare.report.answer import Answer, AnswerColumn, AnswerRow, Gate
from tare.report.data_files import run_fields
from tare.report.numbers import GLYPHS, cut, format_interval, format_ratio, join_some
from tare.report.terminal import STYLES
from tare.statistics.cells import Cell

_BARS = "▁▂▃▄▅▆▇█"
_MISSING = "·"
_NONE = "\N{EN DASH}"
_MAX_BARS = 30
_MAX_CHANGED_CHARACTERS = 400  # of the list of other differences at a change
_COLUMNS = (
    AnswerColumn("workload", "name"),
    AnswerColumn("stack", "name"),
    AnswerColumn("now"),
    AnswerColumn("interval"),
    AnswerColumn("runs"),
    AnswerColumn("run by run", "text", only_wide=True),
    AnswerColumn("last change", "text"),
)


@dataclass(frozen=True)
class LevelChangeGroup:
    """Changes of several series at the same run, with the runs that they lie between and the differences of these."""

    at: int
    earliest: int
    latest: int
    changes: tuple[tuple[HeadlineSeries, LevelChange], ...]
    other_differences: tuple[str, ...]


def group_level_changes(history: History) -> tuple[LevelChangeGroup, ...]:
    """Return the changes of all series, grouped by run, in order of time."""
    by_run: dict[int, list[tuple[HeadlineSeries, LevelChange]]] = {}
    for one, step in history.changes:
        by_run.setdefault(step.at, []).append((one, step))
    return tuple(
        LevelChangeGroup(
            at=at,
            earliest=min(step.earliest for _, step in steps),
            latest=max(step.latest for _, step in steps),
            changes=tuple(steps),
            other_differences=tuple(dict.fromkeys(text for _, step in steps for text in step.other_differences)),
        )
        for at, steps in by_run.items()
    )


def answer(history: History) -> Answer:
    """Return the answer of `tare history`: its table, sentences and gate."""
    gate = _gate(history)
    return Answer(
        command="history",
        columns=_COLUMNS,
        rows=tuple(_row(history, one) for one in history.series),
        legend=(
            f"change from {history.baseline} in each run, 95 % interval; {history.baseline} itself: from its first "
            "run; ↑ more is better, ↓ less is better; last change: relative to the runs before it"
        ),
        remarks=_remarks(history),
        conclusions=tuple(filter(None, (_sentence(history), _baseline_sentence(history), gate.sentence))),
        fields=partial(_document, history, gate),
        gate=gate,
        styled="last change",
    )


def _sentence(history: History) -> str:
    """Return the result as one sentence: the series that changed, or that none did."""
    followed = [one for one in history.series if not one.is_baseline]
    moved = [one for one in followed if one.changes]
    span = f"Over {len(history.folders)} runs from {run_day(history, 0)} to {run_day(history, -1)}"
    if not moved:
        return f"{span}, no change was found in {len(followed)} series."
    texts = [f"{series_name(one)} ({_describe_change(one.changes[-1])})" for one in moved]
    return f"{span}, {len(moved)} of {len(followed)} series changed: {join_some(texts)}."


def _baseline_sentence(history: History) -> str:
    """Describe the changes of the baseline itself; "" if there are none."""
    moved = [(one, step) for one, step in history.changes if one.is_baseline]
    if not moved:
        return ""
    texts = [f"{one.headline} ({_describe_change(step)} since {run_day(history, step.at)})" for one, step in moved]
    return f"{history.baseline} itself changed in {join_some(texts)}: the program or the machine has changed."


def _gate(history: History) -> Gate:
    """Return the gate with the changes that failed it, or the reason why it cannot tell."""
    gate, why, hint = history.gate, "no such change was confirmed", ""
    if gate.outcome == "failed":
        failing = [
            f"{series_name(one)} ({_describe_change(step)} since {run_day(history, step.at)})"
            for one, step in gate.failing
        ]
        why = join_some([*failing, *(f"{stack} in {headline} (lost)" for headline, stack in gate.lost)])
    elif gate.confounding:
        why = f"{gate.confounding[0][0].stack} itself has changed"
        hint = (
            f"judge it like the others: --stack {history.baseline}, or find out what changed for all (docs/compare.md)"
        )
    elif gate.outcome == "cannot tell":
        why = f"no stack has values in {MIN_RUNS} runs, but in {max(one.count for one in history.series)} at most"
        hint = f"measure {MIN_RUNS} runs or more"
    elif gate.outcome == "undecided":
        short = [series_name(one) for one in history.series if one.count < MIN_RUNS]
        why = f"no change was confirmed, but values in fewer than {MIN_RUNS} runs cannot show any: {join_some(short)}"
        hint = f"measure {MIN_RUNS} runs or more"
    return Gate(gate.fail_on, gate.outcome, why, hint)


def describe_level_changes(history: History, group: LevelChangeGroup) -> str:
    """Describe the changes at a run, with the runs that they lie between, and the differences between these runs."""
    texts = [f"{series_name(one)} ({_describe_change(step)})" for one, step in group.changes]
    place = f"since {run_time(history, group.at)}"
    if group.earliest != group.latest:
        place += f" (or a run between {run_time(history, group.earliest)} and {run_time(history, group.latest)})"
    changed = cut("; ".join(group.other_differences), _MAX_CHANGED_CHARACTERS) or "nothing that tare records"
    return f"{place}: {join_some(texts)}; changed at the same time: {changed}"


def series_name(series: HeadlineSeries) -> str:
    """Return the name of a series in sentences, such as `docker in redis`."""
    return f"{series.stack} in {series.headline}"


def run_day(history: History, index: int) -> str:
    """Return the day of a run as YYYY-MM-DD."""
    return history.records[index].started[:10]


def run_time(history: History, index: int) -> str:
    """Return the start of a run: its day, or day and minute if other runs started on that day."""
    days = [record.started[:10] for record in history.records]
    return history.records[index].started[: 10 if days.count(days[index]) == 1 else 16].replace("T", " ")


def _row(history: History, series: HeadlineSeries) -> AnswerRow:
    last, step, change, style = series.latest, series.changes[-1] if series.changes else None, _NONE, "dim"
    if step is not None:
        change = f"{GLYPHS[step.cell.verdict]} {_describe_change(step)} since {run_time(history, step.at)}"
        change += f", {len(series.changes) - 1} before" if len(series.changes) > 1 else ""
        style = STYLES.get(step.cell.verdict, "dim")
    title = f"{series.headline} {'↑' if last.better == 'higher' else '↓'}"
    bounds = "" if series.is_baseline else format_interval(last)
    return AnswerRow(
        (title, series.stack, format_ratio(last), bounds, str(series.count), _draw_bars(series), change), style
    )


def _draw_bars(series: HeadlineSeries) -> str:
    """Return the last 30 values of a series as block characters between its least and most, `·` without a value."""
    ratios = [None if cell is None or cell.ratio is None else math.log(cell.ratio) for cell in series.cells]
    shown = ratios[-_MAX_BARS:]
    known = [ratio for ratio in shown if ratio is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    if high - low < math.log1p(0.01):  # nearly equal values stay in the middle: noise must not fill the range
        low, high = (low + high) / 2 - 0.01, (low + high) / 2 + 0.01
    return "".join(
        _MISSING if ratio is None else _BARS[min(int((ratio - low) / (high - low) * len(_BARS)), len(_BARS) - 1)]
        for ratio in shown
    )


def _remarks(history: History) -> tuple[str, ...]:
    """Return the notes below the table: changes with their runs, and statements about the runs."""
    sentences = [describe_level_changes(history, event) for event in group_level_changes(history)]
    if any(step.robust_from is None for _, step in history.changes):
        sentences.append("?: noise that lasts from run to run (a correlation of 0.5) may explain it")
    return (*sentences, *history.statements)


def _document(history: History, gate: Gate) -> dict[str, Any]:
    """Return the fields of the JSON output. Runs are in order of time; a series has an entry per run, or null."""
    return {
        "baseline": history.baseline,
        "margin": history.margin,
        "runs": [run_fields(*each) for each in zip(history.folders, history.records, strict=True)],
        "series": [
            _series_fields(one)
            | {"own": one.is_baseline, "values": [_value_fields(cell) for cell in one.cells]}
            | {"changes": [_change_fields(history, step) for step in one.changes]}
            for one in history.series
        ],
        "answer": _sentence(history),
        "baseline_answer": _baseline_sentence(history) or None,
        "remarks": history.statements,
        "gate": gate.fields
        | {
            "changes": [_series_fields(one) | _change_fields(history, step) for one, step in history.gate.failing],
            "lost": [{"headline": headline, "stack": stack} for headline, stack in history.gate.lost],
            "baseline_changes": [
                _series_fields(one) | _change_fields(history, step) for one, step in history.gate.confounding
            ],
        },
    }


def _value_fields(cell: Cell | None) -> dict[str, Any] | None:
    if cell is None:
        return None
    return {"estimate": cell.ratio, "interval": _interval(cell), "n": cell.n, "decision": cell.verdict}


def _change_fields(history: History, change: LevelChange) -> dict[str, Any]:
    folders = {
        key: str(history.folders[index])
        for key, index in (("from", change.at), ("earliest", change.earliest), ("latest", change.latest))
    }
    return folders | {
        "found": str(history.folders[change.detected_at]),
        "estimate": change.cell.ratio,
        "interval": _interval(change.cell),
        "decision": change.cell.verdict,
        "firm": None if change.robust_from is None else str(history.folders[change.robust_from]),
        "changed": change.other_differences,
    }


def _interval(cell: Cell) -> list[float] | None:
    return None if cell.low is None or cell.high is None else [cell.low, cell.high]


def _series_fields(series: HeadlineSeries) -> dict[str, Any]:
    return {"workload": series.latest.workload, "headline": series.headline, "stack": series.stack}


def _describe_change(change: LevelChange) -> str:
    """Format a change: `worse, -4.6 % [-6.1, -3.2]`, with a `?` if it is not robust."""
    ratio = f"{format_ratio(change.cell)} {format_interval(change.cell)}".rstrip()
    return f"{change.cell.verdict}{' ?' if change.robust_from is None else ''}, {ratio}"

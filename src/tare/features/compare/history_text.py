"""Answer of `tare history`: how stacks stood from run to run, and where their level changed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

from tare.features.compare.history import LEAST_RUNS, History, Series, Step
from tare.report.answer import Answer, Column, Gate, Row
from tare.report.data_files import run_fields
from tare.report.numbers import GLYPHS, cut, estimate, interval, some_of
from tare.report.terminal import STYLES
from tare.statistics.cells import Cell

_BARS = "▁▂▃▄▅▆▇█"
_MISSING = "·"
_NONE = "\N{EN DASH}"
_MOST_BARS = 30
_CHANGED = 400  # letters of what changed beside a step
_COLUMNS = (
    Column("workload", "name"),
    Column("stack", "name"),
    Column("now"),
    Column("interval"),
    Column("runs"),
    Column("run by run", "text", only_wide=True),
    Column("last change", "text"),
)


@dataclass(frozen=True)
class Event:
    """Changes of level at one place: the runs that they lie between, and what else differs between these."""

    at: int
    earliest: int
    latest: int
    steps: tuple[tuple[Series, Step], ...]
    changed: tuple[str, ...]


def events(found: History) -> tuple[Event, ...]:
    """Return the changes of all series, those at one run together, in the order of time."""
    at_once: dict[int, list[tuple[Series, Step]]] = {}
    for one, step in found.steps:
        at_once.setdefault(step.at, []).append((one, step))
    return tuple(
        Event(
            at=at,
            earliest=min(step.earliest for _, step in steps),
            latest=max(step.latest for _, step in steps),
            steps=tuple(steps),
            changed=tuple(dict.fromkeys(text for _, step in steps for text in step.changed)),
        )
        for at, steps in at_once.items()
    )


def answer(found: History) -> Answer:
    """Return what `tare history` found as an answer."""
    gate = _gate(found)
    return Answer(
        command="history",
        columns=_COLUMNS,
        rows=tuple(_row(found, one) for one in found.series),
        legend=(
            f"percent of {found.baseline} in each run, 95 % interval; {found.baseline} itself: percent of its first "
            "run; ↑ more is better, ↓ less is better; a change holds for all series and all looks together"
        ),
        remarks=_remarks(found),
        conclusions=tuple(filter(None, (_sentence(found), _own_sentence(found), gate.sentence))),
        fields=partial(_document, found, gate),
        gate=gate,
        styled="last change",
    )


def _sentence(found: History) -> str:
    """Describe in one sentence what came of it."""
    followed = [one for one in found.series if not one.own]
    moved = [one for one in followed if one.steps]
    span = f"Through {len(found.folders)} runs from {day(found, 0)} to {day(found, -1)}"
    if not moved:
        return f"{span}, none of {len(followed)} series is found to have changed its level."
    texts = [f"{name(one)} ({_in_words(one.steps[-1])})" for one in moved]
    return f"{span}, {len(moved)} of {len(followed)} series changed: {some_of(texts)}."


def _own_sentence(found: History) -> str:
    """Describe the changes of the baseline's own values; empty where there are none."""
    moved = [(one, step) for one, step in found.steps if one.own]
    if not moved:
        return ""
    texts = [f"{one.headline} ({_in_words(step)} from {day(found, step.at)} on)" for one, step in moved]
    return f"{found.baseline} itself changed in {some_of(texts)}: the program has changed, or the machine."


def _gate(found: History) -> Gate:
    """Describe the gate: what failed it, or why it cannot tell."""
    gate, why, hint = found.gate, "no such change has become firm", ""
    if gate.answer == "failed":
        failing = [f"{name(one)} ({_in_words(step)} from {day(found, step.at)} on)" for one, step in gate.failing]
        why = some_of([*failing, *(f"{stack} in {headline} (lost)" for headline, stack in gate.lost)])
    elif gate.moved:
        why = f"{gate.moved[0][0].stack} itself has changed"
        hint = f"judge it like the others: --stack {found.baseline}, or find out what changed for all (docs/history.md)"
    elif gate.answer == "cannot tell":
        why = f"no stack has values in {LEAST_RUNS} runs, but in {max(one.count for one in found.series)} at most"
        hint = f"a change shows from {LEAST_RUNS} runs on"
    return Gate(gate.fail_on, gate.answer, why, hint)


def event_sentence(found: History, event: Event) -> str:
    """Describe changes at one place, with the runs that they lie between, and what else differs between these."""
    texts = [f"{name(one)} ({_in_words(step)})" for one, step in event.steps]
    place = f"from {when(found, event.at)} on"
    if event.earliest != event.latest:
        place += f", or from one of {when(found, event.earliest)} to {when(found, event.latest)} on"
    changed = cut("; ".join(event.changed), _CHANGED) or "nothing else that tare knows of"
    return f"{place}: {some_of(texts)}. What changed with it: {changed}"


def name(one: Series) -> str:
    """Name a one as sentences do."""
    return f"{one.stack} in {one.headline}"


def day(found: History, place: int) -> str:
    """Return the day of a run."""
    return found.records[place].started[:10]


def when(found: History, place: int) -> str:
    """Name a run by its time, to the minute where its day has others."""
    days = [record.started[:10] for record in found.records]
    return found.records[place].started[: 10 if days.count(days[place]) == 1 else 16].replace("T", " ")


def _row(found: History, one: Series) -> Row:
    last, step, change, style = one.latest, one.steps[-1] if one.steps else None, _NONE, "dim"
    if step is not None:
        change = f"{GLYPHS[step.cell.verdict]} {_in_words(step)} from {when(found, step.at)} on"
        change += f", {len(one.steps) - 1} before" if len(one.steps) > 1 else ""
        style = STYLES.get(step.cell.verdict, "dim")
    title = f"{one.headline} {'↑' if last.better == 'higher' else '↓'}"
    bounds = "" if one.own else interval(last)
    return Row((title, one.stack, estimate(last), bounds, str(one.count), _bars(one), change), style)


def _bars(one: Series) -> str:
    """Draw the last values of a one as small bars, from its least to its most; a point for a run without one."""
    ratios = [None if cell is None or cell.ratio is None else math.log(cell.ratio) for cell in one.cells]
    shown = ratios[-_MOST_BARS:]
    known = [ratio for ratio in shown if ratio is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    if high - low < math.log1p(0.01):  # all alike: in the middle
        low, high = (low + high) / 2 - 0.01, (low + high) / 2 + 0.01
    return "".join(
        _MISSING if ratio is None else _BARS[min(int((ratio - low) / (high - low) * len(_BARS)), len(_BARS) - 1)]
        for ratio in shown
    )


def _remarks(found: History) -> tuple[str, ...]:
    """Return all that is to be known beside the table."""
    sentences = [event_sentence(found, event) for event in events(found)]
    if any(step.firm is None for _, step in found.steps):
        sentences.append("?: noise that lasts from run to run (a correlation of 0.5) may explain it")
    return (*sentences, *found.statements)


def _document(found: History, gate: Gate) -> dict[str, Any]:
    """Return what JSON has. Runs are in the order of time; a series has an entry for each, null without a value."""
    return {
        "baseline": found.baseline,
        "margin": found.margin,
        "runs": [run_fields(*each) for each in zip(found.folders, found.records, strict=True)],
        "series": [
            _place(one)
            | {"own": one.own, "values": [_value(cell) for cell in one.cells]}
            | {"changes": [_step(found, step) for step in one.steps]}
            for one in found.series
        ],
        "answer": _sentence(found),
        "baseline_answer": _own_sentence(found) or None,
        "remarks": found.statements,
        "gate": gate.fields
        | {
            "changes": [_place(one) | _step(found, step) for one, step in found.gate.failing],
            "lost": [{"headline": headline, "stack": stack} for headline, stack in found.gate.lost],
            "baseline_changes": [_place(one) | _step(found, step) for one, step in found.gate.moved],
        },
    }


def _value(cell: Cell | None) -> dict[str, Any] | None:
    if cell is None:
        return None
    return {"estimate": cell.ratio, "interval": _interval(cell), "n": cell.n, "decision": cell.verdict}


def _step(found: History, step: Step) -> dict[str, Any]:
    folders = {
        which: str(found.folders[place])
        for which, place in (("from", step.at), ("earliest", step.earliest), ("latest", step.latest))
    }
    return folders | {
        "found": str(found.folders[step.found]),
        "estimate": step.cell.ratio,
        "interval": _interval(step.cell),
        "decision": step.cell.verdict,
        "firm": None if step.firm is None else str(found.folders[step.firm]),
        "changed": step.changed,
    }


def _interval(cell: Cell) -> list[float] | None:
    return None if cell.low is None or cell.high is None else [cell.low, cell.high]


def _place(one: Series) -> dict[str, Any]:
    return {"workload": one.latest.workload, "headline": one.headline, "stack": one.stack}


def _in_words(step: Step) -> str:
    """Write what a series is now: `worse, 95.4 % [93.9, 96.8] of before`; with a mark where it is not firm."""
    found = f"{estimate(step.cell)} {interval(step.cell)}".rstrip()
    return f"{step.cell.verdict}{' ?' if step.firm is None else ''}, {found} of before"

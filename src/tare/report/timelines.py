"""Lines through the runs of a history: what each stack had of the baseline, run by run, and where that changed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import altair as alt

from tare.answers.history import History, Series
from tare.report.looks import (
    DASHES,
    FACTORS,
    INK,
    SHAPES,
    STACKS,
    VERDICTS,
    WIDTH,
    Rows,
    Spec,
    by_stack,
    data,
    finished,
    ratio_scale,
)
from tare.report.numbers import estimate, interval

_HEIGHT = 220
_ROOM = 0.75  # of the axis of time, in runs, beyond the first and the last one
_MANY = 40  # runs from which on a one has no marks
_LABELS = 12


def timeline(found: History, headline: str, stacks: Sequence[str]) -> Spec | None:
    """Draw the series of a headline; a dashed rule stands where one changed. None where no one has two values.

    `stacks` are all of the history, which fix their colors.
    """
    series = [one for one in found.series if one.headline == headline]
    rows: Rows = [row for one in series for row in _rows(found, one)]
    if len({row["run"] for row in rows}) < 2:
        return None
    shown = ratio_scale([row[end] for row in rows for end in ("low", "ratio", "high")])
    count = len(found.records)
    every = max(1, -(-count // _LABELS))
    labels = [_day(record.started) for record in found.records]
    names = f"{json.dumps(labels)}[datum.value] || ''"
    axis = alt.Axis(values=list(range(0, count, every)), labelExpr=names, grid=False, labelOverlap=True)
    x = alt.X("run:Q", title="run, by its day", axis=axis, scale=alt.Scale(domain=[-_ROOM, count - 1 + _ROOM]))
    y = alt.Y("ratio:Q", title=None, scale=shown, axis=alt.Axis(labelExpr=FACTORS, tickCount=6))
    present = [stack for stack in stacks if any(row["stack"] == stack for row in rows)]
    legend = alt.Legend(title=None, symbolOpacity=1, orient="top", columns=3)
    color = alt.Color("stack:N", sort=present, scale=by_stack(present, stacks, STACKS), legend=legend)
    shape = alt.Shape("stack:N", sort=present, scale=by_stack(present, stacks, SHAPES), legend=legend)
    dash = alt.StrokeDash("stack:N", scale=_dashes(present, stacks), legend=None)
    base = alt.Chart(data(rows), width=2 * WIDTH, height=_HEIGHT)
    few = count <= _MANY
    level = alt.Chart(data([{"one": 1.0}])).mark_rule(color=INK, strokeDash=[4, 3], aria=False)
    layers = [
        level.encode(y=alt.Y("one:Q", title=None, scale=shown)),
        *_steps(series, x, shown),
        base.mark_rule(strokeWidth=1.2, aria=False, opacity=0.6).encode(
            x=x, y=alt.Y("low:Q", title=None, scale=shown), y2="high:Q", color=color
        ),
        base.mark_line(strokeWidth=1.8, aria=False).encode(x=x, y=y, color=color, strokeDash=dash, detail="piece:N"),
        base.mark_point(filled=True, size=45 if few else 12, opacity=1, aria=few).encode(
            x=x, y=y, color=color, shape=shape, **({"description": alt.Description("text:N")} if few else {})
        ),
    ]
    better = "more" if series[0].latest.better == "higher" else "less"
    title = f"{headline}, percent of {found.baseline}, {better} is better"
    return finished(alt.layer(*layers).properties(title=title))


def _day(started: str) -> str:
    """Return the month and the day; nothing of what an untrusted folder may have in their place."""
    return started[5:10] if re.fullmatch(r"\d\d-\d\d", started[5:10], re.ASCII) else ""


def _dashes(present: Sequence[str], stacks: Sequence[str]) -> alt.Scale:
    dashes = [DASHES[stacks.index(stack) // len(STACKS) % len(DASHES)] for stack in present]
    return alt.Scale(domain=list(present), range=dashes)


def _rows(found: History, one: Series) -> Rows:
    """Return a row for each value; a run without one ends a piece of the one."""
    rows: Rows = []
    piece = 0
    for place, cell in enumerate(one.cells):
        if cell is None or cell.ratio is None:
            piece += 1
            continue
        text = f"{one.stack}, {found.records[place].started[:10]}: {estimate(cell)} {interval(cell)}".rstrip()
        ends = (cell.ratio, cell.ratio) if one.own else (cell.low or cell.ratio, cell.high or cell.ratio)
        rows.append(
            {"run": place, "stack": one.stack, "piece": piece, "ratio": cell.ratio, "text": text}
            | {"low": ends[0], "high": ends[1]}
        )
    return rows


def _steps(series: Sequence[Series], x: alt.X, shown: alt.Scale) -> list[alt.Chart]:
    """Draw a rule before the run at which a one changed, and at its new level the glyph of its verdict."""
    marks: Rows = []
    for one in series:
        for step in one.steps:
            cell = one.cells[step.at]
            if cell is not None and cell.ratio is not None:
                look, shape = VERDICTS[step.cell.verdict]
                place = {"run": step.at - 0.5, "ratio": cell.ratio, "color": look, "shape": shape}
                marks.append(place | {"text": f"{one.stack}: {step.cell.verdict}, {estimate(step.cell)} of before"})
    if not marks:
        return []
    base = alt.Chart(data(marks))
    color = alt.Color("color:N", scale=None)
    return [
        base.mark_rule(strokeDash=[2, 3], strokeWidth=1.5, aria=False).encode(x=x, color=color),
        base.mark_point(filled=True, size=90, opacity=1).encode(
            x=x,
            y=alt.Y("ratio:Q", title=None, scale=shown),
            color=color,
            shape=alt.Shape("shape:N", scale=None),
            description=alt.Description("text:N"),
        ),
    ]

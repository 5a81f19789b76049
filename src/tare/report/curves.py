"""Charts of values along something: a sweep, the percentiles of a latency, or the time of a load.

They are those of the papers: the 2017 paper's Figures 3 and 5 (throughput against clients, mean ± SD), the OSv paper's
Figures 2 to 4 (answers and latency against the rate of requests, with the SD shaded), and VTmark's Figures 6 (percent
of bare metal against processes) and 8 (answers by their kind, on a logarithmic axis).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import altair as alt

from tare.model.trials import Sweep
from tare.report.looks import (
    DASHES,
    FACTORS,
    INK,
    NUMBER,
    SHAPES,
    SIZES,
    STACKS,
    THOUSANDS,
    WIDTH,
    Rows,
    Spec,
    by_stack,
    data,
    finished,
    log_scale,
    ratio_scale,
)
from tare.report.numbers import estimate, interval, plus_minus, point, scale
from tare.statistics.cells import Cell

_HEIGHT = 220
_DENSE = 12  # points from which on spreads are shaded, as lines would hide each other
_DESCRIBED = 150  # marks whose values a pointer shows; each takes some 200 bytes of the page
_ORDERS = 50.0  # times and memory are drawn on a logarithmic axis from this spread on
_PANEL, _EMPTY_PANEL = 130, 24
_MARKED = 12  # moments of a line along time, of which one has a mark


@dataclass(frozen=True)
class Along:
    """What is drawn, along what: the metric's title, the sweep, and all stacks of the run, which fix their colors."""

    title: str
    swept: Sweep
    stacks: Sequence[str]


class _Upward(NamedTuple):
    """The axis of the values; its title stands above the chart, where it can be as long as it is."""

    title: str
    scale: alt.Scale
    axis: alt.Axis


class Percentile(NamedTuple):
    """A percentile of a stack's latency: its name, its place among the others, and seconds."""

    stack: str
    name: str
    seconds: float


class Rate(NamedTuple):
    """How many answers of a kind a stack gave each second, at a moment of the load."""

    stack: str
    kind: str
    second: float
    rate: float


def sweep(
    cells: Sequence[Cell], along: Along, spreads: Mapping[tuple[str, float | None], float] | None = None
) -> Spec | None:
    """Draw means against the points of a sweep, a line for each stack, with the SD over trials.

    With `spreads`, the SD within trials by stack and point, one of them above the mean is shaded in its place.
    """
    shown = [cell for cell in cells if cell.mean is not None and cell.point is not None]
    if len({cell.point for cell in shown}) < 2 or not any(cell.mean for cell in shown):
        return None
    unit = scale(max(abs(cell.mean or 0.0) for cell in shown), shown[0].unit)
    rows: Rows = [_sweep_row(cell, along.swept, unit.factor, spreads) for cell in shown]
    above = [row["mean"] for row in rows if row["mean"] > 0]
    orders = shown[0].unit in ("s", "bytes") and len(above) == len(rows) and max(above) > _ORDERS * min(above)
    if orders:
        rows = [row | {"low": max(row["low"], min(above) / 2)} for row in rows]
    spread = "mean, shaded: one SD above it" if spreads is not None else "mean ± SD"
    axis = log_scale(min(row["low"] for row in rows), max(row["high"] for row in rows)) if orders else alt.Scale()
    upward = _Upward(f"{along.title}, {unit.label} ({spread})", axis, alt.Axis(format=NUMBER, tickCount=6))
    layers = _lines(rows, along, upward, shaded=spreads is not None or len({row["point"] for row in rows}) > _DENSE)
    if is_answered(shown[0], along.swept):
        layers.insert(0, _as_asked(rows, unit.factor))
    return finished(alt.layer(*layers).properties(title=upward.title))


def is_answered(cell: Cell, swept: Sweep) -> bool:
    """Return whether values could follow what is swept: answers to a rate of requests, of which more is better."""
    return cell.unit == swept.unit != "" and cell.better == "higher"


def percents(cells: Sequence[Cell], along: Along, baseline: str) -> Spec | None:
    """Draw the percent of the baseline against the points of a sweep, with the intervals."""
    shown = [cell for cell in cells if cell.ratio and cell.point is not None and cell.verdict != "baseline"]
    if len({cell.point for cell in shown}) < 2:
        return None
    rows: Rows = [
        {"stack": c.stack, "point": c.point, "mean": c.ratio, "low": c.low or c.ratio, "high": c.high or c.ratio}
        | {"text": f"{_at(c, along.swept)}: {estimate(c)} {interval(c)}".rstrip()}
        for c in shown
    ]
    axis = ratio_scale([row[name] for row in rows for name in ("low", "mean", "high")])
    title = f"{along.title}, percent of {baseline}"
    upward = _Upward(title, axis, alt.Axis(labelExpr=FACTORS, tickCount=6))
    level = alt.Chart(data([{"one": 1.0}])).mark_rule(color=INK, strokeDash=[4, 3], aria=False)
    shaded = len({row["point"] for row in rows}) > _DENSE
    lines = _lines(rows, along, upward, shaded=shaded)
    return finished(alt.layer(level.encode(y=alt.Y("one:Q", title=None, scale=axis)), *lines).properties(title=title))


def percentiles(found: Sequence[Percentile], stacks: Sequence[str]) -> Spec | None:
    """Draw the latency of each stack from percentile to percentile, on a logarithmic axis."""
    names = list(dict.fromkeys(each.name for each in found))
    above = [each.seconds for each in found if each.seconds > 0]
    if len(names) < 3 or len(above) < len(found):
        return None
    unit = scale(max(above), "s")
    rows: Rows = [each._asdict() | {"value": each.seconds / unit.factor} for each in found]
    ends = [min(above) / unit.factor, max(above) / unit.factor]
    x = alt.X("name:N", sort=names, title="percentile", axis=alt.Axis(labelAngle=0), scale=alt.Scale(padding=0.3))
    y = alt.Y(
        "value:Q",
        title=None,
        scale=log_scale(*ends),
        axis=alt.Axis(format=NUMBER, tickCount=6),
    )
    color, shape = _looks([each.stack for each in found], stacks)
    base = alt.Chart(data(rows), width=WIDTH - 50, height=_HEIGHT)
    layers = [
        _dashed(
            base.mark_line(strokeWidth=1.8, aria=False).encode(x=x, y=y, color=color),
            [each.stack for each in found],
            stacks,
        ),
        base.mark_point(filled=True, size=55, opacity=1).encode(x=x, y=y, color=color, shape=shape),
    ]
    return finished(alt.layer(*layers).properties(title=f"latency, {unit.label}"))


def kinds(rates: Sequence[Rate], stacks: Sequence[str]) -> Spec | None:
    """Draw a panel for each kind of answer along the time of a load, on an axis that is logarithmic above one."""
    if len({rate.second for rate in rates}) < 2:
        return None
    color, shape = _looks([rate.stack for rate in rates], stacks)
    present = list(dict.fromkeys(rate.stack for rate in rates))
    names = list(dict.fromkeys(rate.kind for rate in rates))
    panels = []
    for name in names:
        own: Rows = [rate._asdict() for rate in rates if rate.kind == name]
        most = max(row["rate"] for row in own)
        x = alt.X("second:Q", title="seconds since the load began" if name == names[-1] else None)
        ticks = [0, 1, *(10**power for power in range(1, 10) if 10**power <= most)]
        y = alt.Y(
            "rate:Q",
            title=None,
            scale=alt.Scale(type="symlog", domain=[0, max(1.0, most)]),
            axis=alt.Axis(values=ticks, format=",d"),
        )
        title = f"{name}, each second{'' if most else ': none'}"
        height = _PANEL if most else _EMPTY_PANEL
        base = alt.Chart(data(own))
        line = base.mark_line(strokeWidth=1.4, aria=False).encode(x=x, y=y, color=color)
        points = alt.Chart(data(_described_apart(own, present))).mark_point(filled=True, size=45, opacity=1, aria=False)
        marks = points.encode(x=x, y=y, color=color, shape=shape)
        panels.append(
            alt.layer(_dashed(line, present, stacks), marks).properties(title=title, width=WIDTH - 20, height=height)
        )
    return finished(alt.vconcat(*panels, spacing=12))


def _described_apart(rows: Rows, stacks: Sequence[str]) -> Rows:
    """Choose the moments that have the shape of their stack: some of each line, not those of the next one."""
    own = [[row for row in rows if row["stack"] == stack] for stack in stacks]
    return [row for at, line in enumerate(own) for row in line[at * _MARKED // len(own) :: _MARKED]]


def _sweep_row(
    cell: Cell, swept: Sweep, factor: float, spreads: Mapping[tuple[str, float | None], float] | None
) -> dict[str, Any]:
    mean, spread = cell.mean or 0.0, cell.sd or 0.0
    low = mean - spread if spreads is None else mean
    high = mean + (spread if spreads is None else spreads.get((cell.stack, cell.point), 0.0))
    ends = {"mean": mean / factor, "low": low / factor, "high": high / factor}
    text = f"{_at(cell, swept)}: {plus_minus(mean, cell.sd, cell.unit)}"
    return {"stack": cell.stack, "point": cell.point, "text": text} | ends


def _at(cell: Cell, swept: Sweep) -> str:
    return f"{cell.stack} at {point(cell.point, swept.unit)}"


def _lines(rows: Rows, along: Along, upward: _Upward, *, shaded: bool) -> list[Any]:
    """Draw a line with marks and spreads for each stack."""
    points = sorted({row["point"] for row in rows})
    wide = points[0] > 0 and points[-1] / points[0] > 20
    labels = SIZES if along.swept.unit == "bytes" else THOUSANDS
    axis = alt.Axis(values=points, labelExpr=labels, labelOverlap=True, labelSeparation=4, grid=False)
    unit = along.swept.unit
    name = f"{along.swept.name}, {unit}" if unit and unit != "bytes" else along.swept.name
    along_x = alt.Scale(type="log" if wide else "linear", nice=False, padding=12)
    x = alt.X("point:Q", title=name, axis=axis, scale=along_x)
    if along.swept.name == "percentile":  # 99 and 99.9 are as far from each other as 90 and 99
        x = alt.X("point:O", title=name, axis=alt.Axis(labelAngle=0), scale=alt.Scale(padding=0.3))
    y = alt.Y("mean:Q", title=None, scale=upward.scale, axis=upward.axis)
    color, shape = _looks([row["stack"] for row in rows], along.stacks)
    base = alt.Chart(data(rows), width=WIDTH - 50, height=_HEIGHT)
    spread = base.mark_area(opacity=0.16, aria=False) if shaded else base.mark_rule(strokeWidth=1.2, aria=False)
    described = len(rows) <= _DESCRIBED
    return [
        spread.encode(x=x, y=alt.Y("low:Q", title=None, scale=upward.scale), y2="high:Q", color=color),
        _dashed(
            base.mark_line(strokeWidth=1.8, aria=False).encode(x=x, y=y, color=color),
            [row["stack"] for row in rows],
            along.stacks,
        ),
        base.mark_point(filled=True, size=55 if described else 18, opacity=1, aria=described).encode(
            x=x, y=y, color=color, shape=shape, **({"description": alt.Description("text:N")} if described else {})
        ),
    ]


def _as_asked(rows: Rows, factor: float) -> Any:
    """Draw where a value would be if it followed what was asked for, as far as values reach."""
    most = max(row["high"] for row in rows)
    asked: Rows = [{"point": at, "mean": at / factor} for at in sorted({row["point"] for row in rows})]
    line = alt.Chart(data([row for row in asked if row["mean"] <= most] or asked[:1]))
    return line.mark_line(color=INK, strokeDash=[4, 3], opacity=0.6, strokeWidth=1, aria=False).encode(
        x="point:Q", y=alt.Y("mean:Q", title=None)
    )


def _looks(seen: Sequence[str], stacks: Sequence[str]) -> tuple[alt.Color, alt.Shape]:
    present = [stack for stack in stacks if stack in set(seen)]
    legend = alt.Legend(title=None, symbolOpacity=1)
    return (
        alt.Color("stack:N", sort=present, scale=by_stack(present, stacks, STACKS), legend=legend),
        alt.Shape("stack:N", sort=present, scale=by_stack(present, stacks, SHAPES), legend=legend),
    )


def _dashed(line: alt.Chart, seen: Sequence[str], stacks: Sequence[str]) -> alt.Chart:
    """Dash the lines of stacks whose color another one has: there are more stacks than colors."""
    present = [stack for stack in stacks if stack in set(seen)]
    if len(stacks) <= len(STACKS):
        return line
    dashes = [DASHES[stacks.index(stack) // len(STACKS) % len(DASHES)] for stack in present]
    scale = alt.Scale(domain=present, range=dashes)
    return line.encode(strokeDash=alt.StrokeDash("stack:N", sort=present, scale=scale, legend=alt.Legend(title=None)))

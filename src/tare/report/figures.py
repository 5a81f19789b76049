"""Charts as Vega-Lite specifications, made with Altair from cells and trials.

`tare.report.curves` has those over a sweep or over time, `tare.report.looks` the style of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt

from tare.report.looks import (
    DOT,
    FACTORS,
    INK,
    NUMBER,
    ROW_HEIGHT,
    SAME,
    STACKS,
    VERDICTS,
    WIDE,
    WIDTH,
    WORSE,
    Rows,
    Spec,
    data,
    finished,
    log_scale,
    ratio_scale,
)
from tare.report.numbers import estimate, interval, plus_minus, scale
from tare.statistics.cells import Cell
from tare.statistics.stalls import SLOW


class Dot(NamedTuple):
    """A raw value of a trial: one dot of a strip."""

    stack: str
    block: int
    value: float


class Phase(NamedTuple):
    """What a stack's start takes until a mark of the timeline, from the mark before."""

    stack: str
    mark: str
    seconds: float


class Total(NamedTuple):
    """What a stack's start takes in all, with the text beside its bar."""

    stack: str
    seconds: float
    text: str


class Bar(NamedTuple):
    """What a stack costs with a workload."""

    stack: str
    workload: str
    value: float


class TurnBar(NamedTuple):
    """A turn of a stack: its share of the usual speed, the stolen share of the CPU time, and its description."""

    stack: str
    began: float
    seconds: float
    speed: float
    steal: float
    text: str

    @property
    def pace(self) -> str:
        """How fast it was, in words; `SLOWEST` if a fifth or more of the speed was missing."""
        return SLOWEST if self.speed <= 1 - SLOW else SLOWER if self.speed <= 1 - SLOW / 2 else USUAL


# What an instance does until each mark of its timeline; the last color is for marks that only one technology knows.
MARKS = ("outer layers", "engine", "started", "kernel", "userspace", "ready")
PHASES = ("#5A3CC3", "#695A2D", "#56B4E9", "#0072B2", "#E69F00", "#009E73", "#CC79A7")
# How fast a turn was, and the row below.
USUAL, SLOWER, SLOWEST = "usual speed", f"{50 * SLOW:g} % slower or more", f"{100 * SLOW:g} % slower or more"
STOLEN = "stolen CPU time"
PACES = {USUAL: DOT, SLOWER: "#E69F00", SLOWEST: WORSE, STOLEN: SAME}
_WIDE_WIDTH = 960
_TURN_HEIGHT = 16
VISIBLE = 0.01  # of the CPU time
_MOST_MARKS = 140  # in a chart: each takes some 250 bytes of the page


def thinned(values: Sequence[Any], most: int) -> Sequence[Any]:
    """Leave at most so many values, evenly spaced: a chart of very many is a blot, and makes the page large."""
    return values[:: -(-len(values) // most)] if len(values) > most else values


def fewer(dots: Sequence[Dot]) -> Sequence[Dot]:
    """Leave as many dots of each stack as a chart can show."""
    own: dict[str, list[Dot]] = {}
    for dot in dots:
        own.setdefault(dot.stack, []).append(dot)
    return [dot for each in own.values() for dot in thinned(each, max(_MOST_MARKS // len(own), 1))]


def ratios(cells: Sequence[Cell], baseline: str) -> Spec | None:
    """Draw each stack's ratio to the baseline with its interval, and the blocks' ratios faintly beside it."""
    shown = [cell for cell in cells if cell.ratio is not None and cell.verdict != "baseline"]
    if not shown:
        return None
    stacks = [cell.stack for cell in shown]
    rows: Rows = [
        {"stack": c.stack, "ratio": c.ratio, "low": c.low or c.ratio, "high": c.high or c.ratio, "verdict": c.verdict}
        | {"text": f"{c.stack}: {estimate(c)} {interval(c)}, {c.verdict}"}
        for c in shown
    ]
    ticks = max(_MOST_MARKS // len(shown), 1)
    blocks: Rows = [{"stack": cell.stack, "ratio": ratio} for cell in shown for ratio in thinned(cell.ratios, ticks)]
    known = [row[name] for row in rows for name in ("low", "high")] + [row["ratio"] for row in blocks]
    axis = ratio_scale(known)
    direction = "more is better" if shown[0].better == "higher" else "less is better"
    x = alt.X(
        "ratio:Q",
        title=f"percent of {baseline}, {direction}",
        scale=axis,
        axis=alt.Axis(labelExpr=FACTORS, tickCount=6, labelOverlap=True, labelSeparation=6),
    )
    y = alt.Y("stack:N", sort=stacks, title=None)
    color = _by_verdict(alt.Color, 0)
    base = alt.Chart(data(rows), width=WIDTH, height=alt.Step(ROW_HEIGHT))
    layers = [
        alt.Chart(data([{"one": 1.0}]))
        .mark_rule(color=INK, strokeDash=[4, 3], aria=False)
        .encode(x=alt.X("one:Q", scale=axis)),
        alt.Chart(data(blocks)).mark_tick(color=INK, opacity=0.3, height=10, thickness=1, aria=False).encode(x=x, y=y),
        base.mark_rule(strokeWidth=2.5, aria=False).encode(x=alt.X("low:Q", scale=axis), x2="high:Q", y=y, color=color),
        base.mark_point(filled=True, size=85, opacity=1).encode(
            x=x, y=y, color=color, shape=_by_verdict(alt.Shape, 1), description=alt.Description("text:N")
        ),
    ]
    return finished(alt.layer(*layers))


def strip(cells: Sequence[Cell], dots: Sequence[Dot], title: str) -> Spec | None:
    """Draw the raw values of one metric off the sweep, and the mean of each stack."""
    shown = [cell for cell in cells if cell.mean is not None]
    if not shown or not dots:
        return None
    unit = scale(max(abs(dot.value) for dot in dots), shown[0].unit)
    rows: Rows = [dot._asdict() | {"value": dot.value / unit.factor} for dot in dots]
    means: Rows = [{"stack": cell.stack, "mean": (cell.mean or 0.0) / unit.factor} for cell in shown]
    least, most = min(row["value"] for row in rows), max(row["value"] for row in rows)
    wide = least > 0 and most / least > 2 * WIDE
    axis = log_scale(least, most) if wide else alt.Scale(zero=False, nice=True)
    label = f"{title}, {unit.label}" if unit.label else title
    x = alt.X("value:Q", title=label, scale=axis, axis=alt.Axis(format=NUMBER, tickCount=5, labelOverlap=True))
    y = alt.Y("stack:N", sort=[cell.stack for cell in shown], title=None)
    points = alt.Chart(data(rows), width=WIDTH, height=alt.Step(ROW_HEIGHT)).mark_circle(
        size=42, opacity=0.7, color=DOT
    )
    ticks = alt.Chart(data(means)).mark_tick(color=INK, height=16, thickness=2)
    detail = alt.Detail("block:Q")
    return finished(alt.layer(points.encode(x=x, y=y, detail=detail), ticks.encode(x=alt.X("mean:Q", scale=axis), y=y)))


def starts(phases: Sequence[Phase], totals: Sequence[Total]) -> Spec | None:
    """Draw the stacked phases of each stack, with its total."""
    if not phases:
        return None
    unit = scale(max(total.seconds for total in totals), "s")
    names = sorted({phase.mark for phase in phases}, key=_rank)
    rows: Rows = [
        {"stack": each.stack, "phase": each.mark, "time": each.seconds / unit.factor, "rank": _rank(each.mark)}
        for each in phases
    ]
    ends: Rows = [total._asdict() | {"time": total.seconds / unit.factor} for total in totals]
    y = alt.Y("stack:N", sort=[total.stack for total in totals], title=None)
    axis = alt.Axis(format=NUMBER, tickCount=5, labelOverlap=True)
    x = alt.X("time:Q", title=f"{unit.label} since the request", stack="zero", axis=axis)
    palette = alt.Scale(domain=names, range=[PHASES[_rank(name)] for name in names])
    legend = alt.Legend(title=None, orient="top", columns=4)
    color = alt.Color("phase:N", sort=names, scale=palette, legend=legend)
    bars = alt.Chart(data(rows), width=WIDTH, height=alt.Step(ROW_HEIGHT)).mark_bar(height=15)
    texts = alt.Chart(data(ends)).mark_text(align="left", dx=5, color=INK, fontSize=11, aria=False)
    return finished(
        alt.layer(
            bars.encode(x=x, y=y, color=color, order=alt.Order("rank:Q")),
            texts.encode(x=alt.X("time:Q"), y=y, text="text:N"),
        )
    )


def bars(costs: Sequence[Bar], title: str, unit: str) -> Spec | None:
    """Draw the bars, those of a stack together."""
    most = max((bar.value for bar in costs), default=0.0)
    if most <= 0:
        return None
    chosen = scale(most, unit)
    rows: Rows = [
        bar._asdict() | {"value": bar.value / chosen.factor, "text": plus_minus(bar.value, None, unit)} for bar in costs
    ]
    workloads = list(dict.fromkeys(bar.workload for bar in costs))
    y = alt.Y("stack:N", sort=list(dict.fromkeys(bar.stack for bar in costs)), title=None)
    x = alt.X("value:Q", title=f"{title}, {chosen.label}", axis=alt.Axis(format=NUMBER, tickCount=5))
    offset = alt.YOffset("workload:N", sort=workloads)
    palette = alt.Scale(domain=workloads, range=[STACKS[index % len(STACKS)] for index in range(len(workloads))])
    color = alt.Color("workload:N", sort=workloads, scale=palette, legend=alt.Legend(title=None, orient="top"))
    base = alt.Chart(data(rows), width=WIDTH, height=alt.Step(9)).encode(x=x, y=y, yOffset=offset)
    texts = base.mark_text(align="left", dx=4, color=INK, fontSize=9, aria=False).encode(text="text:N")
    return finished(alt.layer(base.mark_bar().encode(color=color), texts))


def turns(bars: Sequence[TurnBar], stacks: Sequence[str]) -> Spec | None:
    """Draw turns along time, a row for each stack, and a last one of the stolen CPU time; a fast turn is thick."""
    if not bars:
        return None
    least = (max(bar.began + bar.seconds for bar in bars) - min(bar.began for bar in bars)) / _WIDE_WIDTH * 2
    rows: Rows = [_turn_row(bar, least, bar.stack, bar.speed, bar.pace) for bar in bars]
    taken: Rows = [_turn_row(bar, least, STOLEN, bar.steal, STOLEN) for bar in bars if bar.steal > VISIBLE]
    slow = [row | {"text": bar.text} for row, bar in zip(rows, bars, strict=True) if row["pace"] == SLOWEST]
    usual = [row for row in rows if row["pace"] != SLOWEST]
    present = [*stacks, *([STOLEN] if taken else [])]
    names = [name for name in PACES if any(row["pace"] == name for row in rows + taken)]
    palette = alt.Scale(domain=names, range=[PACES[name] for name in names])
    axis, along = alt.Axis(format=NUMBER, grid=False), alt.Scale(zero=False, nice=False)
    x = alt.X("began:Q", title="seconds since the block's first turn", axis=axis, scale=along)
    thick = alt.Scale(domain=[0, 1], range=[0, _TURN_HEIGHT])
    places = {
        "x": x,
        "x2": "ended:Q",
        "y": alt.Y("stack:N", sort=present, title=None, scale=alt.Scale(domain=present)),
        "size": alt.Size("share:Q", scale=thick, legend=None),
        "color": alt.Color("pace:N", sort=names, scale=palette, legend=alt.Legend(title=None, orient="top")),
    }
    layers = [
        alt.Chart(data(marks), width=_WIDE_WIDTH, height=alt.Step(ROW_HEIGHT))
        .mark_bar(aria=described)
        .encode(**places, **({"description": alt.Description("text:N")} if described else {}))
        for marks, described in ((usual + taken, False), (slow, True))
        if marks
    ]
    return finished(alt.layer(*layers))


def _turn_row(bar: TurnBar, least: float, row: str, share: float, pace: str) -> dict[str, Any]:
    """Return what is drawn of a turn: as wide as can be seen, and no thicker than its row."""
    ended = bar.began + max(bar.seconds, least)
    return {
        "stack": row,
        "began": round(bar.began, 3),
        "ended": round(ended, 3),
        "share": round(min(share, 1.2), 2),
        "pace": pace,
    }


def _rank(name: str) -> int:
    return MARKS.index(name) if name in MARKS else len(MARKS)


def _by_verdict(channel: Any, column: int) -> Any:
    palette = alt.Scale(domain=list(VERDICTS), range=[look[column] for look in VERDICTS.values()])
    return channel("verdict:N", scale=palette, legend=None)

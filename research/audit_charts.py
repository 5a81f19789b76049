"""The charts of research/audit.md, as SVG on white: a file that a page shows does not know the page's colors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from tare.report.looks import FONT, INK, SHAPES, STACKS

Rows = list[dict[str, Any]]
Chart = alt.LayerChart | alt.FacetChart


def blocks(rows: Rows, methods: Sequence[str], effects: Sequence[str]) -> Chart:
    """Draw the median number of blocks by effect and method, with a line up to the 95th percentile."""
    x = alt.X("effect:N", sort=list(effects), title="true effect", axis=alt.Axis(labelAngle=0))
    offset = alt.XOffset("method:N", sort=list(methods))
    scaled = alt.Scale(type="log", domain=[2, 64], nice=False)
    y = alt.Y("median:Q", title="blocks until decided: median, 95th percentile", scale=scaled)
    base = alt.Chart(alt.InlineData(values=rows), width=520, height=260).encode(
        x=x, xOffset=offset, color=_color(methods)
    )
    return alt.layer(base.mark_rule(strokeWidth=1.5).encode(y=y, y2="most:Q"), _points(base, methods).encode(y=y))


def false(rows: Rows, methods: Sequence[str], kinds: Sequence[str]) -> Chart:
    """Draw the share of false decisions by noise and method, and the line of what is allowed."""
    x = alt.X(
        "false:Q",
        title="false decisions without any effect",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(format="%", tickCount=6),
    )
    y = alt.Y("kind:N", sort=list(kinds), title=None)
    base = alt.Chart(alt.InlineData(values=rows), width=440, height=alt.Step(26)).encode(y=y, color=_color(methods))
    line = (
        alt.Chart(alt.InlineData(values=[{"false": 0.05}]))
        .mark_rule(color=INK, strokeDash=[4, 3])
        .encode(x=alt.X("false:Q"))
    )
    return alt.layer(line, _points(base, methods).encode(x=x))


def coverage(rows: Rows, names: Sequence[str]) -> Chart:
    """Draw the share of runs in which an interval has missed the truth, by the number of looks."""
    x = alt.X("blocks:Q", title="blocks, with a look after each", scale=alt.Scale(domain=[0, 60]))
    y = alt.Y("missed:Q", title="runs whose interval missed the truth so far", axis=alt.Axis(format="%"))
    palette = alt.Scale(domain=list(names), range=list(STACKS))
    color = alt.Color("name:N", sort=list(names), scale=palette, legend=alt.Legend(title=None))
    base = alt.Chart(alt.InlineData(values=rows), width=440, height=280)
    line = alt.Chart(alt.InlineData(values=[{"missed": 0.05}])).mark_rule(color=INK, strokeDash=[4, 3])
    dash = alt.StrokeDash("name:N", sort=list(names), legend=None)
    return alt.layer(line.encode(y=alt.Y("missed:Q")), base.mark_line().encode(x=x, y=y, color=color, strokeDash=dash))


def save(chart: Chart, path: Path) -> None:
    """Write a chart as SVG."""
    text = {"labelColor": INK, "titleColor": INK, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"}
    styled = chart.configure(background="white", font=FONT, padding=8).configure_view(stroke=None)
    styled = styled.configure_axis(**text, gridOpacity=0.5, labelLimit=260).configure_legend(
        labelColor=INK, labelFontSize=12, labelLimit=260
    )
    path.write_text(vl_convert.vegalite_to_svg(styled.to_dict()), encoding="utf-8")


def _color(methods: Sequence[str]) -> alt.Color:
    palette = alt.Scale(domain=list(methods), range=list(STACKS[: len(methods)]))
    return alt.Color("method:N", sort=list(methods), scale=palette, legend=alt.Legend(title=None))


def _points(base: alt.Chart, methods: Sequence[str]) -> alt.Chart:
    looks = alt.Scale(domain=list(methods), range=[*SHAPES, "triangle-left"][: len(methods)])
    shape = alt.Shape("method:N", sort=list(methods), scale=looks, legend=alt.Legend(title=None))
    points: alt.Chart = base.mark_point(filled=True, size=70, opacity=1).encode(shape=shape)
    return points

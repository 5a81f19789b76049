"""The charts of research/audit.md, as SVG on white: a file that a page shows does not know the page's colors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tare.report.chart_svg import Area, Chart, RowChart, curve_area, group, legend, mark, path, px, text
from tare.report.chart_theme import Look, stack_look
from tare.report.curve_charts import equally_far
from tare.report.svg_axes import Scale, log_scale, number, scale_of

Rows = list[dict[str, Any]]


def blocks(rows: Rows, methods: Sequence[str], effects: Sequence[str]) -> Chart:
    """Draw the median number of blocks by effect and method, with a line up to the 95th percentile."""
    title = "blocks until decided: median, 95th percentile"
    up = log_scale(2 / 0.9, 64 / 1.1, number, (2, 4, 8, 16, 32, 64))
    area, parts = _upright((520, 260), equally_far(effects), up, methods, (title, "true effect"))
    for row in rows:
        at, look = methods.index(row["method"]), stack_look(row["method"], methods)
        x = area.x(effects.index(row["effect"]) + (at + 0.5) / len(methods) * 0.7 - 0.35)
        line = path(f"M{px(x)} {px(area.y(row['median']))}V{px(area.y(row['most']))}", "line")
        parts.append(group(look.color, [line, mark(x, area.y(row["median"]), look.shape)]))
    return area.chart(parts)


def false(rows: Rows, methods: Sequence[str], kinds: Sequence[str]) -> Chart:
    """Draw the share of false decisions by noise and method, and the line of what is allowed."""
    looks = {method: stack_look(method, methods) for method in methods}
    drawn = RowChart(kinds, scale_of(0.0, 1.0, _percent), looks, size=(440, 26))
    parts = [drawn.area.level(0.05)]
    for row in rows:
        look = looks[row["method"]]
        parts.append(group(look.color, [mark(drawn.area.x(row["false"]), drawn.y(row["kind"]), look.shape)]))
    return drawn.chart("false decisions without any effect", parts)


def coverage(rows: Rows, names: Sequence[str]) -> Chart:
    """Draw the share of runs in which an interval has missed the truth, by the number of looks."""
    titles = ("runs whose interval missed the truth so far", "blocks, with a look after each")
    up = scale_of(0.0, max(row["missed"] for row in rows) * 1.05, _percent)
    area, parts = _upright((440, 280), scale_of(0.0, 60.0, number), up, names, titles)
    parts.append(area.level(0.05))
    for name in names:
        places = [f"{px(area.x(row['blocks']))} {px(area.y(row['missed']))}" for row in rows if row["name"] == name]
        look = stack_look(name, names)
        parts.append(group(look.color, [path(f"M{'L'.join(places)}", "line", dash=look.dash)]))
    return area.chart(parts)


def save(chart: Chart, path: Path) -> None:
    """Write a chart as SVG."""
    white = Chart(chart.width, chart.height, ('<rect width="100%" height="100%" fill="#fff"/>', *chart.parts))
    path.write_text(white.file("A chart of the audit"), encoding="utf-8")


def _upright(
    size: tuple[float, float], across: Scale, up: Scale, series: Sequence[str], titles: tuple[str, str]
) -> tuple[Area, list[str]]:
    looks: dict[str, Look] = {name: stack_look(name, series) for name in series}
    parts, top = legend(looks, 6, size[0], 22)
    area = curve_area(top, size, across, up)
    return area, [text(titles[0], 6, 15), *parts, *area.axes(titles[1], grid=False)]


def _percent(share: float) -> str:
    return f"{share * 100:g} %"

"""The charts of research/audit.md, as SVG on white: a file that a page shows does not know the page's colors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tare.report.chart_svg import (
    Area,
    Chart,
    RowChart,
    create_curve_area,
    draw_colored_group,
    draw_legend,
    draw_mark,
    draw_path,
    draw_text,
    px,
)
from tare.report.chart_theme import SeriesStyle, stack_style
from tare.report.curve_charts import evenly_spaced_scale
from tare.report.svg_axes import Scale, format_tick, linear_scale, log_scale

Rows = list[dict[str, Any]]


def blocks(rows: Rows, methods: Sequence[str], effects: Sequence[str]) -> Chart:
    """Draw the median number of blocks by effect and method, with a line up to the 95th percentile."""
    title = "blocks until decided: median, 95th percentile"
    up = log_scale(2 / 0.9, 64 / 1.1, format_tick, (2, 4, 8, 16, 32, 64))
    area, parts = _upright((520, 260), evenly_spaced_scale(effects), up, methods, (title, "true effect"))
    for row in rows:
        at, look = methods.index(row["method"]), stack_style(row["method"], methods)
        x = area.x_of(effects.index(row["effect"]) + (at + 0.5) / len(methods) * 0.7 - 0.35)
        line = draw_path(f"M{px(x)} {px(area.y_of(row['median']))}V{px(area.y_of(row['most']))}", "line")
        parts.append(draw_colored_group(look.color, [line, draw_mark(x, area.y_of(row["median"]), look.shape)]))
    return area.create_chart(parts)


def false(rows: Rows, methods: Sequence[str], kinds: Sequence[str]) -> Chart:
    """Draw the share of false decisions by noise and method, and the line of what is allowed."""
    looks = {method: stack_style(method, methods) for method in methods}
    drawn = RowChart(kinds, linear_scale(0.0, 1.0, _percent), looks, size=(440, 26))
    parts = [drawn.area.draw_level(0.05)]
    for row in rows:
        look = looks[row["method"]]
        parts.append(
            draw_colored_group(
                look.color, [draw_mark(drawn.area.x_of(row["false"]), drawn.y_of(row["kind"]), look.shape)]
            )
        )
    return drawn.create_chart("false decisions without any effect", parts)


def coverage(rows: Rows, names: Sequence[str]) -> Chart:
    """Draw the share of runs in which an interval has missed the truth, by the number of looks."""
    titles = ("runs whose interval missed the truth so far", "blocks, with a look after each")
    up = linear_scale(0.0, max(row["missed"] for row in rows) * 1.05, _percent)
    area, parts = _upright((440, 280), linear_scale(0.0, 60.0, format_tick), up, names, titles)
    parts.append(area.draw_level(0.05))
    for name in names:
        places = [
            f"{px(area.x_of(row['blocks']))} {px(area.y_of(row['missed']))}" for row in rows if row["name"] == name
        ]
        look = stack_style(name, names)
        parts.append(draw_colored_group(look.color, [draw_path(f"M{'L'.join(places)}", "line", dash=look.dash)]))
    return area.create_chart(parts)


def save(chart: Chart, path: Path) -> None:
    """Write a chart as SVG."""
    white = Chart(chart.width, chart.height, ('<rect width="100%" height="100%" fill="#fff"/>', *chart.parts))
    path.write_text(white.file("A chart of the audit"), encoding="utf-8")


def _upright(
    size: tuple[float, float], across: Scale, up: Scale, series: Sequence[str], titles: tuple[str, str]
) -> tuple[Area, list[str]]:
    looks: dict[str, SeriesStyle] = {name: stack_style(name, series) for name in series}
    parts, top = draw_legend(looks, 6, size[0], 22)
    area = create_curve_area(top, size, across, up)
    return area, [draw_text(titles[0], 6, 15), *parts, *area.draw_axes(titles[1], grid=False)]


def _percent(share: float) -> str:
    return f"{share * 100:g} %"

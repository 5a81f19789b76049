"""HTML page of `tare history`: all changes, a timeline for each headline, and the differences from run to run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from tare.features.compare.history import HeadlineSeries, History
from tare.features.compare.history_text import answer, describe_level_changes, group_level_changes, run_time
from tare.report.chart_svg import (
    Area,
    Chart,
    Drawing,
    create_curve_area,
    draw_colored_group,
    draw_legend,
    draw_mark,
    draw_path,
    draw_text,
    px,
)
from tare.report.chart_theme import VERDICTS, WIDTH, stack_style
from tare.report.curve_charts import Spot, draw_curves
from tare.report.html.cautions import style_of_verdict
from tare.report.html.charts import MAX_DRAWN, create_drawing
from tare.report.html.page import describe_facts
from tare.report.numbers import format_interval, format_ratio
from tare.report.rendering import render_page
from tare.report.svg_axes import Axis, Scale, ratio_scale

_CHART_SIZE = (2 * WIDTH, 220)
_AXIS_MARGIN_RUNS = 0.75  # space before the first and after the last run, in runs
_MAX_MARKED_RUNS = 40  # with more runs, lines have no marks: they would touch
_MAX_LABELS = 12
_TITLE_HEIGHT = 22


def render(history: History) -> bytes:
    """Return the page of a history as HTML."""
    suites = dict.fromkeys(record.suite for record in history.records)
    facts = dict(_facts(history))
    differing = {title: texts for title, texts in facts.items() if len(set(texts)) > 1}
    page = {
        "title": f"{', '.join(suites)}: {len(history.records)} runs",
        "looks": [
            style_of_verdict(one.changes[-1].cell.verdict, one.changes[-1].cell) if one.changes else ""
            for one in history.series
        ],
        "events": [describe_level_changes(history, event) for event in group_level_changes(history)],
        "drawings": list(_drawings(history)),
        "alike": "; ".join(f"{title}: {texts[0]}" for title, texts in facts.items() if title not in differing),
        "facts": list(differing),
        "runs": list(_run_rows(history, [*differing.values()])),
    }
    return render_page(__package__, "history.html.j2", page, answer(history))


def _drawings(history: History) -> Iterator[Drawing]:
    stacks = list(dict.fromkeys(one.stack for one in history.series))
    if len(stacks) > MAX_DRAWN:
        return
    for headline in dict.fromkeys(one.headline for one in history.series):
        caption = (
            f"{headline}: change from {history.baseline} in each run, 95 % interval; of {history.baseline} itself, "
            f"the change from its first run. A dotted rule with a triangle: here a level changed."
        )
        if drawn := create_drawing(draw_timeline(history, headline, stacks), caption, wide=True):
            yield drawn


def _facts(history: History) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows of the table of runs: the name of a fact, and its text for each run."""
    yield "suite", [record.suite for record in history.records]
    yield "tare", [record.tare for record in history.records]
    yield "image", [record.image.removeprefix("sha256:")[:12] for record in history.records]
    machines = [describe_facts(record.instance_machine) for record in history.records]
    yield from ((rows[0][0], [text for _, text in rows]) for rows in zip(*machines, strict=True))


def _run_rows(history: History, columns: Sequence[Sequence[str]]) -> Iterator[dict[str, Any]]:
    """Yield the fields of each run: its start, its folder, and its facts, with whether a fact differs from the last."""
    for index, folder in enumerate(history.folders):
        facts = [(column[index], index > 0 and column[index] != column[index - 1]) for column in columns]
        yield {"when": run_time(history, index), "folder": folder.resolve().name, "facts": facts}


def draw_timeline(history: History, headline: str, stacks: Sequence[str]) -> Chart | None:
    """Draw the series of a headline, with a dashed rule at each change; None with values in fewer than two runs.

    `stacks` are all stacks of the history: a stack's position among them determines its color.
    """
    series = [one for one in history.series if one.headline == headline]
    pieces = [(one.stack, piece) for one in series for piece in _line_segments(history, one)]
    spots = [spot for _, piece in pieces for spot in piece]
    if len({spot.at for spot in spots}) < 2:
        return None
    count, present = len(history.records), {stack for stack, _ in pieces}
    looks = {stack: stack_style(stack, stacks) for stack in stacks if stack in present}
    parts, top = draw_legend(looks, 6, _CHART_SIZE[0], _TITLE_HEIGHT)
    up = ratio_scale([end for spot in spots for end in (spot.low, spot.value, spot.high)])
    area = create_curve_area(top, _CHART_SIZE, _run_scale([record.started for record in history.records]), up)
    better = "more" if series[0].latest.better == "higher" else "less"
    parts.append(draw_text(f"{headline}, change from {history.baseline}, {better} is better", 6, 15))
    parts += [*area.draw_axes("run, by its day", grid=False), area.draw_level(1.0), *_draw_changes(series, area)]
    for stack, piece in pieces:
        parts += draw_curves(area, {stack: piece}, looks, has_descriptions=count <= _MAX_MARKED_RUNS)
    return area.create_chart(parts)


def _run_scale(started: Sequence[str]) -> Scale:
    """Return the axis of runs, by index, with the days of at most twelve runs as labels."""
    axis = Axis(-_AXIS_MARGIN_RUNS, len(started) - 1 + _AXIS_MARGIN_RUNS, None)
    every = max(1, -(-len(started) // _MAX_LABELS))
    return Scale(axis, tuple((axis.position(at), _format_day(started[at])) for at in range(0, len(started), every)))


def _format_day(started: str) -> str:
    """Return month and day; "" if the record, which is untrusted, has something else in their place."""
    return started[5:10] if re.fullmatch(r"\d\d-\d\d", started[5:10], re.ASCII) else ""


def _line_segments(history: History, series: HeadlineSeries) -> Iterator[list[Spot]]:
    """Yield the lines of a series; a run without a value ends a line."""
    piece: list[Spot] = []
    for index, cell in enumerate(series.cells):
        if cell is None or cell.ratio is None:
            yield from [piece] if piece else []
            piece = []
            continue
        day = history.records[index].started[:10]
        title = f"{series.stack}, {day}: {format_ratio(cell)} {format_interval(cell)}".rstrip()
        # The cells of the baseline have an interval of their values, not of the ratio to the first run.
        low, high = (None, None) if series.is_baseline else (cell.low, cell.high)
        piece.append(Spot(index, low or cell.ratio, cell.ratio, high or cell.ratio, title))
    yield from [piece] if piece else []


def _draw_changes(series: Sequence[HeadlineSeries], area: Area) -> Iterator[str]:
    """Draw a rule before the first run of each new level, with the glyph of the verdict at the new level."""
    for one in series:
        for change in one.changes:
            cell = one.cells[change.at]
            if cell is not None and cell.ratio is not None:
                color, shape = VERDICTS[change.cell.verdict]
                x = area.x_of(change.at - 0.5)
                title = f"{one.stack}: {change.cell.verdict}, {format_ratio(change.cell)}"
                rule = draw_path(f"M{px(x)} {px(area.top)}v{px(area.height)}", "line", dash="2 3")
                yield draw_colored_group(color, [rule, draw_mark(x, area.y_of(cell.ratio), shape, title)])

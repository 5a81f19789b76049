"""HTML page of `tare compare`: the results as in the terminal, with figures of one run or of two."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from tare.features.compare.changes import RatioChange
from tare.features.compare.compare_text import answer, shown_cells
from tare.features.compare.run_comparison import ComparisonResult
from tare.model.run_folder import Run
from tare.report import charts
from tare.report.chart_svg import Chart, Drawing, RowChart, draw_colored_group
from tare.report.chart_theme import BETTER, SAME, WIDTH, SeriesStyle
from tare.report.charts import draw_interval, interval_bounds
from tare.report.html.cautions import style_of_verdict
from tare.report.html.charts import MAX_DRAWN, create_drawing, draw_headlines_map
from tare.report.html.page import describe_facts
from tare.report.numbers import GLYPHS, cell_state, format_cost, format_interval, format_ratio
from tare.report.overview import (
    MAX_ROWS,
    STATE_TEXTS,
    HeadlineColumn,
    HeadlineEntry,
    IntervalPosition,
    Overview,
    cost_logs,
    create_overview,
    draw_page_figure,
    log_cost,
)
from tare.report.rendering import render_page
from tare.report.svg_axes import Axis, classify_cost, cost_axis, cost_ticks, ratio_scale
from tare.statistics.cells import Cell

_RUN_STYLES = {"before": SeriesStyle(SAME, "square"), "after": SeriesStyle(BETTER)}
_INTERVAL_HEIGHT = 15  # pixels, of each of the two intervals of a stack


def render(result: ComparisonResult) -> bytes:
    """Return the page of a comparison as HTML."""
    baseline, two = result.summary.baseline, bool(result.changes)
    names = [run.folder.resolve().name for run in result.runs]
    page = {
        "title": " → ".join(names) if two else f"{names[0]}: compared with {baseline}",
        "of": "before" if two else baseline,
        "two": two,
        "rows": [_row_fields(cell) for cell in shown_cells(result)],
        "figure": draw_page_figure(build_overview(result)),
        "drawings": list(_drawings(result)),
        "runs": ("before", "after") if two else names,
        "facts": list(_facts(result.runs)),
    }
    return render_page(__package__, "compare.html.j2", page, answer(result))


def _row_fields(cell: Cell) -> dict[str, str]:
    """Return what the page shows of a row in addition to the texts of the answer."""
    return {
        "verdict": cell_state(cell),
        "look": style_of_verdict(cell.verdict, cell),
        "glyph": GLYPHS[cell_state(cell)],
        "sort": "" if cell.ratio is None else f"{cell.ratio:.6g}",
        "notes": "; ".join((*cell.notes, *dict.fromkeys(caution.kind for caution in cell.cautions))),
    }


def _drawings(result: ComparisonResult) -> Iterator[Drawing]:
    """Yield a map of all changes; then for each headline its changes, and its ratios before and after.

    Nothing is drawn for more stacks than a reader can tell apart.
    """
    stacks = list(dict.fromkeys(cell.stack for cell in result.cells))
    if len(stacks) > MAX_DRAWN:
        return
    baseline, of = result.summary.baseline, "before" if result.changes else result.summary.baseline
    names = list(dict.fromkeys(cell.headline for cell in result.cells))
    drawn: list[Drawing | None] = [*draw_headlines_map(result.cells, stacks, of)]
    for name in names:
        caption = f"{name}: change from {of}, with 95 % interval."
        drawn.append(create_drawing(charts.draw_ratios(_cells_of_headline(result.cells, name), of), caption))
        changed = [each for each in result.changes if each.cell.headline == name and each.cell.stack != baseline]
        caption = f"{name}: change from {baseline} in each run, with 95 % interval."
        drawn.append(create_drawing(draw_ratios_of_both_runs(changed, baseline), caption))
    yield from filter(None, drawn)


def _cells_of_headline(cells: Sequence[Cell], headline: str) -> list[Cell]:
    return [cell for cell in cells if cell.headline == headline]


def _facts(runs: Sequence[Run]) -> Iterator[tuple[str, list[str]]]:
    """Yield the rows of the table of runs: the name of a fact, and its text for each run."""
    records = [run.record for run in runs]
    yield "run", [run.folder.resolve().name for run in runs]
    yield "suite", [record.suite for record in records]
    yield "started", [record.started for record in records]
    yield "tare", [record.tare for record in records]
    for rows in zip(*(describe_facts(record.instance_machine) for record in records), strict=True):
        yield rows[0][0], [text for _, text in rows]
    yield "image", [record.image.removeprefix("sha256:")[:12] for record in records]


def build_overview(result: ComparisonResult) -> Overview:
    """Return the overview figure: with two dots per row for two runs, as in the report for one run."""
    if not result.changes:
        return create_overview(result.summary)
    baseline, margin = result.summary.baseline, result.summary.margin
    changes = [each for each in result.changes if each.cell.stack != baseline]
    all_stacks = _sort_by_cost(changes)
    stacks = all_stacks[:MAX_ROWS]
    cells = [cell for each in changes if each.cell.stack in stacks for cell in (each.before, each.after)]
    axis = cost_axis((at for cell in cells for at in cost_logs(cell) if at is not None), margin)
    names = dict.fromkeys(each.cell.name for each in changes)
    compared = [each.cell for each in changes if each.cell.ratio is not None]
    titles = {stack: result.summary.title(stack) for stack in stacks}  # a title has the year of outdated software
    columns = (
        _column(name, {each.cell.stack: each for each in changes if each.cell.name == name}, titles, axis, margin)
        for name in names
    )
    return Overview(
        baseline=baseline,
        margin=margin,
        stacks=stacks,
        columns=tuple(columns),
        decided_count=sum(cell.is_decided for cell in compared),
        compared_count=len(compared),
        flagged_count=sum(cell.is_decided and bool(cell.cautions) for cell in compared),
        left_out=len(all_stacks) - len(stacks),
        compares=True,
    )


def _sort_by_cost(changes: Sequence[RatioChange]) -> tuple[str, ...]:
    """Return the stacks by increasing mean cost in the later run, stacks without a value there last."""
    costs: dict[str, list[float]] = {each.cell.stack: [] for each in changes}
    for each in changes:
        if each.after.ratio is not None:
            costs[each.cell.stack].append(log_cost(each.after, each.after.ratio))
    return tuple(sorted(costs, key=lambda stack: sum(costs[stack]) / len(costs[stack]) if costs[stack] else math.inf))


def _column(
    name: str, changes: Mapping[str, RatioChange], titles: Mapping[str, str], axis: Axis, margin: float
) -> HeadlineColumn:
    return HeadlineColumn(
        name=name,
        what="slowdown; the number is its change",
        ticks=cost_ticks(axis),
        baseline=axis.position(0.0),
        band=axis.band(0.0, margin),
        entries=tuple(
            _entry(title, changes[stack], axis, margin)
            if stack in changes
            else HeadlineEntry(title, STATE_TEXTS["no value"], stack)
            for stack, title in titles.items()
        ),
    )


def _entry(title: str, change: RatioChange, axis: Axis, margin: float) -> HeadlineEntry:
    cell = change.cell
    before, after = _format_estimate(change.before), _format_estimate(change.after)
    detail = f"{cell.stack}: {cell_state(cell)}; before {before}, after {after}"
    at, low, high = _entry_position(change.after, axis) or (None, None, None)
    return HeadlineEntry(
        stack=title,
        text=format_cost(cell) if cell.low is not None else STATE_TEXTS.get(cell_state(cell), cell_state(cell)),
        detail=f"{detail}; {format_ratio(cell)} {format_interval(cell)}".rstrip() if cell.ratio else detail,
        size="unknown" if cell.ratio is None else classify_cost(log_cost(cell, cell.ratio), margin),
        place=at,
        low=low,
        high=high,
        is_sure=cell.is_decided,
        verdict=cell_state(cell),
        doubts=len({caution.kind for caution in cell.cautions}),
        n=cell.n,
        before=_entry_position(change.before, axis),
    )


def _entry_position(cell: Cell, axis: Axis) -> IntervalPosition | None:
    at, low, high = cost_logs(cell)
    if at is None:
        return None
    return axis.position(at), None if low is None else axis.position(low), None if high is None else axis.position(high)


def _format_estimate(cell: Cell) -> str:
    return f"{format_ratio(cell)} {format_interval(cell)}".rstrip() or cell_state(cell)


def draw_ratios_of_both_runs(changes: Sequence[RatioChange], baseline: str) -> Chart | None:
    """Draw the ratios of both runs with intervals, two lines per stack; None without a ratio."""
    cells = [
        (run, cell)
        for change in changes
        for run, cell in zip(_RUN_STYLES, (change.before, change.after), strict=True)
        if cell.ratio is not None
    ]
    if not cells:
        return None
    stacks = list(dict.fromkeys(cell.stack for _, cell in cells))
    scale = ratio_scale([end for _, cell in cells for end in interval_bounds(cell)])
    rows = RowChart(stacks, scale, _RUN_STYLES, size=(WIDTH, _INTERVAL_HEIGHT), parts=len(_RUN_STYLES))
    parts = [rows.area.draw_level(1.0)]
    for run, cell in cells:
        style, y = _RUN_STYLES[run], rows.y_of(cell.stack, list(_RUN_STYLES).index(run))
        title = f"{cell.stack}, {run}: {format_ratio(cell)} {format_interval(cell)}".rstrip()
        interval = draw_interval(rows, y, interval_bounds(cell), style.shape, title)
        parts.append(draw_colored_group(style.color, interval))
    better = "more" if changes[0].cell.better == "higher" else "less"
    return rows.create_chart(f"change from {baseline}, {better} is better", parts)

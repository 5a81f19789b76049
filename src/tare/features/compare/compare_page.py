"""The page of `tare compare`: the results as in the terminal, with the figures of one run or of two."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from tare.features.compare.changes import Change
from tare.features.compare.compare_text import answer, shown_cells
from tare.features.compare.two_runs import Comparison
from tare.model.journal import Run
from tare.report import charts
from tare.report.chart_svg import Chart, Drawing, RowChart, group
from tare.report.chart_theme import BETTER, SAME, WIDTH, Look
from tare.report.charts import ends_of, interval_at
from tare.report.html.cells import look
from tare.report.html.charts import MOST_DRAWN, drawing, headlines_map
from tare.report.html.page import described
from tare.report.numbers import GLYPHS, cost, estimate, interval, state
from tare.report.overview import (
    MOST_ROWS,
    WORDS,
    Column,
    Entry,
    Overview,
    Place,
    cost_logs,
    cost_of,
    figure_of,
    overview,
)
from tare.report.rendering import render_page
from tare.report.svg_axes import Axis, cost_axis, cost_ticks, ratio_scale, size_of
from tare.statistics.cells import Cell

_RUNS = {"before": Look(SAME, "square"), "after": Look(BETTER)}
_HEIGHT = 15  # of each of the two


def render(found: Comparison) -> bytes:
    """Render what `tare compare` found of runs."""
    baseline, two = found.summary.baseline, bool(found.changes)
    names = [run.folder.resolve().name for run in found.runs]
    page = {
        "title": " → ".join(names) if two else f"{names[0]}: compared with {baseline}",
        "of": "what it was before" if two else baseline,
        "two": two,
        "rows": [_row(cell) for cell in shown_cells(found)],
        "figure": figure_of(overview_of(found)),
        "drawings": list(_drawings(found)),
        "runs": ("before", "after") if two else names,
        "facts": list(_facts(found.runs)),
    }
    return render_page(__package__, "compare.html.j2", page, answer(found))


def _row(cell: Cell) -> dict[str, str]:
    """Return what the page shows of a row beyond the texts of the answer's."""
    return {
        "verdict": state(cell),
        "look": look(cell.verdict, cell),
        "glyph": GLYPHS[state(cell)],
        "sort": "" if cell.ratio is None else f"{cell.ratio:.6g}",
        "notes": "; ".join((*cell.notes, *dict.fromkeys(caution.kind for caution in cell.cautions))),
    }


def _drawings(found: Comparison) -> Iterator[Drawing]:
    """Draw a map of all changes; and of each headline the changes, and where they come from."""
    stacks = list(dict.fromkeys(cell.stack for cell in found.cells))
    if len(stacks) > MOST_DRAWN:
        return
    baseline, of = found.summary.baseline, "what it was before" if found.changes else found.summary.baseline
    names = list(dict.fromkeys(cell.headline for cell in found.cells))
    drawn: list[Drawing | None] = [*headlines_map(found.cells, stacks, of)]
    for name in names:
        caption = f"{name}: percent of {of}, with 95 % interval."
        drawn.append(drawing(charts.ratios(_of(found.cells, name), of), caption))
        changed = [each for each in found.changes if each.cell.headline == name and each.cell.stack != baseline]
        caption = f"{name}: percent of {baseline} in each run, with 95 % interval."
        drawn.append(drawing(shifts(changed, baseline), caption))
    yield from filter(None, drawn)


def _of(cells: Sequence[Cell], headline: str) -> list[Cell]:
    return [cell for cell in cells if cell.headline == headline]


def _facts(runs: Sequence[Run]) -> Iterator[tuple[str, list[str]]]:
    """Yield what each run says of itself: a name, and the text of every run."""
    records = [run.record for run in runs]
    yield "run", [run.folder.resolve().name for run in runs]
    yield "suite", [record.suite for record in records]
    yield "started", [record.started for record in records]
    yield "tare", [record.tare for record in records]
    for rows in zip(*(described(record.measured_on) for record in records), strict=True):
        yield rows[0][0], [text for _, text in rows]
    yield "image", [record.image.removeprefix("sha256:")[:12] for record in records]


def overview_of(answer: Comparison) -> Overview:
    """Make the figure of a comparison: of two runs with two dots in each row, of one run as its report has it."""
    if not answer.changes:
        return overview(answer.summary)
    baseline, margin = answer.summary.baseline, answer.summary.margin
    changes = [each for each in answer.changes if each.cell.stack != baseline]
    every = _by_cost(changes)
    stacks = every[:MOST_ROWS]
    cells = [cell for each in changes if each.cell.stack in stacks for cell in (each.before, each.after)]
    axis = cost_axis((at for cell in cells for at in cost_logs(cell) if at is not None), margin)
    names = dict.fromkeys(each.cell.name for each in changes)
    asked = [each.cell for each in changes if each.cell.ratio is not None]
    titles = {stack: answer.summary.title(stack) for stack in stacks}  # with the year of what is old
    columns = (
        _column(name, {each.cell.stack: each for each in changes if each.cell.name == name}, titles, axis, margin)
        for name in names
    )
    return Overview(
        baseline=baseline,
        margin=margin,
        stacks=stacks,
        columns=tuple(columns),
        decided=sum(cell.decided for cell in asked),
        asked=len(asked),
        doubted=sum(cell.decided and bool(cell.cautions) for cell in asked),
        left_out=len(every) - len(stacks),
        compares=True,
    )


def _by_cost(changes: Sequence[Change]) -> tuple[str, ...]:
    """Return the stacks, those first that cost least after; last those without any value then."""
    costs: dict[str, list[float]] = {each.cell.stack: [] for each in changes}
    for each in changes:
        if each.after.ratio is not None:
            costs[each.cell.stack].append(cost_of(each.after, each.after.ratio))
    return tuple(sorted(costs, key=lambda stack: sum(costs[stack]) / len(costs[stack]) if costs[stack] else math.inf))


def _column(name: str, changes: Mapping[str, Change], titles: Mapping[str, str], axis: Axis, margin: float) -> Column:
    return Column(
        name=name,
        what="slowdown; the number is its change",
        ticks=cost_ticks(axis),
        baseline=axis.place(0.0),
        band=axis.around(0.0, margin),
        entries=tuple(
            _entry(title, changes[stack], axis, margin) if stack in changes else Entry(title, WORDS["no value"], stack)
            for stack, title in titles.items()
        ),
    )


def _entry(title: str, change: Change, axis: Axis, margin: float) -> Entry:
    cell = change.cell
    detail = f"{cell.stack}: {state(cell)}; before {_stood(change.before)}, after {_stood(change.after)}"
    at, low, high = _place(change.after, axis) or (None, None, None)
    return Entry(
        stack=title,
        text=cost(cell) if cell.low is not None else WORDS.get(state(cell), state(cell)),
        detail=f"{detail}; {estimate(cell)} of what it was {interval(cell)}".rstrip() if cell.ratio else detail,
        size="unknown" if cell.ratio is None else size_of(cost_of(cell, cell.ratio), margin),
        place=at,
        low=low,
        high=high,
        is_sure=cell.decided,
        verdict=state(cell),
        doubts=len({caution.kind for caution in cell.cautions}),
        n=cell.n,
        before=_place(change.before, axis),
    )


def _place(cell: Cell, axis: Axis) -> Place | None:
    at, low, high = cost_logs(cell)
    if at is None:
        return None
    return axis.place(at), None if low is None else axis.place(low), None if high is None else axis.place(high)


def _stood(cell: Cell) -> str:
    return f"{estimate(cell)} {interval(cell)}".rstrip() or state(cell)


def shifts(changes: Sequence[Change], baseline: str) -> Chart | None:
    """Draw the ratios of both runs with their intervals, those of a stack below each other."""
    cells = [
        (run, cell)
        for change in changes
        for run, cell in zip(_RUNS, (change.before, change.after), strict=True)
        if cell.ratio is not None
    ]
    if not cells:
        return None
    stacks = list(dict.fromkeys(cell.stack for _, cell in cells))
    scale = ratio_scale([end for _, cell in cells for end in ends_of(cell)])
    rows = RowChart(stacks, scale, _RUNS, size=(WIDTH, _HEIGHT), parts=len(_RUNS))
    parts = [rows.area.level(1.0)]
    for run, cell in cells:
        y, said = rows.y(cell.stack, list(_RUNS).index(run)), f"{cell.stack}, {run}: {estimate(cell)} {interval(cell)}"
        parts.append(group(_RUNS[run].color, interval_at(rows, y, ends_of(cell), _RUNS[run].shape, said.rstrip())))
    better = "more" if changes[0].cell.better == "higher" else "less"
    return rows.chart(f"percent of {baseline}, {better} is better", parts)

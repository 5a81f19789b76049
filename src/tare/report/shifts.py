"""How stacks stood to the baseline in two runs, side by side: before and after an update, or on two machines."""

from __future__ import annotations

from collections.abc import Sequence

from tare.report.chart_svg import Chart, RowChart, group
from tare.report.chart_theme import BETTER, SAME, WIDTH, Look
from tare.report.charts import ends_of, interval_at
from tare.report.numbers import estimate, interval
from tare.report.svg_axes import ratio_scale
from tare.statistics.changes import Change

_RUNS = {"before": Look(SAME, "square"), "after": Look(BETTER)}
_HEIGHT = 15  # of each of the two


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

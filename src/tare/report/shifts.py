"""How stacks stood to the baseline in two runs, side by side: before and after an update, or on two machines."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from tare.report.looks import BETTER, FACTORS, INK, SAME, WIDTH, Rows, Spec, data, finished, ratio_scale
from tare.report.numbers import estimate, interval
from tare.statistics.changes import Change

_RUNS = {"before": (SAME, "square"), "after": (BETTER, "circle")}
_HEIGHT = 15  # of each of the two


def shifts(changes: Sequence[Change], baseline: str) -> Spec | None:
    """Draw the ratios of both runs with their intervals, those of a stack below each other."""
    rows: Rows = [
        {
            "stack": cell.stack,
            "run": run,
            "ratio": cell.ratio,
            "low": cell.low or cell.ratio,
            "high": cell.high or cell.ratio,
            "text": f"{cell.stack}, {run}: {estimate(cell)} {interval(cell)}".rstrip(),
        }
        for change in changes
        for run, cell in (("before", change.before), ("after", change.after))
        if cell.ratio is not None
    ]
    if not rows:
        return None
    scale = ratio_scale([row[name] for row in rows for name in ("low", "ratio", "high")])
    better = "more" if changes[0].cell.better == "higher" else "less"
    axis = alt.Axis(labelExpr=FACTORS, tickCount=6)
    x = alt.X("ratio:Q", title=f"percent of {baseline}, {better} is better", scale=scale, axis=axis)
    y = alt.Y("stack:N", sort=list(dict.fromkeys(row["stack"] for row in rows)), title=None)
    below = alt.YOffset("run:N", sort=list(_RUNS))
    legend, (colors, shapes) = alt.Legend(title=None, orient="top"), zip(*_RUNS.values(), strict=True)
    color = alt.Color("run:N", sort=list(_RUNS), scale=alt.Scale(domain=list(_RUNS), range=colors), legend=legend)
    shape = alt.Shape("run:N", sort=list(_RUNS), scale=alt.Scale(domain=list(_RUNS), range=shapes), legend=legend)
    base = alt.Chart(data(rows), width=WIDTH, height=alt.Step(_HEIGHT)).encode(y=y, yOffset=below, color=color)
    level = alt.Chart(data([{"one": 1.0}])).mark_rule(color=INK, strokeDash=[4, 3], aria=False)
    return finished(
        alt.layer(
            level.encode(x=alt.X("one:Q", scale=scale)),
            base.mark_rule(strokeWidth=2.5, aria=False).encode(x=alt.X("low:Q", scale=scale), x2="high:Q"),
            base.mark_point(filled=True, size=70, opacity=1).encode(
                x=x, shape=shape, description=alt.Description("text:N")
            ),
        )
    )

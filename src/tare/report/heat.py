"""Heat maps of percent of the baseline, as VTmark's Figures 4 and 5: stacks against headlines or metrics.

Color is by speed: where less is better, the inverse counts. It goes from orange over grey to blue, which readers with
the common color blindnesses can distinguish, and every field has its number.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import altair as alt

from tare.report.looks import INK, Rows, Spec, data, finished
from tare.report.numbers import estimate, relative_sd
from tare.statistics.cells import Cell

_COLOURS = ("#a34000", "#e38b4a", "#f2efe9", "#74b3dd", "#00568a")
_FARTHEST = math.log(4)  # from here on, color says no more
# A field is light in a dark page, too: its number has a color of its own, which does not follow the page.
_TEXT, _WHITE = "#1b1f25", "#ffffff"
_DARK = 0.62  # share of that from which on a number is white
_FIELD, _ROW = 92, 26


class Column(NamedTuple):
    """A column of the map: its title, and the cells of the stacks."""

    title: str
    cells: Sequence[Cell]


def heat(columns: Sequence[Column], stacks: Sequence[str], *, with_spread: bool = False) -> Spec | None:
    """Draw the map; `with_spread` adds the relative standard deviation in brackets, as VTmark's Figure 5 has it."""
    rows: Rows = [
        _row(column.title, cell, with_spread=with_spread)
        for column in columns
        for cell in column.cells
        if cell.ratio and cell.verdict != "baseline"
    ]
    titles = [column.title for column in columns if any(row["column"] == column.title for row in rows)]
    present = [stack for stack in stacks if any(row["stack"] == stack for row in rows)]
    if len(titles) < 2 or len(present) < 2:
        return None
    x = alt.X(
        "column:N",
        sort=titles,
        title=None,
        axis=alt.Axis(orient="top", labelAngle=-30, labelLimit=220, domain=False, ticks=False),
    )
    y = alt.Y("stack:N", sort=present, title=None, axis=alt.Axis(domain=False, ticks=False))
    domain = [share * _FARTHEST for share in (-1.0, -0.4, 0.0, 0.4, 1.0)]
    palette = alt.Scale(domain=domain, range=list(_COLOURS), clamp=True, interpolate="rgb")
    base = alt.Chart(data(rows), width=alt.Step(_FIELD + 26 * with_spread), height=alt.Step(_ROW))
    ink = alt.condition(f"abs(datum.speed) > {_DARK * _FARTHEST:.4f}", alt.value(_WHITE), alt.value(_TEXT))
    layers = [
        base.mark_rect(stroke=INK, strokeOpacity=0.15, aria=False).encode(
            x=x, y=y, color=alt.Color("speed:Q", scale=palette, legend=None)
        ),
        base.mark_text(fontSize=12, aria=False).encode(x=x, y=y, text="text:N", color=ink),
    ]
    return finished(alt.layer(*layers))


def _row(title: str, cell: Cell, *, with_spread: bool) -> dict[str, object]:
    speed = math.log(cell.ratio or 1.0) * (1 if cell.better == "higher" else -1)
    spread = f" ({relative_sd(cell)})" if with_spread and relative_sd(cell) else ""
    return {"column": title, "stack": cell.stack, "speed": round(speed, 4), "text": f"{estimate(cell)}{spread}"}

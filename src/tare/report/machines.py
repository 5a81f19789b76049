"""Machines of a fleet, kind beside kind: a dot for each, and where one that was not measured would lie."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from tare.answers.fleet import Fleet, OnKind
from tare.report.looks import (
    FACTORS,
    INK,
    SHAPES,
    STACKS,
    VERDICTS,
    WIDTH,
    Rows,
    Spec,
    by_stack,
    data,
    finished,
    ratio_scale,
)
from tare.report.numbers import estimate, interval
from tare.statistics.ratios import backwards

_HEIGHT = 18  # of a kind in a stack
_SPREAD = 0.7  # of that height, over which the dots of machines are spread


def machines(found: Fleet, headline: str) -> Spec | None:
    """Draw the machines of a headline, the kinds of a stack below each other; None where nothing is to be drawn."""
    every = [each for each in found.found if each.cell.headline == headline and not each.own]
    if not every:
        return None
    stacks = list(dict.fromkeys(each.cell.stack for each in every))
    kinds = [kind.name for kind in found.kinds]
    dots: Rows = [row for each in every for row in _dots(each)]
    bands: Rows = [_band(each) for each in every]
    shown = ratio_scale([row["ratio"] for row in dots] + [row[end] for row in bands for end in ("low", "high")])
    better = "more" if every[0].cell.better == "higher" else "less"
    of = "what it was before" if len(found.folders) > 1 else found.baseline
    axis = alt.Axis(labelExpr=FACTORS, tickCount=6)
    x = alt.X("ratio:Q", title=f"percent of {of}, {better} is better", scale=shown, axis=axis)
    y = alt.Y("stack:N", sort=stacks, title=None)
    below = alt.YOffset("kind:N", sort=kinds)
    legend = alt.Legend(title="kind", orient="top", symbolOpacity=1)
    color = alt.Color("kind:N", sort=kinds, scale=by_stack(kinds, kinds, STACKS), legend=legend)
    shape = alt.Shape("kind:N", sort=kinds, scale=by_stack(kinds, kinds, SHAPES), legend=legend)
    height = alt.Step(_HEIGHT)
    level = alt.Chart(data([{"one": 1.0}])).mark_rule(color=INK, strokeDash=[4, 3], aria=False)
    band = alt.Chart(data(bands), width=2 * WIDTH, height=height).encode(y=y, yOffset=below)
    dot = alt.Chart(data(dots), width=2 * WIDTH, height=height).encode(y=y, yOffset=below, color=color)
    return finished(
        alt.layer(
            level.encode(x=alt.X("one:Q", scale=shown)),
            band.mark_bar(opacity=0.18, height=_HEIGHT * _SPREAD, aria=False).encode(
                x=alt.X("low:Q", scale=shown, title=None), x2="high:Q", color=alt.Color("look:N", scale=None)
            ),
            dot.mark_point(filled=True, size=42, opacity=0.75).encode(
                x=x, shape=shape, description=alt.Description("text:N")
            ),
            band.mark_tick(thickness=2.5, size=_HEIGHT * _SPREAD).encode(
                x=alt.X("ratio:Q", scale=shown, title=None),
                color=alt.Color("look:N", scale=None),
                description=alt.Description("text:N"),
            ),
        )
    )


def _dots(each: OnKind) -> Rows:
    sick = {one.machine for one in each.unlike}
    return [
        {
            "stack": each.cell.stack,
            "kind": each.kind,
            "ratio": backwards(mean),
            "text": f"{each.cell.stack}, {name} of kind {each.kind}: {100 * backwards(mean):.1f} %"
            + (", unlike the others" if name in sick else ""),
        }
        for name, mean in each.means.items()
    ]


def _band(each: OnKind) -> dict[str, object]:
    cell = each.cell
    ratio = cell.ratio or 1.0
    return {
        "stack": cell.stack,
        "kind": each.kind,
        "ratio": ratio,
        "low": cell.low or ratio,
        "high": cell.high or ratio,
        "look": VERDICTS[cell.verdict][0],
        "text": f"{cell.stack}, kind {each.kind}: {estimate(cell)} {interval(cell)}".rstrip(),
    }


def bars(found: Fleet, machine: str) -> Sequence[tuple[OnKind, float]]:
    """Return how far a machine is from the mean of its kind in each of its values, in the largest distance there."""
    own = [each for each in found.found if machine in each.means]
    away = []
    for each in own:
        middle = sum(each.means.values()) / len(each.means)
        most = max((abs(mean - middle) for mean in each.means.values()), default=0.0)
        away.append((each, (each.means[machine] - middle) / most if most else 0.0))
    return away

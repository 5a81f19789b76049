"""Machines of a fleet, kind beside kind: a dot for each, and where one that was not measured would lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import altair as alt
import numpy as np

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
MOST_DOTS = 50  # of a kind in a stack, beside those of machines that are unlike


@dataclass(frozen=True)
class Scale:
    """What a machine is compared with in a value: the mean of its kind, and the largest distance from it there."""

    of: OnKind
    middle: float
    most: float

    def distance(self, machine: str) -> float:
        """Return how far a machine is from the mean, in the largest distance."""
        return (self.of.means[machine] - self.middle) / self.most if self.most else 0.0


def scales(found: Fleet) -> tuple[Scale, ...]:
    """Return what machines are compared with, in each value of each kind."""
    return tuple(_scale(each) for each in found.found)


def _scale(each: OnKind) -> Scale:
    middle = sum(each.means.values()) / len(each.means)
    return Scale(each, middle, max(abs(mean - middle) for mean in each.means.values()))


def farthest_first(found: Fleet, of: Sequence[Scale]) -> tuple[str, ...]:
    """Return all machines: those that are unlike first, then those that are farthest from their kind on average."""
    away: dict[str, list[float]] = {name: [] for kind in found.kinds for name in kind.machines}
    for scale in of:
        for name in scale.of.means:
            away[name].append(abs(scale.distance(name)))
    unlike = {one.machine for each in found.found for one in each.unlike}
    return tuple(sorted(away, key=lambda name: (name not in unlike, -float(np.mean(away[name] or 0.0)))))


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
        ).resolve_scale(color="independent", shape="independent")  # or the legend's symbols are as pale as the bands
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
        for name, mean in _drawn(each.means, sick)
    ]


def _drawn(means: Mapping[str, float], sick: set[str]) -> Iterator[tuple[str, float]]:
    """Yield the machines with a dot: all, or of many those that are unlike, and some from the least to the most."""
    if len(means) <= MOST_DOTS:
        yield from means.items()
        return
    ordered = sorted(means, key=lambda name: means[name])
    picked = {ordered[at] for at in np.linspace(0, len(ordered) - 1, MOST_DOTS).round().astype(int)}
    yield from ((name, mean) for name, mean in means.items() if name in picked | sick)


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

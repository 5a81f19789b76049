"""Machines of a fleet, kind beside kind: a dot for each, and where one that was not measured would lie."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tare.answers.fleet import Fleet, OnKind
from tare.report.chart_svg import Chart, RowChart, bar, group, mark
from tare.report.chart_theme import VERDICTS, WIDTH, stack_look
from tare.report.charts import ends_of
from tare.report.numbers import estimate, interval
from tare.report.svg_axes import ratio_scale
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


def machines(found: Fleet, headline: str) -> Chart | None:
    """Draw the machines of a headline, the kinds of a stack below each other; None where nothing is to be drawn."""
    every = [each for each in found.found if each.cell.headline == headline and not each.own]
    if not every:
        return None
    stacks = list(dict.fromkeys(each.cell.stack for each in every))
    kinds = [kind.name for kind in found.kinds]
    looks = {kind: stack_look(kind, kinds)._replace(dash="") for kind in kinds}
    dots = [(each, dict(_dots(each))) for each in every]
    known = [ratio for _, own in dots for ratio in own.values()] + [end for each in every for end in ends_of(each.cell)]
    rows = RowChart(stacks, ratio_scale(known), looks, size=(2 * WIDTH, _HEIGHT), parts=len(kinds))
    parts = [rows.area.level(1.0)]
    for each, own in dots:
        cell, look = each.cell, looks[each.kind]
        y, color = rows.y(cell.stack, kinds.index(each.kind)), VERDICTS[cell.verdict][0]
        low, middle, high = map(rows.area.x, ends_of(cell))
        thick = _HEIGHT * _SPREAD
        sick = {one.machine for one in each.unlike}
        parts.append(bar((low, high), y, thick, "mark", color=color, opacity=0.18))
        marks = [
            mark(rows.area.x(at), y, look.shape, _said(each, name, at, sick), opacity=0.75) for name, at in own.items()
        ]
        said = f"{cell.stack}, kind {each.kind}: {estimate(cell)} {interval(cell)}".rstrip()
        parts += [
            group(look.color, marks),
            bar((middle - 1.2, middle + 1.2), y, thick, "mark", title=said, color=color),
        ]
    better = "more" if every[0].cell.better == "higher" else "less"
    of = "what it was before" if len(found.folders) > 1 else found.baseline
    return rows.chart(f"percent of {of}, {better} is better", parts)


def _dots(each: OnKind) -> Iterator[tuple[str, float]]:
    """Yield the machines of a kind that have a dot, with their ratios."""
    yield from ((name, backwards(mean)) for name, mean in _drawn(each.means, {one.machine for one in each.unlike}))


def _said(each: OnKind, name: str, ratio: float, sick: set[str]) -> str:
    unlike = ", unlike the others" if name in sick else ""
    return f"{each.cell.stack}, {name} of kind {each.kind}: {100 * ratio:.1f} %{unlike}"


def _drawn(means: Mapping[str, float], sick: set[str]) -> Iterator[tuple[str, float]]:
    """Yield the machines with a dot: all, or of many those that are unlike, and some from the least to the most."""
    if len(means) <= MOST_DOTS:
        yield from means.items()
        return
    ordered = sorted(means, key=lambda name: means[name])
    picked = {ordered[at] for at in np.linspace(0, len(ordered) - 1, MOST_DOTS).round().astype(int)}
    yield from ((name, mean) for name, mean in means.items() if name in picked | sick)

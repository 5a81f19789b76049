"""The page of `tare fleet compare`: kinds beside each other, and each machine beside its kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tare.features.fleet.comparison import FleetComparison, Kind, OnKind
from tare.features.fleet.fleet_text import ANSWERS, answer, judged, kind_sentence, unlike_sentences
from tare.report.chart_svg import Chart, Drawing, RowChart, bar, group, mark
from tare.report.chart_theme import VERDICTS, WIDTH, stack_look
from tare.report.charts import ends_of
from tare.report.html.cells import look
from tare.report.html.charts import MOST_DRAWN, drawing
from tare.report.html.page import described
from tare.report.numbers import GLYPHS, estimate, interval, some_of
from tare.report.rendering import render_page
from tare.report.svg_axes import ratio_scale
from tare.statistics.ratios import backwards

_HEIGHT = 18  # of a kind in a stack
_SPREAD = 0.7  # of that height, over which the dots of machines are spread
MOST_DOTS = 50  # of a kind in a stack, beside those of machines that are unlike
_MOST_MACHINES = 100  # that have a row
_BAR, _HALF = 7, 16  # pixels: the room of a bar, and the longest up or down


def render(found: FleetComparison) -> bytes:
    """Render what is found of a fleet, or of two."""
    page = {
        "title": " → ".join(folder.resolve().name for folder in found.folders),
        "kinds": [kind_sentence(kind) for kind in found.kinds],
        "unlike": [text.removeprefix("! ") for text in unlike_sentences(found)],
        "drawings": list(_drawings(found)),
        "looks": [look(each.cell.verdict, each.cell) for each in judged(found)],
        "transfers": [
            {
                "headline": each.headline,
                "stack": each.stack,
                "verdicts": [(kind.name, _shown(each.verdicts.get(kind.name))) for kind in found.kinds],
                "answer": ANSWERS[each.answer],
            }
            for each in found.transfers
        ],
        "machines": list(_machines(found)),
        "left_out": _left_out(found),
        "half": _HALF,
        "remarks": found.statements,
        "facts": list(_facts(found.kinds)),
    }
    return render_page(__package__, "fleet.html.j2", page, answer(found))


def _shown(verdict: str | None) -> str:
    return "" if verdict is None else f"{GLYPHS[verdict]} {verdict}"


def _drawings(found: FleetComparison) -> Iterator[Drawing]:
    if len({each.cell.stack for each in found.found}) > MOST_DRAWN:
        return
    many = any(len(kind.machines) > MOST_DOTS for kind in found.kinds)
    dots = f"dots for {MOST_DOTS} machines from the least to the most, and all that are unlike" if many else ""
    dots = dots or "a dot for each machine"
    for headline in dict.fromkeys(each.cell.headline for each in judged(found)):
        caption = (
            f"{headline}: {dots}, a tick for their mean; shaded: where a machine of the kind lies that "
            "was not measured."
        )
        if drawn := drawing(machines(found, headline), caption, wide=True):
            yield drawn


def _machines(found: FleetComparison) -> Iterator[dict[str, Any]]:
    """Yield the rows of machines, kind by kind; of very many those that are unlike, then those farthest off."""
    of, kinds = scales(found), {name: kind for kind in found.kinds for name in kind.machines}
    own = {kind.name: [scale for scale in of if scale.of.kind == kind.name] for kind in found.kinds}
    shown = [*kinds] if len(kinds) <= _MOST_MACHINES else farthest_first(found, of)[:_MOST_MACHINES]
    for name in shown:
        yield _machine(own[kinds[name].name], kinds[name], name)


def _left_out(found: FleetComparison) -> str:
    """Describe how many machines have no row; empty where all have one."""
    count = sum(len(kind.machines) for kind in found.kinds)
    if count <= _MOST_MACHINES:
        return ""
    what = f"{_MOST_MACHINES} of {count} machines: those that are unlike, then those farthest from their kind"
    return f"{what}. {count - _MOST_MACHINES} are left out; tare compare --json has all."


@dataclass(frozen=True)
class Scale:
    """What a machine is compared with in a value: the mean of its kind, and the largest distance from it there."""

    of: OnKind
    middle: float
    most: float

    def distance(self, machine: str) -> float:
        """Return how far a machine is from the mean, in the largest distance."""
        return (self.of.means[machine] - self.middle) / self.most if self.most else 0.0


def scales(found: FleetComparison) -> tuple[Scale, ...]:
    """Return what machines are compared with, in each value of each kind."""
    return tuple(_scale(each) for each in found.found)


def _scale(each: OnKind) -> Scale:
    middle = sum(each.means.values()) / len(each.means)
    return Scale(each, middle, max(abs(mean - middle) for mean in each.means.values()))


def farthest_first(found: FleetComparison, of: Sequence[Scale]) -> tuple[str, ...]:
    """Return all machines: those that are unlike first, then those that are farthest from their kind on average."""
    away: dict[str, list[float]] = {name: [] for kind in found.kinds for name in kind.machines}
    for scale in of:
        for name in scale.of.means:
            away[name].append(abs(scale.distance(name)))
    unlike = {one.machine for each in found.found for one in each.unlike}
    return tuple(sorted(away, key=lambda name: (name not in unlike, -float(np.mean(away[name] or 0.0)))))


def machines(found: FleetComparison, headline: str) -> Chart | None:
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


def _machine(of: Sequence[Scale], kind: Kind, name: str) -> dict[str, Any]:
    """Return the row of a machine: its kind, its blocks, its values beside its kind as bars, and what is unlike."""
    away = [(scale.of, scale.distance(name)) for scale in of if name in scale.of.means]
    unlike = [any(one.machine == name for one in each.unlike) for each, _ in away]
    counts = sorted({each.blocks[name] for each, _ in away})
    bars = []
    for at, (each, distance) in enumerate(away):
        length = max(abs(distance) * _HALF, 0.5)
        y, text = _HALF - length * (distance >= 0), f"{100 * distance:+.0f} % of the farthest of its kind"
        bars.append({"x": at * _BAR, "y": y, "height": length, "unlike": unlike[at], "text": f"{_value(each)}: {text}"})
    return {
        "name": name,
        "kind": kind.name,
        "blocks": "\N{EN DASH}".join(map(str, counts[:1] + counts[1:][-1:])),
        "bars": bars,
        "width": max(len(bars), 1) * _BAR,
        "unlike": "; ".join(_value(each) for (each, _), differs in zip(away, unlike, strict=True) if differs),
    }


def _value(each: OnKind) -> str:
    return f"{each.cell.stack} in {each.cell.headline}" + (" (own value)" if each.own else "")


def _facts(kinds: tuple[Kind, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "machines", tuple(some_of(kind.machines) for kind in kinds)
    for rows in zip(*(described(kind.facts) for kind in kinds), strict=True):
        yield rows[0][0], tuple(text for _, text in rows)

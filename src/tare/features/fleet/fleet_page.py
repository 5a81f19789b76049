"""The page of `tare fleet compare`: kinds beside each other, and each machine beside its kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tare.features.fleet.comparison import FleetComparison, KindResult, MachineKind
from tare.features.fleet.fleet_text import (
    GENERALIZATION_TEXTS,
    answer,
    decided_results,
    kind_sentence,
    outlier_sentences,
)
from tare.report.chart_svg import Chart, Drawing, RowChart, draw_bar, draw_colored_group, draw_mark
from tare.report.chart_theme import VERDICTS, WIDTH, stack_style
from tare.report.charts import interval_bounds
from tare.report.html.cells import style_of_verdict
from tare.report.html.charts import MAX_DRAWN, create_drawing
from tare.report.html.page import describe_facts
from tare.report.numbers import GLYPHS, format_interval, format_ratio, join_some
from tare.report.rendering import render_page
from tare.report.svg_axes import ratio_scale
from tare.statistics.ratios import exp_bounded

_KIND_HEIGHT = 18  # of a kind in a stack
_DOT_SPREAD = 0.7  # of that height, over which the dots of machines are spread
MAX_DOTS = 50  # of a kind in a stack, beside those of machines that are unlike
_MAX_MACHINES = 100  # that have a row
_BAR_PITCH, _MAX_BAR_LENGTH = 7, 16  # pixels: the room of a bar, and the longest up or down


def render(result: FleetComparison) -> bytes:
    """Render what is found of a fleet, or of two."""
    page = {
        "title": " → ".join(folder.resolve().name for folder in result.folders),
        "kinds": [kind_sentence(kind) for kind in result.kinds],
        "unlike": [text.removeprefix("! ") for text in outlier_sentences(result)],
        "drawings": list(_drawings(result)),
        "looks": [style_of_verdict(each.cell.verdict, each.cell) for each in decided_results(result)],
        "transfers": [
            {
                "headline": each.headline,
                "stack": each.stack,
                "verdicts": [(kind.name, _format_verdict(each.verdicts.get(kind.name))) for kind in result.kinds],
                "answer": GENERALIZATION_TEXTS[each.answer],
            }
            for each in result.generalizations
        ],
        "machines": list(_machine_rows(result)),
        "left_out": _describe_left_out(result),
        "half": _MAX_BAR_LENGTH,
        "remarks": result.statements,
        "facts": list(_facts(result.kinds)),
    }
    return render_page(__package__, "fleet.html.j2", page, answer(result))


def _format_verdict(verdict: str | None) -> str:
    return "" if verdict is None else f"{GLYPHS[verdict]} {verdict}"


def _drawings(result: FleetComparison) -> Iterator[Drawing]:
    if len({each.cell.stack for each in result.results}) > MAX_DRAWN:
        return
    many = any(len(kind.machines) > MAX_DOTS for kind in result.kinds)
    dots = f"dots for {MAX_DOTS} machines from the least to the most, and all that are unlike" if many else ""
    dots = dots or "a dot for each machine"
    for headline in dict.fromkeys(each.cell.headline for each in decided_results(result)):
        caption = (
            f"{headline}: {dots}, a tick for their mean; shaded: where a machine of the kind lies that "
            "was not measured."
        )
        if drawn := create_drawing(draw_machines(result, headline), caption, wide=True):
            yield drawn


def _machine_rows(result: FleetComparison) -> Iterator[dict[str, Any]]:
    """Yield the rows of machines, kind by kind; of very many those that are unlike, then those farthest off."""
    of, kinds = deviation_scales(result), {name: kind for kind in result.kinds for name in kind.machines}
    own = {kind.name: [scale for scale in of if scale.result.kind == kind.name] for kind in result.kinds}
    shown = [*kinds] if len(kinds) <= _MAX_MACHINES else sort_by_distance(result, of)[:_MAX_MACHINES]
    for name in shown:
        yield _machine_row(own[kinds[name].name], kinds[name], name)


def _describe_left_out(result: FleetComparison) -> str:
    """Describe how many machines have no row; empty where all have one."""
    count = sum(len(kind.machines) for kind in result.kinds)
    if count <= _MAX_MACHINES:
        return ""
    what = f"{_MAX_MACHINES} of {count} machines: those that are unlike, then those farthest from their kind"
    return f"{what}. {count - _MAX_MACHINES} are left out; tare compare --json has all."


@dataclass(frozen=True)
class DeviationScale:
    """What a machine is compared with in a value: the mean of its kind, and the largest distance from it there."""

    result: KindResult
    kind_mean: float
    max_distance: float

    def distance(self, machine: str) -> float:
        """Return how far a machine is from the mean, in the largest distance."""
        return (self.result.means[machine] - self.kind_mean) / self.max_distance if self.max_distance else 0.0


def deviation_scales(result: FleetComparison) -> tuple[DeviationScale, ...]:
    """Return what machines are compared with, in each value of each kind."""
    return tuple(_deviation_scale(each) for each in result.results)


def _deviation_scale(result: KindResult) -> DeviationScale:
    middle = sum(result.means.values()) / len(result.means)
    return DeviationScale(result, middle, max(abs(mean - middle) for mean in result.means.values()))


def sort_by_distance(result: FleetComparison, scales: Sequence[DeviationScale]) -> tuple[str, ...]:
    """Return all machines: those that are unlike first, then those that are farthest from their kind on average."""
    away: dict[str, list[float]] = {name: [] for kind in result.kinds for name in kind.machines}
    for scale in scales:
        for name in scale.result.means:
            away[name].append(abs(scale.distance(name)))
    unlike = {one.machine for each in result.results for one in each.outliers}
    return tuple(sorted(away, key=lambda name: (name not in unlike, -float(np.mean(away[name] or 0.0)))))


def draw_machines(result: FleetComparison, headline: str) -> Chart | None:
    """Draw the machines of a headline, the kinds of a stack below each other; None where nothing is to be drawn."""
    every = [each for each in result.results if each.cell.headline == headline and not each.is_baseline]
    if not every:
        return None
    stacks = list(dict.fromkeys(each.cell.stack for each in every))
    kinds = [kind.name for kind in result.kinds]
    looks = {kind: stack_style(kind, kinds)._replace(dash="") for kind in kinds}
    dots = [(each, dict(_machine_dots(each))) for each in every]
    known = [ratio for _, own in dots for ratio in own.values()] + [
        end for each in every for end in interval_bounds(each.cell)
    ]
    rows = RowChart(stacks, ratio_scale(known), looks, size=(2 * WIDTH, _KIND_HEIGHT), parts=len(kinds))
    parts = [rows.area.draw_level(1.0)]
    for each, own in dots:
        cell, look = each.cell, looks[each.kind]
        y, color = rows.y_of(cell.stack, kinds.index(each.kind)), VERDICTS[cell.verdict][0]
        low, middle, high = map(rows.area.x_of, interval_bounds(cell))
        thick = _KIND_HEIGHT * _DOT_SPREAD
        sick = {one.machine for one in each.outliers}
        parts.append(draw_bar((low, high), y, thick, "mark", color=color, opacity=0.18))
        marks = [
            draw_mark(rows.area.x_of(at), y, look.shape, _describe_dot(each, name, at, sick), opacity=0.75)
            for name, at in own.items()
        ]
        said = f"{cell.stack}, kind {each.kind}: {format_ratio(cell)} {format_interval(cell)}".rstrip()
        parts += [
            draw_colored_group(look.color, marks),
            draw_bar((middle - 1.2, middle + 1.2), y, thick, "mark", title=said, color=color),
        ]
    better = "more" if every[0].cell.better == "higher" else "less"
    of = "before" if len(result.folders) > 1 else result.baseline
    return rows.create_chart(f"change from {of}, {better} is better", parts)


def _machine_dots(result: KindResult) -> Iterator[tuple[str, float]]:
    """Yield the machines of a kind that have a dot, with their ratios."""
    yield from (
        (name, exp_bounded(mean)) for name, mean in _select_dots(result.means, {one.machine for one in result.outliers})
    )


def _describe_dot(result: KindResult, name: str, ratio: float, outliers: set[str]) -> str:
    unlike = ", unlike the others" if name in outliers else ""
    return f"{result.cell.stack}, {name} of kind {result.kind}: {100 * ratio:.1f} %{unlike}"


def _select_dots(means: Mapping[str, float], outliers: set[str]) -> Iterator[tuple[str, float]]:
    """Yield the machines with a dot: all, or of many those that are unlike, and some from the least to the most."""
    if len(means) <= MAX_DOTS:
        yield from means.items()
        return
    ordered = sorted(means, key=lambda name: means[name])
    picked = {ordered[at] for at in np.linspace(0, len(ordered) - 1, MAX_DOTS).round().astype(int)}
    yield from ((name, mean) for name, mean in means.items() if name in picked | outliers)


def _machine_row(scales: Sequence[DeviationScale], kind: MachineKind, name: str) -> dict[str, Any]:
    """Return the row of a machine: its kind, its blocks, its values beside its kind as bars, and what is unlike."""
    away = [(scale.result, scale.distance(name)) for scale in scales if name in scale.result.means]
    unlike = [any(one.machine == name for one in each.outliers) for each, _ in away]
    counts = sorted({each.blocks[name] for each, _ in away})
    bars = []
    for at, (each, distance) in enumerate(away):
        length = max(abs(distance) * _MAX_BAR_LENGTH, 0.5)
        y, text = _MAX_BAR_LENGTH - length * (distance >= 0), f"{100 * distance:+.0f} % of the farthest of its kind"
        bars.append(
            {
                "x": at * _BAR_PITCH,
                "y": y,
                "height": length,
                "unlike": unlike[at],
                "text": f"{_value_name(each)}: {text}",
            }
        )
    return {
        "name": name,
        "kind": kind.name,
        "blocks": "\N{EN DASH}".join(map(str, counts[:1] + counts[1:][-1:])),
        "bars": bars,
        "width": max(len(bars), 1) * _BAR_PITCH,
        "unlike": "; ".join(_value_name(each) for (each, _), differs in zip(away, unlike, strict=True) if differs),
    }


def _value_name(result: KindResult) -> str:
    return f"{result.cell.stack} in {result.cell.headline}" + (" (own value)" if result.is_baseline else "")


def _facts(kinds: tuple[MachineKind, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "machines", tuple(join_some(kind.machines) for kind in kinds)
    for rows in zip(*(describe_facts(kind.facts) for kind in kinds), strict=True):
        yield rows[0][0], tuple(text for _, text in rows)

"""HTML page of `tare fleet compare`: machine types side by side, and each machine relative to its type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tare.features.fleet.comparison import FleetComparison, FleetMachineType, TypeResult
from tare.features.fleet.fleet_text import (
    GENERALIZATION_TEXTS,
    answer,
    decided_results,
    outlier_sentences,
    type_sentence,
)
from tare.report.chart_svg import Chart, Drawing, RowChart, draw_bar, draw_colored_group, draw_mark
from tare.report.chart_theme import VERDICTS, WIDTH, stack_style
from tare.report.charts import interval_bounds
from tare.report.html.cautions import style_of_verdict
from tare.report.html.charts import MAX_DRAWN, create_drawing
from tare.report.html.page import describe_facts
from tare.report.numbers import GLYPHS, format_interval, format_ratio, join_some
from tare.report.rendering import render_page
from tare.report.svg_axes import ratio_scale
from tare.statistics.ratios import exp_bounded

_TYPE_HEIGHT = 18  # pixels, of a machine type in a stack's row
_DOT_SPREAD = 0.7  # of that height: length of the tick and the shaded interval
MAX_DOTS = 50  # per type and stack, in addition to outliers; more make a page of many machines slow
_MAX_MACHINES = 100  # rows of the table of machines
_BAR_PITCH, _MAX_BAR_LENGTH = 7, 16  # pixels: distance between bars, and the longest bar up or down


def render(result: FleetComparison) -> bytes:
    """Return the page of a comparison of one fleet or two as HTML."""
    type_names = [machine_type.name for machine_type in result.machine_types]
    page = {
        "title": " → ".join(folder.resolve().name for folder in result.folders),
        "kinds": [type_sentence(machine_type) for machine_type in result.machine_types],
        "unlike": [text.removeprefix("! ") for text in outlier_sentences(result)],
        "drawings": list(_drawings(result)),
        "looks": [style_of_verdict(each.cell.verdict, each.cell) for each in decided_results(result)],
        "transfers": [
            {
                "headline": each.headline,
                "stack": each.stack,
                "verdicts": [(name, _format_verdict(each.verdicts.get(name))) for name in type_names],
                "answer": GENERALIZATION_TEXTS[each.answer],
            }
            for each in result.generalizations
        ],
        "machines": list(_machine_rows(result)),
        "left_out": _describe_left_out(result),
        "half": _MAX_BAR_LENGTH,
        "remarks": result.statements,
        "facts": list(_facts(result.machine_types)),
    }
    return render_page(__package__, "fleet.html.j2", page, answer(result))


def _format_verdict(verdict: str | None) -> str:
    return "" if verdict is None else f"{GLYPHS[verdict]} {verdict}"


def _drawings(result: FleetComparison) -> Iterator[Drawing]:
    if len({each.cell.stack for each in result.results}) > MAX_DRAWN:
        return
    many = any(len(machine_type.machines) > MAX_DOTS for machine_type in result.machine_types)
    dots = f"dots for {MAX_DOTS} machines from the least to the most, and all outliers" if many else ""
    dots = dots or "a dot for each machine"
    for headline in dict.fromkeys(each.cell.headline for each in decided_results(result)):
        caption = (
            f"{headline}: {dots}, a tick for their mean; shaded: where a machine of the type lies that "
            "was not measured."
        )
        if drawn := create_drawing(draw_machines(result, headline), caption, wide=True):
            yield drawn


def _machine_rows(result: FleetComparison) -> Iterator[dict[str, Any]]:
    """Yield the rows of machines by type; of more than 100 machines, outliers and then those farthest off."""
    scales = deviation_scales(result)
    type_of = {name: machine_type for machine_type in result.machine_types for name in machine_type.machines}
    scales_by_type: dict[str, list[DeviationScale]] = {machine_type.name: [] for machine_type in result.machine_types}
    for scale in scales:
        scales_by_type[scale.result.machine_type].append(scale)
    shown = [*type_of] if len(type_of) <= _MAX_MACHINES else sort_by_distance(result, scales)[:_MAX_MACHINES]
    for name in shown:
        yield _machine_row(scales_by_type[type_of[name].name], type_of[name], name)


def _describe_left_out(result: FleetComparison) -> str:
    """Describe how many machines have no row; "" if all have one."""
    count = sum(len(machine_type.machines) for machine_type in result.machine_types)
    if count <= _MAX_MACHINES:
        return ""
    shown = f"{_MAX_MACHINES} of {count} machines: outliers, then those farthest from the mean of their type"
    return f"{shown}. {count - _MAX_MACHINES} are left out; tare compare --json has all."


@dataclass(frozen=True)
class DeviationScale:
    """Scale of deviations in a value: the mean of the machine type, and the largest distance from it."""

    result: TypeResult
    type_mean: float
    max_distance: float

    def distance(self, machine: str) -> float:
        """Return the signed distance of a machine from the mean, from -1 to 1."""
        return (self.result.means[machine] - self.type_mean) / self.max_distance if self.max_distance else 0.0


def deviation_scales(result: FleetComparison) -> tuple[DeviationScale, ...]:
    """Return the scales of deviations in all values of all machine types."""
    return tuple(_deviation_scale(each) for each in result.results)


def _deviation_scale(result: TypeResult) -> DeviationScale:
    middle = sum(result.means.values()) / len(result.means)
    return DeviationScale(result, middle, max(abs(mean - middle) for mean in result.means.values()))


def sort_by_distance(result: FleetComparison, scales: Sequence[DeviationScale]) -> tuple[str, ...]:
    """Return all machines: outliers first, then those that are farthest from their type on average."""
    distances: dict[str, list[float]] = {
        name: [] for machine_type in result.machine_types for name in machine_type.machines
    }
    for scale in scales:
        for name in scale.result.means:
            distances[name].append(abs(scale.distance(name)))
    outliers = {outlier.machine for each in result.results for outlier in each.outliers}
    return tuple(sorted(distances, key=lambda name: (name not in outliers, -float(np.mean(distances[name] or 0.0)))))


def draw_machines(result: FleetComparison, headline: str) -> Chart | None:
    """Draw the machines of a headline, a line for each machine type of a stack; None without a result."""
    drawn = [each for each in result.results if each.cell.headline == headline and not each.is_baseline]
    if not drawn:
        return None
    stacks = list(dict.fromkeys(each.cell.stack for each in drawn))
    type_names = [machine_type.name for machine_type in result.machine_types]
    looks = {name: stack_style(name, type_names)._replace(dash="") for name in type_names}
    dots = [(each, dict(_machine_dots(each))) for each in drawn]
    ratios = [ratio for _, by_machine in dots for ratio in by_machine.values()]
    ratios += [bound for each in drawn for bound in interval_bounds(each.cell)]
    rows = RowChart(stacks, ratio_scale(ratios), looks, size=(2 * WIDTH, _TYPE_HEIGHT), parts=len(type_names))
    parts = [rows.area.draw_level(1.0)]
    for each, by_machine in dots:
        cell, look = each.cell, looks[each.machine_type]
        y, color = rows.y_of(cell.stack, type_names.index(each.machine_type)), VERDICTS[cell.verdict][0]
        low, middle, high = map(rows.area.x_of, interval_bounds(cell))
        thick = _TYPE_HEIGHT * _DOT_SPREAD
        outliers = {outlier.machine for outlier in each.outliers}
        parts.append(draw_bar((low, high), y, thick, "mark", color=color, opacity=0.18))
        marks = [
            draw_mark(rows.area.x_of(at), y, look.shape, _describe_dot(each, name, at, outliers), opacity=0.75)
            for name, at in by_machine.items()
        ]
        title = f"{cell.stack}, type {each.machine_type}: {format_ratio(cell)} {format_interval(cell)}".rstrip()
        parts += [
            draw_colored_group(look.color, marks),
            draw_bar((middle - 1.2, middle + 1.2), y, thick, "mark", title=title, color=color),
        ]
    better = "more" if drawn[0].cell.better == "higher" else "less"
    of = "before" if len(result.folders) > 1 else result.baseline
    return rows.create_chart(f"change from {of}, {better} is better", parts)


def _machine_dots(result: TypeResult) -> Iterator[tuple[str, float]]:
    """Yield the machines with a dot, and their ratios."""
    yield from (
        (name, exp_bounded(mean)) for name, mean in _select_dots(result.means, {one.machine for one in result.outliers})
    )


def _describe_dot(result: TypeResult, name: str, ratio: float, outliers: set[str]) -> str:
    unlike = ", an outlier" if name in outliers else ""
    return f"{result.cell.stack}, {name} of type {result.machine_type}: {100 * ratio:.1f} %{unlike}"


def _select_dots(means: Mapping[str, float], outliers: set[str]) -> Iterator[tuple[str, float]]:
    """Yield the machines with a dot: all, or outliers and 50 quantiles if there are more than 50."""
    if len(means) <= MAX_DOTS:
        yield from means.items()
        return
    ordered = sorted(means, key=lambda name: means[name])
    picked = {ordered[at] for at in np.linspace(0, len(ordered) - 1, MAX_DOTS).round().astype(int)}
    yield from ((name, mean) for name, mean in means.items() if name in picked | outliers)


def _machine_row(scales: Sequence[DeviationScale], machine_type: FleetMachineType, name: str) -> dict[str, Any]:
    """Return the fields of a machine's row: type, blocks, deviations as bars, and the values that are outliers."""
    away = [(scale.result, scale.distance(name)) for scale in scales if name in scale.result.means]
    unlike = [any(one.machine == name for one in each.outliers) for each, _ in away]
    counts = sorted({each.blocks[name] for each, _ in away})
    bars = []
    for at, (each, distance) in enumerate(away):
        length = max(abs(distance) * _MAX_BAR_LENGTH, 0.5)
        y, text = _MAX_BAR_LENGTH - length * (distance >= 0), f"{100 * distance:+.0f} % of the farthest of its type"
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
        "kind": machine_type.name,
        "blocks": "\N{EN DASH}".join(map(str, counts[:1] + counts[1:][-1:])),
        "bars": bars,
        "width": max(len(bars), 1) * _BAR_PITCH,
        "unlike": "; ".join(_value_name(each) for (each, _), differs in zip(away, unlike, strict=True) if differs),
    }


def _value_name(result: TypeResult) -> str:
    return f"{result.cell.stack} in {result.cell.headline}" + (" (own value)" if result.is_baseline else "")


def _facts(machine_types: tuple[FleetMachineType, ...]) -> Iterator[tuple[str, tuple[str, ...]]]:
    yield "machines", tuple(join_some(machine_type.machines) for machine_type in machine_types)
    for rows in zip(*(describe_facts(machine_type.facts) for machine_type in machine_types), strict=True):
        yield rows[0][0], tuple(text for _, text in rows)

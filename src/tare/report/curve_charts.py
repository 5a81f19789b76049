"""Charts of curves: over a sweep, the percentiles of a latency, the time of a load, or the runs of a history.

They reproduce charts of the papers: the 2017 paper's Figures 3 and 5 (throughput against clients, mean ± SD), the OSv
paper's Figures 2 to 4 (responses and latency against the rate of requests, with the SD shaded), and VTmark's Figures 6
(percent of bare metal against processes) and 8 (responses by type, on a logarithmic axis).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tare.model.trial import Sweep
from tare.report.chart_svg import (
    Area,
    Chart,
    create_curve_area,
    draw_colored_group,
    draw_legend,
    draw_mark,
    draw_path,
    draw_text,
    px,
)
from tare.report.chart_theme import WIDTH, SeriesStyle, stack_style
from tare.report.numbers import choose_scale, format_interval, format_plus_minus, format_ratio, point
from tare.report.svg_axes import Axis, Scale, format_tick, linear_scale, log_scale, ratio_scale
from tare.statistics.cells import Cell

_SIZE = (WIDTH + 40, 220)
_DENSE = 12  # with more points, spreads are shaded, because lines would hide each other
_DESCRIBED = 150  # marks with a tooltip, which takes about 150 bytes of the page
_ORDERS = 50.0  # times and memory are drawn on a logarithmic axis from this spread on
_WIDE = 20.0  # points of a sweep are on a logarithmic axis from this spread on
_PANEL, _EMPTY_PANEL, _GAP = 130, 24, 34
_MARKED = 12  # points of a line over time for each mark
_TITLE = 22  # height of the title of the values, which is above the area because it may be long
_ROOM = 0.04  # at both ends of an axis, as a share of it


@dataclass(frozen=True)
class SweepContext:
    """Title of a metric, its sweep, and all stacks of the run, whose order fixes their colors."""

    title: str
    sweep: Sweep
    stacks: Sequence[str]


class Percentile(NamedTuple):
    """Percentile of a stack's latency: its name and its seconds."""

    stack: str
    name: str
    seconds: float


class Rate(NamedTuple):
    """Responses of a type per second by a stack, at a second of the load."""

    stack: str
    kind: str
    second: float
    rate: float


class Spot(NamedTuple):
    """Point of a curve: its place, its value, the bounds of its spread, and its tooltip."""

    at: float
    low: float
    value: float
    high: float
    text: str = ""


StackCurves = Mapping[str, Sequence[Spot]]  # by stack


def draw_sweep(
    cells: Sequence[Cell], context: SweepContext, spreads: Mapping[tuple[str, float | None], float] | None = None
) -> Chart | None:
    """Draw means against the points of a sweep, a line for each stack, with the SD over trials.

    With `spreads`, which are SDs within trials by stack and point, one SD above the mean is shaded instead.
    """
    shown = [cell for cell in cells if cell.mean is not None and cell.point is not None]
    if len({cell.point for cell in shown}) < 2 or not any(cell.mean for cell in shown):
        return None
    unit = choose_scale(max(abs(cell.mean or 0.0) for cell in shown), shown[0].unit)
    lines = _group_by_stack((cell.stack, _create_spot(cell, context.sweep, unit.factor, spreads)) for cell in shown)
    spots = [spot for line in lines.values() for spot in line]
    above = [spot.value for spot in spots if spot.value > 0]
    orders = shown[0].unit in ("s", "bytes") and len(above) == len(spots) and max(above) > _ORDERS * min(above)
    least, most = min(spot.low for spot in spots), max(spot.high for spot in spots)
    up = (
        log_scale(max(least, min(above) / 2), most, format_tick)
        if orders
        else linear_scale(min(least, 0.0), most + abs(most) * _ROOM, format_tick)
    )
    spread = "mean, shaded: one SD above it" if spreads is not None else "mean ± SD"
    title = f"{context.title}, {unit.label} ({spread})"
    requested = _requested_points(spots, unit.factor) if is_answer_rate(shown[0], context.sweep) else ()
    return _draw_sweep_curves(lines, context, (up, title), requested, shaded=spreads is not None)


def _requested_points(spots: Sequence[Spot], factor: float) -> Sequence[tuple[float, float]]:
    """Return the points of values equal to the requested rate, up to the largest value."""
    most = max(spot.high for spot in spots)
    requested = [(at, at / factor) for at in sorted({spot.at for spot in spots})]
    return [place for place in requested if place[1] <= most] or requested[:1]


def is_answer_rate(cell: Cell, sweep: Sweep) -> bool:
    """Return whether a metric is the rate of responses to the swept rate of requests."""
    return cell.unit == sweep.unit != "" and cell.better == "higher"


def draw_percents(cells: Sequence[Cell], context: SweepContext, baseline: str) -> Chart | None:
    """Draw the change from the baseline against the points of a sweep, with its interval."""
    shown = [cell for cell in cells if cell.ratio and cell.point is not None and cell.verdict != "baseline"]
    if len({cell.point for cell in shown}) < 2:
        return None
    lines = _group_by_stack(
        (
            cell.stack,
            Spot(
                *(cell.point or 0.0, cell.low or cell.ratio or 0.0, cell.ratio or 0.0, cell.high or cell.ratio or 0.0),
                f"{_describe_point(cell, context.sweep)}: {format_ratio(cell)} {format_interval(cell)}".rstrip(),
            ),
        )
        for cell in shown
    )
    up = ratio_scale([end for line in lines.values() for spot in line for end in spot[1:4]])
    baseline_at = [(at, 1.0) for at in sorted({spot.at for line in lines.values() for spot in line})]
    return _draw_sweep_curves(
        lines, context, (up, f"{context.title}, change from {baseline}"), baseline_at, shaded=False
    )


def draw_percentiles(values: Sequence[Percentile], stacks: Sequence[str]) -> Chart | None:
    """Draw the latency of each stack from percentile to percentile, on a logarithmic axis."""
    names = list(dict.fromkeys(each.name for each in values))
    above = [each.seconds for each in values if each.seconds > 0]
    if len(names) < 3 or len(above) < len(values):
        return None
    unit = choose_scale(max(above), "s")
    lines = _group_by_stack(
        (
            each.stack,
            Spot(names.index(each.name), value, value, value, f"{each.stack}, {each.name}: {format_tick(value)}"),
        )
        for each in values
        for value in [each.seconds / unit.factor]
    )
    up = log_scale(min(above) / unit.factor, max(above) / unit.factor, format_tick)
    looks, top = _styles_and_legend(lines, stacks, f"latency, {unit.label}")
    area = create_curve_area(top[1], _SIZE, evenly_spaced_scale(names), up)
    return area.create_chart((*top[0], *area.draw_axes("percentile", grid=False), *draw_curves(area, lines, looks)))


def draw_answer_kinds(rates: Sequence[Rate], stacks: Sequence[str]) -> Chart | None:
    """Draw a panel for each type of response over the time of a load, on an axis that is logarithmic above 1."""
    if len({rate.second for rate in rates}) < 2:
        return None
    names = list(dict.fromkeys(rate.kind for rate in rates))
    across = linear_scale(0.0, max(rate.second for rate in rates), format_tick)
    looks, (parts, top) = _styles_and_legend(dict.fromkeys(rate.stack for rate in rates), stacks, "")
    for name in names:
        most = max(rate.rate for rate in rates if rate.kind == name)
        lines = _group_by_stack(
            (rate.stack, Spot(rate.second, rate.rate, rate.rate, rate.rate)) for rate in rates if rate.kind == name
        )
        area = create_curve_area(
            top + _TITLE, (_SIZE[0], _PANEL if most else _EMPTY_PANEL), across, _scale_from_zero(most)
        )
        parts.append(draw_text(f"{name}, per second{'' if most else ': none'}", 6, top + _TITLE - 8))
        parts += area.draw_axes("seconds since the load began" if name == names[-1] else "", grid=False)
        for at, (stack, line) in enumerate(lines.items()):  # marks at different seconds, so that none hides another
            marked = line[at * _MARKED // len(lines) :: _MARKED]
            parts.append(
                draw_colored_group(
                    looks[stack].color, [_draw_line(area, line, looks[stack]), *_draw_marks(area, marked, looks[stack])]
                )
            )
        top += area.height + _GAP
    return area.create_chart(parts)


def _scale_from_zero(maximum: float) -> Scale:
    """Return an axis from zero that is linear below one and logarithmic above."""
    ticks = [0, 1, *(10**power for power in range(1, 10) if 10**power <= maximum)]
    axis = Axis(0.0, max(1.0, maximum) * 1.1, 1.0)
    return Scale(axis, tuple((axis.position(tick), format_tick(tick)) for tick in ticks))


def _create_spot(
    cell: Cell, sweep: Sweep, factor: float, spreads: Mapping[tuple[str, float | None], float] | None
) -> Spot:
    mean, spread = cell.mean or 0.0, cell.sd or 0.0
    low = mean - spread if spreads is None else mean
    high = mean + (spread if spreads is None else spreads.get((cell.stack, cell.point), 0.0))
    tooltip = f"{_describe_point(cell, sweep)}: {format_plus_minus(mean, cell.sd, cell.unit)}"
    return Spot(cell.point or 0.0, low / factor, mean / factor, high / factor, tooltip)


def _describe_point(cell: Cell, sweep: Sweep) -> str:
    return f"{cell.stack} at {point(cell.point, sweep.unit)}"


def _draw_sweep_curves(
    lines: StackCurves,
    context: SweepContext,
    upward: tuple[Scale, str],
    dashed: Sequence[tuple[float, float]],
    *,
    shaded: bool,
) -> Chart:
    """Draw lines over a sweep with an upright axis and its title, and a dashed line through the points `dashed`."""
    points = sorted({spot.at for line in lines.values() for spot in line})
    unit = context.sweep.unit
    if context.sweep.name == "percentile":  # 99 and 99.9 are as far from each other as 90 and 99
        across = evenly_spaced_scale([format_tick(each) for each in points])
        lines = {stack: [spot._replace(at=points.index(spot.at)) for spot in line] for stack, line in lines.items()}
        dashed = [(points.index(at), value) for at, value in dashed]
    else:
        across = _sweep_scale(points, unit)
    looks, (parts, top) = _styles_and_legend(lines, context.stacks, upward[1])
    area = create_curve_area(top, _SIZE, across, upward[0])
    name = f"{context.sweep.name}, {unit}" if unit and unit != "bytes" else context.sweep.name
    parts += area.draw_axes(name, grid=False)
    if dashed:
        parts.append(draw_path(area.line_path(dashed), "level"))
    parts += draw_curves(area, lines, looks, shaded=shaded or len(points) > _DENSE)
    return area.create_chart(parts)


def _sweep_scale(points: Sequence[float], unit: str) -> Scale:
    """Return the axis of a sweep, with a tick at each point."""
    is_log = points[0] > 0 and points[-1] / points[0] > _WIDE
    ends = [math.log(each) if is_log else each for each in (points[0], points[-1])]
    room = (ends[1] - ends[0]) * _ROOM
    axis = Axis(ends[0] - room, ends[1] + room, None)
    return Scale(
        axis, tuple((axis.position(math.log(at) if is_log else at), _format_point(at, unit)) for at in points), is_log
    )


def _format_point(value: float, unit: str) -> str:
    """Format a point of a sweep as a short label."""
    if unit == "bytes":
        return format_plus_minus(value, None, unit)
    return f"{format_tick(value / 1000)}k" if value >= 10_000 else format_tick(value)


def evenly_spaced_scale(names: Sequence[str]) -> Scale:
    """Return an axis on which the names are evenly spaced."""
    axis = Axis(-0.4, len(names) - 0.6, None)
    return Scale(axis, tuple((axis.position(at), name) for at, name in enumerate(names)))


def _group_by_stack(spots: Iterable[tuple[str, Spot]]) -> dict[str, list[Spot]]:
    """Return the points of each stack in the order of the axis."""
    lines: dict[str, list[Spot]] = {}
    for stack, spot in spots:
        lines.setdefault(stack, []).append(spot)
    return {stack: sorted(line) for stack, line in lines.items()}


def _styles_and_legend(
    seen: Mapping[str, object], stacks: Sequence[str], title: str
) -> tuple[dict[str, SeriesStyle], tuple[list[str], float]]:
    """Return the styles of the stacks in `seen`, and title and legend with the height at which they end."""
    looks = {stack: stack_style(stack, stacks) for stack in stacks if stack in seen}
    parts, top = draw_legend(looks, 6, _SIZE[0] + 40, _TITLE if title else 0)
    return looks, ([draw_text(title, 6, 15)] * bool(title) + parts, top)


def draw_curves(
    area: Area,
    lines: StackCurves,
    styles: Mapping[str, SeriesStyle],
    *,
    shaded: bool = False,
    has_descriptions: bool | None = None,
) -> list[str]:
    """Draw a line with spreads and marks for each stack; marks have no tooltips if there are very many."""
    if has_descriptions is None:
        has_descriptions = sum(map(len, lines.values())) <= _DESCRIBED
    return [
        draw_colored_group(
            styles[stack].color,
            [
                _draw_shade(area, line) if shaded else _draw_spreads(area, line),
                _draw_line(area, line, styles[stack]),
                *_draw_marks(area, line, styles[stack], has_descriptions=has_descriptions),
            ],
        )
        for stack, line in lines.items()
    ]


def _draw_line(area: Area, line: Sequence[Spot], series_style: SeriesStyle) -> str:
    return draw_path(area.line_path([(spot.at, spot.value) for spot in line]), "line", dash=series_style.dash)


def _draw_marks(
    area: Area, line: Sequence[Spot], series_style: SeriesStyle, *, has_descriptions: bool = True
) -> list[str]:
    return [
        draw_mark(area.x_of(spot.at), area.y_of(spot.value), series_style.shape, spot.text * has_descriptions)
        for spot in line
    ]


def _draw_spreads(area: Area, line: Sequence[Spot]) -> str:
    ends = (f"M{px(area.x_of(spot.at))} {px(area.y_of(spot.low))}V{px(area.y_of(spot.high))}" for spot in line)
    return draw_path("".join(ends), "spread")


def _draw_shade(area: Area, line: Sequence[Spot]) -> str:
    back = [(spot.at, spot.low) for spot in reversed(line)]
    return draw_path(f"{area.line_path([*((spot.at, spot.high) for spot in line), *back])}Z", "shade")

"""Charts of values along something: a sweep, the percentiles of a latency, the time of a load, or runs of a history.

They are those of the papers: the 2017 paper's Figures 3 and 5 (throughput against clients, mean ± SD), the OSv paper's
Figures 2 to 4 (answers and latency against the rate of requests, with the SD shaded), and VTmark's Figures 6 (percent
of bare metal against processes) and 8 (answers by their kind, on a logarithmic axis).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tare.model.trial import Sweep
from tare.report.chart_svg import Area, Chart, curve_area, group, legend, mark, path, px, text
from tare.report.chart_theme import WIDTH, Look, stack_look
from tare.report.numbers import estimate, interval, plus_minus, point, scale
from tare.report.svg_axes import Axis, Scale, log_scale, number, ratio_scale, scale_of
from tare.statistics.cells import Cell

_SIZE = (WIDTH + 40, 220)
_DENSE = 12  # points from which on spreads are shaded, as lines would hide each other
_DESCRIBED = 150  # marks whose values a pointer shows; each takes some 150 bytes of the page
_ORDERS = 50.0  # times and memory are drawn on a logarithmic axis from this spread on
_WIDE = 20.0  # points of a sweep are on a logarithmic axis from this spread on
_PANEL, _EMPTY_PANEL, _GAP = 130, 24, 34
_MARKED = 12  # moments of a line along time, of which one has a mark
_TITLE = 22  # height of the title of the values, which stands above: it can be as long as it is there
_ROOM = 0.04  # at the ends of an axis, a share of it


@dataclass(frozen=True)
class Along:
    """What is drawn, along what: the metric's title, the sweep, and all stacks of the run, which fix their colors."""

    title: str
    swept: Sweep
    stacks: Sequence[str]


class Percentile(NamedTuple):
    """A percentile of a stack's latency: its name, its place among the others, and seconds."""

    stack: str
    name: str
    seconds: float


class Rate(NamedTuple):
    """How many answers of a kind a stack gave each second, at a moment of the load."""

    stack: str
    kind: str
    second: float
    rate: float


class Spot(NamedTuple):
    """A value of a line: where it is, the ends of its spread, and its description."""

    at: float
    low: float
    value: float
    high: float
    text: str = ""


Lines = Mapping[str, Sequence[Spot]]  # by stack


def sweep(
    cells: Sequence[Cell], along: Along, spreads: Mapping[tuple[str, float | None], float] | None = None
) -> Chart | None:
    """Draw means against the points of a sweep, a line for each stack, with the SD over trials.

    With `spreads`, the SD within trials by stack and point, one of them above the mean is shaded in its place.
    """
    shown = [cell for cell in cells if cell.mean is not None and cell.point is not None]
    if len({cell.point for cell in shown}) < 2 or not any(cell.mean for cell in shown):
        return None
    unit = scale(max(abs(cell.mean or 0.0) for cell in shown), shown[0].unit)
    lines = _by_stack((cell.stack, _spot(cell, along.swept, unit.factor, spreads)) for cell in shown)
    spots = [spot for line in lines.values() for spot in line]
    above = [spot.value for spot in spots if spot.value > 0]
    orders = shown[0].unit in ("s", "bytes") and len(above) == len(spots) and max(above) > _ORDERS * min(above)
    least, most = min(spot.low for spot in spots), max(spot.high for spot in spots)
    up = (
        log_scale(max(least, min(above) / 2), most, number)
        if orders
        else scale_of(min(least, 0.0), most + abs(most) * _ROOM, number)
    )
    spread = "mean, shaded: one SD above it" if spreads is not None else "mean ± SD"
    title = f"{along.title}, {unit.label} ({spread})"
    asked = _as_asked(spots, unit.factor) if is_answered(shown[0], along.swept) else ()
    return _swept(lines, along, (up, title), asked, shaded=spreads is not None)


def _as_asked(spots: Sequence[Spot], factor: float) -> Sequence[tuple[float, float]]:
    """Return where a value would be if it followed what was asked for, as far as values reach."""
    most = max(spot.high for spot in spots)
    asked = [(at, at / factor) for at in sorted({spot.at for spot in spots})]
    return [place for place in asked if place[1] <= most] or asked[:1]


def is_answered(cell: Cell, swept: Sweep) -> bool:
    """Return whether values could follow what is swept: answers to a rate of requests, of which more is better."""
    return cell.unit == swept.unit != "" and cell.better == "higher"


def percents(cells: Sequence[Cell], along: Along, baseline: str) -> Chart | None:
    """Draw the percent of the baseline against the points of a sweep, with the intervals."""
    shown = [cell for cell in cells if cell.ratio and cell.point is not None and cell.verdict != "baseline"]
    if len({cell.point for cell in shown}) < 2:
        return None
    lines = _by_stack(
        (
            cell.stack,
            Spot(
                *(cell.point or 0.0, cell.low or cell.ratio or 0.0, cell.ratio or 0.0, cell.high or cell.ratio or 0.0),
                f"{_at(cell, along.swept)}: {estimate(cell)} {interval(cell)}".rstrip(),
            ),
        )
        for cell in shown
    )
    up = ratio_scale([end for line in lines.values() for spot in line for end in spot[1:4]])
    baseline_at = [(at, 1.0) for at in sorted({spot.at for line in lines.values() for spot in line})]
    return _swept(lines, along, (up, f"{along.title}, percent of {baseline}"), baseline_at, shaded=False)


def percentiles(found: Sequence[Percentile], stacks: Sequence[str]) -> Chart | None:
    """Draw the latency of each stack from percentile to percentile, on a logarithmic axis."""
    names = list(dict.fromkeys(each.name for each in found))
    above = [each.seconds for each in found if each.seconds > 0]
    if len(names) < 3 or len(above) < len(found):
        return None
    unit = scale(max(above), "s")
    lines = _by_stack(
        (each.stack, Spot(names.index(each.name), value, value, value, f"{each.stack}, {each.name}: {number(value)}"))
        for each in found
        for value in [each.seconds / unit.factor]
    )
    up = log_scale(min(above) / unit.factor, max(above) / unit.factor, number)
    looks, top = _looks(lines, stacks, f"latency, {unit.label}")
    area = curve_area(top[1], _SIZE, equally_far(names), up)
    return area.chart((*top[0], *area.axes("percentile", grid=False), *drawn_lines(area, lines, looks)))


def kinds(rates: Sequence[Rate], stacks: Sequence[str]) -> Chart | None:
    """Draw a panel for each kind of answer along the time of a load, on an axis that is logarithmic above one."""
    if len({rate.second for rate in rates}) < 2:
        return None
    names = list(dict.fromkeys(rate.kind for rate in rates))
    across = scale_of(0.0, max(rate.second for rate in rates), number)
    looks, (parts, top) = _looks(dict.fromkeys(rate.stack for rate in rates), stacks, "")
    for name in names:
        most = max(rate.rate for rate in rates if rate.kind == name)
        lines = _by_stack(
            (rate.stack, Spot(rate.second, rate.rate, rate.rate, rate.rate)) for rate in rates if rate.kind == name
        )
        area = curve_area(top + _TITLE, (_SIZE[0], _PANEL if most else _EMPTY_PANEL), across, _from_zero(most))
        parts.append(text(f"{name}, each second{'' if most else ': none'}", 6, top + _TITLE - 8))
        parts += area.axes("seconds since the load began" if name == names[-1] else "", grid=False)
        for at, (stack, line) in enumerate(lines.items()):  # marks at moments of its own, so that each is seen
            marked = line[at * _MARKED // len(lines) :: _MARKED]
            parts.append(
                group(looks[stack].color, [_line(area, line, looks[stack]), *_marks(area, marked, looks[stack])])
            )
        top += area.height + _GAP
    return area.chart(parts)


def _from_zero(most: float) -> Scale:
    """Return an axis from zero that is linear below one and logarithmic above."""
    ticks = [0, 1, *(10**power for power in range(1, 10) if 10**power <= most)]
    axis = Axis(0.0, max(1.0, most) * 1.1, 1.0)
    return Scale(axis, tuple((axis.place(tick), number(tick)) for tick in ticks))


def _spot(cell: Cell, swept: Sweep, factor: float, spreads: Mapping[tuple[str, float | None], float] | None) -> Spot:
    mean, spread = cell.mean or 0.0, cell.sd or 0.0
    low = mean - spread if spreads is None else mean
    high = mean + (spread if spreads is None else spreads.get((cell.stack, cell.point), 0.0))
    said = f"{_at(cell, swept)}: {plus_minus(mean, cell.sd, cell.unit)}"
    return Spot(cell.point or 0.0, low / factor, mean / factor, high / factor, said)


def _at(cell: Cell, swept: Sweep) -> str:
    return f"{cell.stack} at {point(cell.point, swept.unit)}"


def _swept(
    lines: Lines, along: Along, upward: tuple[Scale, str], dashed: Sequence[tuple[float, float]], *, shaded: bool
) -> Chart:
    """Draw lines along a sweep on an upright axis with a title, and a dashed line through these places."""
    points = sorted({spot.at for line in lines.values() for spot in line})
    unit = along.swept.unit
    if along.swept.name == "percentile":  # 99 and 99.9 are as far from each other as 90 and 99
        across = equally_far([number(each) for each in points])
        lines = {stack: [spot._replace(at=points.index(spot.at)) for spot in line] for stack, line in lines.items()}
        dashed = [(points.index(at), value) for at, value in dashed]
    else:
        across = _points(points, unit)
    looks, (parts, top) = _looks(lines, along.stacks, upward[1])
    area = curve_area(top, _SIZE, across, upward[0])
    name = f"{along.swept.name}, {unit}" if unit and unit != "bytes" else along.swept.name
    parts += area.axes(name, grid=False)
    if dashed:
        parts.append(path(area.through(dashed), "level"))
    parts += drawn_lines(area, lines, looks, shaded=shaded or len(points) > _DENSE)
    return area.chart(parts)


def _points(points: Sequence[float], unit: str) -> Scale:
    """Return the axis of a sweep, with a tick at each point."""
    is_log = points[0] > 0 and points[-1] / points[0] > _WIDE
    ends = [math.log(each) if is_log else each for each in (points[0], points[-1])]
    room = (ends[1] - ends[0]) * _ROOM
    axis = Axis(ends[0] - room, ends[1] + room, None)
    return Scale(axis, tuple((axis.place(math.log(at) if is_log else at), _point(at, unit)) for at in points), is_log)


def _point(value: float, unit: str) -> str:
    """Write a point of a sweep, short."""
    if unit == "bytes":
        return plus_minus(value, None, unit)
    return f"{number(value / 1000)}k" if value >= 10_000 else number(value)


def equally_far(names: Sequence[str]) -> Scale:
    """Return the axis of names, by their places among each other."""
    axis = Axis(-0.4, len(names) - 0.6, None)
    return Scale(axis, tuple((axis.place(at), name) for at, name in enumerate(names)))


def _by_stack(spots: Iterable[tuple[str, Spot]]) -> dict[str, list[Spot]]:
    """Return the lines of the stacks, along the axis."""
    lines: dict[str, list[Spot]] = {}
    for stack, spot in spots:
        lines.setdefault(stack, []).append(spot)
    return {stack: sorted(line) for stack, line in lines.items()}


def _looks(
    seen: Mapping[str, object], stacks: Sequence[str], title: str
) -> tuple[dict[str, Look], tuple[list[str], float]]:
    """Return the looks of the stacks that are seen, and their legend below the title, with where it ends."""
    looks = {stack: stack_look(stack, stacks) for stack in stacks if stack in seen}
    parts, top = legend(looks, 6, _SIZE[0] + 40, _TITLE if title else 0)
    return looks, ([text(title, 6, 15)] * bool(title) + parts, top)


def drawn_lines(
    area: Area, lines: Lines, looks: Mapping[str, Look], *, shaded: bool = False, described: bool | None = None
) -> list[str]:
    """Draw a line with spreads and marks for each stack; those of very many values have no descriptions."""
    if described is None:
        described = sum(map(len, lines.values())) <= _DESCRIBED
    return [
        group(
            looks[stack].color,
            [
                _shade(area, line) if shaded else _spreads(area, line),
                _line(area, line, looks[stack]),
                *_marks(area, line, looks[stack], described=described),
            ],
        )
        for stack, line in lines.items()
    ]


def _line(area: Area, line: Sequence[Spot], look: Look) -> str:
    return path(area.through([(spot.at, spot.value) for spot in line]), "line", dash=look.dash)


def _marks(area: Area, line: Sequence[Spot], look: Look, *, described: bool = True) -> list[str]:
    return [mark(area.x(spot.at), area.y(spot.value), look.shape, spot.text * described) for spot in line]


def _spreads(area: Area, line: Sequence[Spot]) -> str:
    ends = (f"M{px(area.x(spot.at))} {px(area.y(spot.low))}V{px(area.y(spot.high))}" for spot in line)
    return path("".join(ends), "spread")


def _shade(area: Area, line: Sequence[Spot]) -> str:
    back = [(spot.at, spot.low) for spot in reversed(line)]
    return path(f"{area.through([*((spot.at, spot.high) for spot in line), *back])}Z", "shade")

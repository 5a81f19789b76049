"""Charts of ratios, values, starts, footprints and turns, and heat maps, from cells and trials.

`tare.report.curve_charts` has those over a sweep or over time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from tare.model.trial import Mark
from tare.model.units import format_duration
from tare.report.chart_svg import (
    Chart,
    RowChart,
    draw_bar,
    draw_colored_group,
    draw_mark,
    draw_path,
    draw_text,
    names_width,
    px,
)
from tare.report.chart_theme import DOT, ROW_HEIGHT, SAME, STACKS, VERDICTS, WIDTH, WORSE, SeriesStyle
from tare.report.numbers import choose_scale, cut, format_interval, format_plus_minus, format_ratio, relative_sd
from tare.report.svg_axes import format_tick, linear_scale, log_scale, ratio_scale, round_numbers
from tare.statistics.cells import Cell
from tare.statistics.stalls import SLOW_SHARE

# Marks of the timeline in order of time. The last color is for marks that only one technology has.
MARKS = ("outer layers", "engine", "started", "kernel", "userspace", "ready")
PHASES = ("#5A3CC3", "#695A2D", "#56B4E9", "#0072B2", "#E69F00", "#009E73", "#CC79A7")
# Classes of a turn's speed, and the row of steal time.
USUAL, SLOWER, SLOWEST = (
    "usual speed",
    f"{50 * SLOW_SHARE:g} % slower or more",
    f"{100 * SLOW_SHARE:g} % slower or more",
)
STEAL = "steal time"
SPEED_COLORS = {USUAL: DOT, SLOWER: "#E69F00", SLOWEST: WORSE, STEAL: SAME}
VISIBLE_STEAL_SHARE = 0.01  # of the CPU time
_TURNS_WIDTH, _SMALL_ROW = 960, 18
_THICK = 1 / 15  # thickness of a turn for each tenth of the usual speed, as a share of the row
_MAX_MARKS = 140  # in a chart; a mark takes about 80 bytes of the page
_WIDE = 8.0  # values that spread more widely are drawn on a logarithmic axis
# Fields of a heat map go from orange over gray to blue, which readers with common color blindnesses can distinguish.
# The colors are the same on a dark page, so the numbers in the fields have separate colors.
_FIELDS = ("#a34000", "#e38b4a", "#f2efe9", "#74b3dd", "#00568a")
_FIELD_AT = (-1.0, -0.4, 0.0, 0.4, 1.0)
_FARTHEST = math.log(4)  # factors beyond this have the same color
_DARK = 0.62  # share of `_FARTHEST` from which on numbers are white
_FIELD, _FIELD_HEIGHT, _SPREAD = 92, 26, 26


class TurnBar(NamedTuple):
    """Turn of a stack: `speed` is relative to its usual speed, `steal` the share of steal time, `text` the tooltip."""

    stack: str
    began: float
    seconds: float
    speed: float
    steal: float
    text: str

    @property
    def speed_class(self) -> str:
        """Class of the turn's speed: `USUAL`, `SLOWER` or `SLOWEST`."""
        return SLOWEST if self.speed <= 1 - SLOW_SHARE else SLOWER if self.speed <= 1 - SLOW_SHARE / 2 else USUAL


def thin_out(values: Sequence[Any], max_count: int) -> Sequence[Any]:
    """Return at most `max_count` evenly spaced values, because more are unreadable and make the page large."""
    return values[:: -(-len(values) // max_count)] if len(values) > max_count else values


def thin_out_values(values: Mapping[str, Sequence[float]]) -> Mapping[str, Sequence[float]]:
    """Return as many values of each stack as a chart can show."""
    return {stack: thin_out(members, max(_MAX_MARKS // len(values), 1)) for stack, members in values.items()}


def draw_ratios(cells: Sequence[Cell], baseline: str) -> Chart | None:
    """Draw each stack's ratio to the baseline with its interval, and the ratios of its blocks as faint ticks."""
    shown = {cell.stack: cell for cell in cells if cell.ratio is not None and cell.verdict != "baseline"}
    if not shown:
        return None
    most = max(_MAX_MARKS // len(shown), 1)
    blocks = {stack: thin_out(cell.ratios, most) for stack, cell in shown.items()}
    known = [end for cell in shown.values() for end in interval_bounds(cell)]
    rows = RowChart(list(shown), ratio_scale([*known, *(ratio for ratios in blocks.values() for ratio in ratios)]))
    x, parts = rows.area.x_of, [rows.area.draw_level(1.0)]
    for stack, cell in shown.items():
        color, shape = VERDICTS[cell.verdict]
        y, tooltip = rows.y_of(stack), f"{stack}: {format_ratio(cell)} {format_interval(cell)}, {cell.verdict}"
        ticks = "".join(f"M{px(x(each))} {px(y - 5)}v10" for each in blocks[stack])
        parts.append(draw_path(ticks, "ink", **{"stroke-opacity": "0.3"}))
        parts.append(draw_colored_group(color, draw_interval(rows, y, interval_bounds(cell), shape, tooltip)))
    better = "more" if next(iter(shown.values())).better == "higher" else "less"
    return rows.create_chart(f"change from {baseline}, {better} is better", parts)


def interval_bounds(cell: Cell) -> tuple[float, float, float]:
    """Return the lower bound, the estimate and the upper bound of a ratio; three equal values without an interval."""
    ratio = cell.ratio or 1.0
    return cell.low or ratio, ratio, cell.high or ratio


def draw_interval(rows: RowChart, y: float, ends: tuple[float, float, float], shape: str, title: str) -> list[str]:
    """Draw an estimate with its interval in a row."""
    low, middle, high = map(rows.area.x_of, ends)
    return [draw_bar((low, high), y, 2.5, "mark"), draw_mark(middle, y, shape, title)]


def draw_strip(cells: Sequence[Cell], values: Mapping[str, Sequence[float]], title: str) -> Chart | None:
    """Draw the raw values of a metric without a sweep, and the mean of each stack."""
    means = {cell.stack: cell.mean for cell in cells if cell.mean is not None}
    known = [value for stack, members in values.items() if stack in means for value in members]
    if not known:
        return None
    unit = choose_scale(max(map(abs, known)), cells[0].unit)
    least, most = min(known) / unit.factor, max(known) / unit.factor
    room = (most - least) * 0.06 or abs(most) * 0.01 or 1.0
    is_wide = least > 0 and most / least > _WIDE
    axis = log_scale(least, most, format_tick) if is_wide else linear_scale(least - room, most + room, format_tick)
    rows = RowChart(list(means), axis)
    circles, ticks = [], []
    for stack, mean in means.items():
        y = rows.y_of(stack)
        places = (rows.area.x_of(value / unit.factor) for value in values.get(stack, ()))
        circles += [f'<circle cx="{px(x)}" cy="{px(y)}" r="3.5"/>' for x in places]
        ticks.append(f"M{px(rows.area.x_of(mean / unit.factor))} {px(y - 8)}v16")
    dots = f'<g fill="{DOT}" fill-opacity=".7">{"".join(circles)}</g>'
    parts = [dots, draw_path("".join(ticks), "ink", **{"stroke-width": "2"})]
    return rows.create_chart(f"{title}, {unit.label}" if unit.label else title, parts)


def draw_starts(moments: Mapping[str, Sequence[Mark]]) -> Chart | None:
    """Draw the time from mark to mark of each stack's start, with the total."""
    if not moments:
        return None
    most = max(marks[-1].seconds for marks in moments.values())
    unit = choose_scale(most, "s")
    names = sorted({each.name for marks in moments.values() for each in marks}, key=_mark_rank)
    series = {name: SeriesStyle(PHASES[_mark_rank(name)], "square") for name in names}
    rows = RowChart(list(moments), linear_scale(0.0, most / unit.factor, format_tick), series)
    parts: list[str] = []
    for stack, marks in moments.items():
        y, start = rows.y_of(stack), 0.0
        for each in marks:
            across = rows.area.x_of(start / unit.factor), rows.area.x_of(each.seconds / unit.factor)
            tooltip = f"{stack}, {each.name}: {format_duration(round(each.seconds - start, 6))}"
            parts.append(draw_bar(across, y, 15, "mark", title=tooltip, color=series[each.name].color))
            start = each.seconds
        x = rows.area.x_of(start / unit.factor)
        parts.append(draw_text(format_duration(start), x + 5, y + 4, kind="fine"))
    return rows.create_chart(f"{unit.label} since the request", parts, room=50)


def draw_bars(costs: Mapping[tuple[str, str], float], title: str) -> Chart | None:
    """Draw bytes of memory or disk of instances by stack and workload, the bars of a stack next to each other."""
    most = max(costs.values(), default=0.0)
    if most <= 0:
        return None
    chosen = choose_scale(most, "bytes")
    stacks, workloads = (list(dict.fromkeys(names)) for names in zip(*costs, strict=True))
    series = {name: SeriesStyle(STACKS[at % len(STACKS)], "square") for at, name in enumerate(workloads)}
    rows = RowChart(
        stacks, linear_scale(0.0, most / chosen.factor, format_tick), series, size=(WIDTH, 12), parts=len(workloads)
    )
    start, parts = rows.area.x_of(0.0), []
    for (stack, workload), cost in costs.items():
        x, y = rows.area.x_of(cost / chosen.factor), rows.y_of(stack, workloads.index(workload))
        amount = format_plus_minus(cost, None, "bytes")
        color = series[workload].color
        parts.append(draw_bar((start, x), y, 10, "mark", title=f"{stack} with {workload}: {amount}", color=color))
        parts.append(draw_text(amount, x + 4, y + 4, kind="fine"))
    return rows.create_chart(f"{title}, {chosen.label}", parts, room=60)


def draw_turns(bars: Sequence[TurnBar], stacks: Sequence[str], *, small: bool = False) -> Chart | None:
    """Draw turns over time, a row for each stack and a last row of steal time; faster turns are thicker.

    A `small` chart, of which the page has one for each block, has no legend and no tooltips.
    """
    if not bars:
        return None
    begin, end = min(each.began for each in bars), max(each.began + each.seconds for each in bars)
    taken = [each for each in bars if each.steal > VISIBLE_STEAL_SHARE]
    paces = {each.speed_class for each in bars} | ({STEAL} if taken else set())
    series = {pace: SeriesStyle(color, "square") for pace, color in SPEED_COLORS.items() if pace in paces and not small}
    present = {each.stack for each in bars}
    names = [*(stack for stack in stacks if stack in present), *([STEAL] if taken else [])]
    across = linear_scale(begin, end, format_tick, round_numbers(begin, end, 12))
    rows = RowChart(names, across, series, size=(_TURNS_WIDTH, _SMALL_ROW if small else ROW_HEIGHT))
    parts, places = [], dict[tuple[str, int], list[str]]()
    marks = [(each, each.stack, each.speed_class, each.speed) for each in bars]
    for each, row, pace, share in marks + [(each, STEAL, STEAL, each.steal) for each in taken]:
        y, thick = rows.y_of(row), max(round(min(share, 1.2) * 10), 1)
        start, stop = rows.area.x_of(each.began), rows.area.x_of(each.began + each.seconds)
        stop = max(stop, start + 2)  # wide enough to be visible
        if pace == SLOWEST and not small:
            parts.append(
                draw_bar(
                    (start, stop), y, thick * _THICK * rows.height, "mark", title=each.text, color=SPEED_COLORS[pace]
                )
            )
        else:
            places.setdefault((pace, thick), []).append(f"M{px(start)} {px(y)}h{px(stop - start)}")
    for (pace, thick), commands in places.items():  # one path for all turns of a thickness keeps the page small
        width = {"stroke-width": px(thick * _THICK * rows.height)}
        parts.append(draw_path("".join(commands), "turn", color=SPEED_COLORS[pace], **width))
    return rows.create_chart("seconds since the block's first turn", parts, grid=False)


def draw_heat_map(
    columns: Mapping[str, Sequence[Cell]], stacks: Sequence[str], *, with_spread: bool = False
) -> Chart | None:
    """Draw the change from the baseline as VTmark's Figures 4 and 5: stacks against headlines or metrics.

    The color shows the speed: of a metric of which less is better, the inverse. `with_spread` adds the relative
    standard deviation in brackets, as in VTmark's Figure 5.
    """
    fields = {
        (title, cell.stack): cell
        for title, cells in columns.items()
        for cell in cells
        if cell.ratio and cell.verdict != "baseline"
    }
    titles = list(dict.fromkeys(title for title, _ in fields))
    rows = [stack for stack in stacks if any(stack == other for _, other in fields)]
    if len(titles) < 2 or len(rows) < 2:
        return None
    width, left = _FIELD + _SPREAD * with_spread, names_width(rows)
    top = 20 + 3.6 * min(max(map(len, titles)), 30)  # for titles that rise by 30 degrees
    parts = []
    for at, title in enumerate(titles):
        turned = f"translate({px(left + width * (at + 0.4))} {px(top - 8)}) rotate(-30)"
        parts.append(f'<g transform="{turned}">{draw_text(cut(title, 30), 0, 0)}</g>')
    for at, stack in enumerate(rows):
        y = top + _FIELD_HEIGHT * at
        parts.append(draw_text(cut(stack, 24), left - 8, y + 17, "end"))
        for place, title in enumerate(titles):
            if cell := fields.get((title, stack)):
                parts.append(_draw_field(cell, left + width * place, y, width, with_spread=with_spread))
    right = left + width * len(titles) + 5 * min(len(titles[-1]), 30)
    return Chart(right, top + _FIELD_HEIGHT * len(rows) + 6, tuple(parts))


def _draw_field(cell: Cell, x: float, y: float, width: float, *, with_spread: bool) -> str:
    speed = math.log(cell.ratio or 1.0) * (1 if cell.better == "higher" else -1) / _FARTHEST
    spread = f" ({relative_sd(cell)})" if with_spread and relative_sd(cell) else ""
    size = f'x="{px(x)}" y="{px(y)}" width="{px(width)}" height="{_FIELD_HEIGHT}"'
    words = draw_text(
        f"{format_ratio(cell)}{spread}", x + width / 2, y + 17, "middle", "bright" if abs(speed) > _DARK else "dark"
    )
    return f'<rect {size} fill="{field_color(speed)}" class="field"/>{words}'


def field_color(speed: float) -> str:
    """Return the color of a field for a `speed` from -1 (slowest) over 0 (like the baseline) to 1 (fastest)."""
    speed = min(max(speed, -1.0), 1.0)
    after = next(at for at, place in enumerate(_FIELD_AT) if at and speed <= place)
    share = (speed - _FIELD_AT[after - 1]) / (_FIELD_AT[after] - _FIELD_AT[after - 1])
    ends = [[int(color[at : at + 2], 16) for at in (1, 3, 5)] for color in _FIELDS[after - 1 : after + 1]]
    return "#" + "".join(f"{round(one + (other - one) * share):02x}" for one, other in zip(*ends, strict=True))


def _mark_rank(name: str) -> int:
    return MARKS.index(name) if name in MARKS else len(MARKS)

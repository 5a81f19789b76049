"""Charts of ratios, values, starts, footprints and turns, and heat maps, from cells and trials.

`tare.report.curve_charts` has those over a sweep or over time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from tare.report.chart_svg import Chart, RowChart, bar, group, mark, names_width, path, px, text
from tare.report.chart_theme import DOT, ROW_HEIGHT, SAME, STACKS, VERDICTS, WIDTH, WORSE, Look
from tare.report.numbers import cut, estimate, interval, plus_minus, relative_sd, scale
from tare.report.svg_axes import Scale, log_scale, number, ratio_scale, round_numbers, scale_of
from tare.statistics.cells import Cell
from tare.statistics.stalls import SLOW


class Dot(NamedTuple):
    """A raw value of a trial: one dot of a strip."""

    stack: str
    block: int
    value: float


class Phase(NamedTuple):
    """What a stack's start takes until a mark of the timeline, from the mark before."""

    stack: str
    mark: str
    seconds: float


class Total(NamedTuple):
    """What a stack's start takes in all, with the text beside its bar."""

    stack: str
    seconds: float
    text: str


class Bar(NamedTuple):
    """What a stack costs with a workload."""

    stack: str
    workload: str
    value: float


class TurnBar(NamedTuple):
    """A turn of a stack: its share of the usual speed, the stolen share of the CPU time, and its description."""

    stack: str
    began: float
    seconds: float
    speed: float
    steal: float
    text: str

    @property
    def pace(self) -> str:
        """How fast it was, in words; `SLOWEST` if a fifth or more of the speed was missing."""
        return SLOWEST if self.speed <= 1 - SLOW else SLOWER if self.speed <= 1 - SLOW / 2 else USUAL


class Column(NamedTuple):
    """A column of a heat map: its title, and the cells of the stacks."""

    title: str
    cells: Sequence[Cell]


# What an instance does until each mark of its timeline; the last color is for marks that only one technology knows.
MARKS = ("outer layers", "engine", "started", "kernel", "userspace", "ready")
PHASES = ("#5A3CC3", "#695A2D", "#56B4E9", "#0072B2", "#E69F00", "#009E73", "#CC79A7")
# How fast a turn was, and the row below.
USUAL, SLOWER, SLOWEST = "usual speed", f"{50 * SLOW:g} % slower or more", f"{100 * SLOW:g} % slower or more"
STOLEN = "stolen CPU time"
PACES = {USUAL: DOT, SLOWER: "#E69F00", SLOWEST: WORSE, STOLEN: SAME}
VISIBLE = 0.01  # of the CPU time
_TURNS_WIDTH, _TURN_HEIGHT = 960, 16
_MOST_MARKS = 140  # in a chart: each takes some 80 bytes of the page
_WIDE = 8.0  # values that spread more widely are drawn on a logarithmic axis
# Fields of a heat map go from orange over grey to blue, which readers with the common color blindnesses can
# distinguish. A field is light in a dark page, too: its number has a color of its own.
_FIELDS = ("#a34000", "#e38b4a", "#f2efe9", "#74b3dd", "#00568a")
_FIELD_AT = (-1.0, -0.4, 0.0, 0.4, 1.0)
_FARTHEST = math.log(4)  # from here on, color says no more
_DARK = 0.62  # share of that from which on a number is white
_FIELD, _FIELD_HEIGHT, _SPREAD = 92, 26, 26


def thinned(values: Sequence[Any], most: int) -> Sequence[Any]:
    """Leave at most so many values, evenly spaced: a chart of very many is a blot, and makes the page large."""
    return values[:: -(-len(values) // most)] if len(values) > most else values


def fewer(dots: Sequence[Dot]) -> Sequence[Dot]:
    """Leave as many dots of each stack as a chart can show."""
    own: dict[str, list[Dot]] = {}
    for dot in dots:
        own.setdefault(dot.stack, []).append(dot)
    return [dot for each in own.values() for dot in thinned(each, max(_MOST_MARKS // len(own), 1))]


def ratios(cells: Sequence[Cell], baseline: str) -> Chart | None:
    """Draw each stack's ratio to the baseline with its interval, and the blocks' ratios faintly beside it."""
    shown = {cell.stack: cell for cell in cells if cell.ratio is not None and cell.verdict != "baseline"}
    if not shown:
        return None
    most = max(_MOST_MARKS // len(shown), 1)
    blocks = {stack: thinned(cell.ratios, most) for stack, cell in shown.items()}
    known = [end for cell in shown.values() for end in ends_of(cell)]
    rows = RowChart(list(shown), ratio_scale([*known, *(each for own in blocks.values() for each in own)]))
    x, parts = rows.area.x, [rows.area.level(1.0)]
    for stack, cell in shown.items():
        color, shape = VERDICTS[cell.verdict]
        y, said = rows.y(stack), f"{stack}: {estimate(cell)} {interval(cell)}, {cell.verdict}"
        ticks = "".join(f"M{px(x(each))} {px(y - 5)}v10" for each in blocks[stack])
        parts.append(path(ticks, "ink", **{"stroke-opacity": "0.3"}))
        parts.append(group(color, interval_at(rows, y, ends_of(cell), shape, said)))
    better = "more" if next(iter(shown.values())).better == "higher" else "less"
    return rows.chart(f"percent of {baseline}, {better} is better", parts)


def ends_of(cell: Cell) -> tuple[float, float, float]:
    """Return the low end, the estimate and the high end of a ratio; all are the same without an interval."""
    ratio = cell.ratio or 1.0
    return cell.low or ratio, ratio, cell.high or ratio


def interval_at(rows: RowChart, y: float, ends: tuple[float, float, float], shape: str, said: str) -> list[str]:
    """Draw an estimate with its interval in a row."""
    low, middle, high = map(rows.area.x, ends)
    return [bar((low, high), y, 2.5, "mark"), mark(middle, y, shape, said)]


def strip(cells: Sequence[Cell], dots: Sequence[Dot], title: str) -> Chart | None:
    """Draw the raw values of one metric off the sweep, and the mean of each stack."""
    means = {cell.stack: cell.mean for cell in cells if cell.mean is not None}
    dots = [dot for dot in dots if dot.stack in means]
    if not dots:
        return None
    unit = scale(max(abs(dot.value) for dot in dots), cells[0].unit)
    values = [dot.value / unit.factor for dot in dots]
    least, most = min(values), max(values)
    room = (most - least) * 0.06 or abs(most) * 0.01 or 1.0
    is_wide = least > 0 and most / least > _WIDE
    axis = log_scale(least, most, number) if is_wide else scale_of(least - room, most + room, number)
    rows = RowChart(list(means), axis)
    x, places = rows.area.x, [(value, dot) for value, dot in zip(values, dots, strict=True)]
    circles = (f'<circle cx="{px(x(value))}" cy="{px(rows.y(dot.stack))}" r="3.5"/>' for value, dot in places)
    parts = [f'<g fill="{DOT}" fill-opacity=".7">{"".join(circles)}</g>']
    ticks = "".join(f"M{px(x(mean / unit.factor))} {px(rows.y(stack) - 8)}v16" for stack, mean in means.items())
    parts.append(path(ticks, "ink", **{"stroke-width": "2"}))
    return rows.chart(f"{title}, {unit.label}" if unit.label else title, parts)


def starts(phases: Sequence[Phase], totals: Sequence[Total]) -> Chart | None:
    """Draw the stacked phases of each stack, with its total."""
    if not phases:
        return None
    most = max(total.seconds for total in totals)
    unit = scale(most, "s")
    names = sorted({phase.mark for phase in phases}, key=_rank)
    series = {name: Look(PHASES[_rank(name)], "square") for name in names}
    rows = RowChart([total.stack for total in totals], from_zero(most / unit.factor), series)
    ends, parts = dict.fromkeys((total.stack for total in totals), 0.0), []
    for phase in sorted(phases, key=lambda each: _rank(each.mark)):
        start = ends[phase.stack]
        ends[phase.stack] = start + phase.seconds / unit.factor
        across = rows.area.x(start), rows.area.x(ends[phase.stack])
        said = f"{phase.stack}, {phase.mark}: {plus_minus(phase.seconds, None, 's')}"
        parts.append(bar(across, rows.y(phase.stack), 15, "mark", title=said, color=series[phase.mark].color))
    for total in totals:
        x = rows.area.x(total.seconds / unit.factor)
        parts.append(text(total.text, x + 5, rows.y(total.stack) + 4, kind="fine"))
    return rows.chart(f"{unit.label} since the request", parts, room=50)


def bars(costs: Sequence[Bar], title: str, unit: str) -> Chart | None:
    """Draw the bars, those of a stack together."""
    most = max((each.value for each in costs), default=0.0)
    if most <= 0:
        return None
    chosen = scale(most, unit)
    workloads = list(dict.fromkeys(each.workload for each in costs))
    series = {name: Look(STACKS[at % len(STACKS)], "square") for at, name in enumerate(workloads)}
    stacks = list(dict.fromkeys(each.stack for each in costs))
    rows = RowChart(stacks, from_zero(most / chosen.factor), series, size=(WIDTH, 12), parts=len(workloads))
    start, parts = rows.area.x(0.0), []
    for each in costs:
        x, y = rows.area.x(each.value / chosen.factor), rows.y(each.stack, workloads.index(each.workload))
        said = plus_minus(each.value, None, unit)
        where = f"{each.stack} with {each.workload}: {said}"
        parts.append(bar((start, x), y, 10, "mark", title=where, color=series[each.workload].color))
        parts.append(text(said, x + 4, y + 4, kind="fine"))
    return rows.chart(f"{title}, {chosen.label}", parts, room=60)


def from_zero(most: float) -> Scale:
    """Return the axis of what is at least zero, without room at its ends."""
    return scale_of(0.0, most, number)


def turns(drawn: Sequence[TurnBar], stacks: Sequence[str]) -> Chart | None:
    """Draw turns along time, a row for each stack, and a last one of the stolen CPU time; a fast turn is thick."""
    if not drawn:
        return None
    begin, end = min(each.began for each in drawn), max(each.began + each.seconds for each in drawn)
    taken = [each for each in drawn if each.steal > VISIBLE]
    paces = {each.pace for each in drawn} | ({STOLEN} if taken else set())
    series = {pace: Look(color, "square") for pace, color in PACES.items() if pace in paces}
    names = [*stacks, *([STOLEN] if taken else [])]
    rows = RowChart(
        names, scale_of(begin, end, number, round_numbers(begin, end, 12)), series, size=(_TURNS_WIDTH, ROW_HEIGHT)
    )
    found: dict[str, list[str]] = {pace: [] for pace in series}
    for each in drawn:
        said = each.text if each.pace == SLOWEST else ""
        found[each.pace].append(_turn(rows, each, each.stack, each.speed, said))
    for each in taken:
        found[STOLEN].append(_turn(rows, each, STOLEN, each.steal, ""))
    parts = [group(series[pace].color, own) for pace, own in found.items()]
    return rows.chart("seconds since the block's first turn", parts, grid=False)


def _turn(rows: RowChart, turn: TurnBar, row: str, share: float, said: str) -> str:
    """Draw a turn: as wide as can be seen, and no thicker than its row."""
    start, end = rows.area.x(turn.began), rows.area.x(turn.began + turn.seconds)
    return bar((start, max(end, start + 2)), rows.y(row), min(share, 1.2) * _TURN_HEIGHT, "mark", title=said)


def heat(columns: Sequence[Column], stacks: Sequence[str], *, with_spread: bool = False) -> Chart | None:
    """Draw percent of the baseline as VTmark's Figures 4 and 5: stacks against headlines or metrics.

    Color is by speed: where less is better, the inverse counts. `with_spread` adds the relative standard deviation in
    brackets, as VTmark's Figure 5 has it.
    """
    fields = {
        (column.title, cell.stack): cell
        for column in columns
        for cell in column.cells
        if cell.ratio and cell.verdict != "baseline"
    }
    titles = list(dict.fromkeys(title for title, _ in fields))
    rows = [stack for stack in stacks if any(stack == own for _, own in fields)]
    if len(titles) < 2 or len(rows) < 2:
        return None
    width, left = _FIELD + _SPREAD * with_spread, names_width(rows)
    top = 20 + 3.6 * min(max(map(len, titles)), 30)  # for titles that rise by 30 degrees
    parts = [_tilted(cut(title, 30), left + width * (at + 0.4), top - 8) for at, title in enumerate(titles)]
    for at, stack in enumerate(rows):
        y = top + _FIELD_HEIGHT * at
        parts.append(text(cut(stack, 24), left - 8, y + 17, "end"))
        for place, title in enumerate(titles):
            if cell := fields.get((title, stack)):
                parts.append(_field(cell, left + width * place, y, width, with_spread=with_spread))
    right = left + width * len(titles) + 5 * min(len(titles[-1]), 30)
    return Chart(right, top + _FIELD_HEIGHT * len(rows) + 6, tuple(parts))


def _tilted(words: str, x: float, y: float) -> str:
    return f'<g transform="translate({px(x)} {px(y)}) rotate(-30)">{text(words, 0, 0)}</g>'


def _field(cell: Cell, x: float, y: float, width: float, *, with_spread: bool) -> str:
    speed = math.log(cell.ratio or 1.0) * (1 if cell.better == "higher" else -1) / _FARTHEST
    spread = f" ({relative_sd(cell)})" if with_spread and relative_sd(cell) else ""
    size = f'x="{px(x)}" y="{px(y)}" width="{px(width)}" height="{_FIELD_HEIGHT}"'
    words = text(
        f"{estimate(cell)}{spread}", x + width / 2, y + 17, "middle", "bright" if abs(speed) > _DARK else "dark"
    )
    return f'<rect {size} fill="{field_color(speed)}" class="field"/>{words}'


def field_color(speed: float) -> str:
    """Mix the color of a field: `speed` is from -1, slowest, over 0, as the baseline, to 1."""
    speed = min(max(speed, -1.0), 1.0)
    after = next(at for at, place in enumerate(_FIELD_AT) if at and speed <= place)
    share = (speed - _FIELD_AT[after - 1]) / (_FIELD_AT[after] - _FIELD_AT[after - 1])
    ends = [[int(color[at : at + 2], 16) for at in (1, 3, 5)] for color in _FIELDS[after - 1 : after + 1]]
    return "#" + "".join(f"{round(one + (other - one) * share):02x}" for one, other in zip(*ends, strict=True))


def _rank(name: str) -> int:
    return MARKS.index(name) if name in MARKS else len(MARKS)

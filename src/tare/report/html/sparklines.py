"""Small drawings of the page: telemetry of a trial, and turns of a block. The page has one for each cell and block.

Their text is the page's. They have fewer letters than charts, as there are hundreds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from tare.journal import Run
from tare.model.trials import Trial
from tare.report.chart_svg import text
from tare.report.chart_theme import DOT, SAME
from tare.report.charts import PACES, STOLEN, VISIBLE, TurnBar
from tare.report.html.turns import blocks_of, stretch
from tare.report.svg_axes import round_numbers
from tare.statistics.summary import Summary
from tare.telemetry.series import Series, series_of
from tare.units import format_duration, format_size

_AXIS = 30.0  # height of the axis of time
_WIDTH, _LEFT, _RIGHT = 360.0, 62.0, 10.0
_HEAD, _HEIGHT, _GAP = 16.0, 38.0, 6.0
_MOST = 160  # points of a line
_VISIBLE = 0.01  # CPUs that were stolen
_TURNS = 16_000  # of the whole page; each takes some ten bytes
_LEAST_TURNS, _MOST_TURNS = 200, 500  # of a block
_BLOCK_WIDTH, _ROW, _THICK = 960.0, 18.0, 12.0
_LETTER = 6.6  # the width of one

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Trace:
    """The drawing, and what it shows in words."""

    svg: Markup
    text: str


@dataclass(frozen=True)
class _Panel:
    """A line along time from zero to its largest value, which `most` has in words."""

    title: str
    points: Points
    most: str
    colour: str


def trace(run: Run, trial: Trial, names: Sequence[str], points: int = _MOST) -> Trace | None:
    """Draw the telemetry of a trial, from the first of these files that has it, with at most so many points a line."""
    for name in names:
        file = run.folder / "telemetry" / f"{name}.parquet"
        if "/" in name or not file.is_file():
            continue
        try:
            series = series_of(file, trial.trial)
        except OSError:
            continue  # the folder may be untrusted: what cannot be read is not drawn
        if found := drawn(series, min(points, _MOST)):
            return found
    return None


def drawn(series: Series, points: int = _MOST) -> Trace | None:
    """Draw samples; None where there are too few for a line."""
    samples = series.samples
    used = _finite(_rates([(each.seconds, each.cpu_seconds) for each in samples if each.cpu_seconds is not None]))
    memory = _finite([(each.seconds, each.memory_bytes) for each in samples if each.memory_bytes is not None])
    moments = [moment for line in (used, memory) if len(line) > 1 for moment, _ in line]
    if not moments or max(moments) <= min(moments):
        return None
    begin, end = min(moments), max(moments)
    stolen = [each for each in _finite(_rates(series.stolen)) if begin <= each[0] <= end]
    panels, said = [], []
    if len(used) > 1:
        panels.append(_Panel("CPUs", used, f"{_most(used):.2f}", DOT))
        said.append(f"at most {_most(used):.2f} CPUs")
    if len(memory) > 1:
        size = format_size(int(_most(memory)))
        panels.append(_Panel("memory", memory, size, DOT))
        said.append(f"at most {size} of memory")
    if len(stolen) > 1 and _most(stolen) >= _VISIBLE:
        panels.append(_Panel("CPUs stolen from the machine", stolen, f"{_most(stolen):.2f}", SAME))
        said.append(f"at most {_most(stolen):.2f} CPUs were stolen from its machine")
    words = f"Used along {format_duration(round(end - begin, 2))}: {_listed(said)}."
    lines = [_panel(panel, (begin, end), at * (_HEAD + _HEIGHT + _GAP), points) for at, panel in enumerate(panels)]
    foot = len(panels) * (_HEAD + _HEIGHT + _GAP) - _GAP
    axis = _time_axis(end - begin, _LEFT, _WIDTH - _LEFT - _RIGHT, foot)
    return Trace(_small("".join((*lines, *axis)), (_WIDTH, foot + _AXIS), words, "trace"), words)


def _listed(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(texts[:-1]), texts[-1])))


def _most(points: Points) -> float:
    return max(value for _, value in points)


def _rates(counted: Sequence[tuple[float, float]]) -> Points:
    """Return what was used each second between two samples; what lies close together is one."""
    rates: Points = []
    last = counted[0] if counted else (0.0, 0.0)
    for moment, value in counted[1:]:
        if moment - last[0] >= 0.05:
            rates.append((moment, (value - last[1]) / (moment - last[0])))
            last = (moment, value)
    return rates


def _finite(points: Points) -> Points:
    return [each for each in points if math.isfinite(each[0]) and math.isfinite(each[1]) and each[1] >= 0]


def _thinned(points: Points, most: int) -> Points:
    """Leave the largest of each stretch, so that no peak is lost."""
    step = math.ceil(len(points) / most)
    return [max(points[at : at + step], key=lambda each: each[1]) for at in range(0, len(points), step)]


def _panel(panel: _Panel, across: tuple[float, float], top: float, points: int) -> str:
    begin, end = across
    foot, width = top + _HEAD + _HEIGHT, _WIDTH - _LEFT - _RIGHT
    most = _most(panel.points) or 1.0
    places = " ".join(
        f"{_LEFT + (moment - begin) / (end - begin) * width:.0f},{foot - value / most * _HEIGHT:.0f}"
        for moment, value in _thinned(panel.points, points)
    )
    axis = [text(panel.title, _LEFT, top + 11), text("0", _LEFT - 6, foot, "end")]
    axis += [text(panel.most, _LEFT - 6, top + _HEAD + 8, "end")] if _most(panel.points) else []
    frame = f'<path d="M{_LEFT:g} {top + _HEAD:g}V{foot:g}H{_WIDTH - _RIGHT:g}" class="ground"/>'
    return f'{"".join(axis)}{frame}<polyline points="{places}" stroke="{panel.colour}"/>'


@dataclass(frozen=True)
class BlockTurns:
    """The turns of a block, and the place where they are; `number` counts blocks from one."""

    anchor: str
    number: int
    svg: Markup
    caption: str


@dataclass(frozen=True)
class TurnsShown:
    """The blocks of a workload that have turns; `more` are not shown."""

    blocks: tuple[BlockTurns, ...] = ()
    more: int = 0

    def of(self, block: int) -> str:
        """Name the place of a block's turns; empty where they are not shown."""
        return next((each.anchor for each in self.blocks if each.number == block + 1), "")


def turns_shown(summary: Summary, run: Run) -> Mapping[str, TurnsShown]:
    """Draw the blocks of each workload, the first ones of each if there are too many for the page."""
    taking = [name for name in summary.workloads if any(trial.turns for trial in run.of(name))]
    room = _TURNS // max(len(taking), 1)
    return {name: _shown(summary, run, name, room) for name in taking}


def _shown(summary: Summary, run: Run, workload: str, room: int) -> TurnsShown:
    known = sorted({trial.block for trial in run.of(workload) if trial.status == "ok" and trial.turns})
    most = min(max(room // max(len(known), 1), _LEAST_TURNS), _MOST_TURNS)
    first = known[: max(room // most, 1)]
    found = blocks_of(run, workload, set(first)) if first else {}
    shown: list[BlockTurns] = []
    for block in sorted(found):
        strip = stretch(block, found[block], most=most)
        present = {bar.stack for bar in strip.bars}
        rows = [stack for stack in summary.stacks if stack in present]
        anchor = f"turns-{summary.workloads.index(workload)}-{block}"
        shown.append(BlockTurns(anchor, block + 1, _block(strip.bars, rows, strip.finding), strip.finding))
    return TurnsShown(tuple(shown), len(known) - len(first))


def _block(bars: Sequence[TurnBar], stacks: Sequence[str], caption: str) -> Markup:
    """Draw a row for each stack, and one of the stolen CPU time."""
    begin, end = min(bar.began for bar in bars), max(bar.began + bar.seconds for bar in bars)
    rows = [*stacks, *([STOLEN] if any(bar.steal > VISIBLE for bar in bars) else [])]
    left = min(max(map(len, rows)) * _LETTER + 12, _BLOCK_WIDTH / 3)
    scale = (_BLOCK_WIDTH - left - 6) / ((end - begin) or 1.0)
    paths: dict[tuple[str, int], list[str]] = {}
    for bar in bars:
        for row, pace, share in _marks(bar):
            x, y = left + (bar.began - begin) * scale, rows.index(row) * _ROW + _ROW / 2
            place = f"M{x:.0f} {y:g}h{max(bar.seconds * scale, 1.0):.0f}"
            paths.setdefault((pace, round(min(share, 1.2) * 10)), []).append(place)
    lines = [
        f'<path d="{"".join(places)}" stroke="{PACES[pace]}" stroke-width="{tenths * _THICK / 10:g}"/>'
        for (pace, tenths), places in paths.items()
    ]
    names = [text(row, left - 6, at * _ROW + 13, "end") for at, row in enumerate(rows)]
    foot = len(rows) * _ROW
    axis = _time_axis(end - begin, left, _BLOCK_WIDTH - left - 6, foot) if end > begin else ()
    return _small("".join((*names, *lines, *axis)), (_BLOCK_WIDTH, foot + _AXIS), caption, "turns")


def _marks(bar: TurnBar) -> Iterator[tuple[str, str, float]]:
    yield bar.stack, bar.pace, max(bar.speed, 0.1)
    if bar.steal > VISIBLE:
        yield STOLEN, STOLEN, max(bar.steal, 0.1)


def _time_axis(seconds: float, left: float, width: float, top: float) -> Iterator[str]:
    """Draw the axis of a time, from 0."""
    places = {tick: left + tick / seconds * width for tick in round_numbers(0.0, seconds, 6 if width < 500 else 12)}
    marks = "".join(f"M{at:.0f} {top:g}v4" for at in places.values())
    yield f'<path d="M{left:g} {top:g}h{width:g}{marks}" class="ground"/>'
    yield from (text(f"{tick:g}", at, top + 15, "middle") for tick, at in places.items())
    yield text("seconds", left + width, top + 28, "end")


def _small(parts: str, size: tuple[float, float], words: str, kind: str) -> Markup:
    """Put a drawing together; `kind` is its class in the style of the page."""
    width, height = size
    opening = f'<svg class="small {kind}" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(words)}">'
    return Markup(f"{opening}{parts}</svg>")  # noqa: S704  # numbers, our own words, and escaped names

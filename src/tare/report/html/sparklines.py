"""Small drawings of the page: telemetry of a trial, and turns of a block. The page has one for each cell and block.

There are hundreds: what they show is thinned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from tare.model.journal import Run
from tare.model.trial import Trial
from tare.model.units import format_duration, format_size
from tare.report.chart_svg import Area, Chart, group, path, text
from tare.report.chart_theme import DOT, SAME
from tare.report.charts import turns
from tare.report.html.turns import blocks_of, stretch
from tare.report.svg_axes import Axis, Scale, number, scale_of
from tare.statistics.summary import Summary
from tare.telemetry.parquet import Series, series_of

_ACROSS, _LEFT = 288.0, 66.0
_HEAD, _HEIGHT, _GAP, _FOOT = 18.0, 38.0, 6.0, 34.0
_MOST = 160  # points of a line
_VISIBLE = 0.01  # CPUs that were stolen
_TURNS = 16_000  # of the whole page; each takes some ten bytes
_LEAST_TURNS, _MOST_TURNS = 200, 500  # of a block

Points = list[tuple[float, float]]


@dataclass(frozen=True)
class Trace:
    """The drawing, and what it shows in words."""

    svg: Markup
    text: str


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
        panels.append(("CPUs", used, f"{_most(used):.2f}", DOT))
        said.append(f"at most {_most(used):.2f} CPUs")
    if len(memory) > 1:
        size = format_size(int(_most(memory)))
        panels.append(("memory", memory, size, DOT))
        said.append(f"at most {size} of memory")
    if len(stolen) > 1 and _most(stolen) >= _VISIBLE:
        panels.append(("CPUs stolen from the machine", stolen, f"{_most(stolen):.2f}", SAME))
        said.append(f"at most {_most(stolen):.2f} CPUs were stolen from its machine")
    words = f"Used along {format_duration(round(end - begin, 2))}: {_listed(said)}."
    across, parts, top = scale_of(0.0, end - begin, number), [], 0.0
    for title, line, most, color in panels:
        is_last = title == panels[-1][0]
        # Each line is from zero to its largest value.
        up = Scale(Axis(0.0, _most(line) or 1.0, None), ((0.0, "0"), (1.0, most if _most(line) else "")))
        area = Area(_LEFT, top + _HEAD, _ACROSS, _HEIGHT, across if is_last else replace(across, ticks=()), up)
        places = ((moment - begin, value) for moment, value in _thinned(line, points))
        parts += [text(title, _LEFT, top + _HEAD - 5), *area.axes("seconds" if is_last else "", grid=False)]
        parts.append(group(color, [path(area.through(places), "line")]))
        top += _HEAD + _HEIGHT + _GAP
    return Trace(Chart(_LEFT + _ACROSS + 12, top + _FOOT, tuple(parts)).svg(words), words)


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
        chart = turns(strip.bars, summary.stacks, small=True)
        anchor = f"turns-{summary.workloads.index(workload)}-{block}"
        if chart:
            shown.append(BlockTurns(anchor, block + 1, chart.svg(strip.finding), strip.finding))
    return TurnsShown(tuple(shown), len(known) - len(first))

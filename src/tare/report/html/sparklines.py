"""Small drawings of the page: telemetry of a trial, and turns of a block. The page has one for each cell and block.

There are hundreds: what they show is thinned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tare.model.journal import Run
from tare.model.trial import Trial
from tare.model.units import format_duration, format_size
from tare.report.chart_svg import Area, Chart, Drawing, group, path, text
from tare.report.chart_theme import DOT, SAME
from tare.report.charts import turns
from tare.report.html.turns import blocks_of, stretch
from tare.report.numbers import listing
from tare.report.svg_axes import Axis, Scale, number, scale_of
from tare.statistics.summary import Summary
from tare.telemetry.parquet import Series, series_of, telemetry_files

_ACROSS, _LEFT = 288.0, 66.0
_HEAD, _HEIGHT, _GAP, _FOOT = 18.0, 38.0, 6.0, 34.0
_MOST = 160  # points of a line
_VISIBLE = 0.01  # CPUs that were stolen
_STOLEN = "CPUs stolen from the machine"
_TURNS = 16_000  # of the whole page; each takes some ten bytes
_LEAST_TURNS, _MOST_TURNS = 200, 500  # of a block

Points = list[tuple[float, float]]


def trace(run: Run, trial: Trial, points: int = _MOST) -> Drawing | None:
    """Draw the telemetry of a trial, from the first file that has it, with at most so many points a line."""
    for file in telemetry_files(run.folder, trial):
        try:
            series = series_of(file, trial.trial)
        except OSError:
            continue  # the folder may be untrusted: what cannot be read is not drawn
        if found := drawn(series, min(points, _MOST)):
            return found
    return None


def drawn(series: Series, points: int = _MOST) -> Drawing | None:
    """Draw samples; None where there are too few for a line."""
    samples = series.samples
    used = _finite(_rates([(each.seconds, each.cpu_seconds) for each in samples if each.cpu_seconds is not None]))
    memory = _finite([(each.seconds, each.memory_bytes) for each in samples if each.memory_bytes is not None])
    moments = [moment for line in (used, memory) if len(line) > 1 for moment, _ in line]
    if not moments or max(moments) <= min(moments):
        return None
    begin, end = min(moments), max(moments)
    stolen = [each for each in _finite(_rates(series.stolen)) if begin <= each[0] <= end]
    size = format_size(int(_most(memory))) if len(memory) > 1 else ""
    panels = [
        (title, line, label, color, words)
        for title, line, label, color, words in (
            ("CPUs", used, _count(used), DOT, f"at most {_count(used)} CPUs"),
            ("memory", memory, size, DOT, f"at most {size} of memory"),
            (_STOLEN, stolen, _count(stolen), SAME, f"at most {_count(stolen)} CPUs were stolen from its machine"),
        )
        if len(line) > 1 and (title != _STOLEN or _most(line) >= _VISIBLE)
    ]
    said = listing(tuple(words for *_, words in panels))
    across, parts, top = scale_of(0.0, end - begin, number), [], 0.0
    for title, line, label, color, _ in panels:
        is_last = title == panels[-1][0]
        # Each line is from zero to its largest value.
        up = Scale(Axis(0.0, _most(line) or 1.0, None), ((0.0, "0"), (1.0, label if _most(line) else "")))
        area = Area(_LEFT, top + _HEAD, _ACROSS, _HEIGHT, across if is_last else Scale(across.axis, ()), up)
        places = ((moment - begin, value) for moment, value in _thinned(line, points))
        parts += [text(title, _LEFT, top + _HEAD - 5), *area.axes("seconds" if is_last else "", grid=False)]
        parts.append(group(color, [path(area.through(places), "line")]))
        top += _HEAD + _HEIGHT + _GAP
    chart = Chart(_LEFT + _ACROSS + 12, top + _FOOT, tuple(parts))
    return Drawing(f"Used along {format_duration(round(end - begin, 2))}: {said}.", chart)


def _count(line: Points) -> str:
    return f"{_most(line):.2f}"


def _most(points: Points) -> float:
    return max((value for _, value in points), default=0.0)


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
class TurnsShown:
    """The blocks of a workload whose turns are drawn, at places that begin with `anchor`; `more` are not shown."""

    anchor: str = ""
    blocks: Mapping[int, Drawing] = field(default_factory=dict)
    more: int = 0

    def of(self, block: int) -> str:
        """Name the place of a block's turns; empty where they are not shown."""
        return f"{self.anchor}-{block}" if block in self.blocks else ""


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
    shown: dict[int, Drawing] = {}
    for block in sorted(found):
        strip = stretch(block, found[block], most=most)
        if chart := turns(strip.bars, summary.stacks, small=True):
            shown[block] = Drawing(strip.said(how_to_read=False), chart)
    return TurnsShown(f"turns-{summary.workloads.index(workload)}", shown, len(known) - len(first))

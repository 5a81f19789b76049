"""Small drawings of the page: telemetry of a trial, and turns of a block.

The page has one for each cell and each block, which may be hundreds, so their points are thinned.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tare.model.run_folder import Run
from tare.model.trial import Trial
from tare.model.units import format_duration, format_size
from tare.report.chart_svg import Area, Chart, Drawing, draw_colored_group, draw_path, draw_text
from tare.report.chart_theme import DOT, SAME
from tare.report.charts import draw_turns
from tare.report.html.turns import block_bars, cut_roughest_stretch
from tare.report.numbers import join_names
from tare.report.svg_axes import Axis, Scale, format_tick, linear_scale
from tare.statistics.summary import Summary
from tare.telemetry.parquet import InstanceSeries, read_series, telemetry_files

_ACROSS, _LEFT = 288.0, 66.0
_HEAD, _HEIGHT, _GAP, _FOOT = 18.0, 38.0, 6.0, 34.0
_MAX_POINTS = 160  # points of a line
_VISIBLE = 0.01  # CPUs of steal time
_STEAL = "steal time in CPUs"
_TURNS = 16_000  # of the whole page; a turn takes about ten bytes
_MIN_TURNS, _MAX_TURNS = 200, 500  # of a block

Points = list[tuple[float, float]]


def draw_trace(run: Run, trial: Trial, points: int = _MAX_POINTS) -> Drawing | None:
    """Draw the telemetry of a trial with at most `points` points a line; None without readable telemetry."""
    for file in telemetry_files(run.folder, trial):
        try:
            series = read_series(file, trial.trial)
        except OSError:
            continue  # the folder may be untrusted, so an unreadable file is no error
        if drawing := draw_series(series, min(points, _MAX_POINTS)):
            return drawing
    return None


def draw_series(series: InstanceSeries, points: int = _MAX_POINTS) -> Drawing | None:
    """Draw the CPU usage, memory and steal time of samples; None with too few samples for a line."""
    samples = series.samples
    used = _keep_finite(_rates([(each.seconds, each.cpu_seconds) for each in samples if each.cpu_seconds is not None]))
    memory = _keep_finite([(each.seconds, each.memory_bytes) for each in samples if each.memory_bytes is not None])
    moments = [moment for line in (used, memory) if len(line) > 1 for moment, _ in line]
    if not moments or max(moments) <= min(moments):
        return None
    begin, end = min(moments), max(moments)
    steal = [each for each in _keep_finite(_rates(series.steal_times)) if begin <= each[0] <= end]
    size = format_size(int(_largest(memory))) if len(memory) > 1 else ""
    panels = [
        (title, line, label, color, words)
        for title, line, label, color, words in (
            ("CPUs", used, _count_points(used), DOT, f"at most {_count_points(used)} CPUs"),
            ("memory", memory, size, DOT, f"at most {size} of memory"),
            (
                _STEAL,
                steal,
                _count_points(steal),
                SAME,
                f"at most {_count_points(steal)} CPUs of steal time",
            ),
        )
        if len(line) > 1 and (title != _STEAL or _largest(line) >= _VISIBLE)
    ]
    maxima = join_names(tuple(words for *_, words in panels))
    across, parts, top = linear_scale(0.0, end - begin, format_tick), [], 0.0
    for title, line, label, color, _ in panels:
        is_last = title == panels[-1][0]
        # Each panel has a separate scale from zero to its largest value.
        up = Scale(Axis(0.0, _largest(line) or 1.0, None), ((0.0, "0"), (1.0, label if _largest(line) else "")))
        area = Area(_LEFT, top + _HEAD, _ACROSS, _HEIGHT, across if is_last else Scale(across.axis, ()), up)
        places = ((moment - begin, value) for moment, value in _keep_largest(line, points))
        parts += [draw_text(title, _LEFT, top + _HEAD - 5), *area.draw_axes("seconds" if is_last else "", grid=False)]
        parts.append(draw_colored_group(color, [draw_path(area.line_path(places), "line")]))
        top += _HEAD + _HEIGHT + _GAP
    chart = Chart(_LEFT + _ACROSS + 12, top + _FOOT, tuple(parts))
    return Drawing(f"Resource use over {format_duration(round(end - begin, 2))}: {maxima}.", chart)


def _count_points(line: Points) -> str:
    return f"{_largest(line):.2f}"


def _largest(points: Points) -> float:
    return max((value for _, value in points), default=0.0)


def _rates(counted: Sequence[tuple[float, float]]) -> Points:
    """Return rates per second between samples; samples less than 50 ms apart are merged, as they give noisy rates."""
    rates: Points = []
    last = counted[0] if counted else (0.0, 0.0)
    for moment, value in counted[1:]:
        if moment - last[0] >= 0.05:
            rates.append((moment, (value - last[1]) / (moment - last[0])))
            last = (moment, value)
    return rates


def _keep_finite(points: Points) -> Points:
    return [each for each in points if math.isfinite(each[0]) and math.isfinite(each[1]) and each[1] >= 0]


def _keep_largest(points: Points, max_count: int) -> Points:
    """Return the largest point of each stretch, so that no peak is lost."""
    step = math.ceil(len(points) / max_count)
    return [max(points[at : at + step], key=lambda each: each[1]) for at in range(0, len(points), step)]


@dataclass(frozen=True)
class TurnDrawings:
    """Drawings of a workload's turns by block. Their anchors begin with `anchor`; `more` blocks are not drawn."""

    anchor: str = ""
    blocks: Mapping[int, Drawing] = field(default_factory=dict)
    more: int = 0

    def of(self, block: int) -> str:
        """Return the anchor of a block's drawing; "" without a drawing."""
        return f"{self.anchor}-{block}" if block in self.blocks else ""


def draw_turns_by_workload(summary: Summary, run: Run) -> Mapping[str, TurnDrawings]:
    """Draw the turns of each workload's blocks; only the first blocks of each if there are too many for the page."""
    taking = [name for name in summary.workloads if any(trial.turns for trial in run.trials_of(name))]
    room = _TURNS // max(len(taking), 1)
    return {name: _draw_workload_turns(summary, run, name, room) for name in taking}


def _draw_workload_turns(summary: Summary, run: Run, workload: str, room: int) -> TurnDrawings:
    known = sorted({trial.block for trial in run.trials_of(workload) if trial.status == "ok" and trial.turns})
    most = min(max(room // max(len(known), 1), _MIN_TURNS), _MAX_TURNS)
    first = known[: max(room // most, 1)]
    bars = block_bars(run, workload, set(first)) if first else {}
    drawings: dict[int, Drawing] = {}
    for block in sorted(bars):
        strip = cut_roughest_stretch(block, bars[block], max_turns=most)
        if chart := draw_turns(strip.bars, summary.stacks, small=True):
            drawings[block] = Drawing(strip.describe(how_to_read=False), chart)
    return TurnDrawings(f"turns-{summary.workloads.index(workload)}", drawings, len(known) - len(first))

"""What the instance of a trial used along time, as a small drawing: CPUs, memory, and what was stolen meanwhile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tare.journal import Run
from tare.model.trials import Trial
from tare.report.html.small import AXIS, label, small, time_axis
from tare.report.looks import DOT, SAME
from tare.telemetry.series import Series, series_of
from tare.units import format_duration, format_size

_WIDTH, _LEFT, _RIGHT = 360.0, 62.0, 10.0
_HEAD, _HEIGHT, _GAP = 16.0, 38.0, 6.0
_MOST = 160  # points of a line
_VISIBLE = 0.01  # CPUs that were stolen

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
    panels, texts = [], []
    if len(used) > 1:
        panels.append(_Panel("CPUs", used, f"{_most(used):.2f}", DOT))
        texts.append(f"at most {_most(used):.2f} CPUs")
    if len(memory) > 1:
        size = format_size(int(_most(memory)))
        panels.append(_Panel("memory", memory, size, DOT))
        texts.append(f"at most {size} of memory")
    if len(stolen) > 1 and _most(stolen) >= _VISIBLE:
        panels.append(_Panel("CPUs stolen from the machine", stolen, f"{_most(stolen):.2f}", SAME))
        texts.append(f"at most {_most(stolen):.2f} CPUs were stolen from its machine")
    text = f"Used along {format_duration(round(end - begin, 2))}: {_listed(texts)}."
    lines = [_panel(panel, (begin, end), at * (_HEAD + _HEIGHT + _GAP), points) for at, panel in enumerate(panels)]
    foot = len(panels) * (_HEAD + _HEIGHT + _GAP) - _GAP
    axis = time_axis(end - begin, _LEFT, _WIDTH - _LEFT - _RIGHT, foot)
    return Trace(small("".join((*lines, *axis)), (_WIDTH, foot + AXIS), text, "trace"), text)


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
    axis = [label(panel.title, _LEFT, top + 11), label("0", _LEFT - 6, foot, "end")]
    axis += [label(panel.most, _LEFT - 6, top + _HEAD + 8, "end")] if _most(panel.points) else []
    frame = f'<path d="M{_LEFT:g} {top + _HEAD:g}V{foot:g}H{_WIDTH - _RIGHT:g}" class="ground"/>'
    return f'{"".join(axis)}{frame}<polyline points="{places}" stroke="{panel.colour}"/>'

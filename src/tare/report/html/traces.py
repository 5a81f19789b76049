"""What the instance of a trial used along time, as a small drawing: CPU time above, memory below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tare.journal import Run
from tare.model import Trial
from tare.telemetry.series import Sample, samples_of
from tare.units import format_duration, format_size

_WIDTH, _HEIGHT, _GAP = 320.0, 34.0, 4.0
_MOST = 160  # points


@dataclass(frozen=True)
class Trace:
    """The drawing, and what it shows in words."""

    svg: Markup
    text: str


def trace(run: Run, trial: Trial, names: Sequence[str]) -> Trace | None:
    """Draw the telemetry of a trial, from the first of these files that has it."""
    for name in names:
        file = run.folder / "telemetry" / f"{name}.parquet"
        if "/" in name or not file.is_file():
            continue
        try:
            samples = samples_of(file, trial.trial)
        except OSError:
            continue  # the folder may be a stranger's: what cannot be read is not drawn
        if found := drawn(samples):
            return found
    return None


def drawn(samples: Sequence[Sample]) -> Trace | None:
    """Draw samples; None where there are too few for a line."""
    used = _rates([(each.seconds, each.cpu_seconds) for each in samples if each.cpu_seconds is not None])
    memory = [(each.seconds, each.memory_bytes) for each in samples if each.memory_bytes is not None]
    used, memory = (_finite(each) for each in (used, memory))
    if len(used) < 2 and len(memory) < 2:
        return None
    moments = [moment for moment, _ in (*used, *memory)]
    begin, end = min(moments), max(moments)
    if end <= begin:
        return None
    lines, texts = [], []
    if len(used) > 1:
        lines.append(_line(_thinned(used), (begin, end), 0.0))
        texts.append(f"at most {max(value for _, value in used):.2f} CPUs (above)")
    if len(memory) > 1:
        lines.append(_line(_thinned(memory), (begin, end), _HEIGHT + _GAP))
        texts.append(f"at most {format_size(int(max(value for _, value in memory)))} of memory (below)")
    text = f"Used along {format_duration(round(end - begin, 2))}: {' and '.join(texts)}."
    height = 2 * _HEIGHT + _GAP
    svg = (
        f'<svg class="trace" viewBox="0 0 {_WIDTH:g} {height:g}" role="img" aria-label="{text}">{"".join(lines)}</svg>'
    )
    return Trace(Markup(svg), text)  # noqa: S704  # numbers and our own words


def _rates(counted: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Give what was used each second between two samples; what lies close together is one."""
    rates: list[tuple[float, float]] = []
    last = counted[0] if counted else (0.0, 0.0)
    for moment, value in counted[1:]:
        if moment - last[0] >= 0.05:
            rates.append((moment, (value - last[1]) / (moment - last[0])))
            last = (moment, value)
    return rates


def _finite(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [each for each in points if math.isfinite(each[0]) and math.isfinite(each[1]) and each[1] >= 0]


def _thinned(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Leave the largest of each stretch, so that no peak is lost."""
    step = math.ceil(len(points) / _MOST)
    return [max(points[at : at + step], key=lambda each: each[1]) for at in range(0, len(points), step)]


def _line(points: Sequence[tuple[float, float]], across: tuple[float, float], top: float) -> str:
    most = max(value for _, value in points) or 1.0
    begin, end = across
    places = " ".join(
        f"{(moment - begin) / (end - begin) * _WIDTH:.1f},{top + _HEIGHT - value / most * (_HEIGHT - 2):.1f}"
        for moment, value in points
    )
    ground = f'<path d="M0 {top + _HEIGHT:g}H{_WIDTH:g}" class="ground"/>'
    return f'{ground}<polyline points="{places}"/>'

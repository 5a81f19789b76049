"""Small drawings of the page: telemetry of a trial, and turns of a block.

The page has one for each cell and each block, which may be hundreds, so their points are thinned. Turns are drawn over
time: a disturbance of the machine hits all stacks, a stall only its stack.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from statistics import fmean, median

from tare.model.run_folder import Run
from tare.model.trial import MeasuredValue, Trial, Turn
from tare.model.units import format_duration, format_size
from tare.report.chart_svg import Area, Chart, Drawing, draw_colored_group, draw_path, draw_text
from tare.report.chart_theme import DOT, SAME
from tare.report.charts import SLOWEST, TurnBar, draw_turns
from tare.report.numbers import join_names
from tare.report.svg_axes import Axis, Scale, format_tick, linear_scale
from tare.statistics.outcomes import select_latest
from tare.statistics.stalls import SLOW_SHARE
from tare.statistics.summary import Summary
from tare.telemetry.parquet import InstanceSeries, read_series, telemetry_files

_MIN_TURNS, _MAX_TURNS = 200, 500  # in the drawing of a block; a turn takes about a hundred bytes of the page
_NAMED = 4
_FAR = 10.0  # logarithm of a relative speed; larger ones are impossible, but an untrusted run may have them


@dataclass(frozen=True)
class TurnStrip:
    """Turns of a block, or of the stretch whose speed varies most, in order of time."""

    block: int
    bars: tuple[TurnBar, ...]
    all_turns: int  # turns that the block has
    why: str = ""

    def describe(self, *, how_to_read: bool) -> str:
        """Return the caption, with an explanation of the bars if `how_to_read`."""
        read = (
            "each bar is a turn, thicker if it was faster relative to the median of its stack's turns; " * how_to_read
        )
        cut = (
            f" (the {len(self.bars)} of {self.all_turns} turns that vary most)"
            if len(self.bars) < self.all_turns
            else ""
        )
        slow = [bar.stack for bar in self.bars if bar.speed_class == SLOWEST]
        counts = sorted(((slow.count(stack), stack) for stack in dict.fromkeys(slow)), key=lambda each: -each[0])
        named = [f"{stack} {count}" for count, stack in counts[:_NAMED]]
        named += [f"{len(counts) - _NAMED} more stacks"] if len(counts) > _NAMED else []
        count = f"{len(slow) or 'none'} of {len(self.bars)} are slower by {100 * SLOW_SHARE:g} % or more"
        count += f" ({', '.join(named)})" if named else ""
        why = f", {self.why}" if self.why else ""
        return f"Turns of block {self.block + 1}{why}{cut}: {read}{count}."


def select_strips(summary: Summary, run: Run, workload: str) -> tuple[TurnStrip, ...]:
    """Return the block of a workload whose turns differ most, and one in which a stack stalls by itself."""
    blocks = block_bars(run, workload)
    if not blocks:
        return ()
    noisiest = max(blocks, key=lambda block: _noise(blocks[block]))
    chosen = {noisiest: "in which they differ most"}
    if stalling := _find_stalling_stack(summary, workload):
        worst = max(blocks, key=lambda block: _excess_slow_share(blocks[block], stalling))
        chosen.setdefault(worst, f"in which {stalling} stalls most")
    return tuple(cut_roughest_stretch(block, blocks[block], why) for block, why in chosen.items())


def block_bars(run: Run, workload: str, among: Collection[int] = ()) -> Mapping[int, list[TurnBar]]:
    """Return the turns with a known speed by block, of all blocks of a workload or only of those in `among`."""
    blocks: dict[int, list[TurnBar]] = {}
    for trial in select_latest(run.trials_of(workload)):
        if trial.status == "ok" and (not among or trial.block in among) and (bars := _trial_bars(trial)):
            blocks.setdefault(trial.block, []).extend(bars)
    return blocks


def cut_roughest_stretch(block: int, bars: Sequence[TurnBar], why: str = "", max_turns: int = _MAX_TURNS) -> TurnStrip:
    """Return the `max_turns` consecutive turns of a block whose speed varies most, or all if there are fewer."""
    ordered = sorted(bars, key=lambda bar: bar.began)
    rough = [0.0, *accumulate(math.log(bar.speed) ** 2 for bar in ordered)]
    last = max(
        range(min(max_turns, len(ordered)), len(rough)), key=lambda at: rough[at] - rough[max(0, at - max_turns)]
    )
    return TurnStrip(block, tuple(ordered[max(0, last - max_turns) : last]), len(ordered), why)


def _noise(bars: Sequence[TurnBar]) -> float:
    return fmean(math.log(bar.speed) ** 2 for bar in bars)


def _find_stalling_stack(summary: Summary, workload: str) -> str:
    """Return the stack of a workload that stalls most; "" if no stack has the caution `stalls`."""
    cells = [
        cell
        for cell in summary.cells_of(workload)
        if cell.has_caution("stalls") and (cell.slow_turns or 0.0) > (cell.slow_turns_of_baseline or 0.0)
    ]
    return max(cells, key=lambda cell: cell.slow_turns or 0.0).stack if cells else ""


def _excess_slow_share(bars: Sequence[TurnBar], stack: str) -> float:
    """Return the share of a stack's turns that are slow minus the share of slow turns of the other stacks."""
    is_slowest = [bar.speed_class == SLOWEST for bar in bars if bar.stack == stack]
    others = [bar.speed_class == SLOWEST for bar in bars if bar.stack != stack]
    return (fmean(is_slowest) if is_slowest else -1.0) - (fmean(others) if others else 0.0)


def _trial_bars(trial: Trial) -> list[TurnBar]:
    """Return the turns of a trial whose speed is known."""
    by_label: dict[str, list[Turn]] = {}
    for turn in trial.turns:
        if not turn.warm_up:
            by_label.setdefault(turn.label, []).append(turn)
    speeds = _relative_speeds(trial.values)
    return [
        _create_bar(f"{trial.stack}, {label} in round {number}", trial.stack, turn, speed)
        for label, turns in by_label.items()
        if len(speeds.get(label, ())) == len(turns)
        for number, (turn, speed) in enumerate(zip(turns, speeds[label], strict=True), trial.first_round + 1)
        if math.isfinite(turn.began + turn.seconds + (turn.steal or 0.0))
    ]


def _create_bar(name: str, stack: str, turn: Turn, speed: float) -> TurnBar:
    steal = turn.steal or 0.0
    steal_text = f", {100 * steal:.0f} % steal time" if steal else ""
    return TurnBar(
        stack, turn.began, turn.seconds, speed, steal, f"{name}: {100 * speed:.0f} % of its usual speed{steal_text}"
    )


def _relative_speeds(values: Sequence[MeasuredValue]) -> Mapping[str, list[float]]:
    """Return by label the speed of each turn relative to the median turn, as a geometric mean over its values."""
    logs: dict[str, list[list[float]]] = {}
    for value in values:
        if value.label and value.turns and all(0 < turn < math.inf for turn in value.turns):
            sign, usual = (1 if value.better == "higher" else -1), math.log(median(value.turns))
            logs.setdefault(value.label, []).append([sign * (math.log(turn) - usual) for turn in value.turns])
    return {
        label: [math.exp(max(-_FAR, min(_FAR, fmean(each)))) for each in zip(*columns, strict=False)]
        for label, columns in logs.items()
    }


_ACROSS, _LEFT = 288.0, 66.0
_HEAD, _HEIGHT, _GAP, _FOOT = 18.0, 38.0, 6.0, 34.0
_MAX_POINTS = 160  # points of a line
_VISIBLE = 0.01  # CPUs of steal time
_STEAL = "steal time in CPUs"
_TURNS = 16_000  # of the whole page; a turn takes about ten bytes

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

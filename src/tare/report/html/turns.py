"""Turns of a block over time: a disturbance of the machine hits all stacks, a stall only its stack."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean, median

from tare.model.run_folder import Run
from tare.model.trial import MeasuredValue, Trial, Turn
from tare.report.charts import SLOWEST, TurnBar
from tare.statistics.outcomes import select_latest
from tare.statistics.stalls import SLOW_SHARE
from tare.statistics.summary import Summary

_MAX_TURNS = 500  # in a drawing; a turn takes about a hundred bytes of the page
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

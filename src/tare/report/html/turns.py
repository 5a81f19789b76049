"""The turns of one block along time: a burst of the machine is seen to hit all stacks, a stall only its own."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from statistics import fmean, median

from tare.model.journal import Run
from tare.model.trial import Measured, Trial, Turn
from tare.report.charts import SLOWEST, TurnBar
from tare.statistics.outcomes import latest
from tare.statistics.stalls import SLOW
from tare.statistics.summary import Summary

_MOST = 500  # turns in a drawing: each takes about a hundred bytes of the page
_NAMED = 4
_FAR = 10.0  # logarithm of a speed that no turn of a machine has beside another


@dataclass(frozen=True)
class Strip:
    """The turns of a block, or of its roughest stretch, in order of time."""

    block: int
    bars: tuple[TurnBar, ...]
    of: int  # turns that the block has
    why: str = ""

    def said(self, *, how_to_read: bool) -> str:
        """Describe what it shows, and how to read it where that is not said elsewhere."""
        read = "each bar is a turn, as thick as it was fast beside the median of its stack's own turns; " * how_to_read
        cut = f" (the roughest {len(self.bars)} of {self.of} turns)" if len(self.bars) < self.of else ""
        slow = [bar.stack for bar in self.bars if bar.pace == SLOWEST]
        counts = sorted(((slow.count(stack), stack) for stack in dict.fromkeys(slow)), key=lambda each: -each[0])
        named = [f"{stack} {count}" for count, stack in counts[:_NAMED]]
        named += [f"{len(counts) - _NAMED} more stacks"] if len(counts) > _NAMED else []
        found = f"{len(slow) or 'none'} of {len(self.bars)} are slower by {100 * SLOW:g} % or more"
        found += f" ({', '.join(named)})" if named else ""
        why = f", {self.why}" if self.why else ""
        return f"Turns of block {self.block + 1}{why}{cut}: {read}{found}."


def strips(summary: Summary, run: Run, workload: str) -> tuple[Strip, ...]:
    """Return the block of a workload whose turns differ most, and one in which a stack stalls by itself."""
    blocks = blocks_of(run, workload)
    if not blocks:
        return ()
    noisiest = max(blocks, key=lambda block: _noise(blocks[block]))
    chosen = {noisiest: "in which they differ most"}
    if stalling := _stalling(summary, workload):
        worst = max(blocks, key=lambda block: _of_its_own(blocks[block], stalling))
        chosen.setdefault(worst, f"in which {stalling} stalls most")
    return tuple(stretch(block, blocks[block], why) for block, why in chosen.items())


def blocks_of(run: Run, workload: str, among: Collection[int] = ()) -> Mapping[int, list[TurnBar]]:
    """Return the turns of each block of a workload, or of those `among` some, as far as their speed is known."""
    blocks: dict[int, list[TurnBar]] = {}
    for trial in latest(run.of(workload)):
        if trial.status == "ok" and (not among or trial.block in among) and (bars := _bars(trial)):
            blocks.setdefault(trial.block, []).extend(bars)
    return blocks


def stretch(block: int, bars: Sequence[TurnBar], why: str = "", most: int = _MOST) -> Strip:
    """Cut out the roughest stretch of a block that has too many turns to be drawn."""
    ordered = sorted(bars, key=lambda bar: bar.began)
    rough = [0.0, *accumulate(math.log(bar.speed) ** 2 for bar in ordered)]
    last = max(range(min(most, len(ordered)), len(rough)), key=lambda at: rough[at] - rough[max(0, at - most)])
    return Strip(block, tuple(ordered[max(0, last - most) : last]), len(ordered), why)


def _noise(bars: Sequence[TurnBar]) -> float:
    return fmean(math.log(bar.speed) ** 2 for bar in bars)


def _stalling(summary: Summary, workload: str) -> str:
    """Return the stack of a workload that stalls most; empty where none has that caution."""
    cells = [
        cell
        for cell in summary.of(workload)
        if cell.has_caution("stalls") and (cell.slow_turns or 0.0) > (cell.slow_turns_of_baseline or 0.0)
    ]
    return max(cells, key=lambda cell: cell.slow_turns or 0.0).stack if cells else ""


def _of_its_own(bars: Sequence[TurnBar], stack: str) -> float:
    """Return the share of a stack's turns that are slow, above that of the others."""
    own = [bar.pace == SLOWEST for bar in bars if bar.stack == stack]
    others = [bar.pace == SLOWEST for bar in bars if bar.stack != stack]
    return (fmean(own) if own else -1.0) - (fmean(others) if others else 0.0)


def _bars(trial: Trial) -> list[TurnBar]:
    """Return the turns of a trial whose speed is known."""
    by_label: dict[str, list[Turn]] = {}
    for turn in trial.turns:
        if not turn.warm_up:
            by_label.setdefault(turn.label, []).append(turn)
    speeds = _speeds(trial.values)
    return [
        _bar(f"{trial.stack}, {label} in round {number}", trial.stack, turn, speed)
        for label, turns in by_label.items()
        if len(speeds.get(label, ())) == len(turns)
        for number, (turn, speed) in enumerate(zip(turns, speeds[label], strict=True), trial.first_round + 1)
        if math.isfinite(turn.began + turn.seconds + (turn.steal or 0.0))
    ]


def _bar(name: str, stack: str, turn: Turn, speed: float) -> TurnBar:
    steal = turn.steal or 0.0
    stolen = f", {100 * steal:.0f} % of the CPU time stolen" if steal else ""
    return TurnBar(
        stack, turn.began, turn.seconds, speed, steal, f"{name}: {100 * speed:.0f} % of its usual speed{stolen}"
    )


def _speeds(values: Sequence[Measured]) -> Mapping[str, list[float]]:
    """Return, by label, the speed of each turn beside the usual one: the geometric mean of what was measured in it."""
    logs: dict[str, list[list[float]]] = {}
    for value in values:
        if value.label and value.turns and all(0 < turn < math.inf for turn in value.turns):
            sign, usual = (1 if value.better == "higher" else -1), math.log(median(value.turns))
            logs.setdefault(value.label, []).append([sign * (math.log(turn) - usual) for turn in value.turns])
    return {
        label: [math.exp(max(-_FAR, min(_FAR, fmean(each)))) for each in zip(*columns, strict=False)]
        for label, columns in logs.items()
    }

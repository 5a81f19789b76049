"""The turns of each block, drawn small: a reader of a cell sees what happened during its blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tare.journal import Run
from tare.report.figures import PACES, STOLEN, VISIBLE, TurnBar
from tare.report.html.small import AXIS, label, small, time_axis
from tare.report.html.turns import blocks_of, stretch
from tare.statistics.summary import Summary

_TURNS = 16_000  # of the whole page; each takes some ten bytes
_LEAST, _MOST = 200, 500  # of a block
_WIDTH, _ROW, _THICK = 960.0, 18.0, 12.0
_LETTER = 6.6  # the width of one


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
    most = min(max(room // max(len(known), 1), _LEAST), _MOST)
    first = known[: max(room // most, 1)]
    found = blocks_of(run, workload, set(first)) if first else {}
    shown: list[BlockTurns] = []
    for block in sorted(found):
        strip = stretch(block, found[block], most=most)
        present = {bar.stack for bar in strip.bars}
        rows = [stack for stack in summary.stacks if stack in present]
        anchor = f"turns-{summary.workloads.index(workload)}-{block}"
        shown.append(BlockTurns(anchor, block + 1, _drawn(strip.bars, rows, strip.finding), strip.finding))
    return TurnsShown(tuple(shown), len(known) - len(first))


def _drawn(bars: Sequence[TurnBar], stacks: Sequence[str], caption: str) -> Markup:
    """Draw a row for each stack, and one of the stolen CPU time."""
    begin, end = min(bar.began for bar in bars), max(bar.began + bar.seconds for bar in bars)
    rows = [*stacks, *([STOLEN] if any(bar.steal > VISIBLE for bar in bars) else [])]
    left = min(max(map(len, rows)) * _LETTER + 12, _WIDTH / 3)
    scale = (_WIDTH - left - 6) / ((end - begin) or 1.0)
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
    names = [label(row, left - 6, at * _ROW + 13, "end") for at, row in enumerate(rows)]
    foot = len(rows) * _ROW
    axis = time_axis(end - begin, left, _WIDTH - left - 6, foot) if end > begin else ()
    return small("".join((*names, *lines, *axis)), (_WIDTH, foot + AXIS), caption, "turns")


def _marks(bar: TurnBar) -> Iterator[tuple[str, str, float]]:
    yield bar.stack, bar.pace, max(bar.speed, 0.1)
    if bar.steal > VISIBLE:
        yield STOLEN, STOLEN, max(bar.steal, 0.1)

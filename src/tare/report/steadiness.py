"""Noise in sentences: what moved the values besides the stacks, what that hid, and which decisions hold."""

from __future__ import annotations

from collections.abc import Sequence

from tare.report.numbers import listing, percent, resolved, some_of
from tare.statistics.cells import LASTING, Cell
from tare.statistics.summary import Summary
from tare.units import counted


def steadiness(summary: Summary, workload: str) -> tuple[str, ...]:
    """Describe what moved a workload's values beside the stacks: the block, the place in it, and the block before."""
    rules = summary.rules_of(workload)
    moved = [(rule, _moved(summary, rule.name)) for rule in rules]
    return tuple(text for rule, texts in moved for text in ([f"{rule.name}:", *texts] if len(rules) > 1 else texts))


def _moved(summary: Summary, name: str) -> list[str]:
    effect = summary.effect(name)
    cells = [cell for cell in summary.headlines if cell.headline == name and cell.low is not None]
    sentences = []
    if effect:
        moved = f"From block to block, all values moved together by {percent(effect.blocks)} (standard deviation)"
        sentences.append(f"{moved}, which cancels out; {percent(effect.error)} was left.")
        if effect.ordered:
            slope = f"{effect.place * 100:+.2g} % [{effect.low * 100:.2g}, {effect.high * 100:.2g}]"
            sentences.append(f"The place in a block mattered: {slope} for each place later. The order is random.")
    if cells:
        most = max(cells, key=lambda cell: cell.correlation)
        much = f"{most.correlation:.2f} ({most.stack})"
        sentences.append(f"The largest correlation of a block's ratio with the one before it is {much}.")
    sentences += [f"{cell.stack}: {note}." for cell in cells for note in cell.notes]
    return sentences


def noise(summary: Summary) -> list[str]:
    """Describe which differences noise has hidden, by the intervals of the stacks that show none."""
    texts, varies = [], False
    for rule in summary.rules:
        cells = [cell for cell in summary.headlines if cell.headline == rule.name and cell.resolution is not None]
        cells = [
            cell
            for cell in cells
            if cell.stack not in (summary.baseline, summary.control) and cell.verdict in ("undecided", "equivalent")
        ]
        ends = sorted(cells, key=lambda cell: cell.resolution or 0.0)
        shown = [resolved(cell).removeprefix("± ") for cell in (*ends[:1], *ends[-1:])]
        if shown:
            varies |= shown[0] != shown[1]
            least = shown[0].removesuffix(" %") + " to " if shown[0] != shown[1] else ""
            texts.append(f"{least}{shown[1]} in {rule.name}")
    depends = ", depending on the stack" if varies else ""
    return [f"Noise hid differences smaller than {listing(tuple(texts))}{depends}."] if texts else []


def firmness(cells: Sequence[Cell]) -> list[str]:
    """Describe how many decisions would hold where noise lasts from block to block, and which would not."""
    decided = [cell for cell in cells if cell.decided]
    close = [f"{cell.stack} in {cell.name}" for cell in decided if not cell.is_firm]
    firm = f"{len(decided) - len(close)} of {counted(len(decided), 'decision')} would hold even if noise lasted"
    text = f"{firm} from block to block (a correlation of {LASTING:g})"
    return [f"{text}{f'; not {some_of(close)}' if close else ''}."] if decided else []

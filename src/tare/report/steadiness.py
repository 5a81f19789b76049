"""What moved the values of a workload beside the stacks, in sentences."""

from __future__ import annotations

from tare.report.numbers import percent
from tare.statistics.summary import Summary


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

"""What the exclamation marks of a table stand for: each kind of caution, with the stacks that it touches."""

from __future__ import annotations

from dataclasses import dataclass, field

from tare.report.numbers import listing
from tare.statistics.cells import CautionCount
from tare.statistics.summary import Summary

_NAMED = 4


@dataclass
class _Kind:
    """Where a kind of caution was raised: the stacks and headlines, and the caution of the most trials."""

    worst: CautionCount
    stacks: dict[str, None] = field(default_factory=dict)
    headlines: dict[str, None] = field(default_factory=dict)


def exclamations(summary: Summary) -> list[str]:
    """Return a line for each kind of caution of the headlines: `! steal (docker): the hypervisor gave …`."""
    kinds: dict[str, _Kind] = {}
    for cell in summary.headlines:
        for caution in cell.cautions:
            kind = kinds.setdefault(caution.kind, _Kind(caution))
            kind.stacks[caution.stack] = kind.headlines[cell.name] = None
            if caution.trials > kind.worst.trials:
                kind.worst = caution
    return [f"! {name} ({_where(summary, kind)}): {kind.worst.texts[0]}" for name, kind in kinds.items()]


def _where(summary: Summary, kind: _Kind) -> str:
    stacks = _some(tuple(kind.stacks))
    everywhere = len(kind.headlines) == len(summary.rules)
    return stacks if everywhere else f"{stacks} in {_some(tuple(kind.headlines))}"


def _some(names: tuple[str, ...]) -> str:
    more = len(names) - _NAMED
    return listing((*names[:_NAMED], f"{more} more") if more > 1 else names)

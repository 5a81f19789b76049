"""Cautions, numbered and listed, so that a mark beside a value leads to its sentence; and what has no value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tare.report.numbers import listing
from tare.statistics.cells import CautionCount, Cell
from tare.statistics.summary import Summary

# Texts that differ in a number only are many; the journal has them all.
_MOST_TEXTS = 3

# Number of the doubt, and what it says of this value.
Marks = tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Doubt:
    """A kind of caution: its number in the page, what it said, and which values it touches."""

    number: int
    kind: str
    texts: tuple[str, ...]
    more: int
    where: tuple[str, ...]


@dataclass(frozen=True)
class Reason:
    """Why some stacks have no value though they worked, and where."""

    text: str
    where: tuple[str, ...]


def doubts(summary: Summary) -> tuple[Doubt, ...]:
    """Return the kinds of cautions of a run, numbered in the order of the page: headlines, then single values.

    A single value may have a caution that no headline has. Where both have it, the headline's counts are given.
    """
    by_kind: dict[str, dict[tuple[str, str], CautionCount]] = {}
    for cell in (*summary.headlines, *summary.cells):
        for caution in cell.cautions:
            by_kind.setdefault(caution.kind, {}).setdefault((cell.workload, caution.stack), caution)
    with_values = dict.fromkeys(summary.workloads, 0)
    for cell in _first_headlines(summary):
        with_values[cell.workload] += cell.trials > 0
    entries = enumerate(by_kind.items(), start=1)
    return tuple(_doubt(number, kind, cells, with_values) for number, (kind, cells) in entries)


def _first_headlines(summary: Summary) -> tuple[Cell, ...]:
    """Return one cell for each workload and stack: their trials are those of all headlines."""
    return tuple(cell for cell in summary.headlines if cell.headline == cell.workload)


def _doubt(number: int, kind: str, cells: dict[tuple[str, str], CautionCount], with_values: dict[str, int]) -> Doubt:
    texts = tuple(dict.fromkeys(text for caution in cells.values() for text in caution.texts))
    by_workload: dict[str, list[CautionCount]] = {}
    for (workload, _), caution in cells.items():
        by_workload.setdefault(workload, []).append(caution)
    lines = tuple(f"{workload}: {_touched(counts, with_values[workload])}" for workload, counts in by_workload.items())
    return Doubt(number, kind, texts[:_MOST_TEXTS], max(len(texts) - _MOST_TEXTS, 0), lines)


def _touched(cautions: list[CautionCount], stacks: int) -> str:
    """Name the stacks that a caution touches and how many of their trials; all of them in two words."""
    counts = {f"{caution.trials} of {caution.of}" for caution in cautions}
    if len(cautions) == stacks > 2 and len(counts) == 1:
        return f"every stack {counts.pop()}"
    return ", ".join(f"{caution.stack} {caution.trials} of {caution.of}" for caution in cautions)


def marks(cell: Cell, numbered: Sequence[Doubt]) -> Marks:
    """Return the marks of a value: its stack's own cautions, and the baseline's, which touch every ratio to it."""
    by_number: dict[int, list[str]] = {}
    numbers = {doubt.kind: doubt.number for doubt in numbered}
    for caution in cell.cautions:
        text = f"{caution.kind}: {caution.stack}, {caution.trials} of {caution.of} trials"
        by_number.setdefault(numbers[caution.kind], []).append(text)
    return tuple((number, "; ".join(texts)) for number, texts in sorted(by_number.items()))


def unexplained(summary: Summary) -> tuple[Reason, ...]:
    """List the reasons of headlines that have no value though nothing was skipped and not all trials failed."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for cell in summary.headlines:
        worked = cell.verdict == "no value" and cell.stack != summary.control and not cell.skipped
        if worked and (cell.trials or not cell.failures):
            text = "; ".join(cell.notes) or "no value"
            reasons.setdefault(text, {}).setdefault(cell.stack, []).append(cell.workload)
    return tuple(
        Reason(text, tuple(f"{stack}: {_where(own, summary)}" for stack, own in stacks.items()))
        for text, stacks in reasons.items()
    )


def _where(workloads: Sequence[str], summary: Summary) -> str:
    """Name workloads, each once: one with several headlines has several such cells."""
    names = tuple(dict.fromkeys(workloads))
    return "all workloads" if set(names) == set(summary.workloads) else listing(names)

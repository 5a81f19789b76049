"""Cautions, failures and skips, numbered and listed, so that a mark beside a value leads to its sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    """Why some stacks have no value, where, and what may fix that."""

    text: str
    where: tuple[str, ...]
    hint: str = ""


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


def skips(summary: Summary) -> tuple[Reason, ...]:
    """List the reasons of skipped stacks, each once."""
    return _grouped(summary, ((cell.skipped, "", cell) for cell in _first_headlines(summary) if cell.skipped))


def failures(summary: Summary) -> tuple[Reason, ...]:
    """List the reasons of failed trials, each once, with how many there were."""
    cells = _first_headlines(summary)
    return _grouped(summary, ((each.reason, each.hint, cell) for cell in cells for each in cell.failures))


def unexplained(summary: Summary) -> tuple[Reason, ...]:
    """List the reasons of headlines that have no value though nothing was skipped and not all trials failed."""
    cells = (cell for cell in summary.headlines if cell.verdict == "no value" and cell.stack != summary.control)
    plain = (cell for cell in cells if not cell.skipped and (cell.trials or not cell.failures))
    return _grouped(summary, (("; ".join(cell.notes) or "no value", "", cell) for cell in plain))


def _grouped(summary: Summary, found: Iterable[tuple[str, str, Cell]]) -> tuple[Reason, ...]:
    """Group cells by their reason and its hint, and name their stacks and workloads."""
    reasons: dict[tuple[str, str], dict[str, list[str]]] = {}
    for text, hint, cell in found:
        reasons.setdefault((text, hint), {}).setdefault(cell.stack, []).append(cell.workload)
    return tuple(
        Reason(text, tuple(f"{stack}: {_where(own, summary)}" for stack, own in stacks.items()), hint)
        for (text, hint), stacks in reasons.items()
    )


def _where(workloads: list[str], summary: Summary) -> str:
    counts = {workload: workloads.count(workload) for workload in workloads}
    if set(counts) == set(summary.workloads) and max(counts.values()) == 1:
        return "all workloads"
    return listing(tuple(f"{name} ({count} trials)" if count > 1 else name for name, count in counts.items()))

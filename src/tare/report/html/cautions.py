"""Numbered cautions, and the table that explains them.

What failed or was skipped is in a table of its own (`tare.report.problems`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tare.report.findings import Line, own_programs, too_fast, too_few, undecided, unlike_itself
from tare.report.numbers import listing
from tare.report.problems import IN_PLAIN_WORDS, firmness, noise
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


_MORE_BLOCKS = "More blocks decide more."


@dataclass(frozen=True)
class CareRow:
    """A row of the table. `number` is that of a caution, to which marks beside values lead; 0 for other rows."""

    what: str
    where: str
    why: tuple[str, ...]
    hint: str = ""
    number: int = 0
    anchor: str = ""


def care(summary: Summary, numbered: Sequence[Doubt]) -> tuple[CareRow, ...]:
    """Make the table: what has no value, cautions in the order of their numbers, what is undecided, and noise."""
    asked = [cell for cell in summary.headlines if cell.stack not in (summary.baseline, summary.control)]
    return (
        *(CareRow("no value", "; ".join(reason.where), (f"{reason.text}.",)) for reason in unexplained(summary)),
        *(_caution(summary, asked, doubt) for doubt in numbered),
        *_lines("differs from itself", unlike_itself(summary)),
        *_lines("own program", own_programs(summary)),
        *_lines("undecided", undecided(summary, asked), _MORE_BLOCKS),
        *_lines("too few blocks", too_few(summary), _MORE_BLOCKS),
        *(CareRow("noise", "all stacks", (text,)) for text in noise(summary)),
        *(CareRow("close decisions", "all stacks", (text,)) for text in firmness(asked)),
    )


def _caution(summary: Summary, asked: Sequence[Cell], doubt: Doubt) -> CareRow:
    """Describe a kind of caution in plain words, then as it was raised."""
    plain = IN_PLAIN_WORDS.get(doubt.kind, "")
    raised = "; ".join((*doubt.texts, *([f"and {doubt.more} more like it"] if doubt.more else [])))
    why = [f"{plain} ({raised})." if plain else f"{raised}."]
    if doubt.kind == "faster-than-bare-metal":
        why += [f"{', '.join(line.names)}: {line.text}." for line in too_fast(summary, asked)]
    return CareRow(
        doubt.kind, "; ".join(doubt.where), tuple(why), number=doubt.number, anchor=f"caution-{doubt.number}"
    )


def _lines(what: str, lines: Iterator[Line], hint: str = "") -> Iterator[CareRow]:
    for line in lines:
        more = f" and {line.more} more" if line.more else ""
        yield CareRow(what, f"{', '.join(line.names)}{more}", (f"{line.text}.",), hint)

"""Numbered cautions, and the table that explains them.

What failed or was skipped is in a table of its own (`tare.report.problems`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tare.report.findings import Line, own_programs, too_fast, too_few, undecided, unlike_itself
from tare.report.numbers import listing
from tare.report.problems import IN_PLAIN_WORDS, firmness, noise
from tare.statistics.cells import CautionCount, Cell
from tare.statistics.summary import Summary

# Texts that differ in a number only are many; the journal has them all.
_MOST_TEXTS = 3

# Number of a kind of caution, and what cautions of it say of this value.
Marks = tuple[tuple[int, str], ...]
# The cautions of each kind, by workload and stack; the place of a kind, from one, is its number in the page.
Doubts = Mapping[str, Mapping[tuple[str, str], CautionCount]]
_MORE_BLOCKS = "More blocks decide more."


def doubts(summary: Summary) -> Doubts:
    """Return the cautions of a run by kind, in the order of the page: headlines, then single values.

    A single value may have a caution that no headline has. Where both have it, the headline's counts are given.
    """
    by_kind: dict[str, dict[tuple[str, str], CautionCount]] = {}
    for cell in (*summary.headlines, *summary.cells):
        for caution in cell.cautions:
            by_kind.setdefault(caution.kind, {}).setdefault((cell.workload, caution.stack), caution)
    return by_kind


def marks(cell: Cell, numbered: Doubts) -> Marks:
    """Return the marks of a value: its stack's own cautions, and the baseline's, which touch every ratio to it."""
    by_number: dict[int, list[str]] = {}
    numbers = {kind: number for number, kind in enumerate(numbered, start=1)}
    for caution in cell.cautions:
        text = f"{caution.kind}: {caution.stack}, {caution.trials} of {caution.of} trials"
        by_number.setdefault(numbers[caution.kind], []).append(text)
    return tuple((number, "; ".join(texts)) for number, texts in sorted(by_number.items()))


def care(summary: Summary, numbered: Doubts) -> Iterator[Mapping[str, object]]:
    """Yield the rows of the table: what has no value, cautions by number, what is undecided, and noise.

    Marks beside values lead to a row with a number.
    """
    asked = [cell for cell in summary.headlines if cell.stack not in (summary.baseline, summary.control)]
    yield from _unexplained(summary)
    with_values = Counter(  # trials of a workload are those of all its headlines
        cell.workload for cell in summary.headlines if cell.headline == cell.workload and cell.trials
    )
    for number, (kind, cells) in enumerate(numbered.items(), start=1):
        by_workload: dict[str, list[CautionCount]] = {}
        for (workload, _), caution in cells.items():
            by_workload.setdefault(workload, []).append(caution)
        touched = (f"{name}: {_touched(counts, with_values[name])}" for name, counts in by_workload.items())
        yield _row(kind, "; ".join(touched), *_explained(summary, asked, kind, cells), number=number)
    yield from _lines("differs from itself", unlike_itself(summary))
    yield from _lines("own program", own_programs(summary))
    yield from _lines("undecided", undecided(summary, asked), _MORE_BLOCKS)
    yield from _lines("too few blocks", too_few(summary), _MORE_BLOCKS)
    yield from (_row("noise", "all stacks", text) for text in noise(summary))
    yield from (_row("close decisions", "all stacks", text) for text in firmness(asked))


def _row(what: str, where: str, *why: str, hint: str = "", number: int = 0) -> Mapping[str, object]:
    return {"what": what, "where": where, "why": why, "hint": hint, "number": number}


def _unexplained(summary: Summary) -> Iterator[Mapping[str, object]]:
    """Yield the reasons of headlines that have no value though nothing was skipped and not all trials failed."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for cell in summary.headlines:
        worked = cell.verdict == "no value" and cell.stack != summary.control and not cell.skipped
        if worked and (cell.trials or not cell.failures):
            text = "; ".join(cell.notes) or "no value"
            reasons.setdefault(text, {}).setdefault(cell.stack, []).append(cell.workload)
    for text, stacks in reasons.items():
        yield _row(
            "no value", "; ".join(f"{stack}: {_where(own, summary)}" for stack, own in stacks.items()), f"{text}."
        )


def _where(workloads: Sequence[str], summary: Summary) -> str:
    """Name workloads, each once: one with several headlines has several such cells."""
    names = tuple(dict.fromkeys(workloads))
    return "all workloads" if set(names) == set(summary.workloads) else listing(names)


def _touched(cautions: Sequence[CautionCount], stacks: int) -> str:
    """Name the stacks that a caution touches and how many of their trials; all of them in two words."""
    counts = {f"{caution.trials} of {caution.of}" for caution in cautions}
    if len(cautions) == stacks > 2 and len(counts) == 1:
        return f"every stack {counts.pop()}"
    return ", ".join(f"{caution.stack} {caution.trials} of {caution.of}" for caution in cautions)


def _explained(
    summary: Summary, asked: Sequence[Cell], kind: str, cells: Mapping[tuple[str, str], CautionCount]
) -> Iterator[str]:
    """Describe a kind of caution in plain words, then as it was raised."""
    texts = list(dict.fromkeys(text for caution in cells.values() for text in caution.texts))
    more = [f"and {len(texts) - _MOST_TEXTS} more like it"] if len(texts) > _MOST_TEXTS else []
    plain, raised = IN_PLAIN_WORDS.get(kind, ""), "; ".join((*texts[:_MOST_TEXTS], *more))
    yield f"{plain} ({raised})." if plain else f"{raised}."
    if kind == "faster-than-bare-metal":
        yield from (f"{', '.join(line.names)}: {line.text}." for line in too_fast(summary, asked))


def _lines(what: str, lines: Iterator[Line], hint: str = "") -> Iterator[Mapping[str, object]]:
    for line in lines:
        more = f" and {line.more} more" if line.more else ""
        yield _row(what, f"{', '.join(line.names)}{more}", f"{line.text}.", hint=hint)

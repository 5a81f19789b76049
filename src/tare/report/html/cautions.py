"""Numbered cautions, and the table that explains them.

What failed or was skipped is in a separate table (`tare.report.problems`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from tare.report.findings import (
    FindingLine,
    failed_control_lines,
    override_lines,
    too_fast_lines,
    too_few_blocks_lines,
    undecided_lines,
)
from tare.report.numbers import join_names
from tare.report.problems import CAUTION_EXPLANATIONS, describe_noise, describe_robustness
from tare.statistics.cells import CautionCount, Cell
from tare.statistics.summary import Summary

# Texts that differ in a number only are many; the journal has them all.
_MAX_TEXTS = 3

# Number of a kind of caution, and what cautions of it say of this value.
Marks = tuple[tuple[int, str], ...]
# The cautions of each kind, by workload and stack; the place of a kind, from one, is its number in the page.
CautionsByKind = Mapping[str, Mapping[tuple[str, str], CautionCount]]
_MORE_BLOCKS = "More blocks decide more."


def cautions_by_kind(summary: Summary) -> CautionsByKind:
    """Return the cautions of a run by kind, in the order of the page: headlines, then single values.

    A single value may have a caution that no headline has. Where both have it, the headline's counts are given.
    """
    by_kind: dict[str, dict[tuple[str, str], CautionCount]] = {}
    for cell in (*summary.headlines, *summary.cells):
        for caution in cell.cautions:
            by_kind.setdefault(caution.kind, {}).setdefault((cell.workload, caution.stack), caution)
    return by_kind


def caution_marks(cell: Cell, numbered: CautionsByKind) -> Marks:
    """Return the marks of a value: its stack's cautions, and the baseline's, which touch every ratio to it."""
    by_number: dict[int, list[str]] = {}
    numbers = {kind: number for number, kind in enumerate(numbered, start=1)}
    for caution in cell.cautions:
        text = f"{caution.kind}: {caution.stack}, {caution.trials} of {caution.of} trials"
        by_number.setdefault(numbers[caution.kind], []).append(text)
    return tuple((number, "; ".join(texts)) for number, texts in sorted(by_number.items()))


def caution_rows(summary: Summary, numbered: CautionsByKind) -> Iterator[Mapping[str, object]]:
    """Yield the rows of the table: what has no value, cautions by number, what is undecided, and noise.

    Marks at values lead to a row with a number.
    """
    asked = [cell for cell in summary.headlines if cell.stack not in (summary.baseline, summary.control)]
    yield from _missing_value_rows(summary)
    with_values = Counter(  # trials of a workload are those of all its headlines
        cell.workload for cell in summary.headlines if cell.headline == cell.workload and cell.trials
    )
    for number, (kind, cells) in enumerate(numbered.items(), start=1):
        by_workload: dict[str, list[CautionCount]] = {}
        for (workload, _), caution in cells.items():
            by_workload.setdefault(workload, []).append(caution)
        touched = (f"{name}: {_describe_affected(counts, with_values[name])}" for name, counts in by_workload.items())
        yield _create_row(kind, "; ".join(touched), *_explain_kind(summary, asked, kind, cells), number=number)
    yield from _line_rows("differs from itself", failed_control_lines(summary))
    yield from _line_rows("own program", override_lines(summary))
    yield from _line_rows("undecided", undecided_lines(summary, asked), _MORE_BLOCKS)
    yield from _line_rows("too few blocks", too_few_blocks_lines(summary), _MORE_BLOCKS)
    yield from (_create_row("noise", "all stacks", text) for text in describe_noise(summary))
    yield from (_create_row("close decisions", "all stacks", text) for text in describe_robustness(asked))


def _create_row(what: str, where: str, *why: str, hint: str = "", number: int = 0) -> Mapping[str, object]:
    return {"what": what, "where": where, "why": why, "hint": hint, "number": number}


def _missing_value_rows(summary: Summary) -> Iterator[Mapping[str, object]]:
    """Yield the reasons of headlines that have no value though nothing was skipped and not all trials failed."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for cell in summary.headlines:
        worked = cell.verdict == "no value" and cell.stack != summary.control and not cell.skipped
        if worked and (cell.trials or not cell.failures):
            text = "; ".join(cell.notes) or "no value"
            reasons.setdefault(text, {}).setdefault(cell.stack, []).append(cell.workload)
    for text, stacks in reasons.items():
        yield _create_row(
            "no value",
            "; ".join(f"{stack}: {_join_workloads(own, summary)}" for stack, own in stacks.items()),
            f"{text}.",
        )


def _join_workloads(workloads: Sequence[str], summary: Summary) -> str:
    """Name workloads, each once: one with several headlines has several such cells."""
    names = tuple(dict.fromkeys(workloads))
    return "all workloads" if set(names) == set(summary.workloads) else join_names(names)


def _describe_affected(cautions: Sequence[CautionCount], stacks: int) -> str:
    """Name the stacks that a caution touches and how many of their trials; all of them in two words."""
    counts = {f"{caution.trials} of {caution.of}" for caution in cautions}
    if len(cautions) == stacks > 2 and len(counts) == 1:
        return f"every stack {counts.pop()}"
    return ", ".join(f"{caution.stack} {caution.trials} of {caution.of}" for caution in cautions)


def _explain_kind(
    summary: Summary, compared_cells: Sequence[Cell], kind: str, cells: Mapping[tuple[str, str], CautionCount]
) -> Iterator[str]:
    """Describe a kind of caution in plain words, then as it was raised."""
    texts = list(dict.fromkeys(text for caution in cells.values() for text in caution.texts))
    more = [f"and {len(texts) - _MAX_TEXTS} more like it"] if len(texts) > _MAX_TEXTS else []
    plain, raised = CAUTION_EXPLANATIONS.get(kind, ""), "; ".join((*texts[:_MAX_TEXTS], *more))
    yield f"{plain} ({raised})." if plain else f"{raised}."
    if kind == "faster-than-bare-metal":
        yield from (f"{', '.join(line.names)}: {line.text}." for line in too_fast_lines(summary, compared_cells))


def _line_rows(what: str, lines: Iterator[FindingLine], hint: str = "") -> Iterator[Mapping[str, object]]:
    for line in lines:
        more = f" and {line.more} more" if line.more else ""
        yield _create_row(what, f"{', '.join(line.names)}{more}", f"{line.text}.", hint=hint)

"""Numbered cautions and the table that explains them. `tare.report.problems` has failures and skipped stacks."""

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

# Trials of a workload may raise hundreds of texts that differ in a number only; the journal has all of them.
_MAX_TEXTS = 3

# Marks of a value: the number of a caution type in the page, and the affected stacks as text.
Marks = tuple[tuple[int, str], ...]
# Cautions by type, then by workload and stack. The position of a type, from 1, is its number in the page.
CautionsByKind = Mapping[str, Mapping[tuple[str, str], CautionCount]]
_MORE_BLOCKS = "run more blocks."


def cautions_by_kind(summary: Summary) -> CautionsByKind:
    """Return the cautions of a run by type, in the order of the page: headlines, then single values.

    A single value may have a caution that no headline has. If both have it, the counts are those of the headline.
    """
    by_kind: dict[str, dict[tuple[str, str], CautionCount]] = {}
    for cell in (*summary.headlines, *summary.cells):
        for caution in cell.cautions:
            by_kind.setdefault(caution.kind, {}).setdefault((cell.workload, caution.stack), caution)
    return by_kind


def caution_marks(cell: Cell, numbered: CautionsByKind) -> Marks:
    """Return the marks of a value: cautions of its stack, and cautions of the baseline, which affect every ratio."""
    by_number: dict[int, list[str]] = {}
    numbers = {kind: number for number, kind in enumerate(numbered, start=1)}
    for caution in cell.cautions:
        text = f"{caution.kind}: {caution.stack}, {caution.trials} of {caution.of} trials"
        by_number.setdefault(numbers[caution.kind], []).append(text)
    return tuple((number, "; ".join(texts)) for number, texts in sorted(by_number.items()))


def caution_rows(summary: Summary, numbered: CautionsByKind) -> Iterator[Mapping[str, object]]:
    """Yield the rows of the table: missing values, numbered cautions, undecided results, and noise.

    Marks next to values link to the numbered rows.
    """
    compared = [cell for cell in summary.headlines if cell.stack not in (summary.baseline, summary.control)]
    yield from _missing_value_rows(summary)
    with_values = Counter(  # trials of a workload are those of all its headlines
        cell.workload for cell in summary.headlines if cell.headline == cell.workload and cell.trials
    )
    for number, (kind, cells) in enumerate(numbered.items(), start=1):
        by_workload: dict[str, list[CautionCount]] = {}
        for (workload, _), caution in cells.items():
            by_workload.setdefault(workload, []).append(caution)
        touched = (f"{name}: {_describe_affected(counts, with_values[name])}" for name, counts in by_workload.items())
        yield _create_row(kind, "; ".join(touched), *_explain_kind(summary, compared, kind, cells), number=number)
    yield from _line_rows("A/A check failed", failed_control_lines(summary))
    yield from _line_rows("other program", override_lines(summary))
    yield from _line_rows("undecided", undecided_lines(summary, compared), _MORE_BLOCKS)
    yield from _line_rows("too few blocks", too_few_blocks_lines(summary), _MORE_BLOCKS)
    yield from (_create_row("noise", "all stacks", text) for text in describe_noise(summary))
    yield from (_create_row("robustness", "all stacks", text) for text in describe_robustness(compared))


def _create_row(what: str, where: str, *why: str, hint: str = "", number: int = 0) -> Mapping[str, object]:
    return {"what": what, "where": where, "why": why, "hint": hint, "number": number}


def _missing_value_rows(summary: Summary) -> Iterator[Mapping[str, object]]:
    """Yield the reasons why headlines have no value although the stack was not skipped and some trials succeeded."""
    reasons: dict[str, dict[str, list[str]]] = {}
    for cell in summary.headlines:
        worked = cell.verdict == "no value" and cell.stack != summary.control and not cell.skipped
        if worked and (cell.trials or not cell.failures):
            text = "; ".join(cell.notes) or "no value"
            reasons.setdefault(text, {}).setdefault(cell.stack, []).append(cell.workload)
    for text, stacks in reasons.items():
        yield _create_row(
            "no value",
            "; ".join(f"{stack}: {_join_workloads(workloads, summary)}" for stack, workloads in stacks.items()),
            f"{text}.",
        )


def _join_workloads(workloads: Sequence[str], summary: Summary) -> str:
    """Name workloads, each once, because a workload with several headlines has several such cells."""
    names = tuple(dict.fromkeys(workloads))
    return "all workloads" if set(names) == set(summary.workloads) else join_names(names)


def _describe_affected(cautions: Sequence[CautionCount], stacks: int) -> str:
    """Name the affected stacks with their numbers of trials; `every stack` if all have the same number."""
    counts = {f"{caution.trials} of {caution.of}" for caution in cautions}
    if len(cautions) == stacks > 2 and len(counts) == 1:
        return f"every stack {counts.pop()}"
    return ", ".join(f"{caution.stack} {caution.trials} of {caution.of}" for caution in cautions)


def _explain_kind(
    summary: Summary, compared_cells: Sequence[Cell], kind: str, cells: Mapping[tuple[str, str], CautionCount]
) -> Iterator[str]:
    """Yield the plain explanation of a caution type, followed by the texts that trials recorded."""
    texts = list(dict.fromkeys(text for caution in cells.values() for text in caution.texts))
    more = [f"and {len(texts) - _MAX_TEXTS} more like it"] if len(texts) > _MAX_TEXTS else []
    plain, recorded = CAUTION_EXPLANATIONS.get(kind, ""), "; ".join((*texts[:_MAX_TEXTS], *more))
    yield f"{plain} ({recorded})." if plain else f"{recorded}."
    if kind == "faster-than-bare-metal":
        yield from (f"{', '.join(line.names)}: {line.text}." for line in too_fast_lines(summary, compared_cells))


def _line_rows(what: str, lines: Iterator[FindingLine], hint: str = "") -> Iterator[Mapping[str, object]]:
    for line in lines:
        more = f" and {line.more} more" if line.more else ""
        yield _create_row(what, f"{', '.join(line.names)}{more}", f"{line.text}.", hint=hint)

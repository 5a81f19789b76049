"""Cells of the page's tables, and the numbered cautions about their values with the table that explains them.

`tare.report.problems` has failures and skipped stacks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.report.findings import (
    FindingLine,
    failed_control_lines,
    override_lines,
    too_fast_lines,
    too_few_blocks_lines,
    undecided_lines,
)
from tare.report.html.sparklines import TurnDrawings
from tare.report.html.trials import Anchors
from tare.report.numbers import (
    GLYPHS,
    cell_state,
    cut,
    describe_missing_value,
    format_interval,
    format_ratio,
    join_names,
    reach,
)
from tare.report.problems import CAUTION_EXPLANATIONS, FailureTable, StackStatus, describe_noise, describe_robustness
from tare.statistics.cells import CautionCount, Cell, OverallSpeed
from tare.statistics.outcomes import WorkloadStatus
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


_WHY = 64  # characters of a short line
_STATUS_CELLS: Mapping[WorkloadStatus, tuple[str, str]] = {  # style classes of a cell, and its glyph
    "works": ("equivalent", "✓"),
    "fails": ("worse strength-3", GLYPHS["failed"]),
    "fails at times": ("worse strength-1", GLYPHS["failed"]),
    "skipped": ("none", GLYPHS["skipped"]),
    "not tried": ("none", GLYPHS["no value"]),
}


@dataclass(frozen=True)
class TableCell:
    """Cell of the matrix or of a table.

    `look` has the style classes, `why` is the short reason of a missing value, and `anchor` that of the cell's trials.
    The page's script filters tables by `verdict` and sorts them by `sort`.
    """

    look: str
    glyph: str
    estimate: str = ""
    interval: str = ""
    n: str = ""
    why: str = ""
    detail: str = ""
    marks: Marks = ()
    failed: str = ""
    anchor: str = ""
    verdict: str = ""
    sort: str = ""


@dataclass(frozen=True)
class LinkTargets:
    """Targets of links from values: numbered cautions, anchors of trials, and turns and trials by workload."""

    cautions: CautionsByKind
    anchors: Anchors
    turns: Mapping[str, TurnDrawings]
    trials: Mapping[str, Sequence[Mapping[str, Any]]]


def create_cell(cell: Cell, sources: LinkTargets) -> TableCell:
    """Return the table cell of a value."""
    state = cell_state(cell)
    is_shown = state == "baseline" or cell.ratio is not None
    shown = {"estimate": format_ratio(cell), "interval": format_interval(cell), "n": f"n={cell.n}"}
    if state == "baseline":
        shown = {"estimate": "0 %", "n": f"n={cell.n or cell.trials}"}
    elif cell.ratio is None:
        why = describe_missing_value(cell) or "; ".join(cell.notes)
        shown = {"estimate": state if state in ("skipped", "failed") else "", "why": cut(why, _WHY)}
    cautions = (f"{caution.kind} ({caution.stack}, {caution.trials} of {caution.of})" for caution in cell.cautions)
    return TableCell(
        style_of_verdict(state, cell) if is_shown else "none",
        GLYPHS[state],
        **shown,
        detail="; ".join([f"{cell.stack}, {cell.name}: {state}", *reach(cell), *cell.notes, *cautions]),
        failed=f"{len(cell.failures)} failed" if cell.failures and cell.trials else "",
        marks=caution_marks(cell, sources.cautions),
        anchor=sources.anchors.get((cell.workload, cell.stack), ""),
        verdict=state,
        sort="1" if state == "baseline" else "" if cell.ratio is None else f"{cell.ratio:.6g}",
    )


def style_of_verdict(verdict: str, value: Cell | OverallSpeed) -> str:
    """Return the style class of a verdict, in three strengths by the distance of the value from the baseline."""
    if verdict not in ("better", "worse"):
        return verdict.replace(" ", "-")
    ratio = (value.speed if isinstance(value, OverallSpeed) else value.ratio) or 1.0
    far = max(ratio, 1 / ratio)
    return f"{verdict} strength-{1 if far < 1.05 else 2 if far < 1.5 else 3}"


def create_status_cell(tried: StackStatus, found: FailureTable, anchors: Anchors) -> TableCell:
    """Return the table cell that tells whether a workload works in a stack."""
    look, glyph = _STATUS_CELLS[tried.status]
    why = found.describe_cause(tried)
    return TableCell(
        look,
        glyph,
        tried.text,
        why=cut(why, _WHY),
        detail=f"{tried.stack}, {tried.workload}: {tried.text}{': ' if why else ''}{why}",
        anchor=anchors.get((tried.workload, tried.stack), ""),
    )

"""Answer of `tare compare` for runs: the stacks of one run, or what changed from one run to another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from tare.features.compare.changes import Change
from tare.features.compare.two_runs import Comparison
from tare.model.units import format_quantity
from tare.report.answer import Answer, Column, Gate, Row
from tare.report.data_files import cell_fields, run_fields
from tare.report.findings import own_programs, unlike_itself
from tare.report.numbers import cut, estimate, listing, percent
from tare.report.problems import firmness, noise
from tare.report.terminal import STYLES, row
from tare.statistics.anytime import CONFIDENCE, least_count
from tare.statistics.cells import Cell, Verdict

_NAMED = 5
_NOTE = 160
_ORDER: tuple[Verdict, ...] = ("worse", "better", "equivalent", "undecided", "too few blocks", "no value")


_COLUMNS = (
    Column("workload", "name"),
    Column("stack", "name"),
    Column("verdict", "text"),
    Column("estimate"),
    Column("interval"),
    Column("n"),
)
_OF_RUNS = (Column("before", only_wide=True), Column("after", only_wide=True))


def answer(found: Comparison) -> Answer:
    """Return what `tare compare` found of runs as an answer."""
    gate = _gate(found)
    styles = [STYLES.get(cell.verdict, "dim") for cell in shown_cells(found)]
    return Answer(
        command="compare",
        columns=(*_COLUMNS, *(_OF_RUNS if found.changes else ())),
        rows=tuple(map(Row, _rows(found), styles)),
        legend=_legend(found),
        remarks=_remarks(found),
        conclusions=tuple(filter(None, (_sentence(found), _own_sentence(found), gate.sentence))),
        fields=partial(_document, found, gate),
        gate=gate,
    )


def _sentence(found: Comparison) -> str:
    """Describe in one sentence what came of it."""
    parts = []
    for verdict in _ORDER:
        cells = [cell for cell in found.cells if cell.verdict == verdict]
        if cells:
            parts.append(_part(found, verdict, cells))
    text = listing(tuple(parts))
    if len(parts) > 1:
        text = f"of {len(found.cells)} results {text}"
    return f"{_between(found)}, {text}."


def _gate(found: Comparison) -> Gate:
    """Describe the gate: what failed it, or why it cannot tell."""
    gate, why, hint = found.gate, "", ""
    if gate.answer == "failed":
        failing = tuple(f"{_name(cell)} ({'lost' if cell in gate.lost else cell.verdict})" for cell in gate.failing)
        why = _some(failing)
    elif gate.answer == "cannot tell":
        baseline, reasons = found.summary.baseline, []
        hint = f"{least_count()} blocks or more are needed; run the suite for longer"
        if all(cell.low is None for cell in found.cells):
            many = max(cell.n for cell in found.cells)
            reasons.append(f"no comparison has an interval, with {many} block{'s' * (many != 1)} at most")
        if gate.moved:
            reasons.append(f"{baseline} itself differs by more than the margin")
            hint = (
                "run the old and the new program as two stacks of one run, or judge it as it is: "
                f"--stack {baseline} (docs/compare.md)"
            )
        why = " and ".join(reasons)
    return Gate(gate.fail_on, gate.answer, why, hint, gate.is_undecided)


def _own_sentence(found: Comparison) -> str:
    """Describe the baseline's own change between two runs; empty for one run, and where it is among the rows."""
    cells = [each.cell for each in found.own]
    if not cells:
        return ""
    texts = tuple(
        f"{cell.name} {'has' if cell.verdict == 'too few blocks' else 'is'} {cell.verdict} ({estimate(cell)})"
        for cell in sorted(cells, key=lambda cell: -abs(math.log(cell.ratio or 1.0)))
    )
    doubt = "the program may have changed, or the machine from one run to the other"
    return f"{found.summary.baseline} itself: {_some(texts)}; {doubt}."


def _remarks(found: Comparison) -> tuple[str, ...]:
    """Return all that is to be known beside the table: differences of the runs, and doubts."""
    sentences = list(found.statements)
    if not found.changes:
        sentences += [line.sentence for find in (own_programs, unlike_itself) for line in find(found.summary)]
        sentences += noise(found.summary)
    shown = shown_cells(found)
    sentences += [*_notes(shown), *firmness(found.cells)]
    kinds = tuple(dict.fromkeys(caution.kind for cell in shown for caution in cell.cautions))
    if kinds:
        sentences.append(f"! cautions touch these values: {listing(kinds)}")
    return tuple(sentences)


def _legend(found: Comparison) -> str:
    """Describe what the numbers of the table are."""
    baseline, margin = found.summary.baseline, percent(found.summary.margin)
    what = f"percent of {baseline}"
    if found.changes:
        what = f"percent of what it was before; {baseline} by its values, others relative to {baseline} in each run"
    return f"{what}, 95 % interval, n blocks; ↑ more is better, ↓ less is better; equivalent: within {margin}"


def _document(found: Comparison, gate: Gate) -> dict[str, Any]:
    """Return what JSON has. Ratios are stack over baseline, and of two runs that of after over that of before."""
    cells = [_fields(change) for change in found.changes] or [cell_fields(cell) for cell in found.cells]
    return {
        "baseline": found.summary.baseline,
        "margin": found.summary.margin,
        "confidence": CONFIDENCE,
        "runs": [run_fields(run.folder, run.record) for run in found.runs],
        "cells": cells,
        "baseline_changes": [_fields(change) for change in found.own],
        "answer": _sentence(found),
        "baseline_answer": _own_sentence(found) or None,
        "remarks": _remarks(found),
        "gate": gate.fields
        | {
            "cells": [_place(cell) | {"lost": cell in found.gate.lost} for cell in found.gate.failing],
            "baseline_changes": [_place(cell) for cell in found.gate.moved],
        },
    }


def _fields(change: Change) -> dict[str, Any]:
    """Return a change as what JSON can hold, with the cells of both runs."""
    both = {"before": change.before, "after": change.after}
    doubts = [{"run": when} | asdict(doubt) for when, cell in both.items() for doubt in cell.cautions]
    fields = cell_fields(change.cell) | {"cautions": doubts if change.cell.cautions else []}
    return fields | {when: cell_fields(cell) for when, cell in both.items()}


def _place(cell: Cell) -> dict[str, Any]:
    return {
        "workload": cell.workload,
        "headline": cell.headline,
        "stack": cell.stack,
        "decision": cell.verdict,
    }


def shown_cells(found: Comparison) -> tuple[Cell, ...]:
    """Return the cells of the table's rows: what was asked for, and the baseline's own changes below it."""
    return (*found.cells, *(change.cell for change in found.own))


def _rows(found: Comparison) -> list[tuple[str, ...]]:
    if not found.changes:
        return [(*row(cell), str(cell.n) if cell.n else "") for cell in found.cells]
    return [
        (*row(each.cell), _counts(each), _stood(each.before), _stood(each.after))
        for each in (*found.changes, *found.own)
    ]


def _stood(cell: Cell) -> str:
    """Describe how a stack stood to the baseline in a run; the baseline itself by its usual value, if it has one."""
    if cell.verdict != "baseline":
        return estimate(cell)
    return "" if cell.usual is None else format_quantity(cell.usual, cell.unit)


def _counts(change: Change) -> str:
    """Describe how many blocks each run has, such as `12 + 15`."""
    return f"{change.before.n} + {change.after.n}" if change.before.n or change.after.n else ""


def _notes(cells: Sequence[Cell]) -> list[str]:
    """Return the cells' notes, each once for the stacks and workloads that share it."""
    workloads: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if cell.notes:
            workloads.setdefault((cell.stack, cut("; ".join(cell.notes), _NOTE)), []).append(cell.name)
    stacks: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for (stack, text), names in workloads.items():
        stacks.setdefault((tuple(names), text), []).append(stack)
    return [f"{listing(tuple(own))} in {listing(names)}: {text}" for (names, text), own in stacks.items()]


def _between(found: Comparison) -> str:
    if found.changes:
        first, second = (run.folder.resolve().name for run in found.runs)
        return f"From {first} to {second}"
    return f"Compared with {found.summary.baseline}"


def _part(found: Comparison, verdict: Verdict, cells: Sequence[Cell]) -> str:
    """Describe how many cells have a verdict, and which, where they are different."""
    has = verdict in ("too few blocks", "no value")
    within = f" within {percent(found.summary.margin)}" if verdict == "equivalent" else ""
    if len(found.cells) == 1:
        value = f" ({estimate(cells[0])})" if cells[0].ratio is not None else ""
        return f"{_name(cells[0])} {'has' if has else 'is'} {verdict}{within}{value}"
    many = f"all {len(cells)} results" if len(cells) == len(found.cells) else f"{len(cells)}"
    verb = ("has" if has else "is") if len(cells) == 1 else ("have" if has else "are")
    texts = tuple(f"{_name(cell)}, {estimate(cell)}" for cell in cells)
    named = f" ({_some(texts, '; ')})" if verdict in ("worse", "better") else ""
    return f"{many} {verb} {verdict}{within}{named}"


def _some(texts: tuple[str, ...], between: str = ", ") -> str:
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return f"{between.join(texts[:_NAMED])}{more}"


def _name(cell: Cell) -> str:
    return f"{cell.stack} in {cell.name}"

"""Answer of `tare compare`: the stacks of one run, or the changes from one run to another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from tare.features.compare.changes import RatioChange
from tare.features.compare.comparability import run_machine_differences
from tare.features.compare.noise import NoiseVerdict
from tare.features.compare.run_comparison import ComparisonResult
from tare.model.units import format_quantity
from tare.report.answer import TO_DECIDE, Answer, AnswerColumn, AnswerRow, Gate, describe_undecided
from tare.report.data_files import cell_fields, run_fields
from tare.report.findings import failed_control_lines, override_lines
from tare.report.numbers import cut, format_percent, format_ratio, join_names
from tare.report.problems import describe_noise, describe_robustness
from tare.report.terminal import STYLES, cell_texts
from tare.statistics.anytime import CONFIDENCE, min_value_count
from tare.statistics.cells import Cell, Verdict

_MAX_NAMED = 5
_MAX_NOTE_CHARACTERS = 160
_VERDICT_ORDER: tuple[Verdict, ...] = ("worse", "better", "equivalent", "undecided", "too few blocks", "no value")


_COLUMNS = (
    AnswerColumn("workload", "name"),
    AnswerColumn("stack", "name"),
    AnswerColumn("verdict", "text"),
    AnswerColumn("estimate"),
    AnswerColumn("interval"),
    AnswerColumn("n"),
)
_RUN_COLUMNS = (AnswerColumn("before", only_wide=True), AnswerColumn("after", only_wide=True))


def answer(result: ComparisonResult) -> Answer:
    """Return the answer of `tare compare`: its table, sentences and gate."""
    gate = _gate(result)
    styles = [STYLES.get(cell.verdict, "dim") for cell in shown_cells(result)]
    return Answer(
        command="compare",
        columns=(*_COLUMNS, *(_RUN_COLUMNS if result.changes else ())),
        rows=tuple(map(AnswerRow, _rows(result), styles)),
        legend=_legend(result),
        remarks=_remarks(result),
        conclusions=tuple(filter(None, (_sentence(result), _baseline_sentence(result), gate.sentence))),
        fields=partial(_document, result, gate),
        gate=gate,
        opening=_comparability_sentence(result),
    )


def _comparability_sentence(result: ComparisonResult) -> str:
    """Return a sentence on whether two runs are of one machine and equally noisy; "" for one run."""
    if not result.changes:
        return ""
    machine = "Different machines" if run_machine_differences(*result.runs) else "Same machine, as far as recorded"
    baseline = result.summary.baseline
    texts = {
        each.headline: f"{100 * each.before:.2g} % before and {100 * each.after:.2g} % after" for each in result.noise
    }
    by_verdict: dict[NoiseVerdict, list[str]] = {}
    for each in result.noise:
        by_verdict.setdefault(each.verdict, []).append(each.headline)
    noise = []
    if different := by_verdict.get("different"):
        noise.append(f"different in {_join_some(tuple(f'{name} ({texts[name]})' for name in different))}")
    if similar := by_verdict.get("similar"):
        values = f" ({texts[similar[0]]})" if len(similar) == 1 else ""
        noise.append(f"similar in {_join_some(tuple(similar))}{values}")
    if few := by_verdict.get("too few blocks"):
        noise.append(f"too few blocks to compare it in {_join_some(tuple(few))}")
    return f"{machine}. Noise of {baseline}: {'; '.join(noise) or 'unknown'}."


def _sentence(result: ComparisonResult) -> str:
    """Return the result as one sentence: the number of cells of each verdict, differences first."""
    parts = []
    for verdict in _VERDICT_ORDER:
        cells = [cell for cell in result.cells if cell.verdict == verdict]
        if cells:
            parts.append(_verdict_phrase(result, verdict, cells))
    text = join_names(tuple(parts))
    if len(parts) > 1:
        text = f"of {len(result.cells)} results {text}"
    return f"{_compared_runs_phrase(result)}, {text}."


def _gate(result: ComparisonResult) -> Gate:
    """Return the gate with the cells that failed it, or the reason why it cannot tell."""
    gate, why, hint = result.gate, "", ""
    if gate.outcome == "failed":
        failing = tuple(
            f"{_cell_name(cell)} ({'lost' if cell in gate.lost else cell.verdict})" for cell in gate.failing
        )
        why = _join_some(failing)
    elif gate.outcome == "cannot tell":
        baseline, reasons = result.summary.baseline, []
        hint = f"{min_value_count()} blocks or more are needed; run the suite for longer"
        if all(cell.low is None for cell in result.cells):
            many = max(cell.n for cell in result.cells)
            reasons.append(f"no comparison has an interval, with {many} block{'s' * (many != 1)} at most")
        if gate.confounding:
            reasons.append(f"{baseline} itself differs by more than the margin")
            hint = (
                "run the old and the new program as two stacks of one run, or judge it as it is: "
                f"--stack {baseline} (docs/compare.md)"
            )
        why = " and ".join(reasons)
    elif gate.outcome == "undecided":
        why, hint = describe_undecided(result.cells), TO_DECIDE
    return Gate(gate.fail_on, gate.outcome, why, hint)


def _baseline_sentence(result: ComparisonResult) -> str:
    """Describe the changes of the baseline itself; "" for one run, and if the baseline is among the rows."""
    cells = [each.cell for each in result.baseline_changes]
    if not cells:
        return ""
    texts = tuple(
        f"{cell.name} {'has' if cell.verdict == 'too few blocks' else 'is'} {cell.verdict} ({format_ratio(cell)})"
        for cell in sorted(cells, key=lambda cell: -abs(math.log(cell.ratio or 1.0)))
    )
    cause = "the program or the machine may have changed"
    return f"{result.summary.baseline} itself: {_join_some(texts)}; {cause}."


def _remarks(result: ComparisonResult) -> tuple[str, ...]:
    """Return the notes below the table: differences of the runs, and cautions."""
    sentences = list(result.statements)
    if not result.changes:
        sentences += [line.sentence for find in (override_lines, failed_control_lines) for line in find(result.summary)]
        sentences += describe_noise(result.summary)
    shown = shown_cells(result)
    sentences += [*_notes(shown), *describe_robustness(result.cells)]
    kinds = tuple(dict.fromkeys(caution.kind for cell in shown for caution in cell.cautions))
    if kinds:
        sentences.append(f"! cautions about these values: {join_names(kinds)}")
    return tuple(sentences)


def _legend(result: ComparisonResult) -> str:
    """Return the explanation of the table's numbers."""
    baseline, margin = result.summary.baseline, format_percent(result.summary.margin)
    quantity = f"change from {baseline}"
    if result.changes:
        quantity = f"change from before; {baseline} by its values, others relative to {baseline} in each run"
    return f"{quantity}, 95 % interval, n blocks; ↑ more is better, ↓ less is better; equivalent: within {margin}"


def _document(result: ComparisonResult, gate: Gate) -> dict[str, Any]:
    """Return the fields of the JSON output. Ratios are stack over baseline; of two runs, after over before of these."""
    cells = [_change_fields(change) for change in result.changes] or [cell_fields(cell) for cell in result.cells]
    return {
        "baseline": result.summary.baseline,
        "margin": result.summary.margin,
        "confidence": CONFIDENCE,
        "runs": [run_fields(run.folder, run.record) for run in result.runs],
        "cells": cells,
        "baseline_changes": [_change_fields(change) for change in result.baseline_changes],
        "answer": _sentence(result),
        "baseline_answer": _baseline_sentence(result) or None,
        "comparability": _comparability_sentence(result) or None,
        "noise": [asdict(each) for each in result.noise],
        "remarks": _remarks(result),
        "gate": gate.fields
        | {
            "cells": [_cell_key_fields(cell) | {"lost": cell in result.gate.lost} for cell in result.gate.failing],
            "baseline_changes": [_cell_key_fields(cell) for cell in result.gate.confounding],
        },
    }


def _change_fields(change: RatioChange) -> dict[str, Any]:
    """Return the JSON fields of a change, with the cells of both runs."""
    both = {"before": change.before, "after": change.after}
    cautions = [{"run": when} | asdict(caution) for when, cell in both.items() for caution in cell.cautions]
    fields = cell_fields(change.cell) | {"cautions": cautions if change.cell.cautions else []}
    return fields | {when: cell_fields(cell) for when, cell in both.items()}


def _cell_key_fields(cell: Cell) -> dict[str, Any]:
    return {
        "workload": cell.workload,
        "headline": cell.headline,
        "stack": cell.stack,
        "decision": cell.verdict,
    }


def shown_cells(result: ComparisonResult) -> tuple[Cell, ...]:
    """Return the cells of the table's rows: the requested stacks, then the changes of the baseline itself."""
    return (*result.cells, *(change.cell for change in result.baseline_changes))


def _rows(result: ComparisonResult) -> list[tuple[str, ...]]:
    if not result.changes:
        return [(*cell_texts(cell), str(cell.n) if cell.n else "") for cell in result.cells]
    return [
        (
            *cell_texts(each.cell),
            _format_block_counts(each),
            _format_standing(each.before),
            _format_standing(each.after),
        )
        for each in (*result.changes, *result.baseline_changes)
    ]


def _format_standing(cell: Cell) -> str:
    """Format the ratio of a stack in one run; for the baseline its typical value, "" if unknown."""
    if cell.verdict != "baseline":
        return format_ratio(cell)
    return "" if cell.usual is None else format_quantity(cell.usual, cell.unit)


def _format_block_counts(change: RatioChange) -> str:
    """Format the numbers of blocks of both runs, such as `12 + 15`; "" if neither has any."""
    return f"{change.before.n} + {change.after.n}" if change.before.n or change.after.n else ""


def _notes(cells: Sequence[Cell]) -> list[str]:
    """Return the notes of cells, grouped by the stacks and workloads that share a note."""
    workloads: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        if cell.notes:
            workloads.setdefault((cell.stack, cut("; ".join(cell.notes), _MAX_NOTE_CHARACTERS)), []).append(cell.name)
    stacks: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for (stack, text), names in workloads.items():
        stacks.setdefault((tuple(names), text), []).append(stack)
    return [f"{join_names(tuple(group))} in {join_names(names)}: {text}" for (names, text), group in stacks.items()]


def _compared_runs_phrase(result: ComparisonResult) -> str:
    if result.changes:
        first, second = (run.folder.resolve().name for run in result.runs)
        return f"From {first} to {second}"
    return f"Compared with {result.summary.baseline}"


def _verdict_phrase(result: ComparisonResult, verdict: Verdict, cells: Sequence[Cell]) -> str:
    """Describe the cells of a verdict: their number, and for "worse" and "better" their names."""
    has = verdict in ("too few blocks", "no value")
    within = f" within {format_percent(result.summary.margin)}" if verdict == "equivalent" else ""
    if len(result.cells) == 1:
        value = f" ({format_ratio(cells[0])})" if cells[0].ratio is not None else ""
        return f"{_cell_name(cells[0])} {'has' if has else 'is'} {verdict}{within}{value}"
    many = f"all {len(cells)} results" if len(cells) == len(result.cells) else f"{len(cells)}"
    verb = ("has" if has else "is") if len(cells) == 1 else ("have" if has else "are")
    texts = tuple(f"{_cell_name(cell)}, {format_ratio(cell)}" for cell in cells)
    named = f" ({_join_some(texts, '; ')})" if verdict in ("worse", "better") else ""
    return f"{many} {verb} {verdict}{within}{named}"


def _join_some(texts: tuple[str, ...], between: str = ", ") -> str:
    more = f" and {len(texts) - _MAX_NAMED} more" if len(texts) > _MAX_NAMED else ""
    return f"{between.join(texts[:_MAX_NAMED])}{more}"


def _cell_name(cell: Cell) -> str:
    return f"{cell.stack} in {cell.name}"

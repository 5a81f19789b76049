"""What `tare compare` found: as a table for the terminal, as Markdown for a pull request, as JSON for programs."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tare import __version__
from tare.answers.comparing import PASSED_UNDECIDED, Answer, why_cannot_tell
from tare.report.escapes import in_markdown
from tare.report.findings import own_programs, unlike_itself
from tare.report.json import cell_fields
from tare.report.numbers import GLYPHS, clean, cut, estimate, interval, listing, percent, state
from tare.report.steadiness import firmness, noise
from tare.report.terminal import STYLES
from tare.statistics.cells import Cell, Verdict
from tare.statistics.changes import Change
from tare.units import format_quantity

FORMAT = 1
_NAMED = 5
_NOTE = 160
_WIDE = 100
_ORDER: tuple[Verdict, ...] = ("worse", "better", "equivalent", "undecided", "too few blocks", "no value")


def sentence(answer: Answer) -> str:
    """Describe in one sentence what came of it."""
    parts = []
    for verdict in _ORDER:
        cells = [cell for cell in answer.cells if cell.verdict == verdict]
        if cells:
            parts.append(_part(answer, verdict, cells))
    text = listing(tuple(parts))
    if len(parts) > 1:
        text = f"of {len(answer.cells)} results {text}"
    return f"{_between(answer)}, {text}."


def gate_sentence(answer: Answer) -> str:
    """Describe whether the gate passed; empty where there is none."""
    gate = answer.gate
    if not gate.fail_on:
        return ""
    asked = f"--fail-on {','.join(gate.fail_on)}"
    if gate.answer == "cannot tell":
        return f"The gate ({asked}) cannot tell: {why_cannot_tell(answer)}."
    if gate.answer == "passed":
        return f"The gate ({asked}) {PASSED_UNDECIDED if gate.is_undecided else 'passed'}."
    failing = tuple(f"{_name(cell)} ({'lost' if cell in gate.lost else cell.verdict})" for cell in gate.failing)
    return f"The gate ({asked}) failed: {_some(failing)}."


def own_sentence(answer: Answer) -> str:
    """Describe the baseline's own change between two runs; empty for one run, and where it is among the rows."""
    cells = [each.cell for each in answer.own]
    if not cells:
        return ""
    texts = tuple(
        f"{cell.name} {'has' if cell.verdict == 'too few blocks' else 'is'} {cell.verdict} ({estimate(cell)})"
        for cell in sorted(cells, key=lambda cell: -abs(math.log(cell.ratio or 1.0)))
    )
    doubt = "the program may have changed, or the machine from one run to the other"
    return f"{answer.summary.baseline} itself: {_some(texts)}; {doubt}."


def conclusions(answer: Answer) -> tuple[str, ...]:
    """Return the sentences that answer what was asked: what came of it, of the baseline itself, and of the gate."""
    return tuple(filter(None, (sentence(answer), own_sentence(answer), gate_sentence(answer))))


def remarks(answer: Answer) -> tuple[str, ...]:
    """Return all that is to be known beside the table: differences of the runs, and doubts."""
    sentences = list(answer.statements)
    if not answer.changes:
        sentences += [line.sentence for find in (own_programs, unlike_itself) for line in find(answer.summary)]
        sentences += noise(answer.summary)
    shown = shown_cells(answer)
    sentences += [*_notes(shown), *firmness(answer.cells)]
    kinds = tuple(dict.fromkeys(caution.kind for cell in shown for caution in cell.cautions))
    if kinds:
        sentences.append(f"! cautions touch these values: {listing(kinds)}")
    return tuple(sentences)


def table(answer: Answer, width: int) -> Table:
    """Make the table for a terminal: a row for each workload and stack. A narrow one lacks the values of each run."""
    made = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    header = _header(answer) if width >= _WIDE else _header(answer)[:6]
    for name in header:
        names = name in ("workload", "stack")
        made.add_column(name, justify="left" if names or name == "verdict" else "right", no_wrap=not names)
    for whole, cell in zip(_rows(answer), shown_cells(answer), strict=True):
        style = STYLES.get(cell.verdict, "dim")
        texts = (clean(text) for text in whole[: len(header)])
        made.add_row(*(Text(text, style=style if at == 2 else "", overflow="fold") for at, text in enumerate(texts)))
    return made


def legend(answer: Answer) -> str:
    """Describe what the numbers of the table are."""
    baseline, margin = answer.summary.baseline, percent(answer.summary.margin)
    what = f"percent of {baseline}"
    if answer.changes:
        what = f"percent of what it was before; {baseline} by its values, others relative to {baseline} in each run"
    return f"{what}, 95 % interval, n blocks; ↑ more is better, ↓ less is better; equivalent: within {margin}"


def markdown(answer: Answer) -> str:
    """Write a summary for a pull request or a job."""
    header, rows = _header(answer), _rows(answer)
    sign = ""
    if answer.gate.fail_on:
        looks = "cannot tell" if answer.gate.is_undecided else answer.gate.answer
        sign = {"passed": "✅ ", "failed": "❌ ", "cannot tell": "⚠️ "}[looks]
    text = " ".join(filter(None, (gate_sentence(answer), own_sentence(answer), sentence(answer))))
    lines = [f"### {sign}tare compare", "", in_markdown(text), ""]
    lines += [f"| {' | '.join(header)} |", f"|{'|'.join(' --- ' for _ in header)}|"]
    lines += [f"| {' | '.join(in_markdown(text) for text in texts)} |" for texts in rows]
    lines += ["", f"_{in_markdown(legend(answer))}_", ""]
    lines += [f"- {in_markdown(text)}" for text in remarks(answer)]
    return "\n".join(lines).rstrip() + "\n"


def document(answer: Answer) -> str:
    """Write JSON. Ratios are stack over baseline, and of two runs that of after over that of before."""
    gate = answer.gate
    cells = [_fields(change) for change in answer.changes] or [cell_fields(cell) for cell in answer.cells]
    whole = {
        "format": FORMAT,
        "tare": __version__,
        "baseline": answer.summary.baseline,
        "margin": answer.summary.margin,
        "confidence": answer.confidence,
        "runs": [
            {
                "folder": str(run.folder),
                "suite": run.record.suite,
                "started": run.record.started,
                "tare": run.record.tare,
                "image": run.record.image,
                "machine": asdict(run.record.machine),
            }
            for run in answer.runs
        ],
        "cells": cells,
        "baseline_changes": [_fields(change) for change in answer.own],
        "answer": sentence(answer),
        "baseline_answer": own_sentence(answer) or None,
        "remarks": remarks(answer),
        "gate": {
            "fail_on": gate.fail_on,
            "answer": gate.answer if gate.fail_on else None,
            "reason": gate_sentence(answer) or None,
            "cells": [_place(cell) | {"lost": cell in gate.lost} for cell in gate.failing],
            "baseline_changes": [_place(cell) for cell in gate.moved],
        },
    }
    return json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False)


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


def shown_cells(answer: Answer) -> tuple[Cell, ...]:
    """Return the cells of the table's rows: what was asked for, and the baseline's own changes below it."""
    return (*answer.cells, *(change.cell for change in answer.own))


def _header(answer: Answer) -> tuple[str, ...]:
    runs = ("before", "after") if answer.changes else ()
    return ("workload", "stack", "verdict", "estimate", "interval", "n", *runs)


def _rows(answer: Answer) -> list[tuple[str, ...]]:
    if not answer.changes:
        return [(*row(cell), str(cell.n) if cell.n else "") for cell in answer.cells]
    return [
        (*row(each.cell), counts(each), stood(each.before), stood(each.after))
        for each in (*answer.changes, *answer.own)
    ]


def stood(cell: Cell) -> str:
    """Describe how a stack stood to the baseline in a run; the baseline itself by its usual value, if it has one."""
    if cell.verdict != "baseline":
        return estimate(cell)
    return "" if cell.usual is None else format_quantity(cell.usual, cell.unit)


def counts(change: Change) -> str:
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


def row(cell: Cell) -> tuple[str, ...]:
    """Return what a table says of a cell: its name and direction, stack, verdict, estimate and interval."""
    is_now = state(cell)
    mark = " !" if cell.cautions else ""
    arrow = "↑" if cell.better == "higher" else "↓"
    return (f"{cell.name} {arrow}", cell.stack, f"{GLYPHS[state(cell)]} {is_now}{mark}", estimate(cell), interval(cell))


def _between(answer: Answer) -> str:
    if answer.changes:
        first, second = (run.folder.resolve().name for run in answer.runs)
        return f"From {first} to {second}"
    return f"Compared with {answer.summary.baseline}"


def _part(answer: Answer, verdict: Verdict, cells: Sequence[Cell]) -> str:
    """Describe how many cells have a verdict, and which, where they are different."""
    has = verdict in ("too few blocks", "no value")
    within = f" within {percent(answer.summary.margin)}" if verdict == "equivalent" else ""
    if len(answer.cells) == 1:
        value = f" ({estimate(cells[0])})" if cells[0].ratio is not None else ""
        return f"{_name(cells[0])} {'has' if has else 'is'} {verdict}{within}{value}"
    many = f"all {len(cells)} results" if len(cells) == len(answer.cells) else f"{len(cells)}"
    verb = ("has" if has else "is") if len(cells) == 1 else ("have" if has else "are")
    texts = tuple(f"{_name(cell)}, {estimate(cell)}" for cell in cells)
    named = f" ({_some(texts, '; ')})" if verdict in ("worse", "better") else ""
    return f"{many} {verb} {verdict}{within}{named}"


def _some(texts: tuple[str, ...], between: str = ", ") -> str:
    more = f" and {len(texts) - _NAMED} more" if len(texts) > _NAMED else ""
    return f"{between.join(texts[:_NAMED])}{more}"


def _name(cell: Cell) -> str:
    return f"{cell.stack} in {cell.name}"

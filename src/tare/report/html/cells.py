"""The cells of the page's tables: what a value looks like, and what it leads to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.report.html.cautions import CautionsByKind, Marks, caution_marks
from tare.report.html.sparklines import TurnDrawings
from tare.report.html.trials import Anchors
from tare.report.numbers import GLYPHS, cell_state, cut, describe_missing_value, format_interval, format_ratio, reach
from tare.report.problems import FailureTable, StackStatus
from tare.statistics.cells import Cell, OverallSpeed
from tare.statistics.outcomes import WorkloadStatus

_WHY = 64  # letters of a short line
_STATUS_CELLS: Mapping[WorkloadStatus, tuple[str, str]] = {  # how a cell looks, and its glyph
    "works": ("equivalent", "✓"),
    "fails": ("worse strength-3", GLYPHS["failed"]),
    "fails at times": ("worse strength-1", GLYPHS["failed"]),
    "skipped": ("none", GLYPHS["skipped"]),
    "not tried": ("none", GLYPHS["no value"]),
}


@dataclass(frozen=True)
class TableCell:
    """One cell of the matrix or of a table.

    `style_of_verdict` names its colour, `describe_cause` is the short reason where it has no value. `anchor` is the
    place of its trials, `verdict` and `sort` are what tables are filtered and sorted by.
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
    """What numbers lead to: doubts by their numbers, the places of trials, and by workload turns and trials."""

    cautions: CautionsByKind
    anchors: Anchors
    turns: Mapping[str, TurnDrawings]
    trials: Mapping[str, Sequence[Mapping[str, Any]]]


def create_cell(cell: Cell, sources: LinkTargets) -> TableCell:
    """Return the cell of a value."""
    now = cell_state(cell)
    is_shown = now == "baseline" or cell.ratio is not None
    shown = {"estimate": format_ratio(cell), "interval": format_interval(cell), "n": f"n={cell.n}"}
    if now == "baseline":
        shown = {"estimate": "0 %", "n": f"n={cell.n or cell.trials}"}
    elif cell.ratio is None:
        why = describe_missing_value(cell) or "; ".join(cell.notes)
        shown = {"estimate": now if now in ("skipped", "failed") else "", "why": cut(why, _WHY)}
    cautions = (f"{caution.kind} ({caution.stack}, {caution.trials} of {caution.of})" for caution in cell.cautions)
    return TableCell(
        style_of_verdict(now, cell) if is_shown else "none",
        GLYPHS[now],
        **shown,
        detail="; ".join([f"{cell.stack}, {cell.name}: {now}", *reach(cell), *cell.notes, *cautions]),
        failed=f"{len(cell.failures)} failed" if cell.failures and cell.trials else "",
        marks=caution_marks(cell, sources.cautions),
        anchor=sources.anchors.get((cell.workload, cell.stack), ""),
        verdict=now,
        sort="1" if now == "baseline" else "" if cell.ratio is None else f"{cell.ratio:.6g}",
    )


def style_of_verdict(verdict: str, value: Cell | OverallSpeed) -> str:
    """Name the style of a verdict, in three strengths by how far from the baseline the value is."""
    if verdict not in ("better", "worse"):
        return verdict.replace(" ", "-")
    ratio = (value.speed if isinstance(value, OverallSpeed) else value.ratio) or 1.0
    far = max(ratio, 1 / ratio)
    return f"{verdict} strength-{1 if far < 1.05 else 2 if far < 1.5 else 3}"


def create_status_cell(tried: StackStatus, found: FailureTable, anchors: Anchors) -> TableCell:
    """Return the cell of a workload in a stack, which either works there or does not."""
    shown, glyph = _STATUS_CELLS[tried.status]
    why = found.describe_cause(tried)
    return TableCell(
        shown,
        glyph,
        tried.text,
        why=cut(why, _WHY),
        detail=f"{tried.stack}, {tried.workload}: {tried.text}{': ' if why else ''}{why}",
        anchor=anchors.get((tried.workload, tried.stack), ""),
    )

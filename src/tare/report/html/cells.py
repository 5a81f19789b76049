"""Cells of the page's tables: texts, styles and links of a value."""

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

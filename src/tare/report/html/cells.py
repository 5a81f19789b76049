"""The cells of the page's tables: what a value looks like, and what it leads to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tare.report.html.cautions import Doubts, Marks, marks
from tare.report.html.sparklines import TurnsShown
from tare.report.html.trials import Anchors
from tare.report.numbers import GLYPHS, cut, estimate, interval, reach, reason, state
from tare.report.problems import NotWorking, Tried
from tare.statistics.cells import Cell, Standing
from tare.statistics.outcomes import Fate

_WHY = 64  # letters of a short line
_FATES: Mapping[Fate, tuple[str, str]] = {  # how a cell looks, and its glyph
    "works": ("equivalent", "✓"),
    "fails": ("worse strength-3", GLYPHS["failed"]),
    "fails at times": ("worse strength-1", GLYPHS["failed"]),
    "skipped": ("none", GLYPHS["skipped"]),
    "not tried": ("none", GLYPHS["no value"]),
}


@dataclass(frozen=True)
class Entry:
    """One cell of the matrix or of a table.

    `look` names its colour, `why` is the short reason where it has no value. `anchor` is the place of its trials,
    `verdict` and `sort` are what tables are filtered and sorted by.
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
class Sources:
    """What numbers lead to: doubts by their numbers, the places of trials, and by workload turns and trials."""

    doubts: Doubts
    places: Anchors
    turns: Mapping[str, TurnsShown]
    trials: Mapping[str, Sequence[Mapping[str, Any]]]


def entry(cell: Cell, sources: Sources) -> Entry:
    """Return the cell of a value."""
    now = state(cell)
    is_shown = now == "baseline" or cell.ratio is not None
    shown = {"estimate": estimate(cell), "interval": interval(cell), "n": f"n={cell.n}"}
    if now == "baseline":
        shown = {"estimate": "100 %", "n": f"n={cell.n or cell.trials}"}
    elif cell.ratio is None:
        why = reason(cell) or "; ".join(cell.notes)
        shown = {"estimate": now if now in ("skipped", "failed") else "", "why": cut(why, _WHY)}
    cautions = (f"{caution.kind} ({caution.stack}, {caution.trials} of {caution.of})" for caution in cell.cautions)
    return Entry(
        look(now, cell) if is_shown else "none",
        GLYPHS[now],
        **shown,
        detail="; ".join([f"{cell.stack}, {cell.name}: {now}", *reach(cell), *cell.notes, *cautions]),
        failed=f"{len(cell.failures)} failed" if cell.failures and cell.trials else "",
        marks=marks(cell, sources.doubts),
        anchor=sources.places.get((cell.workload, cell.stack), ""),
        verdict=now,
        sort="1" if now == "baseline" else "" if cell.ratio is None else f"{cell.ratio:.6g}",
    )


def look(verdict: str, value: Cell | Standing) -> str:
    """Name the style of a verdict, in three strengths by how far from the baseline the value is."""
    if verdict not in ("better", "worse"):
        return verdict.replace(" ", "-")
    ratio = (value.speed if isinstance(value, Standing) else value.ratio) or 1.0
    far = max(ratio, 1 / ratio)
    return f"{verdict} strength-{1 if far < 1.05 else 2 if far < 1.5 else 3}"


def tried_entry(tried: Tried, found: NotWorking, places: Anchors) -> Entry:
    """Return the cell of a workload in a stack, which either works there or does not."""
    shown, glyph = _FATES[tried.fate]
    why = found.why(tried)
    return Entry(
        shown,
        glyph,
        tried.words,
        why=cut(why, _WHY),
        detail=f"{tried.stack}, {tried.workload}: {tried.words}{': ' if why else ''}{why}",
        anchor=places.get((tried.workload, tried.stack), ""),
    )

"""The figures of a whole run that tare draws itself, for files: their SVG and their captions by name."""

from __future__ import annotations

from tare.journal import Run
from tare.report import drawn_claims, drawn_overview, drawn_trade
from tare.statistics.summary import Summary


def whole_figures(summary: Summary, run: Run) -> dict[str, tuple[str, str]]:
    """Draw the figures of a run that has something for them."""
    figures = {
        "00-overview": (drawn_overview.figure(summary, run), f"What each stack costs beside {summary.baseline}."),
        "00-trade": (drawn_trade.figure(summary, run), f"{drawn_trade.TITLE}."),
        "00-claims": (drawn_claims.figure(run), f"{drawn_claims.TITLE}."),
    }
    return {name: (svg, caption) for name, (svg, caption) in figures.items() if svg}

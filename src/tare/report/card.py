"""The run's figure as a picture to share: `card.png`, 1200 x 630 pixels, as links to pages show it."""

from __future__ import annotations

from tare.journal import Run
from tare.report.overview import card
from tare.report.plots import converted
from tare.statistics.summary import Summary


def render(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render `card.png`; nothing where no stack has a value."""
    drawn = card(summary, run)
    return {"card.png": converted(drawn, "png")} if drawn else {}

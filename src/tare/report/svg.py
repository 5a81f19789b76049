"""The page's charts as SVG, for slides."""

from __future__ import annotations

from tare.journal import Run
from tare.report.plots import plots
from tare.statistics.summary import Summary


def render(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render the page's charts as `figures/*.svg`, the figures of the whole run as the first of them."""
    return {f"figures/{name}.svg": svg.encode() for name, (svg, _) in plots(summary, run).items()}

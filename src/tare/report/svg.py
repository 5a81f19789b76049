"""The page's charts as SVG, for slides."""

from __future__ import annotations

import vl_convert

from tare.journal import Run
from tare.report.plots import plots
from tare.statistics.summary import Summary


def render(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render the page's charts as `figures/*.svg`."""
    return {f"figures/{each.name}.svg": vl_convert.vegalite_to_svg(each.spec).encode() for each in plots(summary, run)}

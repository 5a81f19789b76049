"""The page's charts as PDF, for papers: `report.tex` of the format latex shows them."""

from __future__ import annotations

import vl_convert

from tare.journal import Run
from tare.report.plots import plots
from tare.statistics.cells import Summary


def render(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render `figures/*.pdf`."""
    return {f"figures/{each.name}.pdf": vl_convert.vegalite_to_pdf(each.spec) for each in plots(summary, run)}

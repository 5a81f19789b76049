"""The page's charts as SVG, for slides."""

from __future__ import annotations

import vl_convert

from tare.journal import Run
from tare.report.plots import plots
from tare.report.whole_figures import whole_figures
from tare.statistics.summary import Summary


def render(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render the page's charts as `figures/*.svg`, the figures of the whole run as the first of them."""
    texts = {name: svg for name, (svg, _) in whole_figures(summary, run).items()}
    texts |= {each.name: vl_convert.vegalite_to_svg(each.spec) for each in plots(summary, run)}
    return {f"figures/{name}.svg": text.encode() for name, text in texts.items()}

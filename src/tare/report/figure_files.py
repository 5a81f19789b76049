"""Figures of a run as SVG, PDF and PNG files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from shutil import which

from tare.hosts.process import execute
from tare.model.errors import UsageError
from tare.model.run_folder import Run
from tare.plugins.feature import call_hooks
from tare.report import overview, tradeoff
from tare.report.chart_svg import Drawing
from tare.report.documents import escape_latex
from tare.report.html.charts import MAX_DRAWN, draw_costs, draw_headlines_map, draw_starts, draw_workload
from tare.report.overview import draw_card
from tare.statistics.summarize import workload_records
from tare.statistics.summary import Summary

_CONVERTER, _PACKAGE = "rsvg-convert", "librsvg2-bin"
_SECONDS = 60.0  # time limit for a chart, which usually takes 0.1 s
# A chart at 70 % of its size, or smaller if it does not fit the page.
_FITTED = r"""\providecommand{\fit}[1]{\includegraphics[width=\linewidth,height=0.8\textheight,keepaspectratio]{#1}}
\providecommand{\fitted}[1]{\sbox0{\includegraphics[scale=0.7]{#1}}%
\ifdim\wd0>\linewidth\fit{#1}\else\ifdim\ht0>0.8\textheight\fit{#1}\else\usebox0\fi\fi}"""
_FIGURES_PER_PAGE = 12  # TeX fails with too many unprocessed floats, so they are flushed this often


def draw_plots(summary: Summary, run: Run) -> dict[str, tuple[str, str]]:
    """Return the charts and their captions by file name without suffix, the figures of the whole run first.

    The other charts follow in the page's order. A run with more stacks than a chart can show has only the figures of
    the whole run.
    """
    whole = {
        "00-overview": (overview.draw_figure(summary, run), f"What each stack costs relative to {summary.baseline}."),
        "00-trade": (tradeoff.draw_figure(summary, run), f"{tradeoff.TITLE}."),
    }
    for drawn in call_hooks("figures", summary, run):
        whole |= drawn
    files = {name: (svg, caption) for name, (svg, caption) in whole.items() if svg}
    return files | dict(_list_charts(summary, run) if len(summary.stacks) <= MAX_DRAWN else ())


def convert_figure(svg: str, name: str) -> bytes:
    """Convert a figure to `pdf` or `png`. Raises UsageError if rsvg-convert is not installed."""
    if which(_CONVERTER) is None:
        raise UsageError(f"{_CONVERTER} is not installed: it makes {name.upper()} files", f"apt install {_PACKAGE}")
    return execute((_CONVERTER, f"--format={name}"), _SECONDS, svg.encode()).stdout


def _list_charts(summary: Summary, run: Run) -> Iterator[tuple[str, tuple[str, str]]]:
    shown: list[tuple[str, Iterable[Drawing], str]] = [
        (record.name, draw_workload(summary, run, record), f"{record.title}: ") for record in workload_records(run)
    ]
    shown.append(("map", draw_headlines_map(summary.headlines, summary.stacks, summary.baseline), ""))
    shown += [("start", draw_starts(run, summary), ""), ("footprint", draw_costs(run, summary), "")]
    for number, (what, drawings, title) in enumerate(shown, start=1):
        # The number keeps names different if a workload's name has no letter that a file name may have.
        name = "-".join(filter(None, (f"{number:02}", re.sub(r"[^A-Za-z0-9]+", "-", what)[:40].strip("-").lower())))
        for at, each in enumerate(drawings, start=1):
            # Files lack the heading with the workload's title that the page has.
            caption = each.caption if each.caption.startswith(what) else f"{title}{each.caption}"
            yield f"{name}-{at}", (each.chart.file(caption), caption)


def render_card(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render `card.png`; nothing if no stack has a value."""
    drawn = draw_card(summary, run)
    return {"card.png": convert_figure(drawn, "png")} if drawn else {}


def render_pdf(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render `figures/*.pdf`, and `figures/figures.tex`, which needs graphicx; nothing without charts."""
    drawn = draw_plots(summary, run)
    files = {f"figures/{name}.pdf": convert_figure(svg, "pdf") for name, (svg, _) in drawn.items()}
    captions = {name: caption for name, (_, caption) in drawn.items()}
    return files | ({"figures/figures.tex": "\n".join(_latex_figures(captions)).encode()} if captions else {})


def _latex_figures(captions: Mapping[str, str]) -> Iterator[str]:
    yield _FITTED
    for number, (name, caption) in enumerate(captions.items(), start=1):
        yield rf"\begin{{figure}}[htbp]\centering\fitted{{figures/{name}.pdf}}"
        yield rf"\caption{{{escape_latex(caption)}}}\end{{figure}}"
        if number % _FIGURES_PER_PAGE == 0:
            yield r"\clearpage"
    yield ""


def render_svg(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render the page's charts as `figures/*.svg`, the figures of the whole run first."""
    return {f"figures/{name}.svg": svg.encode() for name, (svg, _) in draw_plots(summary, run).items()}

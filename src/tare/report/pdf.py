"""The page's charts as PDF, for papers, and `figures.tex` with all of them, which `report.tex` shows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tare.journal import Run
from tare.report.escapes import in_latex
from tare.report.plots import converted, plots
from tare.statistics.summary import Summary

# Seven tenths of a chart's own size, or as much as the page has room for.
_FITTED = r"""\providecommand{\fit}[1]{\includegraphics[width=\linewidth,height=0.8\textheight,keepaspectratio]{#1}}
\providecommand{\fitted}[1]{\sbox0{\includegraphics[scale=0.7]{#1}}%
\ifdim\wd0>\linewidth\fit{#1}\else\ifdim\ht0>0.8\textheight\fit{#1}\else\usebox0\fi\fi}"""
_BESIDE = 12  # figures that wait for their places: TeX keeps few


def render(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render `figures/*.pdf`, and `figures/figures.tex`, which needs graphicx; nothing without charts."""
    drawn = plots(summary, run)
    files = {f"figures/{name}.pdf": converted(svg, "pdf") for name, (svg, _) in drawn.items()}
    captions = {name: caption for name, (_, caption) in drawn.items()}
    return files | ({"figures/figures.tex": "\n".join(_figures(captions)).encode()} if captions else {})


def _figures(captions: Mapping[str, str]) -> Iterator[str]:
    yield _FITTED
    for number, (name, caption) in enumerate(captions.items(), start=1):
        yield rf"\begin{{figure}}[htbp]\centering\fitted{{figures/{name}.pdf}}"
        yield rf"\caption{{{in_latex(caption)}}}\end{{figure}}"
        if number % _BESIDE == 0:
            yield r"\clearpage"
    yield ""

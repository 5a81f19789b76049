"""The result of a run as LaTeX: tables for a paper, by booktabs and longtable, and a document that shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tare.journal import Run, WorkloadRecord
from tare.report.escapes import in_latex
from tare.report.numbers import cut, estimate, interval, percent, plus_minus, point, reason, relative_sd, state
from tare.report.plots import plots
from tare.report.words import answer
from tare.statistics.cells import Cell, Summary
from tare.statistics.summarize import records

_PREAMBLE = r"""\documentclass[a4paper]{article}
\usepackage[utf8]{inputenc}
\usepackage[margin=2cm]{geometry}
\usepackage{booktabs,longtable,graphicx}
\begin{document}
"""
_END = r" \\"
_REASON = 200  # letters
_NAMES = ("workload", "metric", "stack", "verdict")
_HEADLINES = ("workload", "stack", "verdict", "estimate", "interval", "n")
_VALUES = ("metric", "point", "stack", "mean ± SD", "relative SD", "trials", "estimate", "interval", "n")


def render(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render `tables.tex`, for a document of yours with booktabs and longtable, and `report.tex`, which is one.

    `report.tex` shows the figures of the format pdf if they are beside it.
    """
    tables = "\n".join(_tables(summary, run))
    return {"tables.tex": tables.encode(), "report.tex": "\n".join(_document(summary, run)).encode()}


def _tables(summary: Summary, run: Run) -> Iterator[str]:
    baseline = in_latex(summary.baseline)
    within = in_latex(f"95 % intervals; equivalent: within {percent(summary.margin)}")
    rows = [_headline(cell) for cell in summary.headlines if cell.stack != summary.baseline]
    yield from _table(f"Percent of {baseline} over n blocks; {within}.", _HEADLINES, rows)
    for record in records(run):
        cells = [cell for cell in summary.of(record.name) if cell.trials]
        caption = f"{in_latex(record.title)} ({in_latex(record.name)}): means over trials, and percent of {baseline}."
        yield from _table(caption, _VALUES, [_value(cell, record) for cell in cells])


def _headline(cell: Cell) -> str:
    """Write a row; a stack without a value has the reason in place of the numbers."""
    name = [f"{cell.name} {'↑' if cell.better == 'higher' else '↓'}", cell.stack, state(cell)]
    if cell.ratio is not None:
        return _row([*name, estimate(cell), interval(cell), str(cell.n or "")])
    why = in_latex(cut(reason(cell) or "; ".join(cell.notes), _REASON))
    columns = rf"\multicolumn{{3}}{{p{{0.35\linewidth}}}}{{\raggedright {why}}}"
    return f"{_cells(name)} & {columns}{_END}"


def _value(cell: Cell, record: WorkloadRecord) -> str:
    title = next((metric.title for metric in record.metrics if metric.name == cell.metric), cell.metric)
    at = point(cell.point, record.sweep.unit if record.sweep else "")
    mean = "" if cell.mean is None else plus_minus(cell.mean, cell.sd, cell.unit)
    compared = [estimate(cell), interval(cell), str(cell.n or "")]
    return _row([title, at, cell.stack, mean, relative_sd(cell), str(cell.trials), *compared])


def _table(caption: str, head: Sequence[str], rows: Sequence[str]) -> Iterator[str]:
    """Write a table that may be longer than a page; without rows, a sentence."""
    if not rows:
        yield f"{caption} No value was measured.\n"
        return
    sides = "".join("l" if name in _NAMES else "r" for name in head)
    yield rf"\begin{{longtable}}{{{sides}}}"
    yield rf"\caption{{{caption}}}\\"
    yield r"\toprule"
    yield _row(head)
    yield "\\midrule\n\\endhead\n\\bottomrule\n\\endfoot"
    yield from rows
    yield "\\end{longtable}\n"


def _row(texts: Sequence[str]) -> str:
    return f"{_cells(texts)}{_END}"


def _cells(texts: Sequence[str]) -> str:
    return " & ".join(map(in_latex, texts))


def _document(summary: Summary, run: Run) -> Iterator[str]:
    yield _PREAMBLE
    yield rf"\section*{{{in_latex(summary.suite)}}}"
    yield r"\begin{itemize}"
    yield from (rf"\item {in_latex(sentence)}" for sentence in answer(summary, run.record.measured_on))
    yield "\\end{itemize}\n\\input{tables}"
    for plot in plots(summary, run):
        file = f"figures/{plot.name}.pdf"
        yield rf"\IfFileExists{{{file}}}{{\begin{{figure}}[p]\centering"
        yield rf"\includegraphics[width=\linewidth,height=0.8\textheight,keepaspectratio]{{{file}}}"
        yield rf"\caption{{{in_latex(plot.caption)}}}\end{{figure}}\clearpage}}{{}}"
    yield "\\end{document}\n"

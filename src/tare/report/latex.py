"""The result of a run as LaTeX: tables for a paper, by booktabs and longtable, and a document that shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress, groupby

from tare.journal import Run, WorkloadRecord
from tare.report.escapes import in_latex
from tare.report.findings import findings
from tare.report.numbers import cut, estimate, interval, percent, point, reason, relative_sd, state, usual_value
from tare.statistics.cells import Cell
from tare.statistics.summarize import records
from tare.statistics.summary import Summary

_PREAMBLE = r"""\documentclass[a4paper]{article}
\usepackage[utf8]{inputenc}
\usepackage[margin=2cm]{geometry}
\usepackage{booktabs,longtable,graphicx}
\begin{document}
"""
_END, _WITH_NEXT = r"\\", r"\\*"
_REASON = 300  # letters
_TOGETHER = 25  # rows: no page ends within a group of so many
_TEXTS = ("workload", "metric", "stack", "verdict")
_HEADLINES = ("workload", "stack", "verdict", "estimate", "interval", "n")
_VALUES = ("metric", "point", "stack", "usual value ± SD", "relative SD", "trials", "estimate", "interval", "n")


def render(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render `tables.tex`, for a document of yours with booktabs and longtable, and `report.tex`, which is one.

    `report.tex` shows the figures that the format pdf has written beside it.
    """
    tables = "\n".join(_tables(summary, run))
    return {"tables.tex": tables.encode(), "report.tex": "\n".join(_document(summary, run)).encode()}


def _tables(summary: Summary, run: Run) -> Iterator[str]:
    baseline = in_latex(summary.baseline)
    within = in_latex(f"95 % intervals; equivalent: within {percent(summary.margin)}")
    compared = [cell for cell in summary.headlines if cell.stack != summary.baseline]
    reasons = {why: number for number, why in enumerate(dict.fromkeys(filter(None, map(_reason, compared))), start=1)}
    rows = [_headline(cell, reasons) for cell in compared]
    yield from _table(f"Percent of {baseline} over n blocks; {within}.", (_HEADLINES, 1), rows)
    yield from _notes(reasons)
    for record in records(run):
        cells = _by_metric([cell for cell in summary.of(record.name) if cell.trials])
        caption = f"{in_latex(record.title)} ({in_latex(record.name)}): usual values, and percent of {baseline}."
        yield from _table(caption, (_VALUES, 2), [_value(cell, record) for cell in cells])


def _by_metric(cells: Sequence[Cell]) -> list[Cell]:
    """Put the stacks of one metric and point together."""
    places = {key: at for at, key in enumerate(dict.fromkeys((cell.metric, cell.point) for cell in cells))}
    return sorted(cells, key=lambda cell: places[cell.metric, cell.point])


def _reason(cell: Cell) -> str:
    """Describe why a stack has no value; empty if it has one."""
    return "" if cell.ratio is not None else cut(reason(cell) or "; ".join(cell.notes), _REASON)


def _headline(cell: Cell, reasons: dict[str, int]) -> list[str]:
    name, why = f"{cell.name} {'↑' if cell.better == 'higher' else '↓'}", _reason(cell)
    verdict = f"{state(cell)} ({reasons[why]})" if why else state(cell)
    return [name, cell.stack, verdict, *_compared(cell)]


def _value(cell: Cell, record: WorkloadRecord) -> list[str]:
    title = next((metric.title for metric in record.metrics if metric.name == cell.metric), cell.metric)
    at = point(cell.point, record.sweep.unit if record.sweep else "")
    return [title, at, cell.stack, usual_value(cell), relative_sd(cell), str(cell.trials), *_compared(cell)]


def _compared(cell: Cell) -> list[str]:
    return [estimate(cell), interval(cell), str(cell.n or "")]


def _table(caption: str, head: tuple[Sequence[str], int], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Write a table that may be longer than a page; without rows, a sentence.

    `head` has the names of the columns, and how many of the first ones group the rows. A column without a
    text is left out.
    """
    if not rows:
        yield f"{caption} No value was measured.\n"
        return
    used = [any(column) for column in zip(*rows, strict=True)]
    rows = [list(compress(row, used)) for row in rows]
    names, first = list(compress(head[0], used)), sum(used[: head[1]])
    yield r"\begingroup\footnotesize\setlength{\tabcolsep}{4pt}\setlength{\LTcapwidth}{\linewidth}"
    yield rf"\begin{{longtable}}{{{''.join('l' if name in _TEXTS else 'r' for name in names)}}}"
    yield rf"\caption{{{caption}}}\\"
    yield r"\toprule"
    yield rf"{_cells(names)} \\"
    yield "\\midrule\n\\endhead\n\\bottomrule\n\\endfoot"
    groups = [[*group] for _, group in groupby(rows, lambda row: row[:first])]
    yield "\n\\addlinespace\n".join("\n".join(_grouped(group, first)) for group in groups)
    yield "\\end{longtable}\n\\endgroup\n"


def _grouped(rows: Sequence[Sequence[str]], first: int) -> Iterator[str]:
    """Write rows that begin alike: their names once, and on one page if they are few."""
    few = len(rows) <= _TOGETHER
    for number, row in enumerate(rows, start=1):
        shown = [*[""] * first, *row[first:]] if few and number > 1 else row
        yield f"{_cells(shown)} {_WITH_NEXT if few and number < len(rows) else _END}"


def _cells(texts: Sequence[str]) -> str:
    return " & ".join(map(in_latex, texts))


def _notes(reasons: dict[str, int]) -> Iterator[str]:
    """Describe below a table why stacks have no values."""
    if reasons:
        notes = "\\par\n".join(rf"\noindent({number}) {in_latex(why)}" for why, number in reasons.items())
        yield f"\\begingroup\\footnotesize\\raggedright\n{notes}\\par\\endgroup\\bigskip\n"


def _document(summary: Summary, run: Run) -> Iterator[str]:
    yield _PREAMBLE
    yield rf"\section*{{{in_latex(summary.suite)}}}"
    found = findings(summary, run.record.measured_on)
    yield in_latex(found.opening)
    for part in found.parts:
        yield rf"\subsection*{{{part.title}}}"
        yield r"\begin{itemize}\setlength{\itemsep}{0pt}"
        yield from (rf"\item {in_latex(sentence)}" for sentence in (*part.sentences, *part.remarks))
        yield r"\end{itemize}"
    yield "\\input{tables}\n\\clearpage\n\\InputIfFileExists{figures/figures}{}{}"
    yield "\\end{document}\n"

"""Markdown and LaTeX documents of a run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import compress, groupby

from tare.model.run_folder import Run, WorkloadRecord
from tare.plugins.feature import call_hooks
from tare.report.cpu_table import column_titles, cost_text, cpu_columns, select_last_points, table_title
from tare.report.findings import Findings, create_findings
from tare.report.isolation_table import COLUMNS as ISOLATION_COLUMNS
from tare.report.isolation_table import TITLE as ISOLATION_TITLE
from tare.report.isolation_table import isolation_rows
from tare.report.numbers import (
    cell_state,
    cut,
    describe_missing_value,
    format_interval,
    format_percent,
    format_ratio,
    point,
    relative_sd,
    sort_by_point,
    strip_control_characters,
    usual_value,
)
from tare.report.problems import ALL_WORKS, TITLE, find_failures
from tare.report.terminal import cell_texts as row_of
from tare.statistics.cells import Cell
from tare.statistics.summarize import workload_records
from tare.statistics.summary import Summary

_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "|": r"$|$",
    '"': r"{\ttfamily\char34}",
    "`": r"{\ttfamily\char96}",
    "[": "{[}",  # after `\\`, it would start an optional argument
    "*": "{*}",  # likewise
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    "\N{MULTIPLICATION SIGN}": r"$\times$",
    "\N{MICRO SIGN}": r"$\mu$",
    "\N{ALMOST EQUAL TO}": r"$\approx$",
    "\N{UPWARDS ARROW}": r"$\uparrow$",
    "\N{DOWNWARDS ARROW}": r"$\downarrow$",
    "\N{EN DASH}": r"\textendash{}",
    "\N{HORIZONTAL ELLIPSIS}": r"\dots{}",
    "\N{NO-BREAK SPACE}": "~",
}
_LIGATURE = re.compile(r"([-,'])(?=\1)")  # TeX joins two of them into a dash or a quotation mark
# Letters of TeX's oldest font encoding, so that the tables work in any document.
_LETTERS = frozenset("ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝßàáâãäåæçèéêëìíîïñòóôõöøùúûüýÿ")
_PREAMBLE = r"""\documentclass[a4paper]{article}
\usepackage[utf8]{inputenc}
\usepackage[margin=2cm]{geometry}
\usepackage{booktabs,longtable,graphicx}
\begin{document}
"""
_END, _WITH_NEXT = r"\\", r"\\*"
_REASON = 300  # characters
_MOST_ROWS_TOGETHER = 25  # no page break within a group of at most this many rows
_TEXTS = ("workload", "metric", "stack", "verdict")
_HEADLINES = ("workload", "stack", "verdict", "estimate", "interval", "n")
_VALUES = ("metric", "point", "stack", "usual value ± SD", "relative SD", "trials", "estimate", "interval", "n")
_MAX_CHARACTERS = 60_000  # GitHub accepts 65,536 in a comment
_MARKDOWN_REASON = 120
_CAUSE = 400  # characters of each part of a cause
_MIN_ROWS = 8_000  # characters that sentences leave for rows


def escape_markdown(text: str) -> str:
    """Escape a text for Markdown, and for HTML within it; `@` is escaped because GitHub would notify users."""
    plain = (
        strip_control_characters(text)
        .replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace("@", "&#64;")
    )
    return re.sub(r"([\\|`*_\[\]~#])", r"\\\1", plain).replace("&\\#64;", "&#64;")


def escape_latex(text: str) -> str:
    """Escape a text for LaTeX; letters that its fonts lack become their code points, such as [U+4E2D]."""
    return _LIGATURE.sub(r"\1{}", "".join(_escape_letter(letter) for letter in strip_control_characters(text)))


def _escape_letter(letter: str) -> str:
    if letter in _LATEX:
        return _LATEX[letter]
    return letter if letter.isascii() or letter in _LETTERS else f"{{[}}U+{ord(letter):04X}]"


def render_latex(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render `tables.tex` for a document that uses booktabs and longtable, and `report.tex`, a complete document.

    `report.tex` includes the figures that the format `pdf` writes next to it.
    """
    tables = "\n".join(_tables(summary, run))
    return {"tables.tex": tables.encode(), "report.tex": "\n".join(_latex_document(summary, run)).encode()}


def _tables(summary: Summary, run: Run) -> Iterator[str]:
    baseline = escape_latex(summary.baseline)
    within = escape_latex(f"95 % intervals; equivalent: within {format_percent(summary.margin)}")
    compared = [cell for cell in summary.headlines if cell.stack != summary.baseline]
    reasons = {
        why: number
        for number, why in enumerate(dict.fromkeys(filter(None, map(_describe_missing_value, compared))), start=1)
    }
    rows = [_headline_row(cell, reasons) for cell in compared]
    yield from _latex_table(f"Change from {baseline} over n blocks; {within}.", (_HEADLINES, 1), rows)
    yield from _latex_notes(reasons)
    for record in workload_records(run):
        caption = (
            f"{escape_latex(record.title)} ({escape_latex(record.name)}): usual values, and the change from {baseline}."
        )
        yield from _latex_table(
            caption, (_VALUES, 2), [_value_row(cell, record) for cell in sort_by_point(summary.cells_of(record.name))]
        )


def _describe_missing_value(cell: Cell) -> str:
    """Return the reason why a cell has no ratio; "" if it has one."""
    return "" if cell.ratio is not None else cut(describe_missing_value(cell) or "; ".join(cell.notes), _REASON)


def _headline_row(cell: Cell, reasons: dict[str, int]) -> list[str]:
    name, why = f"{cell.name} {'↑' if cell.better == 'higher' else '↓'}", _describe_missing_value(cell)
    verdict = f"{cell_state(cell)} ({reasons[why]})" if why else cell_state(cell)
    return [name, cell.stack, verdict, *_comparison_texts(cell)]


def _value_row(cell: Cell, record: WorkloadRecord) -> list[str]:
    title = next((metric.title for metric in record.metrics if metric.name == cell.metric), cell.metric)
    at = point(cell.point, record.sweep.unit if record.sweep else "")
    return [title, at, cell.stack, usual_value(cell), relative_sd(cell), str(cell.trials), *_comparison_texts(cell)]


def _comparison_texts(cell: Cell) -> list[str]:
    return [format_ratio(cell), format_interval(cell), str(cell.n or "")]


def _latex_table(caption: str, head: tuple[Sequence[str], int], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table that may be longer than a page; a sentence if there are no rows.

    `head` has the names of the columns and the number of the first columns that group the rows. Empty columns are left
    out.
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
    yield rf"{_latex_cells(names)} \\"
    yield "\\midrule\n\\endhead\n\\bottomrule\n\\endfoot"
    groups = [[*group] for _, group in groupby(rows, lambda row: row[:first])]
    yield "\n\\addlinespace\n".join("\n".join(_latex_groups(group, first)) for group in groups)
    yield "\\end{longtable}\n\\endgroup\n"


def _latex_groups(rows: Sequence[Sequence[str]], first: int) -> Iterator[str]:
    """Yield rows with equal first columns; if they are few, on one page with these columns only in the first row."""
    few = len(rows) <= _MOST_ROWS_TOGETHER
    for number, row in enumerate(rows, start=1):
        shown = [*[""] * first, *row[first:]] if few and number > 1 else row
        yield f"{_latex_cells(shown)} {_WITH_NEXT if few and number < len(rows) else _END}"


def _latex_cells(texts: Sequence[str]) -> str:
    return " & ".join(map(escape_latex, texts))


def _latex_notes(reasons: dict[str, int]) -> Iterator[str]:
    """Yield the notes below a table that explain missing values."""
    if reasons:
        notes = "\\par\n".join(rf"\noindent({number}) {escape_latex(why)}" for why, number in reasons.items())
        yield f"\\begingroup\\footnotesize\\raggedright\n{notes}\\par\\endgroup\\bigskip\n"


def _latex_document(summary: Summary, run: Run) -> Iterator[str]:
    yield _PREAMBLE
    yield rf"\section*{{{escape_latex(summary.suite)}}}"
    found = create_findings(summary, run.record.instance_machine)
    yield escape_latex(found.opening)
    for part in found.sections:
        yield rf"\subsection*{{{part.title}}}"
        yield r"\begin{itemize}\setlength{\itemsep}{0pt}"
        yield from (rf"\item {escape_latex(sentence)}" for sentence in (*part.sentences, *part.remarks))
        yield r"\end{itemize}"
    yield "\\input{tables}\n\\clearpage\n\\InputIfFileExists{figures/figures}{}{}"
    yield "\\end{document}\n"


def render_markdown(summary: Summary, run: Run) -> dict[str, bytes]:
    """Render `report.md`, cut to the length of a GitHub comment with a note about the missing lines."""
    tables = (*_cpu_cost_lines(summary, run), *_isolation_lines(summary, run))
    added = "".join((*tables, *call_hooks("markdown", summary, run)))
    found = [*_finding_lines(create_findings(summary, run.record.instance_machine)), *_failure_lines(summary)]
    sentences = _cut_lines(found, _MAX_CHARACTERS - _MIN_ROWS - len(added))
    head = f"### {escape_markdown(summary.suite)[:500]}: change from {escape_markdown(summary.baseline)[:500]}\n\n"
    lines = [_markdown_row(cell) for cell in summary.headlines if cell.stack != summary.baseline]
    table = format_table_line(_HEADLINES) + format_table_line(["---"] * len(_HEADLINES))
    room = _MAX_CHARACTERS - len(head) - len(table) - len(added) - sum(map(len, sentences))
    rows = _cut_lines(lines, room) if lines else [format_table_line(["no value", *[""] * 5])]
    within = escape_markdown(
        f"95 % intervals, n blocks; equivalent: within {format_percent(summary.margin)}; ! has cautions"
    )
    text = f"{head}{''.join(sentences)}\n{table}{''.join(rows)}\n{added}_{within}_\n"
    return {"report.md": text.encode()}


def _finding_lines(found: Findings) -> Iterator[str]:
    yield f"{escape_markdown(found.opening)}\n"
    for part in found.measured_sections:
        yield f"\n**{part.title}**\n\n"
        yield from (f"- {escape_markdown(text)}\n" for text in (*part.sentences, *part.remarks))


def _failure_lines(summary: Summary) -> Iterator[str]:
    """Yield the table of failures with the numbered causes below it, or one sentence without failures."""
    failures = find_failures(summary)
    yield f"\n**{TITLE}**\n\n"
    if not failures.causes:
        yield f"{ALL_WORKS}\n"
    if failures.rows:
        yield format_table_line(["stack", *map(escape_markdown, failures.workloads)])
        yield format_table_line(["---"] * (len(failures.workloads) + 1))
    for tried in failures.rows:
        words = (" ".join((each.text, *(f"({number})" for number in each.causes))) for each in tried)
        yield format_table_line([escape_markdown(summary.title(tried[0].stack)), *words])
    yield "\n" if failures.rows else ""
    for cause in failures.causes:
        hint = f". Hint: {cause.hint}" if cause.hint else ""
        text = f"{cut(cause.text, _CAUSE)} ({cut('; '.join(cause.where), _CAUSE)}){cut(hint, _CAUSE)}"
        yield f"{cause.number}. {escape_markdown(text)}\n"


def _cpu_cost_lines(summary: Summary, run: Run) -> Iterator[str]:
    """Yield the table of CPU time per request or run; nothing if it is unknown, or too long."""
    columns = select_last_points(cpu_columns(summary, run))
    lines = [format_table_line(["stack", *map(escape_markdown, column_titles(columns))])]
    lines.append(format_table_line(["---"] * (len(columns) + 1)))
    for stack in summary.stacks:
        texts = [cost_text(column.costs[stack]) for column in columns]
        if any(texts):
            lines.append(format_table_line(map(escape_markdown, (summary.title(stack), *texts))))
    if columns and sum(map(len, lines)) <= _MIN_ROWS:
        yield f"**{table_title(columns)}**\n\n"
        yield from lines
        yield "\n"


def _isolation_lines(summary: Summary, run: Run) -> Iterator[str]:
    """Yield the table of the observed isolation; nothing if it is unknown, or too long."""
    lines = [
        format_table_line(["stack", "process", *ISOLATION_COLUMNS]),
        format_table_line(["---"] * (len(ISOLATION_COLUMNS) + 2)),
    ]
    for row in isolation_rows(summary, run):
        texts = (row.stack, row.process, *(cell.text for cell in row.cells))
        lines.append(format_table_line(map(escape_markdown, texts)))
    if len(lines) > 2 and sum(map(len, lines)) <= _MIN_ROWS:
        yield f"<details><summary>{ISOLATION_TITLE}</summary>\n\n"
        yield from lines
        yield "\n</details>\n\n"


def _markdown_row(cell: Cell) -> str:
    """Format a row; a stack without a value has the reason in place of the estimate."""
    name, stack, verdict, estimate, interval = row_of(cell)
    why = estimate or cut(describe_missing_value(cell) or "; ".join(cell.notes), _MARKDOWN_REASON)
    return format_table_line(
        [escape_markdown(text) for text in (name, stack, verdict, why, interval, str(cell.n or ""))]
    )


def format_table_line(cells: Iterable[str]) -> str:
    """Format a line of a Markdown table from cells that are already escaped."""
    return f"| {' | '.join(cells)} |\n"


def _cut_lines(lines: list[str], room: int) -> list[str]:
    """Return the first lines that fit into `room` characters, and a line with the number of the others."""
    kept: list[str] = []
    used = 0
    for line in lines:
        used += len(line)
        if used > room - 200:
            left = f"{len(lines) - len(kept)} more: summary.csv has all"
            return [*kept, format_table_line([left, *[""] * 5]) if line.startswith("|") else f"- {left}\n"]
        kept.append(line)
    return kept

"""Table of a session on each stack, for the page, the terminal, Markdown and JSON.

Stacks are grouped by their level of isolation, because a faster stack that isolates less is no substitute. The best of
each level is marked, with those that cannot be told apart from it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tare import __version__
from tare.model.isolation import LEVELS
from tare.model.run_folder import Run
from tare.report.chart_svg import Drawing
from tare.report.charts import draw_ratios
from tare.report.documents import escape_markdown, format_table_line
from tare.report.html.charts import MAX_DRAWN
from tare.report.html.trials import Anchors
from tare.report.numbers import (
    GLYPHS,
    format_interval,
    format_percent,
    format_plus_minus,
    format_quantity_interval,
    format_ratio,
    join_names,
    strip_control_characters,
)
from tare.report.rendering import FeatureSection, render_section
from tare.report.terminal import STYLES
from tare.report.tradeoff import find_isolation
from tare.statistics.sessions import SessionCost, compare_sessions, find_best, session_weights
from tare.statistics.summary import Summary

_FORMAT = 1  # of session.json
_UNKNOWN = "unknown"
_MAX_ROWS = 60  # in Markdown
_HEAD = ("isolation", "stack", "session", "change", "95 % interval", "verdict", "n")
_MARK = "★"


@dataclass(frozen=True)
class SessionRow:
    """Row of the table as text; `seconds` and `change` are the estimate and its interval. `missing` is why both lack.

    `parts` are the seconds of each workload in the session, "" for a workload without a value.
    """

    stack: str
    level: str
    seconds: tuple[str, str]
    change: tuple[str, str]
    verdict: str
    glyph: str
    n: str
    is_best: bool
    missing: str
    parts: tuple[str, ...]


@dataclass(frozen=True)
class SessionTable:
    """Table of a session: its title, its contents such as `2 clone`, and the stacks by level of isolation."""

    title: str
    contents: tuple[str, ...]
    levels: Mapping[str, tuple[SessionRow, ...]]
    costs: tuple[SessionCost, ...]
    note: str


def session_table(summary: Summary, run: Run) -> SessionTable | None:
    """Return the table of a run's session, the levels in the order of their strength; None without a weight."""
    costs = compare_sessions(summary, run.record)
    if not costs:
        return None
    isolation = find_isolation(run, (cost.stack for cost in costs))
    by_level: dict[str, list[SessionCost]] = {level: [] for level in (*LEVELS, _UNKNOWN)}
    for cost in sorted(costs, key=lambda cost: cost.cell.ratio or float("inf")):
        by_level[isolation[cost.stack].level if cost.stack in isolation else _UNKNOWN].append(cost)
    weights = session_weights(run.record)
    baseline, margin = summary.baseline, format_percent(summary.margin)
    return SessionTable(
        title=run.record.session or "One session",
        contents=tuple(f"{weight:,.10g} \N{MULTIPLICATION SIGN} {name}" for name, weight in weights.items()),
        levels={
            level: tuple(_rows(level, members, weights, summary)) for level, members in by_level.items() if members
        },
        costs=tuple(cost for members in by_level.values() for cost in members),
        note=(
            f"Seconds: those of {baseline} in this run, times the change from {baseline}, whose 95 % interval follows "
            f"from those of the workloads. Less is better; equivalent: within {margin}. {_MARK}: the best of its level "
            "of isolation, with those whose intervals overlap."
        ),
    )


def _rows(
    level: str, costs: Sequence[SessionCost], weights: Mapping[str, float], summary: Summary
) -> Iterator[SessionRow]:
    best = find_best(costs)
    for cost in costs:
        cell = cost.cell
        estimate, interval = format_quantity_interval(cell)
        if not estimate and cell.usual is not None:
            estimate = format_plus_minus(cell.usual, None, "s")
        is_baseline = cell.verdict == "baseline"
        yield SessionRow(
            stack=summary.title(cost.stack),
            level=level,
            seconds=(estimate, "" if is_baseline else interval),
            change=("", "") if is_baseline else (format_ratio(cell), format_interval(cell)),
            verdict=cell.verdict,
            glyph=GLYPHS[cell.verdict],
            n=str(cell.n or ""),
            is_best=cost.stack in best,
            missing=_describe_missing(cost.missing),
            parts=tuple(
                format_plus_minus(cost.parts[name], None, "s") if name in cost.parts else "" for name in weights
            ),
        )


def _describe_missing(missing: Mapping[str, str]) -> str:
    """Return the workloads that a stack lacks, by reason: `lacks clone and tests (failed)`; "" for none."""
    names = {reason: tuple(name for name in missing if missing[name] == reason) for reason in missing.values()}
    texts = tuple(f"{join_names(of_reason)} ({reason})" for reason, of_reason in names.items())
    return f"lacks {'; '.join(texts)}" if texts else ""


def section(summary: Summary, run: Run, _: Anchors) -> FeatureSection | None:
    """Return the section of the page; None without a weight."""
    table = session_table(summary, run)
    if table is None:
        return None
    cells = [cost.cell for cost in table.costs]
    chart = draw_ratios(cells, summary.baseline) if len(cells) <= MAX_DRAWN else None
    caption = f"{table.title}: change from {summary.baseline} with 95 % interval, the weakest isolation first."
    drawings = [Drawing(caption, chart)] if chart else []
    html = render_section(
        __package__,
        "session.html.j2",
        table=table,
        drawings_=drawings,
        baseline=summary.baseline,
        workloads=list(session_weights(run.record)),
        mark=_MARK,
    )
    return FeatureSection("session", table.title, html)


def terminal(summary: Summary, run: Run) -> Table | None:
    """Return the table for the terminal; None without a weight."""
    found = session_table(summary, run)
    if found is None:
        return None
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("isolation", "stack", strip_control_characters(found.title), "change"):
        table.add_column(Text(name), overflow="fold")
    for level, rows in found.levels.items():
        for number, row in enumerate(rows):
            change = f"{row.glyph} {row.change[0] or row.missing or row.verdict} {row.change[1]}".strip()
            texts = (row.stack, " ".join((*row.seconds, _MARK * row.is_best)).strip())
            shown = (Text(strip_control_characters(text)) for text in texts)
            style = STYLES.get(row.verdict, "dim")
            table.add_row("" if number else level, *shown, Text(strip_control_characters(change), style))
    whole = Table.grid(padding=0)
    whole.add_row(table)
    whole.add_row(Text(strip_control_characters(f"a session: {', '.join(found.contents)}. {found.note}"), "dim"))
    return whole


def markdown(summary: Summary, run: Run) -> str:
    """Return the table for `report.md`; "" without a weight."""
    table = session_table(summary, run)
    if table is None:
        return ""
    lines = [f"**{escape_markdown(table.title)}** ({escape_markdown(', '.join(table.contents))})\n\n"]
    lines += [format_table_line(_HEAD), format_table_line(["---"] * len(_HEAD))]
    rows = [row for members in table.levels.values() for row in members]
    for row in rows[:_MAX_ROWS]:
        seconds = f"{' '.join(row.seconds).strip()}{f' {_MARK}' * row.is_best}"
        texts = (row.level, row.stack, seconds or row.missing, *row.change, f"{row.glyph} {row.verdict}", row.n)
        lines.append(format_table_line([escape_markdown(text) for text in texts]))
    more = f"\n{len(rows) - _MAX_ROWS} more: session.json has all\n" if len(rows) > _MAX_ROWS else ""
    return f"{''.join(lines)}{more}\n{escape_markdown(table.note)}\n\n"


def render(summary: Summary, run: Run) -> dict[str, bytes]:
    """Return `session.json` by its name; empty without a weight."""
    table = session_table(summary, run)
    if table is None:
        return {}
    rows = [row for members in table.levels.values() for row in members]
    document = {
        "format": _FORMAT,
        "tare": __version__,
        "title": table.title,
        "baseline": summary.baseline,
        "margin": summary.margin,
        "weights": session_weights(run.record),
        "stacks": [_fields(cost, row) for cost, row in zip(table.costs, rows, strict=True)],
    }
    return {"session.json": (json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()}


def _fields(cost: SessionCost, row: SessionRow) -> dict[str, object]:
    cell = cost.cell
    return {
        "stack": cost.stack,
        "isolation": row.level,
        "seconds": cell.usual,
        "estimate": cell.ratio,
        "interval": None if cell.low is None or cell.high is None else [cell.low, cell.high],
        "verdict": cell.verdict,
        "n": cell.n,
        "best_of_level": row.is_best,
        "parts": cost.parts,
        "missing": cost.missing,
    }

"""Matrix on the terminal: the change of each workload from the baseline in each stack, updated during the run."""

from __future__ import annotations

from functools import partial

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tare.model.units import format_quantity
from tare.report.numbers import (
    GLYPHS,
    cell_state,
    describe_missing_value,
    format_interval,
    format_longer,
    format_percent,
    format_quantity_interval,
    format_ratio,
    strip_control_characters,
)
from tare.report.overview import cost_bars, sort_by_cost
from tare.statistics.cells import Cell
from tare.statistics.summary import Summary

STYLES = {
    "better": "bold bright_blue",
    "worse": "bold dark_orange",
    "equivalent": "bold green",
    "undecided": "default",
    "baseline": "bold",
    "too few blocks": "dim",
}
WIDTH = 100
_MOST_CHARACTERS_ONE_LINE, _TWO_LINES = 28, 14  # columns that a cell needs, with the space next to it
_BAR = 8  # letters of the longest bar
_ARROWS = {"higher": "↑", "lower": "↓"}


def headline_table(summary: Summary, width: int = WIDTH, *, final: bool = False) -> Table:
    """Make the table of headlines for a terminal of `width` columns.

    Stacks are the rows and workloads the columns, or the other way round where only that fits; where neither does, the
    columns are broken into several tables, one below the other. Of a `final` summary, stacks are in the order of their
    cost, and bars show it where there is room.
    """
    cells = {(cell.headline, cell.stack): cell for cell in summary.headlines}
    order = (*sort_by_cost(summary), *filter(None, [summary.control])) if final else summary.stacks
    stacks = [(stack, strip_control_characters(summary.title(stack))) for stack in order if stack in summary.stacks]
    workloads = [(rule.name, f"{strip_control_characters(rule.name)} {_ARROWS[rule.better]}") for rule in summary.rules]
    label = min(max([len(title) for _, title in stacks] + [8]), 24) + 3
    room = max((width - label) // _TWO_LINES, 1)
    turned = len(workloads) > room >= len(stacks)
    rows, columns = (workloads, stacks) if turned else (stacks, workloads)
    narrow = label + len(columns) * _MOST_CHARACTERS_ONE_LINE > width
    has_bars = final and label + len(columns) * (_MOST_CHARACTERS_ONE_LINE + _BAR + 1) <= width
    drawn = cost_bars(summary)[0] if has_bars else {}
    whole = Table.grid(padding=0)
    most = room if narrow else max(len(columns), 1)
    for part in (columns[at : at + most] for at in range(0, len(columns), most)):
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0, header_style="bold")
        table.add_column("workload" if turned else "stack", no_wrap=True, overflow="ellipsis", max_width=26)
        for _, title in part:
            table.add_column(Text(title), min_width=_TWO_LINES - 1)
        for row, title in rows:
            shown = [cells[(row, column) if turned else (column, row)] for column, _ in part]
            lengths = [drawn.get((cell.headline, cell.stack)) for cell in shown]
            table.add_row(Text(title), *map(partial(_format_cell, narrow=narrow), shown, lengths))
        whole.add_row(table)
    whole.add_row(_format_legend(summary, has_bars=has_bars))
    return whole


def cell_texts(cell: Cell) -> tuple[str, ...]:
    """Return what a table says of a cell: its name and direction, stack, verdict, estimate and interval."""
    verdict = f"{GLYPHS[cell_state(cell)]} {cell_state(cell)}{' !' if cell.cautions else ''}"
    return f"{cell.name} {_ARROWS[cell.better]}", cell.stack, verdict, format_ratio(cell), format_interval(cell)


def usual_value_table(summary: Summary) -> Table | None:
    """Make the table of what was measured in the end: the usual value of each metric of a single workload.

    Two values of a column stand to each other as their ratios do. Return None where there are several workloads,
    or a sweep, whose points would not fit.
    """
    if len(summary.workloads) != 1 or any(cell.point is not None for cell in summary.cells):
        return None
    found = {(cell.stack, cell.metric): cell for cell in summary.cells}
    metrics = {cell.metric: _ARROWS[cell.better] for cell in summary.cells}
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("usual", no_wrap=True, overflow="ellipsis", max_width=26)
    for metric, arrow in metrics.items():
        table.add_column(Text(f"{strip_control_characters(metric)} {arrow}"))
    for stack in summary.stacks:
        table.add_row(
            Text(strip_control_characters(summary.title(stack))),
            *(_usual_value_text(found.get((stack, metric))) for metric in metrics),
        )
    whole = Table.grid(padding=0)
    whole.add_row(table)
    baseline = f"usual: {strip_control_characters(summary.baseline)}'s geometric mean over its blocks"
    whole.add_row(Text(f"{baseline}; of others that times their ratio, from the blocks of both", style="dim"))
    if any(cell.usual is None and cell.mean is not None for cell in found.values()):
        whole.add_row(Text("* mean of all trials, as there is no ratio", style="dim"))
    return whole


def _usual_value_text(cell: Cell | None) -> Text:
    if cell is None or cell.mean is None:
        return Text("-")
    if cell.usual is None:
        return Text(f"{strip_control_characters(format_quantity(cell.mean, cell.unit))}*")
    return Text(strip_control_characters(format_quantity(cell.usual, cell.unit)))


def _format_legend(summary: Summary, *, has_bars: bool) -> Text:
    """Explain the numbers, the signs, and the scale of the bars, which is linear within about the margin alone."""
    legend = Text(style="dim")
    itself = " or the time itself" if any(cell.usual_low for cell in summary.headlines) else ""
    what = f"change from {strip_control_characters(summary.baseline)}{itself} [95 % interval] n blocks"
    legend.append(f"{what};  ↑ more is better, ↓ less is better\n")
    shown = {cell.verdict for cell in summary.headlines}
    for verdict in ("better", "worse", "equivalent", "undecided", "too few blocks"):
        if verdict not in shown:
            continue
        within = f" within {format_percent(summary.margin)}" if verdict == "equivalent" else ""
        legend.append(f"{GLYPHS[verdict]} {verdict}{within}   ", style=STYLES[verdict])
    if any(cell.cautions for cell in summary.headlines):
        legend.append("! has cautions")
    _, whole, half = cost_bars(summary)
    if has_bars and whole > 1:
        legend.append(
            f"\n{'█' * _BAR} bars: the cost, {format_longer(whole)} at this length, {format_longer(half)} at half of it"
        )
    return legend


def _format_cell(cell: Cell, length: float | None, *, narrow: bool) -> Text:
    is_now = cell_state(cell)
    if is_now in ("skipped", "failed", "no value"):
        return _format_missing_value(cell, is_now)
    quantity, quantity_interval = format_quantity_interval(cell)
    if is_now == "baseline":
        text = Text(f"{GLYPHS[is_now]} {quantity or '0 %'}", STYLES[is_now])
        return text.append(
            f" {quantity_interval}" * (not narrow and bool(quantity)) + f" n={cell.n or cell.trials}", "dim"
        )
    if cell.ratio is None:
        return Text(f"{GLYPHS[is_now]} no pair", style="dim")
    shown = quantity or (format_ratio(cell).replace(" %", "%") if narrow else format_ratio(cell))
    text = Text(f"{GLYPHS[is_now]} {shown}", style=STYLES[is_now])
    marks = "!" if cell.cautions else ""
    count, between = f" n={cell.n}{marks}", quantity_interval or format_interval(cell)
    if narrow:
        return text.append(count, "dim").append(f"\n{between}", "dim")
    text.append(f" {between}" if between else "", "dim").append(count, "dim")
    if length is not None:
        text.append(" " * max(_MOST_CHARACTERS_ONE_LINE - len(text), 1) + _draw_bar(length), STYLES[is_now])
    return text


def _draw_bar(length: float) -> str:
    """Draw a share in eighths of a letter."""
    eighths = round(length * _BAR * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8]


def _format_missing_value(cell: Cell, is_now: str) -> Text:
    is_open = describe_missing_value(cell) == "no trial was run"
    return Text("·" if is_open else f"{GLYPHS[is_now]} {is_now}", style="dim")

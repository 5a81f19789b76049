"""Output of a run on the terminal: the matrix, updated during the run, and a short conclusion at the end.

The conclusion has at most three sentences, the names of cautions, and failures with their hints. The report has the
rest: each finding with its interval, and the meaning of each caution.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from rich.box import SIMPLE_HEAD
from rich.table import Table
from rich.text import Text

from tare.model.run_folder import Run
from tare.model.units import format_duration, format_quantity
from tare.report.cpu_table import column_titles, cost_text, cpu_columns, select_last_points, table_title
from tare.report.findings import describe_cheapest, describe_dearest, relative_to_baseline
from tare.report.numbers import (
    GLYPHS,
    cell_state,
    cut,
    describe_missing_value,
    format_bounds,
    format_interval,
    format_longer,
    format_percent,
    format_quantity_interval,
    format_ratio,
    join_names,
    join_some,
    strip_control_characters,
)
from tare.report.overview import cost_bars, sort_by_cost
from tare.report.problems import find_failures
from tare.statistics.anytime import min_value_count
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
_CPU_COLUMN = 32  # columns that a cell of CPU time needs, with the space next to it
_BAR = 8  # characters of the longest bar
_ARROWS = {"higher": "↑", "lower": "↓"}
_OPEN = ("undecided", "too few blocks")
_MAX_FAILURES = 3  # causes with hints; the report has all
_REASON_LENGTH = 110
_MAX_SECONDS = 4 * 3600.0  # beyond this, the estimate is too rough to name


def headline_table(summary: Summary, width: int = WIDTH, *, final: bool = False) -> Table:
    """Return the table of headlines for a terminal of `width` columns.

    Stacks are the rows and workloads the columns, or the other way round if only that fits. If neither fits, the
    columns are split into several tables below each other. A `final` table sorts the stacks by cost and shows the costs
    as bars if there is room.
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
    """Return the texts of a cell for a table: name with direction, stack, verdict, estimate and interval."""
    verdict = f"{GLYPHS[cell_state(cell)]} {cell_state(cell)}{' !' if cell.cautions else ''}"
    return f"{cell.name} {_ARROWS[cell.better]}", cell.stack, verdict, format_ratio(cell), format_interval(cell)


def usual_value_table(summary: Summary) -> Table | None:
    """Return the table of the usual value of each metric of a single workload.

    The ratio of two values of a column equals the ratio of their estimates. Return None for several workloads and for a
    sweep, because its points would not fit.
    """
    if len(summary.workloads) != 1 or any(cell.point is not None for cell in summary.cells):
        return None
    cells = {(cell.stack, cell.metric): cell for cell in summary.cells}
    metrics = {cell.metric: _ARROWS[cell.better] for cell in summary.cells}
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("usual", no_wrap=True, overflow="ellipsis", max_width=26)
    for metric, arrow in metrics.items():
        table.add_column(Text(f"{strip_control_characters(metric)} {arrow}"))
    for stack in summary.stacks:
        table.add_row(
            Text(strip_control_characters(summary.title(stack))),
            *(_usual_value_text(cells.get((stack, metric))) for metric in metrics),
        )
    whole = Table.grid(padding=0)
    whole.add_row(table)
    baseline = f"usual: geometric mean over the blocks of {strip_control_characters(summary.baseline)}"
    whole.add_row(Text(f"{baseline}; for another stack, that mean times the ratio of the stack", style="dim"))
    if any(cell.usual is None and cell.mean is not None for cell in cells.values()):
        whole.add_row(Text("* mean of all trials, because there is no ratio", style="dim"))
    return whole


def cpu_cost_table(summary: Summary, run: Run, width: int = WIDTH) -> Table | None:
    """Return the table of CPU time per request or run, at the last point of each sweep; None if it is unknown.

    Columns that do not fit into `width` are in more tables below each other.
    """
    columns = select_last_points(cpu_columns(summary, run))
    if not columns:
        return None
    stacks = [stack for stack in summary.stacks if any(column.costs[stack].seconds for column in columns)]
    named = list(zip(column_titles(columns), columns, strict=True))
    room = max((width - min(max(len(summary.title(stack)) for stack in stacks), 26) - 2) // _CPU_COLUMN, 1)
    whole = Table.grid(padding=0)
    for part in (named[at : at + room] for at in range(0, len(named), room)):
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
        table.add_column("CPU time", no_wrap=True, overflow="ellipsis", max_width=26)
        for title, _ in part:
            table.add_column(Text(strip_control_characters(title)), max_width=_CPU_COLUMN - 2)
        for stack in stacks:
            texts = (cost_text(column.costs[stack]) or "-" for _, column in part)
            table.add_row(Text(strip_control_characters(summary.title(stack))), *map(Text, texts))
        whole.add_row(table)
    note = f"{table_title(columns)}, and change from {strip_control_characters(summary.baseline)} [95 % interval]"
    whole.add_row(Text(f"{note}; the report says what it leaves out", style="dim"))
    return whole


def _usual_value_text(cell: Cell | None) -> Text:
    if cell is None or cell.mean is None:
        return Text("-")
    if cell.usual is None:
        return Text(f"{strip_control_characters(format_quantity(cell.mean, cell.unit))}*")
    return Text(strip_control_characters(format_quantity(cell.usual, cell.unit)))


def _format_legend(summary: Summary, *, has_bars: bool) -> Text:
    """Explain the numbers, the signs, and the scale of the bars, which is linear only up to about the margin."""
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
            f"\n{'█' * _BAR} bars: cost; a full bar is {format_longer(whole)}, half a bar {format_longer(half)}"
        )
    if summary.by_cpu_time:
        names = strip_control_characters(", ".join(summary.by_cpu_time))
        legend.append(f"\ncompared by CPU time, as if each stack had a CPU for itself: {names}")
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
    """Draw a share of the longest bar in steps of an eighth of a character."""
    eighths = round(length * _BAR * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8]


def _format_missing_value(cell: Cell, is_now: str) -> Text:
    is_open = describe_missing_value(cell) == "no trial was run"
    return Text("·" if is_open else f"{GLYPHS[is_now]} {is_now}", style="dim")


def describe_conclusion(summary: Summary, run: Run) -> Text:
    """Return the lines below the table: conclusion, cautions and failures; empty if there are none."""
    cells = [cell for cell in summary.headlines if cell.stack not in (summary.baseline, summary.control)]
    conclusion = (*_describe_costs(summary, cells), *_describe_open(summary, run, cells))
    lines = (*conclusion, *_describe_cautions(summary), *_describe_failures(summary))
    return Text("\n".join(map(strip_control_characters, lines)))


def _describe_costs(summary: Summary, cells: Sequence[Cell]) -> Iterator[str]:
    """Yield sentences about the cheapest and the dearest stack over several workloads, or about measurable costs."""
    if len(summary.overall.workloads) > 1 and len(summary.overall.standings) > 1:
        yield from filter(None, (describe_cheapest(summary), describe_dearest(summary)))
        return
    if free := list(dict.fromkeys(cell.stack for cell in cells if cell.verdict == "equivalent")):
        yield f"No measurable cost (within {format_percent(summary.margin)} of {summary.baseline}): {join_some(free)}."
    worse = sorted((cell for cell in cells if cell.verdict == "worse"), key=lambda cell: abs(math.log(cell.ratio or 1)))
    if worse:
        texts = [f"{cell.stack} {relative_to_baseline(cell)}" for cell in worse]
        yield f"Measurable cost: {join_some(texts)}."


def _describe_open(summary: Summary, run: Run, cells: Sequence[Cell]) -> Iterator[str]:
    """Yield a sentence about undecided cells with their intervals, and about how long deciding them would take."""
    open_cells = [cell for cell in cells if cell.verdict in _OPEN]
    if not open_cells:
        return
    several = len(open_cells) > 1
    texts = []
    for cell in open_cells:
        where = f"{cell.stack} in {cell.name}" if len(summary.rules) > 1 else cell.stack
        between = format_bounds(cell.low, cell.high, cell.ratio or 1.0)
        texts.append(f"{where} {between}" if between else f"{where} (fewer than {min_value_count()} blocks)")
    seconds = seconds_to_decide(summary, run, open_cells)
    more = f"; about {format_duration(60 * math.ceil(seconds / 60))} more" if seconds <= _MAX_SECONDS else ""
    count = f" ({len(open_cells)} of {len(cells)})" if several else ""
    yield f"Undecided{count}: {join_some(texts)}{more}."


def seconds_to_decide(summary: Summary, run: Run, open_cells: Sequence[Cell]) -> float:
    """Estimate how many more seconds of blocks decide all these cells; infinite if a cell has no trial yet.

    The estimate assumes constant means and interval widths that shrink with the square root of the number of blocks.
    """
    seconds: dict[str, float] = {}
    for cell in open_cells:
        trials = [trial for trial in run.trials if trial.workload == cell.workload and trial.status != "skipped"]
        blocks = len({trial.block for trial in trials})
        per_block = sum(trial.seconds for trial in trials) / blocks if blocks else math.inf
        more = per_block * _blocks_to_decide(cell, summary.margin)
        seconds[cell.workload] = max(seconds.get(cell.workload, 0.0), more)
    return sum(seconds.values())


def _blocks_to_decide(cell: Cell, margin: float) -> float:
    if cell.low is None or cell.high is None or cell.ratio is None:
        return float(max(min_value_count() - cell.n, 1))
    half, away, limit = math.log(cell.high / cell.low) / 2, abs(math.log(cell.ratio)), math.log1p(margin)
    room = max(away, limit - away)  # an interval this narrow excludes either no change or the margin
    return max(math.ceil(cell.n * (half / room) ** 2) - cell.n, 1)


def _describe_cautions(summary: Summary) -> Iterator[str]:
    """Yield a sentence that counts the values with each caution; nothing without cautions."""
    counts = Counter(
        kind
        for cell in summary.headlines
        if cell.stack != summary.control
        for kind in dict.fromkeys(caution.kind for caution in cell.cautions if caution.stack == cell.stack)
    )
    if counts:
        yield f"! Cautions: {join_names(tuple(f'{kind} ({count})' for kind, count in counts.most_common()))}."


def _describe_failures(summary: Summary) -> Iterator[str]:
    """Yield the first causes of failures and skipped stacks, each with its hint."""
    causes = find_failures(summary).causes
    for cause in causes[:_MAX_FAILURES]:
        outcome = "skipped" if all(site.status == "skipped" for site in cause.sites) else "failed"
        workloads = list(dict.fromkeys(site.workload for site in cause.sites))
        where = "" if workloads == list(summary.workloads) else f" in {join_some(workloads)}"
        stacks = join_some(list(dict.fromkeys(site.stack for site in cause.sites)))
        yield f"{outcome}: {stacks}{where}: {cut(cause.text, _REASON_LENGTH)}"
        if cause.hint:
            yield f"  hint: {cause.hint}"
    if len(causes) > _MAX_FAILURES:
        yield f"{len(causes) - _MAX_FAILURES} more causes of failures are in the report."

"""Overview figure of a run: a column for each headline, a row for each stack, sorted by cost.

The figure shows costs: how much longer a stack takes than the baseline, whether more or less of the metric is better. A
headline that is no speed, such as the time of a start, has an axis in its unit.

`create_overview` computes the positions of all dots as shares of the axis, and the texts. The figure exists for the
page, as a file, and as a card for sharing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from markupsafe import Markup

from tare.model.run_folder import Run
from tare.report.chart_svg import FramedFigure, size_within_frame
from tare.report.numbers import (
    cell_state,
    format_cost,
    format_interval,
    format_percent,
    format_plus_minus,
    format_ratio,
    join_names,
)
from tare.report.rendering import render_section
from tare.report.svg_axes import Axis, Size, Ticks, classify_cost, cost_axis, cost_ticks, quantity_axis, quantity_ticks
from tare.statistics.cells import Cell, HeadlineRule
from tare.statistics.summary import Summary

MAX_ROWS = 40
_FEW = "too few blocks"
STATE_TEXTS = {"skipped": "skipped", "failed": "failed", "no value": "no value", _FEW: "too few"}
_NAMES, _AXIS, _COLUMN, _ROW = 132, 130, 220, 26  # widths and heights, pixels
_TOP, _BOTTOM = 46, 24
_INSET = 5  # of an axis, so that a dot at its end is not cut
_HIGHEST_ROW = 44
_IN_A_LINE = 5  # columns
_CARD_WIDTH, _CARD_HEIGHT, _CARD_ROWS = 1200, 630, 16

CostLogs = tuple[float | None, float | None, float | None]  # of an estimate and of the bounds of its interval
IntervalPosition = tuple[float, float | None, float | None]  # the same as shares of an axis


@dataclass(frozen=True)
class HeadlineEntry:
    """Entry of a stack in a column: positions of its dot and interval bounds, and the text next to it.

    Positions are shares of the axis, None if there is nothing to draw. `ratio` is the change from the baseline as text.
    `is_sure` tells whether the verdict is decided, and `doubts` counts the caution types. `before` has the positions in
    the earlier run if two runs are compared.
    """

    stack: str
    text: str
    detail: str
    size: Size = "unknown"
    place: float | None = None
    low: float | None = None
    high: float | None = None
    is_sure: bool = False
    is_baseline: bool = False
    verdict: str = ""
    doubts: int = 0
    n: int = 0
    anchor: str = ""
    before: IntervalPosition | None = None
    ratio: str = ""


@dataclass(frozen=True)
class HeadlineColumn:
    """Column of a headline: its entries, and the positions of ticks, baseline and equivalence band on its axis.

    `anchor` is that of the workload's section.
    """

    name: str
    what: str
    ticks: Ticks
    baseline: float
    band: tuple[float, float]
    entries: tuple[HeadlineEntry, ...]
    anchor: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether no stack can be compared with the baseline although some have values."""
        others = [entry for entry in self.entries if not entry.is_baseline]
        return all(entry.place is None for entry in others) and any(entry.verdict == _FEW for entry in others)


@dataclass(frozen=True)
class Overview:
    """Content of the figure: `decided_count` of `compared_count` cells are decided, `flagged_count` have cautions.

    `left_out` is the number of the dearest stacks that are not drawn. With `compares`, each row also has a dot of an
    earlier run.
    """

    baseline: str
    margin: float
    stacks: tuple[str, ...]
    columns: tuple[HeadlineColumn, ...]
    decided_count: int
    compared_count: int
    flagged_count: int
    left_out: int = 0
    compares: bool = False

    @property
    def has_values(self) -> bool:
        """Whether a stack other than the baseline has a dot."""
        return any(
            (entry.place is not None or entry.before) and not entry.is_baseline
            for column in self.columns
            for entry in column.entries
        )


def create_overview(
    summary: Summary,
    anchors: Mapping[tuple[str, str], str] = MappingProxyType({}),
    section_anchors: Mapping[str, str] = MappingProxyType({}),
) -> Overview:
    """Return the figure of a run.

    `anchors` are those of the trials by workload and stack, `section_anchors` those of the workloads' sections.
    """
    all_stacks = sort_by_cost(summary)
    stacks, axis = all_stacks[:MAX_ROWS], _common_axis(summary)
    columns = (_create_column(summary, rule, stacks, axis, (anchors, section_anchors)) for rule in summary.rules)
    compared = [
        cell
        for cell in summary.headlines
        if cell.stack not in (summary.baseline, summary.control) and cell.verdict != "no value"
    ]
    decided = [cell for cell in compared if cell.is_decided]
    return Overview(
        baseline=summary.baseline,
        margin=summary.margin,
        stacks=stacks,
        columns=tuple(column for column in columns if not column.is_empty),
        decided_count=len(decided),
        compared_count=len(compared),
        flagged_count=sum(bool(cell.cautions) for cell in decided),
        left_out=len(all_stacks) - len(stacks),
    )


def sort_by_cost(summary: Summary) -> tuple[str, ...]:
    """Return the stacks without the A/A control: baseline, then stacks by rising cost, then stacks without a value."""

    def sort_key(stack: str) -> tuple[bool, float]:
        cells = [cell for cell in summary.headlines if cell.stack == stack and cell.ratio]
        counting = [cell for cell in cells if summary.rule(cell.name).overall] or cells
        costs = [log_cost(cell, cell.ratio or 1.0) for cell in counting]
        return stack != summary.baseline, sum(costs) / len(costs) if costs else math.inf

    return tuple(sorted((stack for stack in summary.stacks if stack != summary.control), key=sort_key))


def _common_axis(summary: Summary) -> Axis:
    """Return the common axis of all columns that show a slowdown, so that readers can compare them."""
    cells = [cell for cell in summary.headlines if cell.stack != summary.control and not _has_unit(summary, cell.name)]
    known = [each for cell in cells for each in cost_logs(cell) if each is not None]
    return cost_axis(known, summary.margin)


def _has_unit(summary: Summary, name: str) -> bool:
    """Return whether a headline has an axis in its unit: it counts for no speed, and the baseline has a value."""
    cell = summary.headline(name, summary.baseline) if summary.baseline in summary.stacks else None
    return cell is not None and not summary.rule(name).overall and bool(cell.unit) and (cell.usual or 0.0) > 0


def cost_bars(summary: Summary) -> tuple[Mapping[tuple[str, str], float], float, float]:
    """Return the lengths of the bars of costs by headline and stack, as shares of the longest bar.

    Also return the factors of time that a full bar and half a bar stand for; 1 without a cost.
    """
    band = math.log1p(summary.margin)
    costs = {
        (cell.headline, cell.stack): max(log_cost(cell, cell.ratio), 0.0)
        for cell in summary.headlines
        if cell.ratio is not None and cell.low is not None
    }
    longest = max(costs.values(), default=0.0)
    length = math.asinh(longest / band)
    shares = {key: math.asinh(cost / band) / (length or 1.0) for key, cost in costs.items()}
    return shares, math.exp(longest), math.exp(band * math.sinh(length / 2))


def _create_column(
    summary: Summary,
    rule: HeadlineRule,
    stacks: Sequence[str],
    common_axis: Axis,
    all_anchors: tuple[Mapping[tuple[str, str], str], Mapping[str, str]],
) -> HeadlineColumn:
    """Return a column; `all_anchors` are those of trials and those of workloads' sections."""
    anchors, sections = all_anchors
    cells = [summary.headline(rule.name, stack) for stack in stacks]
    in_unit = _has_unit(summary, rule.name)
    base = summary.headline(rule.name, summary.baseline).usual if in_unit else None
    shift = math.log(base or 1.0)
    logs = {cell.stack: quantity_logs(cell) if in_unit else cost_logs(cell) for cell in cells}
    axis, ticks = common_axis, cost_ticks(common_axis)
    if in_unit:
        known = [each for cell_logs in logs.values() for each in cell_logs if each is not None]
        axis = quantity_axis(known, summary.margin)
        ticks = quantity_ticks(axis, cells[0].unit)
    return HeadlineColumn(
        name=rule.name,
        what=rule.text if in_unit else "slowdown",
        ticks=ticks,
        baseline=axis.position(shift),
        band=axis.band(shift, summary.margin),
        entries=tuple(
            _create_entry(summary, cell, logs[cell.stack], axis, anchors.get((rule.workload, cell.stack), ""))
            for cell in cells
        ),
        anchor=sections.get(rule.workload, ""),
    )


def cost_logs(cell: Cell) -> CostLogs:
    """Return the logarithms of a cell's cost and of its interval bounds; None where unknown."""
    if cell.ratio is None:
        return None, None, None
    if cell.low is None or cell.high is None:
        return log_cost(cell, cell.ratio), None, None
    low, high = sorted((log_cost(cell, cell.low), log_cost(cell, cell.high)))
    return log_cost(cell, cell.ratio), low, high


def quantity_logs(cell: Cell) -> CostLogs:
    """Return the logarithms of a cell's usual value and of its interval bounds; None where unknown."""
    if not cell.usual:
        return None, None, None
    if not cell.usual_low or not cell.usual_high:
        return math.log(cell.usual), None, None
    return math.log(cell.usual), math.log(cell.usual_low), math.log(cell.usual_high)


def _create_entry(summary: Summary, cell: Cell, logs: CostLogs, axis: Axis, anchor: str) -> HeadlineEntry:
    now, stack = cell_state(cell), summary.title(cell.stack)
    detail = f"{cell.stack}: {now}"
    at, low, high = (None if each is None else axis.position(each) for each in logs)
    quantity = "" if cell.usual is None else format_plus_minus(cell.usual, None, cell.unit)
    if now == "baseline":
        text = quantity if axis.threshold is None else "baseline"
        return HeadlineEntry(stack, text, detail, "none", at, is_baseline=True, verdict=now, anchor=anchor)
    if cell.ratio is None:
        return HeadlineEntry(stack, STATE_TEXTS.get(now, now), detail, verdict=now, anchor=anchor)
    text = quantity if axis.threshold is None else format_cost(cell)
    return HeadlineEntry(
        stack=stack,
        text=text if cell.low is not None else STATE_TEXTS[_FEW],
        detail=f"{detail}, {format_ratio(cell)} {format_interval(cell)}, n={cell.n}",
        size=classify_cost(log_cost(cell, cell.ratio), summary.margin),
        place=at,
        low=low,
        high=high,
        is_sure=cell.is_decided,
        verdict=now,
        n=cell.n,
        doubts=len({caution.kind for caution in cell.cautions}),
        anchor=anchor,
        ratio=f"{format_ratio(cell)} {format_interval(cell)}".rstrip(),
    )


def log_cost(cell: Cell, ratio: float) -> float:
    """Return the logarithm of a ratio as a cost: of the factor of time or amount."""
    return math.log(ratio) if cell.better == "lower" else -math.log(ratio)


@dataclass(frozen=True)
class Figure:
    """Figure of the page: a panel for each column, the CSS that lays them out, and the texts around them.

    `columns` are the data of the panels, for a table. Each panel has the stacks' names at its left, and of several
    panels in a line, only the first shows them.
    """

    panels: tuple[Markup, ...]
    style: str
    counts: str
    legend: str
    columns: tuple[HeadlineColumn, ...]


def draw_page_figure(overview: Overview) -> Figure | None:
    """Draw the figure for a page; None if no stack has a value."""
    if not overview.has_values:
        return None
    number = min(len(overview.columns), _IN_A_LINE)
    panels = tuple(_draw_columns(overview, [column])[0] for column in overview.columns)
    columns = (
        f"grid-template-columns: {_NAMES + _COLUMN}fr{f' repeat({number - 1}, {_COLUMN}fr)' if number > 1 else ''}"
    )
    style = f"{columns}; max-width: {_NAMES + _COLUMN * number}px"
    return Figure(panels, style, _describe_counts(overview), _describe_legend(overview), overview.columns)


def _describe_counts(overview: Overview) -> str:
    """Return the sentences that count the decided cells and the stacks that are not drawn."""
    flagged = f", {overview.flagged_count} of them with cautions" if overview.flagged_count else ""
    what = "changes" if overview.compares else "results"
    counts = f"{overview.decided_count} of {overview.compared_count} {what} are decided{flagged}."
    if not overview.left_out:
        return counts
    return f"{counts} The figure has the {len(overview.stacks)} cheapest stacks; {overview.left_out} more are below."


def draw_figure(summary: Summary, run: Run) -> str:
    """Draw the figure as a file; "" if no stack has a value."""
    return _draw_framed(create_overview(summary), run)


def draw_card(summary: Summary, run: Run) -> str:
    """Draw the figure as a card of at most five headlines and sixteen stacks; "" if no stack has a value."""
    overview = create_overview(summary)
    kept = tuple(replace(column, entries=column.entries[:_CARD_ROWS]) for column in overview.columns[:_IN_A_LINE])
    size = (_CARD_WIDTH, _CARD_HEIGHT)
    return _draw_framed(replace(overview, stacks=overview.stacks[:_CARD_ROWS], columns=kept), run, size)


def _draw_framed(overview: Overview, run: Run, size: tuple[int, int] | None = None) -> str:
    if not overview.has_values:
        return ""
    most = max(entry.n for column in overview.columns for entry in column.entries)
    return FramedFigure(
        *_draw_columns(overview, overview.columns, _row_height(overview, size) if size else _ROW),
        title=f"What each stack costs relative to {overview.baseline}",
        fact=f"{overview.decided_count} of {overview.compared_count} decided, n up to {most}",
        legend=_describe_legend(overview),
    ).file(run, size)


def _describe_legend(overview: Overview) -> str:
    """Return the legend of the figure."""
    band = f"green band: no measurable cost (within {format_percent(overview.margin)})"
    if overview.compares:
        dots = "Hollow gray dot: before; dot below: after, colored by the change, pale if undecided"
        return f"{dots}; bars: 95 % intervals; {band}; \N{MIDDLE DOT}: has cautions. The axis is logarithmic beyond 0."
    marks = "hollow dot: undecided; \N{MIDDLE DOT}: has cautions"
    dots = "Dot: estimate, colored by size; bar: 95 % interval"
    return f"{dots}; {band}; {marks}. The axis is linear near 0 and logarithmic beyond."


def _row_height(overview: Overview, size: tuple[int, int]) -> int:
    """Return the row height with which one line of columns fills a picture of this size."""
    width, height = size_within_frame(size)
    needed_width = _NAMES + _COLUMN * min(len(overview.columns), _IN_A_LINE)
    fitting = (height * needed_width / width - _TOP - _BOTTOM) / len(overview.stacks)
    return min(max(int(fitting), _ROW), _HIGHEST_ROW)


def _draw_columns(overview: Overview, columns: Sequence[HeadlineColumn], row: int = _ROW) -> tuple[Markup, int, int]:
    """Draw columns in lines, with rows of this height; return the picture with its width and height."""
    tall = _TOP + row * len(overview.stacks) + _BOTTOM
    lines = [columns[at : at + _IN_A_LINE] for at in range(0, len(columns), _IN_A_LINE)]
    width, height = _NAMES + _COLUMN * len(lines[0]), tall * len(lines)
    names = join_names(tuple(column.name for column in columns))
    changes = ", before and after" if overview.compares else ""
    svg = render_section(
        "tare.report",
        "overview.svg.j2",
        lines=[(_TOP + tall * at, line) for at, line in enumerate(lines)],
        size={"names": _NAMES, "axis": _AXIS, "column": _COLUMN, "row": row, "inset": _INSET},
        box=f"0 0 {width} {height}",
        label=f"{names}: what each stack costs relative to {overview.baseline}{changes}",
        compares=overview.compares,
    )
    return svg, width, height

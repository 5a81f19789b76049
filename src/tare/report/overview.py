"""The whole run as one figure: a column for each headline, a row for each stack, sorted by cost.

What is drawn is the cost: how much longer a stack takes than the baseline, whichever direction its metric has. A
headline that is a quantity of its own, as a start's time is, has an axis in its unit.

Here are the places of all dots as shares of the axis, and the texts; `tare.report.html` and `tare.report.svg` draw it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from tare.report.axes import Axis, Size, Ticks, cost_axis, cost_ticks, quantity_axis, quantity_ticks, size_of
from tare.report.numbers import cost, estimate, interval, plus_minus, state
from tare.statistics.cells import Cell, HeadlineRule
from tare.statistics.summary import Summary

MOST_ROWS = 40
_FEW = "too few blocks"
WORDS = {"skipped": "not here", "failed": "failed", "no value": "no value", _FEW: "too few"}

Logs = tuple[float | None, float | None, float | None]  # of an estimate, and of the ends of its interval
Place = tuple[float, float | None, float | None]  # the same as shares of an axis


@dataclass(frozen=True)
class Entry:
    """A stack with a headline: where its dot and the ends of its interval are, and what stands beside it.

    Places are shares of the axis, None where there is nothing to draw. `ratio` is that to the baseline. `is_sure` says
    that the headline is decided. `before` is what an earlier run has, where two are compared.
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
    before: Place | None = None
    ratio: str = ""


@dataclass(frozen=True)
class Column:
    """A headline: its axis with the places of the ticks, of the baseline, and of what counts as equivalent.

    `anchor` is the place of its workload's section.
    """

    name: str
    what: str
    ticks: Ticks
    baseline: float
    band: tuple[float, float]
    entries: tuple[Entry, ...]
    anchor: str = ""

    @property
    def is_empty(self) -> bool:
        """Whether stacks have values, but none that can be compared: no block has one of the baseline as well."""
        others = [entry for entry in self.entries if not entry.is_baseline]
        return all(entry.place is None for entry in others) and any(entry.verdict == _FEW for entry in others)


@dataclass(frozen=True)
class Overview:
    """All of the figure. `decided` of the `asked` cells are decided, and `doubted` of these have a caution.

    `left_out` is the number of stacks that are not drawn: those that cost most, where there are very many.
    `compares` says that each row has a dot of an earlier run as well.
    """

    baseline: str
    margin: float
    stacks: tuple[str, ...]
    columns: tuple[Column, ...]
    decided: int
    asked: int
    doubted: int
    left_out: int = 0
    compares: bool = False

    @property
    def has_values(self) -> bool:
        """Whether there is a dot beside those of the baseline."""
        return any(
            (entry.place is not None or entry.before) and not entry.is_baseline
            for column in self.columns
            for entry in column.entries
        )


def overview(
    summary: Summary,
    anchors: Mapping[tuple[str, str], str] = MappingProxyType({}),
    sections: Mapping[str, str] = MappingProxyType({}),
) -> Overview:
    """Make the figure of a run.

    `anchors` are the places of the trials of a workload and a stack, and `sections` those of all of a workload.
    """
    every = by_cost(summary)
    stacks, axis = every[:MOST_ROWS], _common_axis(summary)
    columns = tuple(
        replace(_column(summary, rule, stacks, axis, anchors), anchor=sections.get(rule.workload, ""))
        for rule in summary.rules
    )
    columns = tuple(column for column in columns if not column.is_empty)
    asked = [
        cell
        for cell in summary.headlines
        if cell.stack not in (summary.baseline, summary.control) and cell.verdict != "no value"
    ]
    decided = [cell for cell in asked if cell.decided]
    doubted = sum(bool(cell.cautions) for cell in decided)
    return Overview(
        baseline=summary.baseline,
        margin=summary.margin,
        stacks=stacks,
        columns=columns,
        decided=len(decided),
        asked=len(asked),
        doubted=doubted,
        left_out=len(every) - len(stacks),
    )


def by_cost(summary: Summary) -> tuple[str, ...]:
    """Return the stacks without A/A: the baseline first, then those that cost least; last those without any value."""

    def key(stack: str) -> tuple[bool, float]:
        cells = [cell for cell in summary.headlines if cell.stack == stack and cell.ratio]
        counting = [cell for cell in cells if summary.rule(cell.name).overall] or cells
        costs = [cost_of(cell, cell.ratio or 1.0) for cell in counting]
        return stack != summary.baseline, sum(costs) / len(costs) if costs else math.inf

    return tuple(sorted((stack for stack in summary.stacks if stack != summary.control), key=key))


def _common_axis(summary: Summary) -> Axis:
    """Return the axis of all columns that show a slowdown, so that these can be compared with each other."""
    cells = [cell for cell in summary.headlines if cell.stack != summary.control and not _has_unit(summary, cell.name)]
    known = [each for cell in cells for each in cost_logs(cell) if each is not None]
    return cost_axis(known, summary.margin)


def _has_unit(summary: Summary, name: str) -> bool:
    """Return whether a headline is shown in its unit: it is no speed, and every value of the baseline is known."""
    cell = summary.headline(name, summary.baseline) if summary.baseline in summary.stacks else None
    return cell is not None and not summary.rule(name).overall and bool(cell.unit) and (cell.usual or 0.0) > 0


def bars(summary: Summary) -> Mapping[tuple[str, str], float]:
    """Return the lengths of bars that show costs, as shares of the longest, by headline and stack."""
    band = math.log1p(summary.margin)
    lengths = {
        (cell.headline, cell.stack): math.asinh(max(cost_of(cell, cell.ratio), 0.0) / band)
        for cell in summary.headlines
        if cell.ratio is not None and cell.low is not None
    }
    longest = max(lengths.values(), default=0.0) or 1.0
    return {key: length / longest for key, length in lengths.items()}


def bar_scale(summary: Summary) -> tuple[float, float]:
    """Return how many times as long things take at the whole length of a bar, and at half of it; 1 if there is none."""
    band = math.log1p(summary.margin)
    costs = [cost_of(cell, cell.ratio) for cell in summary.headlines if cell.ratio is not None and cell.low is not None]
    longest = max((0.0, *costs))
    return math.exp(longest), math.exp(band * math.sinh(math.asinh(longest / band) / 2))


def _column(
    summary: Summary, rule: HeadlineRule, stacks: Sequence[str], common: Axis, anchors: Mapping[tuple[str, str], str]
) -> Column:
    cells = [summary.headline(rule.name, stack) for stack in stacks]
    in_unit = _has_unit(summary, rule.name)
    base = summary.headline(rule.name, summary.baseline).usual if in_unit else None
    shift = math.log(base or 1.0)
    logs = {cell.stack: quantity_logs(cell) if in_unit else cost_logs(cell) for cell in cells}
    axis, ticks = common, cost_ticks(common)
    if in_unit:
        known = [each for own in logs.values() for each in own if each is not None]
        axis = quantity_axis(known, summary.margin)
        ticks = quantity_ticks(axis, cells[0].unit)
    return Column(
        name=rule.name,
        what=rule.text if in_unit else "slowdown",
        ticks=ticks,
        baseline=axis.place(shift),
        band=axis.around(shift, summary.margin),
        entries=tuple(
            replace(
                _entry(cell, logs[cell.stack], axis, summary.margin),
                stack=summary.title(cell.stack),
                anchor=anchors.get((rule.workload, cell.stack), ""),
            )
            for cell in cells
        ),
    )


def cost_logs(cell: Cell) -> Logs:
    """Return the logarithms of the cost and of the ends of its interval."""
    if cell.ratio is None:
        return None, None, None
    if cell.low is None or cell.high is None:
        return cost_of(cell, cell.ratio), None, None
    low, high = sorted((cost_of(cell, cell.low), cost_of(cell, cell.high)))
    return cost_of(cell, cell.ratio), low, high


def quantity_logs(cell: Cell) -> Logs:
    """Return the logarithms of the quantity and of its own interval's ends."""
    if not cell.usual:
        return None, None, None
    if not cell.usual_low or not cell.usual_high:
        return math.log(cell.usual), None, None
    return math.log(cell.usual), math.log(cell.usual_low), math.log(cell.usual_high)


def _entry(cell: Cell, logs: Logs, axis: Axis, margin: float) -> Entry:
    now = state(cell)
    detail = f"{cell.stack}: {now}"
    at, low, high = (None if each is None else axis.place(each) for each in logs)
    quantity = "" if cell.usual is None else plus_minus(cell.usual, None, cell.unit)
    if now == "baseline":
        text = quantity if axis.threshold is None else "baseline"
        return Entry(cell.stack, text, detail, "none", at, is_baseline=True, verdict=now)
    if cell.ratio is None:
        return Entry(cell.stack, WORDS.get(now, now), detail, verdict=now)
    away, ratio = cost_of(cell, cell.ratio), f"{estimate(cell)} {interval(cell)}".rstrip()
    text = quantity if axis.threshold is None else cost(cell)
    return Entry(
        stack=cell.stack,
        text=text if cell.low is not None else WORDS[_FEW],
        detail=f"{detail}, {estimate(cell)} of the baseline {interval(cell)}, n={cell.n}",
        size=size_of(away, margin),
        place=at,
        low=low,
        high=high,
        is_sure=cell.decided,
        verdict=now,
        n=cell.n,
        doubts=len({caution.kind for caution in cell.cautions}),
        ratio=ratio,
    )


def cost_of(cell: Cell, ratio: float) -> float:
    """Return the logarithm of how many times as long it takes, or how many times as much it needs."""
    return math.log(ratio) if cell.better == "lower" else -math.log(ratio)

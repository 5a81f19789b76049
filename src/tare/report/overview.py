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

_MOST_ROWS = 40
_WORDS = {"skipped": "not here", "failed": "failed", "no value": "no value", "too few blocks": "too few"}


@dataclass(frozen=True)
class Entry:
    """A stack with a headline: where its dot and the ends of its interval are, and what stands beside it.

    Places are shares of the axis, None where there is nothing to draw. `is_sure` says that the headline is decided.
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
    doubts: int = 0
    n: int = 0
    anchor: str = ""


@dataclass(frozen=True)
class Column:
    """A headline: its axis with the places of the ticks, of the baseline, and of what counts as equivalent."""

    name: str
    what: str
    ticks: Ticks
    baseline: float
    band: tuple[float, float]
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Overview:
    """All of the figure. `decided` of the `asked` cells are decided, and `doubted` of these have a caution.

    `left_out` is the number of stacks that are not drawn: those that cost most, where there are very many.
    """

    baseline: str
    margin: float
    stacks: tuple[str, ...]
    columns: tuple[Column, ...]
    decided: int
    asked: int
    doubted: int
    left_out: int = 0

    @property
    def has_values(self) -> bool:
        """Whether there is a dot beside those of the baseline."""
        return any(
            entry.place is not None and not entry.is_baseline for column in self.columns for entry in column.entries
        )


def overview(summary: Summary, anchors: Mapping[tuple[str, str], str] = MappingProxyType({})) -> Overview:
    """Make the figure of a run; `anchors` are the places of the trials of a workload and a stack."""
    every = by_cost(summary)
    stacks, axis = every[:_MOST_ROWS], _common_axis(summary)
    columns = tuple(_column(summary, rule, stacks, axis, anchors) for rule in summary.rules)
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
        costs = [_cost(cell, cell.ratio or 1.0) for cell in counting]
        return stack != summary.baseline, sum(costs) / len(costs) if costs else math.inf

    return tuple(sorted((stack for stack in summary.stacks if stack != summary.control), key=key))


def _common_axis(summary: Summary) -> Axis:
    """Return the axis of all columns that show a slowdown, so that these can be compared with each other."""
    cells = [cell for cell in summary.headlines if cell.stack != summary.control and not _has_unit(summary, cell.name)]
    known = [each for cell in cells for each in _logs(cell, 0.0, in_unit=False) if each is not None]
    return cost_axis(known, summary.margin)


def _has_unit(summary: Summary, name: str) -> bool:
    """Return whether a headline is shown in its unit: it is no speed, and every value of the baseline is known."""
    cell = summary.headline(name, summary.baseline) if summary.baseline in summary.stacks else None
    return cell is not None and not summary.rule(name).overall and bool(cell.unit) and (cell.usual or 0.0) > 0


def bars(summary: Summary) -> Mapping[tuple[str, str], float]:
    """Return the lengths of bars that show costs, as shares of the longest, by headline and stack."""
    band = math.log1p(summary.margin)
    lengths = {
        (cell.headline, cell.stack): math.asinh(max(_cost(cell, cell.ratio), 0.0) / band)
        for cell in summary.headlines
        if cell.ratio is not None and cell.low is not None
    }
    longest = max(lengths.values(), default=0.0) or 1.0
    return {key: length / longest for key, length in lengths.items()}


def _column(
    summary: Summary, rule: HeadlineRule, stacks: Sequence[str], common: Axis, anchors: Mapping[tuple[str, str], str]
) -> Column:
    cells = [summary.headline(rule.name, stack) for stack in stacks]
    in_unit = _has_unit(summary, rule.name)
    base = summary.headline(rule.name, summary.baseline).usual if in_unit else None
    shift, band = math.log(base or 1.0), math.log1p(summary.margin)
    logs = {cell.stack: _logs(cell, shift, in_unit=in_unit) for cell in cells}
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
        band=(axis.place(shift - band), axis.place(shift + band)),
        entries=tuple(
            replace(
                _entry(cell, logs[cell.stack], axis, summary.margin),
                anchor=anchors.get((rule.workload, cell.stack), ""),
            )
            for cell in cells
        ),
    )


def _logs(cell: Cell, shift: float, *, in_unit: bool) -> tuple[float | None, float | None, float | None]:
    """Return the logarithms of the estimate and of the ends of the interval, as costs or in the unit."""
    if cell.ratio is None:
        return None, None, None
    if cell.low is None or cell.high is None:
        ends: tuple[float | None, float | None] = (None, None)
    elif in_unit:
        ends = (shift + math.log(cell.low), shift + math.log(cell.high))
    else:
        low, high = sorted((_cost(cell, cell.low), _cost(cell, cell.high)))
        ends = (low, high)
    return (shift + math.log(cell.ratio) if in_unit else _cost(cell, cell.ratio), *ends)


def _entry(cell: Cell, logs: tuple[float | None, float | None, float | None], axis: Axis, margin: float) -> Entry:
    now = state(cell)
    detail = f"{cell.stack}: {now}"
    at, low, high = (None if each is None else axis.place(each) for each in logs)
    quantity = "" if cell.usual is None else plus_minus(cell.usual, None, cell.unit)
    if now == "baseline":
        text = quantity if axis.threshold is None else "baseline"
        return Entry(cell.stack, text, detail, "none", at, is_baseline=True)
    if cell.ratio is None:
        return Entry(cell.stack, _WORDS.get(now, now), detail)
    away = _cost(cell, cell.ratio)
    text = quantity if axis.threshold is None else cost(cell)
    return Entry(
        stack=cell.stack,
        text=text if cell.low is not None else _WORDS["too few blocks"],
        detail=f"{detail}, {estimate(cell)} of the baseline {interval(cell)}, n={cell.n}",
        size=size_of(away, margin),
        place=at,
        low=low,
        high=high,
        is_sure=cell.decided,
        n=cell.n,
        doubts=len({caution.kind for caution in cell.cautions}),
    )


def _cost(cell: Cell, ratio: float) -> float:
    """Return the logarithm of how many times as long it takes, or how many times as much it needs."""
    return math.log(ratio) if cell.better == "lower" else -math.log(ratio)

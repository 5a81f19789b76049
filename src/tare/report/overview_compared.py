"""The figure of two runs: what each stack costs beside the baseline, before and after."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tare.answers.comparing import Comparison
from tare.report.numbers import cost, estimate, interval, state
from tare.report.overview import MOST_ROWS, WORDS, Column, Entry, Overview, Place, cost_logs, cost_of, overview
from tare.report.svg_axes import Axis, cost_axis, cost_ticks, size_of
from tare.statistics.cells import Cell
from tare.statistics.changes import Change
from tare.statistics.summary import Summary


def overview_of(answer: Comparison) -> Overview:
    """Make the figure of a comparison: of two runs with two dots in each row, of one run as its report has it."""
    if not answer.changes:
        return overview(answer.summary)
    baseline, margin = answer.summary.baseline, answer.summary.margin
    changes = [each for each in answer.changes if each.cell.stack != baseline]
    every = _by_cost(changes)
    stacks = every[:MOST_ROWS]
    cells = [cell for each in changes if each.cell.stack in stacks for cell in (each.before, each.after)]
    axis = cost_axis((at for cell in cells for at in cost_logs(cell) if at is not None), margin)
    names = dict.fromkeys(each.cell.name for each in changes)
    asked = [each.cell for each in changes if each.cell.ratio is not None]
    columns = (
        _column(name, {each.cell.stack: each for each in changes if each.cell.name == name}, stacks, axis, margin)
        for name in names
    )
    return Overview(
        baseline=baseline,
        margin=margin,
        stacks=stacks,
        columns=tuple(_titled(column, answer.summary) for column in columns),
        decided=sum(cell.decided for cell in asked),
        asked=len(asked),
        doubted=sum(cell.decided and bool(cell.cautions) for cell in asked),
        left_out=len(every) - len(stacks),
        compares=True,
    )


def _titled(column: Column, summary: Summary) -> Column:
    """Name the stacks as the tables do: with the year of what is old."""
    entries = (replace(each, stack=summary.title(each.stack)) for each in column.entries)
    return replace(column, entries=tuple(entries))


def _by_cost(changes: Sequence[Change]) -> tuple[str, ...]:
    """Return the stacks, those first that cost least after; last those without any value then."""
    costs: dict[str, list[float]] = {each.cell.stack: [] for each in changes}
    for each in changes:
        if each.after.ratio is not None:
            costs[each.cell.stack].append(cost_of(each.after, each.after.ratio))
    return tuple(sorted(costs, key=lambda stack: sum(costs[stack]) / len(costs[stack]) if costs[stack] else math.inf))


def _column(name: str, changes: Mapping[str, Change], stacks: Sequence[str], axis: Axis, margin: float) -> Column:
    return Column(
        name=name,
        what="slowdown; the number is its change",
        ticks=cost_ticks(axis),
        baseline=axis.place(0.0),
        band=axis.around(0.0, margin),
        entries=tuple(
            _entry(changes[stack], axis, margin) if stack in changes else Entry(stack, WORDS["no value"], stack)
            for stack in stacks
        ),
    )


def _entry(change: Change, axis: Axis, margin: float) -> Entry:
    cell = change.cell
    detail = f"{cell.stack}: {state(cell)}; before {_stood(change.before)}, after {_stood(change.after)}"
    at, low, high = _place(change.after, axis) or (None, None, None)
    return Entry(
        stack=cell.stack,
        text=cost(cell) if cell.low is not None else WORDS.get(state(cell), state(cell)),
        detail=f"{detail}; {estimate(cell)} of what it was {interval(cell)}".rstrip() if cell.ratio else detail,
        size="unknown" if cell.ratio is None else size_of(cost_of(cell, cell.ratio), margin),
        place=at,
        low=low,
        high=high,
        is_sure=cell.decided,
        verdict=state(cell),
        doubts=len({caution.kind for caution in cell.cautions}),
        n=cell.n,
        before=_place(change.before, axis),
    )


def _place(cell: Cell, axis: Axis) -> Place | None:
    at, low, high = cost_logs(cell)
    if at is None:
        return None
    return axis.place(at), None if low is None else axis.place(low), None if high is None else axis.place(high)


def _stood(cell: Cell) -> str:
    return f"{estimate(cell)} {interval(cell)}".rstrip() or state(cell)

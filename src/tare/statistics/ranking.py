"""Rank stacks per headline and overall, with the ranks that the intervals allow.

A stack's speed is the geometric mean, over workloads, of its headlines relative to a reference's; where lower is
better, the inverse counts. The first blocks of all workloads make one value, the second ones the next, and so on as far
as every workload has them: the workloads are independent of each other, so these values are as good as blocks of a
single workload, and are compared like them (`tare.statistics.ratios`).

Stacks are compared in pairs, inside blocks. A stack's best rank is one more than the number of those that are surely
better, and so its worst: what cannot be distinguished shares its ranks. Pairs with the baseline have the verdict that
the matrix gives them. Of the other pairs that a run distinguishes, at most one in twenty is expected to be
false (e-BH, `tare.statistics.anytime`). What follows from two such statements holds, too: who is better than the
baseline is better than who is worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tare.statistics.anytime import e_bh, min_value_count
from tare.statistics.cells import Cell, Overall, OverallSpeed, Verdict, verdict_of_side
from tare.statistics.headlines import Headline, LogRatios
from tare.statistics.ratios import BaselineRows, RatioComparison, compare_together
from tare.statistics.summary import Summary

_MAX_STACKS = 40  # stacks whose pairs are compared, which takes a few milliseconds for each stack


def rank(
    stacks: tuple[str, ...], headlines: Sequence[Headline], reference: BaselineRows | None, margin: float
) -> Overall:
    """Rank the stacks that have an interval over all of these headlines that have intervals at all.

    The `reference` is the baseline, None where the run has none; its control is not ranked. A headline in which no
    stack has enough blocks for an interval says nothing yet, and would take the intervals of the others away.
    """
    if reference is None:
        return Overall((), (), (), ())
    others = [row for row in range(len(stacks)) if row not in (reference.row, reference.control)]
    found = [(head, head.log_ratios(reference)) for head in headlines]
    found = [(head, own) for head, own in found if own.both.sum(axis=1)[others].max(initial=0) >= min_value_count()]
    workloads = tuple(head.rule.name for head, _ in found)
    if not found:
        return Overall((), (), (), ())
    speeds = _compare_overall(found, reference, margin)
    known = [index for index in others if speeds.count[index] >= min_value_count()]
    order = sorted(known, key=lambda index: -speeds.mean[index])
    standings = tuple(_overall_speed(stacks[index], speeds, index) for index in order)
    missing = tuple(stacks[index] for index in others if index not in known)
    tied: tuple[str, ...] = ()
    if order:
        best = BaselineRows(order[0])
        nearest = _compare_overall([(head, head.log_ratios(best)) for head, _ in found], best, margin)
        tied = tuple(stacks[index] for index in order[1:] if _verdict(nearest, index) != "worse")
    return Overall(workloads, standings, tied, missing)


def _compare_overall(
    found: Sequence[tuple[Headline, LogRatios]], reference: BaselineRows, margin: float
) -> RatioComparison:
    series = [_close_gaps(own.logs, own.both) for _, own in found]
    length = min(values.shape[1] for values, _ in series)
    signs = [1.0 if head.rule.better == "higher" else -1.0 for head, _ in found]
    values = [sign * own[:, :length] for sign, (own, _) in zip(signs, series, strict=True)]
    present = np.all([there[:, :length] for _, there in series], axis=0)
    return compare_together(np.mean(values, axis=0), present, margin, reference)


def _close_gaps(
    values: NDArray[np.float64], present: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Close the gaps of each row: its first value is its first, whatever block that was."""
    order = np.argsort(~present, axis=1, kind="stable")
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(present, order, axis=1)


def _overall_speed(stack: str, speeds: RatioComparison, index: int) -> OverallSpeed:
    speed = speeds.ratio_at((index,))
    assert speed is not None  # noqa: S101 - only asked for stacks that are known
    return OverallSpeed(stack, speed.ratio, speed.low, speed.high, _verdict(speeds, index))


def _verdict(speeds: RatioComparison, index: int) -> Verdict:
    speed = speeds.ratio_at((index,))
    return "no value" if speed is None else verdict_of_side(speed.side, "higher")


@dataclass(frozen=True)
class Rank:
    """The ranks, from 1, that a stack may have; `cell` has how it stands to the baseline."""

    cell: Cell
    best: int
    worst: int


@dataclass(frozen=True)
class _Pairs:
    """The pairs of a headline's stacks: whether the first is ahead of the second, and the evidence that they differ."""

    cells: tuple[Cell, ...]
    ahead: NDArray[np.bool_]
    evidence: NDArray[np.float64]


def rankings(summary: Summary) -> tuple[tuple[Rank, ...], ...]:
    """Rank the stacks that have an interval for each headline, in the order of the summary's rules.

    The best stack is first. The A/A control is not ranked.
    """
    pairs = [_compare_pairs(head, summary) for head in summary.headline_data]
    asked = [np.triu_indices(len(each.cells), 1) for each in pairs]
    kept = e_bh(np.concatenate([np.zeros(0), *(each.evidence[at] for each, at in zip(pairs, asked, strict=True))]))
    made, begin = [], 0
    for own, at in zip(pairs, asked, strict=True):
        sure = np.zeros(own.ahead.shape, dtype=bool)
        sure[at] = kept[begin : begin + len(at[0])]
        begin += len(at[0])
        made.append(_rank_cells(own.cells, (sure & own.ahead) | (sure & ~own.ahead).T))
    return tuple(made)


def _compare_pairs(head: Headline, summary: Summary) -> _Pairs:
    """Compare the stacks of a headline in pairs, but those with the baseline."""
    of_head = [cell for cell in summary.headlines if cell.headline == head.rule.name]
    cells = tuple(cell for cell in of_head if cell.stack != summary.control and cell.low is not None)
    if cells:
        cells += tuple(cell for cell in of_head if cell.verdict == "baseline" and cell.n)
    rows = [summary.stacks.index(cell.stack) for cell in cells]
    ahead, evidence = np.zeros((2, len(cells), len(cells)))
    if len(cells) <= _MAX_STACKS:
        for at, (cell, row) in enumerate(zip(cells, rows, strict=True)):
            if cell.verdict == "baseline":
                continue
            away = head.log_ratios(BaselineRows(row))
            seen = compare_together(away.logs, away.both, summary.margin, BaselineRows(row))
            others = [other.verdict != "baseline" for other in cells]
            evidence[at] = np.where(others, seen.difference_evidence[rows], 0.0)
            ahead[at] = (seen.mean[rows] < 0) == (head.rule.better == "higher")
    return _Pairs(cells, ahead.astype(bool), evidence)


def _rank_cells(cells: Sequence[Cell], better: NDArray[np.bool_]) -> tuple[Rank, ...]:
    """Return the ranks, from which stack is surely better than which; ties in the order of the estimates."""
    for at, cell in enumerate(cells):
        if cell.verdict == "baseline":
            better[at] = [other.verdict == "worse" for other in cells]
            better[:, at] = [other.verdict == "better" for other in cells]
    # What follows from two statements (Warshall 1962); of very many stacks, all statements are about the baseline.
    for at, cell in enumerate(cells):
        if len(cells) <= _MAX_STACKS or cell.verdict == "baseline":
            better |= better[:, at, np.newaxis] & better[np.newaxis, at]
    better &= ~better.T  # where statements contradict each other, nothing follows
    best, worst = 1 + better.sum(axis=0), len(cells) - better.sum(axis=1)
    ranks = [Rank(*each) for each in zip(cells, best.tolist(), worst.tolist(), strict=True)]
    return tuple(sorted(ranks, key=lambda rank: (rank.best, rank.worst, -_speed_key(rank.cell))))


def _speed_key(cell: Cell) -> float:
    ratio = cell.ratio or 1.0
    return ratio if cell.better == "higher" else -ratio

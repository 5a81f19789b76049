"""Ranking of stacks, per headline and overall, with the ranks that the intervals allow.

A stack's overall speed is the geometric mean, over workloads, of its headlines relative to a reference's; if lower is
better, the inverse. The first blocks of all workloads make one value, the second blocks another, and so on while every
workload has a block. Workloads are independent, so that these values can be compared like the blocks of a single
workload (`tare.statistics.ratios`).

For ranks per headline, stacks are compared in pairs, within blocks. The best rank of a stack is one more than the
number of significantly better stacks; the worst rank follows in the same way. Stacks that cannot be distinguished share
ranks. Pairs with the baseline have the verdicts of the matrix. At most one in twenty of the other distinguished pairs
is expected to be false (e-BH, `tare.statistics.anytime`). Order is transitive: a stack that is better than the baseline
is better than a stack that is worse.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tare.statistics.anytime import MIN_VALUES_EARLY, e_bh
from tare.statistics.cells import Cell, Overall, OverallSpeed, Verdict, verdict_of_side
from tare.statistics.headlines import Headline, LogRatios
from tare.statistics.ratios import BaselineRows, RatioComparison, compare_together
from tare.statistics.summary import Summary

_MAX_STACKS = 40  # with more stacks, only pairs with the baseline count: each stack takes a few milliseconds


def rank(
    stacks: tuple[str, ...], headlines: Sequence[Headline], reference: BaselineRows | None, margin: float
) -> Overall:
    """Return the overall ranking of the stacks with three blocks or more of all headlines.

    The `reference` is the baseline; None for a run without one, whose ranking is empty. The control is not ranked. A
    headline in which no stack has three blocks is left out: otherwise, no stack would be ranked.
    """
    if reference is None:
        return Overall((), (), (), ())
    others = [row for row in range(len(stacks)) if row not in (reference.row, reference.control)]
    compared = [(head, head.log_ratios(reference)) for head in headlines]
    compared = [
        (head, ratios)
        for head, ratios in compared
        if ratios.both.sum(axis=1)[others].max(initial=0) >= MIN_VALUES_EARLY
    ]
    workloads = tuple(head.rule.name for head, _ in compared)
    if not compared:
        return Overall((), (), (), ())
    speeds = _compare_overall(compared, reference, margin)
    # A stack may be decided in each workload after three blocks, which give no interval over all workloads.
    known = [index for index in others if speeds.count[index] >= MIN_VALUES_EARLY]
    order = sorted(known, key=lambda index: -speeds.mean[index])
    standings = tuple(_overall_speed(stacks[index], speeds, index) for index in order)
    missing = tuple(stacks[index] for index in others if index not in known)
    tied: tuple[str, ...] = ()
    if order:
        best = BaselineRows(order[0])
        nearest = _compare_overall([(head, head.log_ratios(best)) for head, _ in compared], best, margin)
        tied = tuple(stacks[index] for index in order[1:] if _verdict(nearest, index) != "worse")
    return Overall(workloads, standings, tied, missing)


def _compare_overall(
    compared: Sequence[tuple[Headline, LogRatios]], reference: BaselineRows, margin: float
) -> RatioComparison:
    series = [_close_gaps(ratios.logs, ratios.both) for _, ratios in compared]
    length = min(logs.shape[1] for logs, _ in series)  # a value needs a block of every workload
    signs = [1.0 if head.rule.better == "higher" else -1.0 for head, _ in compared]
    values = [sign * logs[:, :length] for sign, (logs, _) in zip(signs, series, strict=True)]
    present = np.all([mask[:, :length] for _, mask in series], axis=0)
    return compare_together(np.mean(values, axis=0), present, margin, reference)


def _close_gaps(
    values: NDArray[np.float64], present: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the rows with their present values moved to the front, so that the n-th values can be combined."""
    order = np.argsort(~present, axis=1, kind="stable")
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(present, order, axis=1)


def _overall_speed(stack: str, speeds: RatioComparison, index: int) -> OverallSpeed:
    speed = speeds.ratio_at((index,))
    assert speed is not None  # noqa: S101 - only called for stacks with enough values
    return OverallSpeed(stack, speed.ratio, speed.low, speed.high, _verdict(speeds, index))


def _verdict(speeds: RatioComparison, index: int) -> Verdict:
    speed = speeds.ratio_at((index,))
    return "no value" if speed is None else verdict_of_side(speed.side, "higher")


@dataclass(frozen=True)
class Rank:
    """Best and worst rank, from 1, that a stack may have; `cell` compares it with the baseline."""

    cell: Cell
    best: int
    worst: int


@dataclass(frozen=True)
class _Pairs:
    """Pairs of a headline's stacks: whether the first is ahead of the second, and the evidence that they differ."""

    cells: tuple[Cell, ...]
    ahead: NDArray[np.bool_]
    evidence: NDArray[np.float64]


def rankings(summary: Summary) -> tuple[tuple[Rank, ...], ...]:
    """Return the ranks of the stacks with an interval, by headline in the order of the summary's rules.

    The best stack is first. The A/A control is not ranked.
    """
    pairs_by_headline = [_compare_pairs(head, summary) for head in summary.headline_data]
    indices = [np.triu_indices(len(pairs.cells), 1) for pairs in pairs_by_headline]
    evidence = [pairs.evidence[at] for pairs, at in zip(pairs_by_headline, indices, strict=True)]
    is_rejected = e_bh(np.concatenate([np.zeros(0), *evidence]))
    ranked, begin = [], 0
    for pairs, at in zip(pairs_by_headline, indices, strict=True):
        sure = np.zeros(pairs.ahead.shape, dtype=bool)
        sure[at] = is_rejected[begin : begin + len(at[0])]
        begin += len(at[0])
        ranked.append(_rank_cells(pairs.cells, (sure & pairs.ahead) | (sure & ~pairs.ahead).T))
    return tuple(ranked)


def _compare_pairs(head: Headline, summary: Summary) -> _Pairs:
    """Compare the stacks of a headline in pairs, except pairs with the baseline, which have verdicts already."""
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
            compared = away.compare(summary.margin, BaselineRows(row))
            others = [other.verdict != "baseline" for other in cells]
            evidence[at] = np.where(others, compared.difference_evidence[rows], 0.0)
            ahead[at] = (compared.mean[rows] < 0) == (head.rule.better == "higher")
    return _Pairs(cells, ahead.astype(bool), evidence)


def _rank_cells(cells: Sequence[Cell], better: NDArray[np.bool_]) -> tuple[Rank, ...]:
    """Return the ranks from the matrix of significantly better stacks; ties in the order of the estimates."""
    for at, cell in enumerate(cells):
        if cell.verdict == "baseline":
            better[at] = [other.verdict == "worse" for other in cells]
            better[:, at] = [other.verdict == "better" for other in cells]
    # Transitive closure (Warshall 1962). With more than `_MAX_STACKS`, all statements are about the baseline.
    for at, cell in enumerate(cells):
        if len(cells) <= _MAX_STACKS or cell.verdict == "baseline":
            better |= better[:, at, np.newaxis] & better[np.newaxis, at]
    better &= ~better.T  # drop statements that contradict each other
    best, worst = 1 + better.sum(axis=0), len(cells) - better.sum(axis=1)
    ranks = [Rank(*each) for each in zip(cells, best.tolist(), worst.tolist(), strict=True)]
    return tuple(sorted(ranks, key=lambda rank: (rank.best, rank.worst, -_speed_key(rank.cell))))


def _speed_key(cell: Cell) -> float:
    ratio = cell.ratio or 1.0
    return ratio if cell.better == "higher" else -ratio

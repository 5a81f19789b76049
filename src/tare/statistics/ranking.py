"""Ranking of stacks, per headline and overall, with the ranks that the intervals allow.

A stack's overall speed is the geometric mean, over workloads, of its headlines relative to a reference's; if lower is
better, the inverse. Its logarithm is the mean of the workloads' log ratios, each from all blocks that the stack has
there, and workloads are independent, so that the variances of these means add up. Their sum has the degrees of freedom
of Welch and Satterthwaite (Satterthwaite, "An approximate distribution of estimates of variance components",
Biometrics Bulletin 2 (1946), 110-114), and the interval is that of a single workload with so many
(`tare.statistics.anytime`). The approximation costs no coverage: at any look, the interval missed at most 3 % of
simulated stacks, also if stacks leave each workload once they are decided there.

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

from tare.statistics.anytime import EARLY_BORROWED_FREEDOM, MIN_VALUES_EARLY, e_bh, has_interval, solve_half_widths
from tare.statistics.cells import Cell, HeadlineRule, Overall, OverallSpeed, verdict_of_side
from tare.statistics.headlines import Headline
from tare.statistics.looks import HeadlineVerdicts, Looks
from tare.statistics.ratios import BaselineRows, RatioComparison, classify_side, exp_bounded
from tare.statistics.summary import Summary

_MAX_STACKS = 40  # with more stacks, only pairs with the baseline count: each stack takes a few milliseconds


def rank(
    stacks: tuple[str, ...], judged: Sequence[HeadlineVerdicts], reference: BaselineRows | None, looks: Looks
) -> Overall:
    """Return the overall ranking of the stacks with three blocks or more of all headlines.

    The `reference` is the baseline; None for a run without one, whose ranking is empty. The control is not ranked. A
    headline in which no stack has three blocks is left out: otherwise, no stack would be ranked.
    """
    if reference is None:
        return Overall((), (), (), ())
    others = [row for row in range(len(stacks)) if row not in (reference.row, reference.control)]
    judged = [each for each in judged if each.held_comparison.count[others].max(initial=0) >= MIN_VALUES_EARLY]
    workloads = tuple(each.head.rule.name for each in judged)
    if not judged:
        return Overall((), (), (), ())
    rules, comparisons = [each.head.rule for each in judged], [each.held_comparison for each in judged]
    fewest = np.min([compared.count for compared in comparisons], axis=0)
    known = [row for row in others if fewest[row] >= MIN_VALUES_EARLY]
    speeds = _combine(rules, comparisons)
    order = sorted(known, key=lambda row: -speeds.mean[row])
    standings = tuple(_overall_speed(stacks[row], speeds, row) for row in order)
    missing = tuple(stacks[row] for row in others if row not in known)
    tied: tuple[str, ...] = ()
    if order:
        best = BaselineRows(order[0])
        nearest = _combine(rules, [_compare_with(best, each.head, looks) for each in judged])
        tied = tuple(stacks[row] for row in order[1:] if not _is_slower(row, nearest, speeds, best.row))
    return Overall(workloads, standings, tied, missing)


def _compare_with(reference: BaselineRows, head: Headline, looks: Looks) -> RatioComparison:
    return looks.compare_as_of_last_blocks(head.rule.workload, head.log_ratios(reference), reference)


@dataclass(frozen=True)
class _OverallRatios:
    """Logarithms of overall speeds by row, with half the widths of their intervals, infinite for too few blocks."""

    mean: NDArray[np.float64]
    half_widths: NDArray[np.float64]
    limit: float


def _combine(rules: Sequence[HeadlineRule], comparisons: Sequence[RatioComparison]) -> _OverallRatios:
    """Combine the comparisons of several headlines.

    A row has an interval if it has one in all headlines, or if the sum of the variances has the degrees of freedom that
    an interval after three blocks needs.
    """
    means, offsets, count, borrowed, deviation, widening = (
        np.array([getattr(each, name) for each in comparisons])
        for name in ("mean", "offset", "count", "borrowed", "deviation", "widening")
    )
    speeds = [mean if rule.better == "higher" else -mean for rule, mean in zip(rules, means, strict=True)]
    variances = (deviation * widening / len(rules)) ** 2
    errors = variances / np.maximum(count, 1)  # of the means
    variance, error = variances.sum(axis=0), errors.sum(axis=0)
    has_noise = error > 0
    # Without noise in any headline, the interval has no width.
    blocks = np.where(has_noise, variance, 1.0) / np.where(has_noise, error, 1.0)
    squares = (errors**2 / (np.maximum(count - 1, 1) + borrowed)).sum(axis=0)
    freedom = np.where(has_noise, error**2, 1.0) / np.where(has_noise, squares, 1.0)
    is_enough = (count >= MIN_VALUES_EARLY).all(axis=0) & (freedom >= MIN_VALUES_EARLY - 1 + EARLY_BORROWED_FREEDOM)
    is_known = is_enough | has_interval(count, borrowed).all(axis=0)
    widths = np.where(has_noise, solve_half_widths(blocks, freedom), 0.0)
    half_widths = widths * np.sqrt(variance) + offsets.mean(axis=0)
    return _OverallRatios(np.mean(speeds, axis=0), np.where(is_known, half_widths, np.inf), comparisons[0].limit)


def _is_slower(row: int, nearest: _OverallRatios, speeds: _OverallRatios, best: int) -> bool:
    """Return whether a stack is slower than the best one, whose row is `best`.

    `nearest` compares the stacks within blocks. If they have too few blocks in common, their intervals relative to the
    baseline (`speeds`) must not overlap.
    """
    if np.isfinite(nearest.half_widths[row]):
        return bool(nearest.mean[row] + nearest.half_widths[row] < 0)
    return bool(speeds.mean[row] + speeds.half_widths[row] < speeds.mean[best] - speeds.half_widths[best])


def _overall_speed(stack: str, speeds: _OverallRatios, row: int) -> OverallSpeed:
    mean, half = float(speeds.mean[row]), float(speeds.half_widths[row])
    verdict = verdict_of_side(classify_side(mean, half, speeds.limit), "higher")
    low, high = (exp_bounded(bound) if np.isfinite(half) else None for bound in (mean - half, mean + half))
    return OverallSpeed(stack, exp_bounded(mean), low, high, verdict)


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

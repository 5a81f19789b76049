"""The ranking of each headline: which ranks a stack may have, given its blocks.

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

from tare.statistics.anytime import e_bh
from tare.statistics.cells import Cell
from tare.statistics.headlines import Headline
from tare.statistics.ratios import Reference, compare_together
from tare.statistics.summary import Summary

_MOST = 40  # stacks whose pairs are compared, which takes a few milliseconds for each stack


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
    pairs = [_pairs(head, summary) for head in summary.measured]
    asked = [np.triu_indices(len(each.cells), 1) for each in pairs]
    kept = e_bh(np.concatenate([np.zeros(0), *(each.evidence[at] for each, at in zip(pairs, asked, strict=True))]))
    made, begin = [], 0
    for own, at in zip(pairs, asked, strict=True):
        sure = np.zeros(own.ahead.shape, dtype=bool)
        sure[at] = kept[begin : begin + len(at[0])]
        begin += len(at[0])
        made.append(_ranked(own.cells, (sure & own.ahead) | (sure & ~own.ahead).T))
    return tuple(made)


def _pairs(head: Headline, summary: Summary) -> _Pairs:
    """Compare the stacks of a headline in pairs, but those with the baseline."""
    cells = tuple(
        cell
        for cell in summary.headlines
        if cell.headline == head.rule.name and cell.stack != summary.control and cell.low is not None
    )
    cells += tuple(_baseline(head, summary)) if cells else ()
    rows = [summary.stacks.index(cell.stack) for cell in cells]
    ahead, evidence = np.zeros((2, len(cells), len(cells)))
    if len(cells) <= _MOST:
        for at, (cell, row) in enumerate(zip(cells, rows, strict=True)):
            if cell.verdict == "baseline":
                continue
            away = head.differences(Reference(row))
            seen = compare_together(away.logs, away.both, summary.margin, Reference(row))
            others = [other.verdict != "baseline" for other in cells]
            evidence[at] = np.where(others, seen.different[rows], 0.0)
            ahead[at] = (seen.mean[rows] < 0) == (head.rule.better == "higher")
    return _Pairs(cells, ahead.astype(bool), evidence)


def _baseline(head: Headline, summary: Summary) -> Sequence[Cell]:
    return [
        cell for cell in summary.headlines if cell.headline == head.rule.name and cell.verdict == "baseline" and cell.n
    ]


def _ranked(cells: Sequence[Cell], better: NDArray[np.bool_]) -> tuple[Rank, ...]:
    """Return the ranks, from which stack is surely better than which; ties in the order of the estimates."""
    for at, cell in enumerate(cells):
        if cell.verdict == "baseline":
            better[at] = [other.verdict == "worse" for other in cells]
            better[:, at] = [other.verdict == "better" for other in cells]
    # What follows from two statements (Warshall 1962); of very many stacks, all statements are about the baseline.
    for at, cell in enumerate(cells):
        if len(cells) <= _MOST or cell.verdict == "baseline":
            better |= better[:, at, np.newaxis] & better[np.newaxis, at]
    better &= ~better.T  # where statements contradict each other, nothing follows
    best, worst = 1 + better.sum(axis=0), len(cells) - better.sum(axis=1)
    ranks = [Rank(*each) for each in zip(cells, best.tolist(), worst.tolist(), strict=True)]
    return tuple(sorted(ranks, key=lambda rank: (rank.best, rank.worst, -_goodness(rank.cell))))


def _goodness(cell: Cell) -> float:
    ratio = cell.ratio or 1.0
    return ratio if cell.better == "higher" else -ratio

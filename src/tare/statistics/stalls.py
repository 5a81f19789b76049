"""Stalls: turns in which a stack is much slower than usual, which the median of the rounds does not show.

A turn is *slow* if it lacks a fifth or more of its stack's usual speed in the block, relative to the other stacks in
its round: a disturbance that slows all of them is no stall of one stack. Bursts of the machine also make slow turns,
but equally many in each stack, because the order in a round is random. So without stalls, a slow turn among those of a
stack and its two baselines belongs to the stack with a probability of one in three (Przyborowski and Wilenski,
"Homogeneity of results in testing samples from Poisson series", Biometrika 31 (1940), 313-323).

The evidence against this probability is the mixture of the likelihood ratios of all other probabilities, with Jeffreys'
prior. It is an e-value at every look (Robbins, "Statistical methods related to the law of the iterated logarithm",
Annals of Mathematical Statistics 41 (1970), 1397-1409). It remains an e-value if several turns of a round are slow:
they are then drawn without replacement, which lowers the mean of any convex function of their number (Hoeffding,
"Probability inequalities for sums of bounded random variables", Journal of the American Statistical Association 58
(1963), 13-30, theorem 4). Keys of one workload may come from the same turns; the mean of their e-values is an e-value
for any dependence (Vovk and Wang, "E-values: calibration, combination and applications", Annals of Statistics 49
(2021), 1736-1754).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tare.model.trial import Caution
from tare.statistics.anytime import CONFIDENCE
from tare.statistics.descriptive import centers, moments
from tare.statistics.grid import Grid
from tare.statistics.headlines import (
    Headline,
    LogRatios,
    compare_by_clock,
    mean_relative_to,
    relative_to_baseline,
    turn_logs,
)
from tare.statistics.ratios import BaselineRows, compare, exp_bounded

SLOW_SHARE = 0.2  # a slow turn lacks at least this share of the usual speed
_PRIOR = 0.5  # both parameters of the beta distribution: Jeffreys' prior for a probability
_VISIBLE_SHARE = 0.001  # of a ratio: a smaller difference is not worth a note, however significant


@dataclass(frozen=True)
class SlowTurns:
    """Numbers of turns and slow turns of stacks, and of the baselines in the same rounds.

    `evidence` is the logarithm of the e-value against equal frequencies of slow turns. All arrays have one shape.
    """

    turns: NDArray[np.int64]
    slow_turns: NDArray[np.int64]
    baseline_slow_turns: NDArray[np.int64]
    baseline_turns: NDArray[np.int64]
    evidence: NDArray[np.float64]

    @property
    def is_different(self) -> NDArray[np.bool_]:
        """Mask of the stacks that stall more or less often than the baseline."""
        return np.asarray(self.evidence >= -np.log1p(-CONFIDENCE))

    def combine_keys(self, keys: Sequence[int]) -> SlowTurns:
        """Return the sums over some keys (second axis), with the mean of their e-values."""
        turns, slow, of_baselines, baselines = (
            each[:, keys].sum(axis=1)
            for each in (self.turns, self.slow_turns, self.baseline_slow_turns, self.baseline_turns)
        )
        evidence = np.zeros(turns.shape)
        if keys:
            evidence = np.asarray(np.logaddexp.reduce(self.evidence[:, keys], axis=1) - np.log(len(keys)))
        return SlowTurns(turns, slow, of_baselines, baselines, evidence)


def find_slow_turns(grid: Grid, reference: BaselineRows) -> SlowTurns | None:
    """Return the slow turns of each stack and key; None without rounds, or without an A/A control."""
    if grid.turns.shape[-1] == 1 or reference.control is None:
        return None
    logs, usable = turn_logs(grid)
    signs = np.array([1.0 if grid.find_metric(key.metric).better == "higher" else -1.0 for key in grid.keys])
    return count_slow(are_slow(logs * signs[:, np.newaxis, np.newaxis], usable), usable, reference)


def are_slow(speeds: NDArray[np.float64], usable: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the mask of slow turns, from the logarithms of speeds (first axis: stacks, last axis: rounds).

    The medians of stacks, of rounds, and of stacks again are subtracted (median polish: Tukey, Exploratory Data
    Analysis, 1977, chapter 11). Once is not enough: with a burst in half of a block's rounds, the first medians of
    stacks lie anywhere between fast and slow.
    """
    left = speeds - centers(speeds, usable)[..., np.newaxis]
    left = left - centers(left, usable, axis=0)
    left = left - centers(left, usable)[..., np.newaxis]
    return np.asarray(usable & (left < np.log1p(-SLOW_SHARE)))


def count_slow(slow: NDArray[np.bool_], usable: NDArray[np.bool_], reference: BaselineRows) -> SlowTurns:
    """Count slow turns in the rounds (last two axes: blocks, rounds) that a stack and both baselines have."""
    row, control = reference.row, reference.control
    assert control is not None  # noqa: S101 - `find_slow_turns` returns earlier without a control
    counted = usable & usable[row] & usable[control]
    of_stack, of_baselines = (slow & counted).sum(axis=(-2, -1)), (counted & slow[row]).sum(axis=(-2, -1))
    turns = counted.sum(axis=(-2, -1))
    # The control itself has only one other baseline.
    baselines, chance = np.full(turns.shape, 2), np.full(turns.shape, 1 / 3)
    baselines[control], chance[control] = 1, 1 / 2
    of_baselines = of_baselines + np.where(baselines == 2, (counted & slow[control]).sum(axis=(-2, -1)), 0)
    evidence = stall_log_evidence(of_stack, of_baselines, chance)
    evidence[row] = 0.0
    return SlowTurns(turns, of_stack, of_baselines, turns * baselines, evidence)


def stall_log_evidence(
    of_stack: NDArray[np.int64], of_baselines: NDArray[np.int64], chance: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the logarithm of the e-value against a probability of `chance` that a slow turn is the stack's."""
    from scipy.special import betaln  # noqa: PLC0415 - half a second that only commands with statistics have to wait

    mixed = betaln(_PRIOR + of_stack, _PRIOR + of_baselines) - betaln(_PRIOR, _PRIOR)
    return np.asarray(mixed - of_stack * np.log(chance) - of_baselines * np.log1p(-chance))


@dataclass(frozen=True)
class TurnComparison:
    """Comparison of all turns: slow turns, log ratios of means, and whether these differ from the medians."""

    slow_turns: SlowTurns
    mean: NDArray[np.float64]
    is_different: NDArray[np.bool_]

    def cell_fields(self, index: tuple[int, ...]) -> dict[str, float]:
        """Return the fields for the cell at an index; empty without turns."""
        slow = self.slow_turns
        if not slow.turns[index]:
            return {}
        return {
            "mean_ratio": exp_bounded(float(self.mean[index])),
            "slow_turns": float(slow.slow_turns[index] / slow.turns[index]),
            "slow_turns_of_baseline": float(slow.baseline_slow_turns[index] / slow.baseline_turns[index]),
        }

    def notes(self, index: tuple[int, ...]) -> Iterator[str]:
        """Yield a note if the mean over all turns differs from the median."""
        if self.is_different[index] and self.slow_turns.turns[index]:
            share = float(f"{100 * exp_bounded(float(self.mean[index])):.4g}")
            yield f"the mean over all turns is {share:,.10g} % of the baseline's: some turns are far from the usual"

    def cautions(self, index: tuple[int, ...]) -> Iterator[Caution]:
        """Yield a caution if the stack stalls more or less often than the baseline."""
        if not self.slow_turns.is_different[index]:
            return
        _, stack, baseline = self.cell_fields(index).values()
        shares = [f"{100 * share:.2g} %" for share in (stack, baseline)]
        much = f"slower than its others by {100 * SLOW_SHARE:g} % or more"
        if stack > baseline:
            what = f"{shares[0]} of its turns are {much}, {shares[1]} of the baseline's"
            yield Caution("stalls", f"{what}: the ratio is that of a usual turn")
        else:
            what = f"{shares[1]} of the baseline's turns are {much}, {shares[0]} of this stack's"
            yield Caution("stalls", f"{what}: the ratio does not show it")


def compare_turns(
    grid: Grid, reference: BaselineRows, centers: LogRatios, head: Headline | None = None
) -> TurnComparison | None:
    """Return the comparison of all turns of a grid's keys, or of a headline.

    None without rounds, or without an A/A control.
    """
    slow = find_slow_turns(grid, reference)
    if slow is None:
        return None
    means = compare_by_clock(
        grid,
        head.keys if head else None,
        lambda logs, usable: relative_to_baseline(logs, usable, reference, mean_relative_to),
    )
    if head is not None:
        slow, means = slow.combine_keys(head.keys), head.average_keys(means)
    return TurnComparison(slow, moments(means.logs, means.both).mean, is_mean_different(means, centers))


def is_mean_different(means: LogRatios, centers: LogRatios) -> NDArray[np.bool_]:
    """Return where the means of blocks (last axis) differ from their medians by more than noise."""
    both = means.both & centers.both
    differences = compare(np.where(both, means.logs - centers.logs, 0.0), both)
    away = np.abs(differences.mean)
    return np.asarray((away > differences.half_widths) & (away > _VISIBLE_SHARE))

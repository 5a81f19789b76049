"""What the center of the rounds does not show: turns in which a stack is much slower than in its others.

A turn is *slow* if it is slower than the center of its stack's turns in the block by a fifth or more, beside the other
stacks in its round: what has slowed them all down is no stall of one. Bursts of the machine make slow turns, too, but
as the order within a round is random, as many in each stack. So each slow turn of a stack and its two baselines is the
stack's own with a chance of one in three, unless it stalls by itself (Przyborowski and Wilenski, "Homogeneity of
results in testing samples from Poisson series", Biometrika 31 (1940), 313-323).

The evidence against that is the mixture of the likelihood ratios of all other chances, with Jeffreys' prior. It is an
e-value at every look (Robbins, "Statistical methods related to the law of the iterated logarithm", Annals of
Mathematical Statistics 41 (1970), 1397-1409). It stays one where several turns of a round are slow: then they are drawn
without replacement, which makes the mean of any convex function of their number smaller (Hoeffding, "Probability
inequalities for sums of bounded random variables", Journal of the American Statistical Association 58 (1963), 13-30,
theorem 4). Keys of one workload may have been measured in the same turns; the mean of their e-values is one whatever
they have to do with each other (Vovk and Wang, "E-values: calibration, combination and applications", Annals of
Statistics 49 (2021), 1736-1754).
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
from tare.statistics.headlines import Headline, LogRatios, mean_relative_to, relative_to_baseline, turn_logs
from tare.statistics.ratios import BaselineRows, compare, exp_bounded

SLOW_SHARE = 0.2  # of the speed is missing in a slow turn, at least
_PRIOR = 0.5
_VISIBLE_SHARE = 0.001  # of a ratio: less is not worth a word, however sure it is


@dataclass(frozen=True)
class SlowTurns:
    """How many turns of stacks were looked at and were slow, and of the baselines in the same rounds.

    `evidence` is the logarithm of the e-value against both being slow as often. All arrays have one shape.
    """

    turns: NDArray[np.int64]
    slow_turns: NDArray[np.int64]
    baseline_slow_turns: NDArray[np.int64]
    baseline_turns: NDArray[np.int64]
    evidence: NDArray[np.float64]

    @property
    def is_different(self) -> NDArray[np.bool_]:
        """Where a stack stalls more often than the baseline, or less."""
        return np.asarray(self.evidence >= -np.log1p(-CONFIDENCE))

    def combine_keys(self, keys: Sequence[int]) -> SlowTurns:
        """Take some keys (second axis) together."""
        turns, slow, of_baselines, baselines = (
            each[:, keys].sum(axis=1)
            for each in (self.turns, self.slow_turns, self.baseline_slow_turns, self.baseline_turns)
        )
        evidence = np.zeros(turns.shape)
        if keys:
            evidence = np.asarray(np.logaddexp.reduce(self.evidence[:, keys], axis=1) - np.log(len(keys)))
        return SlowTurns(turns, slow, of_baselines, baselines, evidence)


def find_slow_turns(grid: Grid, reference: BaselineRows) -> SlowTurns | None:
    """Count slow turns for each stack and key; None where there are no rounds, or only one trial of the baseline."""
    if grid.turns.shape[-1] == 1 or reference.control is None:
        return None
    logs, usable = turn_logs(grid)
    signs = np.array([1.0 if grid.find_metric(key.metric).better == "higher" else -1.0 for key in grid.keys])
    return count_slow(are_slow(logs * signs[:, np.newaxis, np.newaxis], usable), usable, reference)


def are_slow(speeds: NDArray[np.float64], usable: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which turns are slow, from the logarithms of speeds; the first axis are stacks, the last one rounds.

    The centers of stacks, of rounds, and of stacks again are swept out (Tukey, Exploratory Data Analysis, 1977, chapter
    11: median polish): where a burst has half of a block's rounds, the first ones lie anywhere between fast and slow.
    """
    left = speeds - centers(speeds, usable)[..., np.newaxis]
    left = left - centers(left, usable, axis=0)
    left = left - centers(left, usable)[..., np.newaxis]
    return np.asarray(usable & (left < np.log1p(-SLOW_SHARE)))


def count_slow(slow: NDArray[np.bool_], usable: NDArray[np.bool_], reference: BaselineRows) -> SlowTurns:
    """Count what is slow in the rounds (last two axes: blocks, rounds) that a stack and both baselines have."""
    row, control = reference.row, reference.control
    assert control is not None  # noqa: S101 - without one, nothing is counted
    counted = usable & usable[row] & usable[control]
    own, others = (slow & counted).sum(axis=(-2, -1)), (counted & slow[row]).sum(axis=(-2, -1))
    turns = counted.sum(axis=(-2, -1))
    both, chance = np.full(turns.shape, 2), np.full(turns.shape, 1 / 3)
    both[control], chance[control] = 1, 1 / 2
    others = others + np.where(both == 2, (counted & slow[control]).sum(axis=(-2, -1)), 0)
    evidence = stall_log_evidence(own, others, chance)
    evidence[row] = 0.0
    return SlowTurns(turns, own, others, turns * both, evidence)


def stall_log_evidence(
    own: NDArray[np.int64], others: NDArray[np.int64], chance: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the logarithm of the e-value against each slow turn being a stack's own with this chance."""
    from scipy.special import betaln  # noqa: PLC0415 - half a second that only commands with statistics have to wait

    mixed = betaln(_PRIOR + own, _PRIOR + others) - betaln(_PRIOR, _PRIOR)
    return np.asarray(mixed - own * np.log(chance) - others * np.log1p(-chance))


@dataclass(frozen=True)
class TurnComparison:
    """What the turns of rows show beside their center: their mean ratio, and whether it differs by more than noise."""

    slow_turns: SlowTurns
    mean: NDArray[np.float64]
    is_different: NDArray[np.bool_]

    def cell_fields(self, index: tuple[int, ...]) -> dict[str, float]:
        """Return the fields of the cell of this place; none where there are no turns."""
        slow = self.slow_turns
        if not slow.turns[index]:
            return {}
        return {
            "mean_ratio": exp_bounded(float(self.mean[index])),
            "slow_turns": float(slow.slow_turns[index] / slow.turns[index]),
            "slow_turns_of_baseline": float(slow.baseline_slow_turns[index] / slow.baseline_turns[index]),
        }

    def notes(self, index: tuple[int, ...]) -> Iterator[str]:
        """Yield a note if the mean over all turns differs from the center."""
        if self.is_different[index] and self.slow_turns.turns[index]:
            share = float(f"{100 * exp_bounded(float(self.mean[index])):.4g}")
            yield f"the mean over all turns is {share:,.10g} % of the baseline's: some turns are far from the usual"

    def cautions(self, index: tuple[int, ...]) -> Iterator[Caution]:
        """Yield a caution if the stack stalls more often than the baseline, or less."""
        if not self.slow_turns.is_different[index]:
            return
        _, own, baseline = self.cell_fields(index).values()
        shares = [f"{100 * share:.2g} %" for share in (own, baseline)]
        much = f"slower than its others by {100 * SLOW_SHARE:g} % or more"
        if own > baseline:
            what = f"{shares[0]} of its turns are {much}, {shares[1]} of the baseline's"
            yield Caution("stalls", f"{what}: the ratio is that of a usual turn")
        else:
            what = f"{shares[1]} of the baseline's turns are {much}, {shares[0]} of this stack's"
            yield Caution("stalls", f"{what}: the ratio does not show it")


def compare_turns(
    grid: Grid, reference: BaselineRows, centers: LogRatios, head: Headline | None = None
) -> TurnComparison | None:
    """Look at all turns of a grid's keys, or of a headline.

    None where there are no rounds, or only one trial of the baseline.
    """
    slow = find_slow_turns(grid, reference)
    if slow is None:
        return None
    means = relative_to_baseline(*turn_logs(grid, head.keys if head else None), reference, mean_relative_to)
    if head is not None:
        slow, means = slow.combine_keys(head.keys), head.average_keys(means)
    return TurnComparison(slow, moments(means.logs, means.both).mean, is_mean_different(means, centers))


def is_mean_different(means: LogRatios, centers: LogRatios) -> NDArray[np.bool_]:
    """Return where the means of blocks (last axis) and their centers differ by more than their noise."""
    both = means.both & centers.both
    found = compare(np.where(both, means.logs - centers.logs, 0.0), both)
    return np.asarray((np.abs(found.mean) > found.half_widths) & (np.abs(found.mean) > _VISIBLE_SHARE))

"""Random-effects model of machines of one type: prediction intervals, variance components, and outliers.

The log ratio of a block is the mean of the machine type, plus the effect of the machine, plus noise. Machine effects
are normal with a variance between machines, noise is normal with a variance within machines. The two variances are
estimated by restricted maximum likelihood (Searle, Casella and McCulloch, *Variance Components*, Wiley 1992, section
6.6), as in lme4 (Bates, Mächler, Bolker and Walker, "Fitting linear mixed-effects models using lme4", Journal of
Statistical Software 67 (2015), 1).

The interval of a type is for a machine that was not measured, because users measure some machines and decide for all: a
prediction interval (Hahn, "Factors for calculating two-sided prediction intervals for samples from a normal
distribution", Journal of the American Statistical Association 64 (1969), 878-888). Half its width is Student's t of
k - 1 degrees of freedom, times the standard deviation of the k machines' means, times the root of 1 + 1/k. That
deviation contains both variances in their true proportion, so the interval holds for any variances. It is exact for
machines with equal numbers of blocks.

An outlier is a machine outside of the prediction of the others by its externally studentized residual (Cook and
Weisberg, *Residuals and Influence in Regression*, Chapman and Hall 1982, section 2.2.2), with Bonferroni's adjustment
for the number of machines.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from numpy.typing import NDArray

from tare.statistics.ratios import ROUNDING

MIN_MACHINES = 2  # for an interval
MIN_MACHINES_FOR_OUTLIERS = 3  # two other machines are the fewest that show how much machines differ
_MIN_LOG_RATIO, _MAX_LOG_RATIO = -20.0, 20.0  # search range of the logarithm of the ratio of the two variances


@dataclass(frozen=True)
class MachineSample:
    """Summary of the logarithms of a machine's blocks: count, mean, and sum of squared deviations from the mean."""

    count: int
    mean: float
    squares: float

    def relative_to(self, other: MachineSample) -> MachineSample:
        """Return the sample with the mean of another sample subtracted."""
        return MachineSample(self.count, self.mean - other.mean, self.squares)


def summarize_machine(logs: NDArray[np.float64]) -> MachineSample:
    """Return the summary of the logarithms of a machine's blocks."""
    mean = logs.mean()
    return MachineSample(len(logs), float(mean), float(((logs - mean) ** 2).sum()))


@dataclass(frozen=True)
class MachineVariance:
    """Variance components: the mean, the variance between machines, and the variance within a machine."""

    mean: float
    between: float
    within: float

    @property
    def share(self) -> float | None:
        """The share of a block's variance that is between machines (intraclass correlation); None without any."""
        whole = self.between + self.within
        return self.between / whole if whole > 0 else None


def estimate_variance(samples: Sequence[MachineSample]) -> MachineVariance | None:
    """Estimate the variances from the blocks of each machine; None for one machine, or one block on each."""
    counts = np.array([group.count for group in samples], dtype=float)
    if len(samples) < MIN_MACHINES or counts.sum() <= len(samples):
        return None
    means = np.array([group.mean for group in samples])
    rest = sum(group.squares for group in samples)

    def weights(ratio: float) -> NDArray[np.float64]:
        return np.asarray(counts / (1 + counts * ratio))

    def squares(ratio: float) -> tuple[float, float]:
        at_ratio = weights(ratio)
        mean = float(np.average(means, weights=at_ratio))
        return mean, rest + float((at_ratio * (means - mean) ** 2).sum())

    def criterion(log_ratio: float) -> float:
        return _criterion(counts, math.exp(log_ratio), squares(math.exp(log_ratio))[1])

    if squares(0.0)[1] <= 0:
        return MachineVariance(float(means[0]), 0.0, 0.0)
    if rest <= 0:  # all blocks of a machine are equal: the likelihood has no maximum
        return MachineVariance(float(means.mean()), float(means.var(ddof=1)), 0.0)
    best = scipy.optimize.minimize_scalar(
        criterion, bounds=(_MIN_LOG_RATIO, _MAX_LOG_RATIO), method="bounded", options={"xatol": 1e-9}
    )
    ratio = math.exp(float(best.x))
    # The search is over logarithms and cannot reach 0, which is the estimate for machines that do not differ.
    if _criterion(counts, 0.0, squares(0.0)[1]) <= float(best.fun):
        ratio = 0.0
    mean, sum_of_squares = squares(ratio)
    within = sum_of_squares / (counts.sum() - 1)
    return MachineVariance(mean, ratio * within, within)


def _criterion(counts: NDArray[np.float64], ratio: float, sum_of_squares: float) -> float:
    """Return minus twice the restricted log likelihood, maximized over the mean and the variance within machines."""
    freedom = counts.sum() - 1
    spread = np.log1p(counts * ratio).sum() + math.log((counts / (1 + counts * ratio)).sum())
    return float(freedom * (1 + math.log(2 * math.pi * sum_of_squares / freedom)) + spread)


def half_width(means: NDArray[np.float64], share: float) -> float:
    """Return half the width of the prediction interval around the mean of machines; infinite for one machine.

    `share` is the probability that the interval does not contain the mean of another machine with as many blocks.
    """
    count = len(means)
    if count < MIN_MACHINES:
        return math.inf
    return float(scipy.stats.t.ppf(1 - share / 2, count - 1)) * _prediction_error(means)


def narrowest_share(means: NDArray[np.float64], half: float) -> float:
    """Return the share for which half the width of the prediction interval is `half`; 1 for one machine."""
    if len(means) < MIN_MACHINES:
        return 1.0
    scale = _prediction_error(means)
    return float(2 * scipy.stats.t.sf(half / scale, len(means) - 1)) if scale > 0 else 0.0


def _prediction_error(means: NDArray[np.float64]) -> float:
    """Return the standard error of another machine's mean relative to the mean of these machines."""
    return float(means.std(ddof=1)) * math.sqrt(1 + 1 / len(means))


def outlier_p_values(means: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a p-value for each machine: the probability of a machine as far from the others if all were equal.

    The p-values are adjusted for the number of machines; they are 1 with fewer than three machines.
    """
    count = len(means)
    if count < MIN_MACHINES_FOR_OUTLIERS:
        return np.ones(count)
    others, away = count - 1, np.abs(means - means.mean())
    away[away < ROUNDING] = 0.0
    squares = np.maximum((away**2).sum() - away**2 * count / others, 0.0)  # of the others, around the mean of these
    scale = np.sqrt(squares / (others - 1) * (1 + 1 / others))
    with np.errstate(divide="ignore", invalid="ignore"):
        p_values = count * 2 * scipy.stats.t.sf(away * count / others / scale, others - 1)
    return np.where(away > 0, np.minimum(p_values, 1.0), 1.0)

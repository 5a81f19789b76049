"""Autocorrelation of blocks, drift and position effects.

Position effects: the logarithm of a headline's value is modeled as a sum of effects of stack, block and position in the
block's order, and an error. Subtracting row and column means in turn removes the first two (for a slope that is
estimated so: Frisch and Waugh, "Partial time regressions as compared with individual trends", Econometrica 1 (1933),
387-401). The slope over positions has Student's interval. It decides nothing: the order is random, so that a slope
makes intervals wider and does not move them.

Autocorrelation: intervals assume independent blocks. Random order within blocks cancels drifts of the whole machine,
but not those of a single stack. The correlation of each value with the one before shows them (corrected for bias by
Kendall, "Note on bias in the estimation of autocorrelation", Biometrika 41 (1954), 403-404). In a first-order
autoregression, n values have the information of n (1 - r) / (1 + r) independent ones (Bayley and Hammersley, "The
'effective' number of independent observations in an autocorrelated time series", Supplement to the Journal of the
Royal Statistical Society 8 (1946), 184-197).

The few blocks of one stack give a noisy estimate, and the most misleading ones are decided first. But caches, heat and
memory layouts cause autocorrelation in all stacks alike. So the correlation is also estimated from all stacks of a
workload together, after removing the means of stacks and blocks. The estimate from one stack is shrunk towards 0, the
more the fewer blocks it has (Efron and Morris, "Stein's estimation rule and its competitors: an empirical Bayes
approach", Journal of the American Statistical Association 68 (1973), 117-130). docs/decisions/statistics.md has the
alternatives that were tried.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tare.statistics.anytime import CONFIDENCE

_SWEEP_ITERATIONS = 100
_ROUNDING = 1e-12
_MAX_CORRELATION = 0.9  # above it, blocks have hardly any information, and the estimate even less
_MIN_COUNT = 4
# For stacks that left the schedule, means converge slowly; after four iterations, the rest is small relative to noise.
_CORRELATION_SWEEP_ITERATIONS = 4
# Normal deviates that chance exceeds one time in twenty, ten and fifty. A low threshold for the few blocks of a single
# stack costs runs without correlation more blocks than it corrects in others; the pooled estimate is more reliable. The
# threshold for drift is the highest because its widening grows with the length of a run.
_DEVIATE_OF_ONE = 1.645
_DEVIATE_OF_ALL = 1.282
_DEVIATE_OF_DRIFT = 2.054
# Prior standard deviation of the true correlations of stacks, for the shrinkage of a single stack's estimate.
_SPREAD_OF_ONE = 0.3
_SHARE_OF_DRIFT = 0.5  # of the variance, which a drift is assumed to cause
_Sizes = tuple[NDArray[np.float64], NDArray[np.float64]]  # mean number of values of a series, and number of series


@dataclass(frozen=True)
class BlockEffects:
    """Effects of blocks and of positions in a block, as shares: 0.01 is 1 %.

    `blocks` is the standard deviation of the block effects, `error` that of the residuals. `per_position` is the
    increase of a value from one position in the order of a block to the next, `low` and `high` its 95 % interval.
    """

    blocks: float
    error: float
    per_position: float
    low: float
    high: float

    @property
    def has_position_effect(self) -> bool:
        """Whether the position in a block has a significant effect."""
        return not self.low <= 0 <= self.high


def find_effects(
    logs: NDArray[np.float64], usable: NDArray[np.bool_], positions: NDArray[np.int64]
) -> BlockEffects | None:
    """Estimate the effects of blocks and positions (axes: stack, block); None for too few values."""
    from scipy.special import stdtrit  # noqa: PLC0415 - half a second that only commands with statistics have to wait

    stacks, blocks = usable.any(axis=1).sum(), usable.any(axis=0).sum()
    freedom = int(usable.sum() - stacks - blocks)
    if stacks < 2 or freedom < 1:
        return None
    values, order = subtract_means(logs, usable), subtract_means(positions.astype(float), usable)
    spread = float((order**2).sum())
    if spread < _ROUNDING:
        return None
    slope = float((values * order).sum()) / spread
    error = float(((values - slope * order) ** 2).sum()) / freedom
    half = float(stdtrit(freedom, 0.5 + CONFIDENCE / 2)) * (error / spread) ** 0.5
    rest = np.where(usable, logs - slope * positions, 0.0)
    rest = np.where(usable, rest - _means(rest, usable, 1), 0.0)
    means = _means(rest, usable, 0)[0][usable.any(axis=0)]
    each = float(usable.sum() / blocks)
    variance = max(0.0, float(means.var(ddof=1)) - error / each) if blocks > 1 else 0.0
    return BlockEffects(variance**0.5, error**0.5, slope, slope - half, slope + half)


def subtract_means(
    values: NDArray[np.float64], usable: NDArray[np.bool_], iterations: int = _SWEEP_ITERATIONS
) -> NDArray[np.float64]:
    """Return values without the means of stacks (first axis) and blocks (last axis); rounding errors become 0."""
    left = np.where(usable, values, 0.0)
    for _ in range(iterations):
        before = left
        for axis in (-1, 0):
            left = np.where(usable, left - _means(left, usable, axis), 0.0)
        if np.abs(left - before).max(initial=0.0) < _ROUNDING:
            break
    return np.where(np.abs(left) < _ROUNDING, 0.0, left)


def _means(values: NDArray[np.float64], usable: NDArray[np.bool_], axis: int) -> NDArray[np.float64]:
    count = np.maximum(usable.sum(axis=axis, keepdims=True), 1)
    return np.asarray(values.sum(axis=axis, keepdims=True) / count)


@dataclass(frozen=True)
class Dependence:
    """Lag-1 autocorrelation of values, and the resulting factor for standard deviations.

    The factor is 1 if chance explains the correlation.
    """

    correlation: NDArray[np.float64]
    factor: NDArray[np.float64]


def autocorrelation_of_rows(
    values: NDArray[np.float64], present: NDArray[np.bool_], mean: NDArray[np.float64]
) -> Dependence:
    """Estimate the lag-1 autocorrelation of each row (last axis: blocks) separately.

    The correlation is 0 for fewer than four values. Missing values interrupt the series.
    """
    products, squares = _lagged_sums(np.where(present, values - mean[..., np.newaxis], 0.0))
    plain = _divide(products, squares)
    count = np.where(squares > 0, present.sum(axis=-1), 0.0)
    return _test_correlation(plain, (count, np.ones(plain.shape)), _DEVIATE_OF_ONE, _SPREAD_OF_ONE)


def pooled_autocorrelation(logs: NDArray[np.float64], present: NDArray[np.bool_]) -> Dependence:
    """Estimate the lag-1 autocorrelation of the pooled rows of all stacks.

    The axes of the logarithms are stack, others, block; the returned arrays have only the others.

    Log ratios to a baseline give the same result if the baseline's row of zeros is included: the means of blocks are
    removed in any case. If stacks drift apart, half of the variance is assumed to be common to all blocks of a stack,
    which no number of blocks averages out (Kish, Survey Sampling, 1965, section 5.4: the design effect of a cluster).
    """
    away = subtract_means(logs, present, _CORRELATION_SWEEP_ITERATIONS)
    products, squares = _lagged_sums(away)
    total = squares.sum(axis=0)
    shares = _divide(squares, total)
    count = (shares * present.sum(axis=-1)).sum(axis=0)
    # The effective number of series is one less than that of stacks, or lower if some are noisier: Satterthwaite, "An
    # approximate distribution of estimates of variance components", Biometrics Bulletin 2 (1946), 110-114.
    stacks = np.maximum((squares > 0).sum(axis=0), 2)
    series = np.where(total > 0, _divide(1 - 1 / stacks, (shares**2).sum(axis=0)), 1.0)
    pooled = _test_correlation(_divide(products.sum(axis=0), total), (count, series), _DEVIATE_OF_ALL)
    drifting = _is_drifting(away, present, (count, series))
    apart = np.sqrt(1 + (np.maximum(count, 1) - 1) * _SHARE_OF_DRIFT)
    return Dependence(pooled.correlation, np.where(drifting, apart, pooled.factor))


def _test_correlation(
    plain: NDArray[np.float64],
    sizes: _Sizes,
    deviate: float,
    spread: float = np.inf,
) -> Dependence:
    """Correct the bias of correlations, and test them against those of independent values.

    These have a mean of -1/n and a variance of (n - 2)² / (n² (n - 1)) (Moran, "Some theorems on time series. II. The
    significance of the serial correlation coefficient", Biometrika 35 (1948), 255-260). `sizes` are the mean number of
    values and the number of series; `spread` is the standard deviation of true correlations.
    """
    count, series = sizes
    known, some = count > _MIN_COUNT - 0.5, np.maximum(count, _MIN_COUNT)
    chance = (some - 2) / (some * np.sqrt((some - 1) * series))
    correlation = np.where(known, np.clip(plain + (1 + 3 * plain) / some, -_MAX_CORRELATION, _MAX_CORRELATION), 0.0)
    believed = correlation / (1 + ((1 + 3 / some) * chance / spread) ** 2)
    beyond_chance = known & (plain > deviate * chance - 1 / some)
    return Dependence(correlation, np.where(beyond_chance, _widening_factor(believed), 1.0))


def _is_drifting(away: NDArray[np.float64], present: NDArray[np.bool_], sizes: _Sizes) -> NDArray[np.bool_]:
    """Return whether the stacks (first axis) drift apart by more than chance.

    The test is Fisher's F of their slopes over the blocks against the residuals, transformed to a normal deviate
    (Paulson, "An approximate normalization of the analysis of variance distribution", Annals of Mathematical
    Statistics 13 (1942), 233-235). `sizes` are the mean number of values and the number of series.
    """
    count, series = sizes
    numbers = np.where(present, np.arange(away.shape[-1], dtype=float), 0.0)
    middle = numbers.sum(axis=-1) / np.maximum(present.sum(axis=-1), 1)
    times = np.where(present, numbers - middle[..., np.newaxis], 0.0)
    explained = _divide((away * times).sum(axis=-1) ** 2, (times**2).sum(axis=-1)).sum(axis=0)
    left = np.maximum((away**2).sum(axis=(0, -1)) - explained, 0.0)
    freedom = series * np.maximum(count - 2, 1)
    # Both sides are multiplied by the denominator of F, which may be 0.
    above, below = np.cbrt(explained * freedom), np.cbrt(left * series)
    wide, narrow = 2 / (9 * series), 2 / (9 * freedom)
    deviate, error = (1 - narrow) * above - (1 - wide) * below, np.sqrt(wide * below**2 + narrow * above**2)
    return np.asarray((count > _MIN_COUNT - 0.5) & (deviate > _DEVIATE_OF_DRIFT * error))


def _widening_factor(correlation: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the factor for standard deviations from autocorrelations; never below 1."""
    positive = np.maximum(correlation, 0.0)
    return np.asarray(np.sqrt((1 + positive) / (1 - positive)))


def explaining_correlation(away: NDArray[np.float64], half: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the autocorrelation that would widen half the width `half` to `away`; 0 if none is needed or known.

    After few blocks, the autocorrelation itself cannot be estimated. A decision then states this number, as a study
    without randomization states how strong a confounder would have to be (Rosenbaum and Rubin, "Assessing sensitivity
    to an unobserved binary covariate in an observational study with binary outcome", Journal of the Royal Statistical
    Society B 45 (1983), 212-218).
    """
    known = np.isfinite(half)
    wide, narrow = np.maximum(away, 0.0) ** 2, np.where(known, half, 0.0) ** 2
    return np.where(known, np.maximum(_divide(wide - narrow, wide + narrow), 0.0), 0.0)


def _lagged_sums(away: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the sums of products of neighbors, and of squares."""
    return np.asarray((away[..., 1:] * away[..., :-1]).sum(axis=-1)), np.asarray((away**2).sum(axis=-1))


def _divide(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the quotient; 0 where the divisor is not positive."""
    return np.where(below > 0, above / np.where(below > 0, below, 1.0), 0.0)

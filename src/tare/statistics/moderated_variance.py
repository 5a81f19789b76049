"""Moderated variances: empirical Bayes estimates of the variance between blocks, from rounds and from other cells.

The few blocks of a cell (stack and headline, or metric) give a noisy estimate of their variance. Two other sources know
more. The rounds of each block tell how far its value is from the instance's true one. And other cells tell how much
more blocks differ than their rounds explain, because every block has fresh instances (Kalibera and Jones, "Rigorous
benchmarking in reasonable time", ISMM 2013, 63-74, section 6, have the same two components).

So the variance between blocks is divided by the variance that the rounds explain. These ratios are modeled as draws
from a scaled inverse chi-squared distribution, the prior, whose scale and degrees of freedom follow from the ratios of
other cells (Smyth, "Linear models and empirical Bayes methods for assessing differential expression in microarray
experiments", Statistical Applications in Genetics and Molecular Biology 3 (2004), article 3, section 6.2). The model
itself counts as one more cell, with a ratio of 1 (instances do not differ), unless three cells know more without it.
Exceptionally high ratios are winsorized (Phipson, Lee, Majewski, Alexander and Smyth, "Robust hyperparameter estimation
protects against hypervariable genes and improves power to detect differential expression", The Annals of Applied
Statistics 10 (2016), 946-963). The prior is that of the workload's other stacks or of all cells of the run, whichever
has more degrees of freedom. Variances without rounds are compared only with those of the workload's other stacks.

The degrees of freedom that a cell has from the prior are called borrowed. Four rules protect a cell whose instances
differ more than those of all others. They bound its false decisions whatever the prior is, even if it is wrong for all
cells (docs/decisions/statistics.md has the simulations):

- The prior does not contain the cell.
- The prior never lowers the cell's variance.
- The less the variance fits the prior, the fewer degrees of freedom are borrowed; none if chance would exceed the
  variance less often than `_BORROW_NONE_BELOW`; and never more than `_MAX_BORROWED`.
- Before five blocks, which cannot show such a cell, the prior counts with twice its variance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy
from numpy.typing import NDArray

from tare.statistics.anytime import EARLY_BORROWED_FREEDOM, MIN_LENDERS, MIN_VALUES
from tare.statistics.descriptive import DEVIATIONS_PER_MAD, centers

_MIN_VALUES = 3  # of a cell from which others borrow
_MAX_FREEDOM = 400.0  # with more degrees of freedom, the variance is practically known
_MAX_BORROWED = 20.0
# Probabilities that F exceeds the ratio of the cell's variance to the prior: a cell below the first borrows nothing, a
# cell above the second everything.
_BORROW_NONE_BELOW, _BORROW_ALL_ABOVE = 0.1, 0.3
_EARLY_CAUTION = 2.0  # factor of the prior's variance before there are `MIN_VALUES`
_ROUNDS_FREEDOM = 8.0  # of the ratio of 1 that rounds alone predict
# Variance of the logarithms of true ratios (that of ten degrees of freedom), which counts like so many cells: a few
# cells give too noisy an estimate.
_USUAL_SPREAD, _USUAL_CELLS = 0.22, 3.0
_WINSORIZED_ABOVE, _LEAST_SCALE = 2.5, 0.6  # standard deviations above the median, and the least that counts as one


@dataclass(frozen=True)
class ModeratedVariance:
    """Moderated standard deviations, and the degrees of freedom that each borrows."""

    deviation: NDArray[np.float64]
    borrowed: NDArray[np.float64]


@dataclass(frozen=True)
class VarianceRatios:
    """Variances over expected ones, as arrays of one shape with the cells as first axis.

    `logs` are the logarithms, corrected for bias, `freedom` the degrees of freedom, and `lends` is the mask of the
    cells that tell others something.
    """

    logs: NDArray[np.float64]
    freedom: NDArray[np.float64]
    lends: NDArray[np.bool_]


@dataclass(frozen=True)
class VariancePrior:
    """Prior of variance ratios for each cell: the logarithm of its scale, and its degrees of freedom."""

    log_scale: NDArray[np.float64]
    freedom: NDArray[np.float64]


def variance_ratios(
    deviation: NDArray[np.float64], count: NDArray[np.int64], expected: NDArray[np.float64]
) -> VarianceRatios:
    """Return the ratios of variances to expected ones.

    Equal values are no sample of noise, so that a deviation of 0 lends nothing, nor does one without an expected
    variance (0).
    """
    freedom = np.maximum(count - 1, 1).astype(float)
    lends = (deviation > 0) & (count >= _MIN_VALUES) & (expected > 0)
    ratio = np.where(lends, deviation, 1.0) ** 2 / np.where(lends, expected, 1.0)
    return VarianceRatios(np.log(ratio) - bias_of_log(freedom), freedom, lends)


def fit_prior(ratios: VarianceRatios, others: NDArray[np.bool_], has_rounds: NDArray[np.bool_] | bool) -> VariancePrior:
    """Return a prior for each row of `others`, which is the mask of the cells that it is estimated from.

    A prior needs three cells. With `has_rounds`, the ratios are to what rounds explain: a ratio of 1 then counts as one
    more cell, and is enough by itself. The ratio of 1 is left out where three cells or more give a prior with more
    degrees of freedom without it: where instances differ, it would make the prior vague.
    """
    of_cells = _fit_cells(ratios, others, 0.0)
    with_model = _fit_cells(ratios, others, np.where(has_rounds, 1.0, 0.0))
    is_better = of_cells.freedom > with_model.freedom
    return VariancePrior(
        np.where(is_better, of_cells.log_scale, with_model.log_scale),
        np.where(is_better, of_cells.freedom, with_model.freedom),
    )


def _fit_cells(ratios: VarianceRatios, others: NDArray[np.bool_], model: NDArray[np.float64] | float) -> VariancePrior:
    """Return a prior for each row of `others`; `model` is 1 where a ratio of 1 counts as one more cell, and else 0."""

    def total(values: NDArray[np.float64] | float) -> NDArray[np.float64]:
        """Return the sum over the other cells."""
        return np.tensordot(others.astype(float), np.where(ratios.lends, values, 0.0), axes=1)

    lenders = total(1.0) + model
    some = np.maximum(lenders, 1.0)
    # The logarithm of an estimated variance has a known bias (digamma) and variance (trigamma): subtract both, and the
    # rest is the distribution of the true variances.
    noise, logs = _variance_of_log(ratios.freedom), _winsorize(ratios.logs, ratios.lends)
    mean = total(logs) / some
    squares = np.maximum(total(logs**2) - some * mean**2, 0.0)
    noise = (some - 1) / some * total(noise)
    spread = (squares - noise + _USUAL_CELLS * _USUAL_SPREAD) / (some - 1 + _USUAL_CELLS)
    freedom = np.minimum(_prior_freedom(spread), _MAX_BORROWED)
    known = np.minimum(freedom, total(ratios.freedom) + model * _ROUNDS_FREEDOM)
    is_known = (np.asarray(model) > 0) | (lenders >= MIN_LENDERS)
    return VariancePrior(mean + bias_of_log(freedom), np.where(is_known, known, 0.0))


def moderate_variances(
    deviation: NDArray[np.float64],
    count: NDArray[np.int64],
    explained: NDArray[np.float64] | None = None,
    run_prior: VariancePrior | None = None,
) -> ModeratedVariance:
    """Return moderated standard deviations (first axis: stacks); `count` are the numbers of values.

    `explained` are the variances that rounds explain, 0 if unknown. `run_prior` is the prior from the whole run, for
    each stack. A deviation of 0 does not borrow: equal values are no sample of noise.
    """
    freedom = np.maximum(count - 1, 1).astype(float)
    has_noise = (deviation > 0) & (count > 1)
    errors = np.zeros(deviation.shape) if explained is None else explained
    has_rounds = np.asarray(((errors > 0) | ~has_noise).all(axis=0) & has_noise.any(axis=0))
    expected = np.where(has_rounds & (errors > 0), errors, 1.0)
    prior = fit_prior(variance_ratios(deviation, count, expected), ~np.eye(len(deviation), dtype=bool), has_rounds)
    scale, lent = np.exp(prior.log_scale), prior.freedom
    if run_prior is not None:
        axes = tuple(range(run_prior.freedom.ndim, deviation.ndim))
        run_scale, run_freedom = (
            np.expand_dims(each, axes) for each in (np.exp(run_prior.log_scale), run_prior.freedom)
        )
        is_better = has_rounds & (run_freedom > lent)
        scale, lent = np.where(is_better, run_scale, scale), np.where(is_better, run_freedom, lent)
    variance, usual = np.where(has_noise, deviation, 1.0) ** 2, scale * expected
    some = np.maximum(lent, 1.0)
    fit = scipy.special.fdtrc(freedom, some, variance / usual)
    share = np.clip((fit - _BORROW_NONE_BELOW) / (_BORROW_ALL_ABOVE - _BORROW_NONE_BELOW), 0.0, 1.0)
    borrowed, is_early = np.where(has_noise, lent * share, 0.0), count < MIN_VALUES
    borrowed = np.where(is_early, np.minimum(borrowed, EARLY_BORROWED_FREEDOM), borrowed)
    usual = np.where(is_early, _EARLY_CAUTION, 1.0) * usual
    both = (borrowed * np.maximum(usual, variance) + freedom * variance) / (borrowed + freedom)
    return ModeratedVariance(np.where(has_noise, np.sqrt(both), deviation), borrowed)


def _winsorize(values: NDArray[np.float64], present: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the values with exceptionally high ones replaced by a limit, for each column."""
    middle = centers(values, present, axis=0)
    scale = DEVIATIONS_PER_MAD * centers(np.abs(values - middle), present, axis=0)
    return np.minimum(values, middle + _WINSORIZED_ABOVE * np.maximum(scale, _LEAST_SCALE))


def bias_of_log(freedom: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the bias of the logarithm of a variance estimate with these degrees of freedom."""
    return np.asarray(scipy.special.digamma(freedom / 2) - np.log(freedom / 2))


def _variance_of_log(freedom: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the variance of the logarithm of a variance estimate with these degrees of freedom."""
    return np.asarray(scipy.special.polygamma(1, freedom / 2))


def _prior_freedom(spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the degrees of freedom of a prior with this variance of logarithms: twice the inverse of trigamma."""
    halves, variances = _trigamma_table()
    return np.asarray(2 * np.interp(-spread, -variances, halves))


# SciPy has no inverse of the trigamma function: interpolate in a table.
@cache
def _trigamma_table() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    halves = np.geomspace(0.05, _MAX_FREEDOM / 2, 4000)
    return halves, np.asarray(scipy.special.polygamma(1, halves))

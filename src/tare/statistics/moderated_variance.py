"""Standard deviations that borrow from each other: few blocks of one stack say little of its own, those of all much.

The variances of a workload's stacks are taken as draws of one scaled inverse chi-squared distribution, whose scale and
degrees of freedom follow from the variances that were seen (Smyth, "Linear models and empirical Bayes methods for
assessing differential expression in microarray experiments", Statistical Applications in Genetics and Molecular
Biology 3 (2004), article 3, section 6.2). What is expected of a stack's variance, given its own blocks, is then a mean
of both, and counts for as many degrees of freedom as both have.

Two things keep a stack that is noisier than all others from looking as calm as they are. What a stack borrows comes
from the *other* stacks alone. And it borrows the less, the less its own variance fits theirs; nothing at all where
chance would exceed it less often than `_BORROW_NONE_BELOW`. docs/decisions/statistics.md has what was tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy
from numpy.typing import NDArray

from tare.statistics.anytime import EARLY_BORROWED_FREEDOM, MIN_LENDERS, MIN_VALUES

_MIN_VALUES = 3  # of a stack that lends
_MAX_FREEDOM = 400.0  # from there on the variance is as good as known
# Chances that F exceeds the stack's own variance over that of the others: below the first the stack borrows nothing,
# above the second it borrows all.
_BORROW_NONE_BELOW, _BORROW_ALL_ABOVE = 0.15, 0.4


@dataclass(frozen=True)
class ModeratedVariance:
    """Standard deviations, and the degrees of freedom that were borrowed for each."""

    deviation: NDArray[np.float64]
    borrowed: NDArray[np.float64]


def moderate_variances(deviation: NDArray[np.float64], count: NDArray[np.int64]) -> ModeratedVariance:
    """Moderate standard deviations (first axis: stacks) of so many values each.

    A deviation of 0 neither lends nor borrows: values that are all equal are no sample of any noise.
    """
    freedom = np.maximum(count - 1, 1).astype(float)
    has_noise = (deviation > 0) & (count > 1)
    variance = np.where(has_noise, deviation, 1.0) ** 2
    lends = has_noise & (count >= _MIN_VALUES)
    lenders = lends.sum(axis=0) - lends

    def mean_of_others(values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean over the other stacks that lend."""
        own = np.where(lends, values, 0.0)
        return np.asarray((own.sum(axis=0) - own) / np.maximum(lenders, 1))

    # Of the logarithm of a variance that is estimated, the expectation and the variance are known.
    logs = np.log(variance) - bias_of_log(freedom)
    mean = mean_of_others(logs)
    between = np.maximum(mean_of_others(logs**2) - mean**2, 0.0) * lenders / np.maximum(lenders - 1, 1)
    prior = _prior_freedom(between - mean_of_others(scipy.special.polygamma(1, freedom / 2)))
    expected = np.exp(mean + bias_of_log(prior))
    fit = scipy.special.fdtrc(freedom, prior, variance / expected)
    borrowed = prior * np.clip((fit - _BORROW_NONE_BELOW) / (_BORROW_ALL_ABOVE - _BORROW_NONE_BELOW), 0.0, 1.0)
    borrowed = np.where(count < MIN_VALUES, np.minimum(borrowed, EARLY_BORROWED_FREEDOM), borrowed)
    borrowed = np.where(has_noise & (lenders >= MIN_LENDERS), borrowed, 0.0)
    both = (borrowed * expected + freedom * variance) / (borrowed + freedom)
    return ModeratedVariance(np.where(has_noise, np.sqrt(both), deviation), borrowed)


def bias_of_log(freedom: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the bias of the logarithm of a variance that is estimated with these degrees of freedom."""
    return np.asarray(scipy.special.digamma(freedom / 2) - np.log(freedom / 2))


def _prior_freedom(spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the degrees of freedom of a prior whose logarithms have this variance: twice the inverse of trigamma."""
    halves, variances = _trigamma_table()
    return np.asarray(2 * np.interp(-spread, -variances, halves))


@cache
def _trigamma_table() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    halves = np.geomspace(0.05, _MAX_FREEDOM / 2, 4000)
    return halves, np.asarray(scipy.special.polygamma(1, halves))

"""Moderated variances: empirical Bayes estimates that pool the variances of a workload's stacks.

The few blocks of one stack give a noisy estimate of its variance; those of all stacks together give a good one. The
variances of a workload's stacks are modeled as draws from a scaled inverse chi-squared distribution, whose scale and
degrees of freedom are estimated from the observed variances (Smyth, "Linear models and empirical Bayes methods for
assessing differential expression in microarray experiments", Statistical Applications in Genetics and Molecular
Biology 3 (2004), article 3, section 6.2). The moderated variance of a stack is a weighted mean of this prior's and the
observed one, with the degrees of freedom of both. The additional degrees of freedom are called borrowed.

Two rules protect a stack that is noisier than all others. A stack borrows only from the *other* stacks. And it borrows
less, the less its variance fits theirs; nothing at all if chance would exceed it less often than `_BORROW_NONE_BELOW`.
docs/decisions/statistics.md has the alternatives that were tried.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy
from numpy.typing import NDArray

from tare.statistics.anytime import EARLY_BORROWED_FREEDOM, MIN_LENDERS, MIN_VALUES

_MIN_VALUES = 3  # of a stack from which others borrow
_MAX_FREEDOM = 400.0  # with more degrees of freedom, the variance is practically known
# Probabilities that F exceeds the ratio of the stack's variance to that of the others: a stack below the first borrows
# nothing, a stack above the second everything.
_BORROW_NONE_BELOW, _BORROW_ALL_ABOVE = 0.15, 0.4


@dataclass(frozen=True)
class ModeratedVariance:
    """Moderated standard deviations, and the degrees of freedom that each borrows from other stacks."""

    deviation: NDArray[np.float64]
    borrowed: NDArray[np.float64]


def moderate_variances(deviation: NDArray[np.float64], count: NDArray[np.int64]) -> ModeratedVariance:
    """Return moderated standard deviations (first axis: stacks); `count` are the numbers of values.

    A deviation of 0 neither lends nor borrows: equal values are no sample of noise.
    """
    freedom = np.maximum(count - 1, 1).astype(float)
    has_noise = (deviation > 0) & (count > 1)
    variance = np.where(has_noise, deviation, 1.0) ** 2
    lends = has_noise & (count >= _MIN_VALUES)
    lenders = lends.sum(axis=0) - lends

    def mean_of_others(values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean over the other stacks that lend."""
        lent = np.where(lends, values, 0.0)
        return np.asarray((lent.sum(axis=0) - lent) / np.maximum(lenders, 1))

    # The logarithm of an estimated variance has a known bias (digamma) and variance (trigamma): subtract both, and the
    # rest is the distribution of the true variances.
    logs = np.log(variance) - bias_of_log(freedom)
    mean = mean_of_others(logs)
    between = np.maximum(mean_of_others(logs**2) - mean**2, 0.0) * lenders / np.maximum(lenders - 1, 1)
    prior = _prior_freedom(between - mean_of_others(scipy.special.polygamma(1, freedom / 2)))
    expected = np.exp(mean + bias_of_log(prior))
    fit = scipy.special.fdtrc(freedom, prior, variance / expected)
    borrowed = prior * np.clip((fit - _BORROW_NONE_BELOW) / (_BORROW_ALL_ABOVE - _BORROW_NONE_BELOW), 0.0, 1.0)
    # Three or four values cannot show whether a stack is noisier than the others: trust them less.
    borrowed = np.where(count < MIN_VALUES, np.minimum(borrowed, EARLY_BORROWED_FREEDOM), borrowed)
    borrowed = np.where(has_noise & (lenders >= MIN_LENDERS), borrowed, 0.0)
    both = (borrowed * expected + freedom * variance) / (borrowed + freedom)
    return ModeratedVariance(np.where(has_noise, np.sqrt(both), deviation), borrowed)


def bias_of_log(freedom: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the bias of the logarithm of a variance estimate with these degrees of freedom."""
    return np.asarray(scipy.special.digamma(freedom / 2) - np.log(freedom / 2))


def _prior_freedom(spread: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the degrees of freedom of a prior with this variance of logarithms: twice the inverse of trigamma."""
    halves, variances = _trigamma_table()
    return np.asarray(2 * np.interp(-spread, -variances, halves))


# SciPy has no inverse of the trigamma function: interpolate in a table.
@cache
def _trigamma_table() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    halves = np.geomspace(0.05, _MAX_FREEDOM / 2, 4000)
    return halves, np.asarray(scipy.special.polygamma(1, halves))

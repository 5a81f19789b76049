"""Evidence and intervals that hold however often one looks at them.

The values are taken as independent draws of one normal distribution, whose mean and variance nobody knows. The evidence
that their mean is not a given one is the Bayes factor of Student's t, with the scale's right Haar prior and a normal
prior on the mean in units of the standard deviation (Gönen, Johnson, Lu and Westfall, "The Bayesian two-sample t test",
The American Statistician 59 (2005), 252-257). If the mean is the given one, its expectation is at most 1 at whatever
moment one stops: it is an e-value, and by Ville's inequality (1939) it ever reaches 1/a with a probability of at most
a. So is an average of several, with weights that are fixed beforehand. The means against which it has not reached that
make an interval, which holds at all looks together (Lai, "On confidence sequences", The Annals of Statistics 4 (1976),
265-280; Wang and Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown variance",
arXiv:2310.03722 (2023), section 4).
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
# Variance of the prior on the effect, in variances of a value, and the prior's weight. The first is as wide as what a
# single value says (unit information): of those that find large effects in five blocks, the one that finds effects of
# one standard deviation soonest. But after five blocks its evidence is at most 36, whatever the effect: too little for
# a matrix of many cells. The second is for effects of ten standard deviations and more. docs/decisions/statistics.md.
_PRIORS = ((1.0, 0.98), (100.0, 0.02))
MIN_VALUES = 5  # fewer say too little of whether they are normal at all
# Fewer are enough with as many degrees of freedom borrowed from other stacks, and no more of them are believed then.
MIN_VALUES_EARLY, EARLY_BORROWED_FREEDOM = 3, 8.0
MIN_LENDERS = 3  # other stacks: fewer say too little of how much variances differ
_LOG_DISTANCE_LIMIT = 40.0  # logarithm of a distance beyond all that are met
_BISECTIONS = 52  # of the logarithms in between, until they differ by rounding
_ZERO = np.array(0.0)
SINGLE_STATEMENT_EVIDENCE = float(-np.log1p(-CONFIDENCE))  # the evidence that one statement needs


def log_evidence(
    mean: NDArray[np.float64],
    deviation: NDArray[np.float64],
    count: NDArray[np.int64],
    borrowed: NDArray[np.float64] = _ZERO,
    hypothesis: float = 0.0,
) -> NDArray[np.float64]:
    """Return the logarithm of the e-value against the true mean being `hypothesis`; 0 for too few values.

    All arrays have one shape: means, standard deviations, counts of values, and the degrees of freedom that the
    deviations have beyond n - 1 (`moderated_variance.py`). Too few are less than five values, or less than three
    with eight borrowed degrees of freedom. A deviation of 0 is the limit of small ones: large evidence, but no more
    than so few values can give.
    """
    freedom = np.maximum(count - 1, 1) + borrowed
    square, variance = count * (mean - hypothesis) ** 2 / freedom, deviation**2
    any_of = square + variance > 0
    parts = []
    for spread, weight in _PRIORS:
        known = 1 / (count * spread + 1)
        # (1 + t²/df) / (1 + known t²/df), both multiplied by the variance, so that nothing is divided by 0.
        ratio = np.where(any_of, variance + square, 1.0) / np.where(any_of, variance + known * square, 1.0)
        parts.append(np.log(weight) + np.log(known) / 2 + (freedom + 1) / 2 * np.log(ratio))
    return np.where(has_interval(count, borrowed), np.logaddexp.reduce(parts), 0.0)


def has_interval(count: NDArray[np.int64], borrowed: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return where there are enough values for an interval."""
    return (count >= MIN_VALUES) | ((count >= MIN_VALUES_EARLY) & (borrowed >= EARLY_BORROWED_FREEDOM))


def widths_per_deviation(
    count: NDArray[np.int64],
    borrowed: NDArray[np.float64] = _ZERO,
    needed_evidence: NDArray[np.float64] | float = SINGLE_STATEMENT_EVIDENCE,
) -> NDArray[np.float64]:
    """Return half the width of the interval in standard deviations; infinite where there are too few values for any.

    It is the distance at which `log_evidence` is as much as is `needed_evidence`: by default, for an interval of 95 %
    alone.
    """
    count, borrowed, least = np.broadcast_arrays(count, borrowed, needed_evidence)
    widths = np.empty(count.shape)
    own = borrowed == 0
    for each in {*zip(count[own].tolist(), least[own].tolist(), strict=True)}:
        widths[own & (count == each[0]) & (least == each[1])] = _half_width(*each)
    if not own.all():
        widths[~own] = _solve_half_width(count[~own], borrowed[~own], least[~own])
    return widths


@cache
def _half_width(count: int, needed_evidence: float) -> float:
    return float(_solve_half_width(np.array(count), _ZERO, np.array(needed_evidence)))


def _solve_half_width(
    count: NDArray[np.int64], borrowed: NDArray[np.float64], needed_evidence: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Solve `log_evidence` for the distance, by bisection of its logarithm."""
    low, high = np.full(count.shape, -_LOG_DISTANCE_LIMIT), np.full(count.shape, _LOG_DISTANCE_LIMIT)
    unit = np.ones(count.shape)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        is_enough = log_evidence(np.exp(middle), unit, count, borrowed) >= needed_evidence
        low, high = np.where(is_enough, low, middle), np.where(is_enough, middle, high)
    return np.where(high < _LOG_DISTANCE_LIMIT, np.exp(high), np.inf)


def min_value_count(stacks: int = 1) -> int:
    """Return the number of values from which on there is an interval, if so many stacks can borrow from each other.

    A stack whose variance is unlike that of the others needs as many as one that is alone.
    """
    return MIN_VALUES_EARLY if stacks > MIN_LENDERS else MIN_VALUES


def e_bh(evidence: NDArray[np.float64], share: float = 1 - CONFIDENCE) -> NDArray[np.bool_]:
    """Return the rejections of e-BH: statements of which at most this share is expected to be false (FDR).

    `evidence` are logarithms of e-values, one for each statement; those along the last axis are tested together. The
    k with the most evidence are rejected where each has at least m / (k · share), for the largest such k of m. It needs
    no independence and holds at whatever moment each of them stopped (Wang and Ramdas, "False discovery rate control
    with e-values", Journal of the Royal Statistical Society B 84 (2022), 822-852).
    """
    count = evidence.shape[-1]
    if count == 0:
        return np.zeros(evidence.shape, dtype=bool)
    ordered = np.sort(evidence, axis=-1)[..., ::-1]
    needed = np.array([evidence_needed(count, made, share) for made in range(1, count + 1)])
    enough = np.where(ordered >= needed, ordered, np.inf).min(axis=-1, keepdims=True)
    return np.asarray(evidence >= enough)


def evidence_needed(count: int, made: int, share: float = 1 - CONFIDENCE) -> float:
    """Return the logarithm of the e-value that each of `made` of `count` statements needs, to be made together."""
    return float(np.log(count / (min(made, count) * share)))


def evidence_needed_together(evidence: NDArray[np.float64], is_control: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the evidence that each statement needs (last axis: those that are made together), as e-BH has it.

    An interval that excludes all against which there is as much evidence is that of e-BY: of the intervals of what
    e-BH selects, a share of at most 5 % is expected to miss the truth (Xu, Wang and Ramdas, "Post-selection inference
    for e-value based confidence intervals", arXiv:2203.12572 (2024)). So a statement is
    made exactly where its interval makes it. A/A is a check of the machine, and no answer to what was asked: it costs
    the stacks no evidence, and is judged apart.
    """
    needed = np.empty(evidence.shape)
    for own in (is_control, ~is_control):
        count = int(own.sum())
        made = np.maximum(e_bh(evidence[..., own]).sum(axis=-1, keepdims=True), 1)
        needed[..., own] = np.log(max(count, 1) / (made * (1 - CONFIDENCE)))
    return needed


def e_bh_with_control(evidence: NDArray[np.float64], is_control: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the rejections of e-BH among the stacks (last axis), and those of the A/A control apart."""
    return np.asarray(evidence >= evidence_needed_together(evidence, is_control))

"""Anytime-valid evidence and intervals: they hold after any number of looks at the data.

Values are modeled as independent draws from a normal distribution with unknown mean and variance. The evidence against
a hypothetical mean is the Bayes factor of Student's t, with the right Haar prior on the scale and a normal prior on the
mean in standard deviations (Gönen, Johnson, Lu and Westfall, "The Bayesian two-sample t test", The American
Statistician 59 (2005), 252-257). Under the hypothesis, the expectation of the Bayes factor is at most 1 at any stopping
time: it is an e-value, and by Ville's inequality (1939), the probability that it ever reaches 1/a is at most a. This
also holds for an average of several Bayes factors with fixed weights. The interval has all means against which the
evidence is less than 1/a, and holds at all looks together (Lai, "On confidence sequences", The Annals of Statistics 4
(1976), 265-280; Wang and Ramdas, "Anytime-valid t-tests and confidence sequences for Gaussian means with unknown
variance", arXiv:2310.03722 (2023), section 4).
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
# Variance of the prior on the effect, in variances of a value, and the prior's weight. The first is a unit information
# prior, as wide as the information of a single value: of all priors that find large effects in five blocks, it finds
# effects of one standard deviation soonest. But its evidence after five blocks is at most 36 for any effect, too little
# for a matrix of many cells. The second is for effects of ten standard deviations or more.
_PRIORS = ((1.0, 0.98), (100.0, 0.02))
MIN_VALUES = 5  # with fewer values, nothing shows whether they are normal
# Three values are enough with eight borrowed degrees of freedom. Not more than eight count then.
MIN_VALUES_EARLY, EARLY_BORROWED_FREEDOM = 3, 8.0
MIN_LENDERS = 3  # without rounds; fewer other stacks give too noisy an estimate of how much variances differ
_LOG_DISTANCE_LIMIT = 40.0  # of the bisection: no half width is as large as exp(40) standard deviations
_BISECTIONS = 52  # after them, both limits differ only by rounding: a double has 52 bits of mantissa
_ZERO = np.array(0.0)
_Counts = NDArray[np.int64] | NDArray[np.float64]
SINGLE_STATEMENT_EVIDENCE = float(-np.log1p(-CONFIDENCE))  # the evidence that one statement needs


def log_evidence(
    mean: NDArray[np.float64],
    deviation: NDArray[np.float64],
    count: NDArray[np.int64],
    borrowed: NDArray[np.float64] = _ZERO,
    hypothesis: float = 0.0,
) -> NDArray[np.float64]:
    """Return the logarithm of the e-value against a true mean of `hypothesis`; 0 for too few values.

    All arrays have one shape: means, standard deviations, counts of values, and the degrees of freedom of the
    deviations in addition to n - 1 (`moderated_variance.py`). Too few are less than five values, or less than three
    with eight borrowed degrees of freedom. A deviation of 0 counts as the limit of small ones: the evidence is large,
    but bounded by the count.
    """
    factor = _log_bayes_factor(mean - hypothesis, deviation, count, np.maximum(count - 1, 1) + borrowed)
    return np.where(has_interval(count, borrowed), factor, 0.0)


def _log_bayes_factor(
    mean: NDArray[np.float64], deviation: NDArray[np.float64], count: _Counts, freedom: _Counts
) -> NDArray[np.float64]:
    square, variance = count * mean**2 / freedom, deviation**2
    is_defined = square + variance > 0
    parts = []
    for spread, weight in _PRIORS:
        known = 1 / (count * spread + 1)
        # (1 + t²/df) / (1 + known t²/df), both multiplied by the variance to avoid a division by 0.
        ratio = np.where(is_defined, variance + square, 1.0) / np.where(is_defined, variance + known * square, 1.0)
        parts.append(np.log(weight) + np.log(known) / 2 + (freedom + 1) / 2 * np.log(ratio))
    return np.asarray(np.logaddexp.reduce(parts))


def has_interval(count: NDArray[np.int64], borrowed: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return where there are enough values for an interval."""
    return (count >= MIN_VALUES) | ((count >= MIN_VALUES_EARLY) & (borrowed >= EARLY_BORROWED_FREEDOM))


def widths_per_deviation(
    count: NDArray[np.int64],
    borrowed: NDArray[np.float64] = _ZERO,
    needed_evidence: NDArray[np.float64] | float = SINGLE_STATEMENT_EVIDENCE,
) -> NDArray[np.float64]:
    """Return half the width of the interval in standard deviations; infinite for too few values.

    At this distance, `log_evidence` equals `needed_evidence`; by default, that of a single 95 % interval.
    """
    count, borrowed, least = np.broadcast_arrays(count, borrowed, needed_evidence)
    widths = np.empty(count.shape)
    # Without borrowed freedom, only a few pairs of arguments occur: solve each once, and cache it.
    is_plain = borrowed == 0
    for pair in {*zip(count[is_plain].tolist(), least[is_plain].tolist(), strict=True)}:
        widths[is_plain & (count == pair[0]) & (least == pair[1])] = _half_width(*pair)
    if not is_plain.all():
        freedom = np.maximum(count - 1, 1) + borrowed
        widths[~is_plain] = solve_half_widths(count[~is_plain], freedom[~is_plain], least[~is_plain])
    return np.where(has_interval(count, borrowed), widths, np.inf)


@cache  # a bisection takes a millisecond, and a run asks for the same few arguments after each block
def _half_width(count: int, needed_evidence: float) -> float:
    return float(solve_half_widths(np.array(count), np.array(max(count - 1, 1)), needed_evidence))


def solve_half_widths(
    count: _Counts, freedom: _Counts, needed_evidence: NDArray[np.float64] | float = SINGLE_STATEMENT_EVIDENCE
) -> NDArray[np.float64]:
    """Return half the widths of intervals in standard deviations of a value, with any degrees of freedom.

    Solve the Bayes factor for the distance, by bisection of its logarithm. The count need not be an integer.
    """
    low, high = np.full(count.shape, -_LOG_DISTANCE_LIMIT), np.full(count.shape, _LOG_DISTANCE_LIMIT)
    unit = np.ones(count.shape)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        is_enough = _log_bayes_factor(np.exp(middle), unit, count, freedom) >= needed_evidence
        low, high = np.where(is_enough, low, middle), np.where(is_enough, middle, high)
    return np.where(high < _LOG_DISTANCE_LIMIT, np.exp(high), np.inf)


def min_value_count(stacks: int = 1) -> int:
    """Return the minimum number of values for an interval, with moderated variances of this number of stacks.

    A stack whose variance is an outlier needs as many values as a single stack.
    """
    return MIN_VALUES_EARLY if stacks > MIN_LENDERS else MIN_VALUES


def e_bh(evidence: NDArray[np.float64], share: float = 1 - CONFIDENCE) -> NDArray[np.bool_]:
    """Return the rejections of e-BH: at most `share` of them is expected to be false (false discovery rate).

    `evidence` has the logarithms of e-values of hypotheses; those along the last axis are tested together. e-BH rejects
    the k of m hypotheses with the most evidence, for the largest k with which each has an e-value of at least
    m / (k · share). It needs no independence and holds for any stopping times (Wang and Ramdas, "False discovery rate
    control with e-values", Journal of the Royal Statistical Society B 84 (2022), 822-852).
    """
    count = evidence.shape[-1]
    if count == 0:
        return np.zeros(evidence.shape, dtype=bool)
    ordered = np.sort(evidence, axis=-1)[..., ::-1]
    needed = np.array([evidence_needed(count, made, share) for made in range(1, count + 1)])
    enough = np.where(ordered >= needed, ordered, np.inf).min(axis=-1, keepdims=True)
    return np.asarray(evidence >= enough)


def evidence_needed(count: int, made: int, share: float = 1 - CONFIDENCE) -> float:
    """Return the logarithm of the e-value that e-BH requires of each of `made` rejections out of `count` hypotheses."""
    return float(np.log(count / (min(made, count) * share)))


def evidence_needed_together(evidence: NDArray[np.float64], is_control: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the evidence that e-BH requires of each statement; those along the last axis are made together.

    Intervals with this evidence are those of e-BY: out of the intervals that e-BH selects, at most 5 % are expected to
    miss the truth (Xu, Wang and Ramdas, "Post-selection inference for e-value based confidence intervals",
    arXiv:2203.12572 (2024)). So e-BH rejects exactly the hypotheses that the intervals exclude. The A/A control is a
    check of the machine and not an answer of the run: it is judged separately, and costs the stacks no evidence.
    """
    needed = np.empty(evidence.shape)
    for mask in (is_control, ~is_control):
        count = int(mask.sum())
        made = np.maximum(e_bh(evidence[..., mask]).sum(axis=-1, keepdims=True), 1)
        needed[..., mask] = np.log(max(count, 1) / (made * (1 - CONFIDENCE)))
    return needed


def e_bh_with_control(evidence: NDArray[np.float64], is_control: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the rejections of e-BH among the stacks (last axis), with the A/A control tested separately."""
    return np.asarray(evidence >= evidence_needed_together(evidence, is_control))

"""Evidence and intervals that hold however often one looks at them.

The values are taken as independent draws of one normal distribution, whose mean and variance nobody knows. The evidence
that their mean is not a given one is the Bayes factor of Student's t, with the scale's right Haar prior and a normal
prior on the mean in units of the standard deviation (Gönen, Johnson, Lu and Westfall, "The Bayesian two-sample t test",
The American Statistician 59 (2005), 252-257). If the mean is the given one, its expectation is at most 1 at whatever
moment one stops: it is an e-value, and by Ville's inequality (1939) it ever reaches 1/a with a probability of at most
a. The means against which it has not reached that make an interval, which holds at all looks together (Lai, "On
confidence sequences", The Annals of Statistics 4 (1976), 265-280; Wang and Ramdas, "Anytime-valid t-tests and
confidence sequences for Gaussian means with unknown variance", arXiv:2310.03722 (2023), section 4).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

CONFIDENCE = 0.95
# The prior on the effect is as wide as what a single value says of it (unit information): of the priors that find large
# effects in five blocks, the one that finds effects of one standard deviation soonest. docs/decisions/anytime.md.
_PRIOR_BLOCKS = 1.0


def log_evidence(
    mean: NDArray[np.float64], deviation: NDArray[np.float64], count: NDArray[np.int64], at: float = 0.0
) -> NDArray[np.float64]:
    """Give the logarithm of the e-value against the true mean being `at`; 0 for fewer than two values.

    All arrays have one shape: means, standard deviations (n - 1) and counts of values. A deviation of 0 is the limit of
    small ones: large evidence, but no more than so few values can give.
    """
    freedom = np.maximum(count - 1, 1).astype(float)
    known = _PRIOR_BLOCKS / (count + _PRIOR_BLOCKS)
    square = count * (mean - at) ** 2 / freedom
    variance = deviation**2
    # (1 + t²/df) / (1 + known t²/df), both multiplied by the variance, so that a variance of 0 divides nothing by 0.
    ratio = np.where(square + variance > 0, variance + square, 1.0) / np.where(
        square + variance > 0, variance + known * square, 1.0
    )
    return np.where(count < 2, 0.0, np.log(known) / 2 + count / 2 * np.log(ratio))


def half_widths(
    deviation: NDArray[np.float64], count: NDArray[np.int64], confidence: float = CONFIDENCE
) -> NDArray[np.float64]:
    """Give half the width of the interval around the mean; infinite where there are too few values for any interval."""
    return widths_per_deviation(count, confidence) * deviation


def widths_per_deviation(count: NDArray[np.int64], confidence: float = CONFIDENCE) -> NDArray[np.float64]:
    """Give half the width of the interval in standard deviations: `log_evidence` solved for the distance."""
    some = np.maximum(count, 2).astype(float)
    known = _PRIOR_BLOCKS / (some + _PRIOR_BLOCKS)
    growth = np.exp(np.log(1 / ((1 - confidence) ** 2 * known)) / some)
    room = 1 - known * growth
    square = np.where(room > 0, (growth - 1) / np.where(room > 0, room, 1.0), np.inf)
    return np.where(count < 2, np.inf, np.sqrt(square * (some - 1) / some))


def least_count(confidence: float = CONFIDENCE) -> int:
    """Give the number of values from which on there is an interval."""
    counts = np.arange(2, 1000)
    return int(counts[np.isfinite(widths_per_deviation(counts, confidence))][0])


def false_discoveries_kept_rare(evidence: NDArray[np.float64], share: float = 1 - CONFIDENCE) -> NDArray[np.bool_]:
    """Tell which of many statements can be made together, so that at most this share of them is expected to be false.

    `evidence` are logarithms of e-values, one for each statement. The k statements with the most evidence are made
    where each has at least m / (k · share), for the largest such k of m: e-BH, which needs no independence and holds at
    whatever moment each of them stopped (Wang and Ramdas, "False discovery rate control with e-values", Journal of the
    Royal Statistical Society B 84 (2022), 822-852).
    """
    count = evidence.size
    if count == 0:
        return np.zeros(evidence.shape, dtype=bool)
    ordered = np.sort(evidence.ravel())[::-1]
    needed = np.log(count) - np.log(np.arange(1, count + 1) * share)
    enough = np.nonzero(ordered >= needed)[0]
    return evidence >= needed[enough[-1]] if enough.size else np.zeros(evidence.shape, dtype=bool)

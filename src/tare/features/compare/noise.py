"""Noise of two runs: how much the baseline's values vary from block to block, before and after.

A verdict compares what each run says of its stacks, so it holds for runs of unequal noise (`changes`). But a run that
is much noisier than the other one was measured on a machine in another state, which readers should know first.

The measure is the mean absolute deviation from the median, by which Brown and Forsythe compare variances ("Robust tests
for the equality of variances", Journal of the American Statistical Association 69 (1974), 364-367). With ten blocks of
equal, normal noise, 6 % of pairs differ by a factor of two by chance, and with five blocks 22 %. The median absolute
deviation would need 20 blocks for 7 %.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tare.features.compare.changes import BaselineLogs

_MAX_FACTOR = 2.0
_MIN_BLOCKS = 10  # of each run
_DEVIATIONS_PER_MEAN_AD = math.sqrt(math.pi / 2)  # normal standard deviation, in mean absolute deviations

NoiseVerdict = Literal["similar", "different", "too few blocks"]


@dataclass(frozen=True)
class NoiseComparison:
    """Noise of the baseline in a headline of two runs: standard deviations of the logarithms of its values."""

    headline: str
    before: float
    after: float
    verdict: NoiseVerdict


def compare_noise(logs: BaselineLogs) -> tuple[NoiseComparison, ...]:
    """Compare the noise of two runs in each headline, by the logarithms of the baseline's values in both."""
    return tuple(
        NoiseComparison(headline, _deviation(before), _deviation(after), _compare_deviations(before, after))
        for headline, (before, after) in logs.items()
    )


def _compare_deviations(before: NDArray[np.float64], after: NDArray[np.float64]) -> NoiseVerdict:
    if min(before.size, after.size) < _MIN_BLOCKS:
        return "too few blocks"
    low, high = sorted((_deviation(before), _deviation(after)))
    return "different" if high > _MAX_FACTOR * low else "similar"


def _deviation(logs: NDArray[np.float64]) -> float:
    return float(np.abs(logs - np.median(logs)).mean() * _DEVIATIONS_PER_MEAN_AD)

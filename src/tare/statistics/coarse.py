"""Whether values are coarser than their noise: then their spread does not show it, and intervals are too narrow.

A value that is read in steps hides what is smaller than a step. As long as the steps are smaller than the standard
deviation, the spread of the values is that of the noise, but for a twelfth of the squared step (Sheppard, "On the
calculation of the most probable values of frequency-constants, for data arranged according to equidistant division of
a scale", Proceedings of the London Mathematical Society 29 (1898), 353-380). Larger steps hide it: equal values have no
spread at all, and still are uncertain by the step (JCGM 100:2008, "Guide to the expression of uncertainty in
measurement", F.2.2.1).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tare.statistics.describe import moments

_EQUAL = 1e-12  # logarithms of equal values differ by rounding alone below this


def are_coarse(logs: NDArray[np.float64], present: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return for each row (last axis: blocks) whether values repeat, and differ by more than their SD.

    Noise without steps repeats no value. Rows of fewer than two values are not coarse.
    """
    ordered = np.sort(np.where(present, logs, np.inf), axis=-1)
    is_pair = np.isfinite(ordered[..., 1:])
    gaps = np.where(is_pair, ordered[..., 1:] - np.where(is_pair, ordered[..., :-1], 0.0), np.inf)
    is_tie = gaps < _EQUAL
    step = np.where(is_tie, np.inf, gaps).min(axis=-1, initial=np.inf)
    return np.asarray(is_tie.any(axis=-1) & (step > moments(logs, present).deviation))

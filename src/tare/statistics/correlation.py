"""Whether what a block says depends on the block before it, and by how much its interval has to be wider then.

Blocks are taken as independent. Random order within blocks makes what drifts on the whole machine cancel out; what
drifts in one stack alone does not. The correlation of each value with the one before it tells (Kendall's correction of
its bias: "Note on bias in the estimation of autocorrelation", Biometrika 41 (1954), 403-404). Of values that depend on
each other as a first-order autoregression, n say as much as n (1 - r) / (1 + r) independent ones (Bayley and
Hammersley, "The 'effective' number of independent observations in an autocorrelated time series", Supplement to the
Journal of the Royal Statistical Society 8 (1946), 184-197).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_MOST = 0.9  # beyond it, n blocks say next to nothing, and the estimate even less
_LEAST_COUNT = 4
_DOUBT = 1.28  # standard errors


def serial_correlation(
    values: NDArray[np.float64], present: NDArray[np.bool_], mean: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Give the correlation of each value with the one before it, along the last axis, corrected for its bias.

    0 where fewer than four values are present. Values that are not there interrupt the series.
    """
    count = present.sum(axis=-1)
    away = np.where(present, values - mean[..., np.newaxis], 0.0)
    products = (away[..., 1:] * away[..., :-1]).sum(axis=-1)
    squares = (away**2).sum(axis=-1)
    plain = np.where(squares > 0, products / np.where(squares > 0, squares, 1.0), 0.0)
    corrected = plain + (1 + 3 * plain) / np.maximum(count, 1)
    return np.where((count >= _LEAST_COUNT) & (squares > 0), np.clip(corrected, -_MOST, _MOST), 0.0)


def widening(correlation: NDArray[np.float64], count: NDArray[np.int64]) -> NDArray[np.float64]:
    """Give the factor for standard deviations: 1, unless the correlation is more than chance gives one time in ten.

    The standard error of no correlation is 1/√n (Bartlett, "On the theoretical specification and sampling properties of
    autocorrelated time-series", Supplement to the Journal of the Royal Statistical Society 8 (1946), 27-41). To ask for
    more evidence of it would come too late: blocks that depend on each other deceive most while they are few.
    """
    doubtful = correlation > _DOUBT / np.sqrt(np.maximum(count, 1))
    return np.where(doubtful, np.sqrt((1 + correlation) / (1 - correlation)), 1.0)

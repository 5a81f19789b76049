"""The center of the rounds of a block: their median.

What disturbs a machine for tenths of a second hits some turns of a block and not others, and hits them hard. A mean
follows each of them, a median none as long as fewer than half are hit (its breakdown point: Hampel, "A general
qualitative definition of robustness", Annals of Mathematical Statistics 42 (1971), 1887-1896).
docs/decisions/turns.md has what else was tried.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def center(values: NDArray[np.float64], present: NDArray[np.bool_], axis: int = -1) -> NDArray[np.float64]:
    """Return the median along an axis, of rounds, of the values that are present; 0 where none is."""
    values, present = np.moveaxis(values, axis, -1), np.moveaxis(present, axis, -1)
    if values.shape[-1] == 1:
        return np.where(present, values, 0.0)[..., 0]
    is_whole = bool(present.all())
    ordered = np.sort(values if is_whole else np.where(present, values, np.inf), axis=-1)
    if is_whole:  # as in nearly all blocks, and three times as quick
        last = values.shape[-1] - 1
        return np.asarray((ordered[..., last // 2] + ordered[..., (last + 1) // 2]) / 2)
    count = present.sum(axis=-1)[..., np.newaxis]
    middle = [np.take_along_axis(ordered, np.maximum(at, 0), axis=-1) for at in ((count - 1) // 2, count // 2)]
    return np.where(count > 0, np.where(count > 0, middle[0] + middle[1], 0.0) / 2, 0.0)[..., 0]

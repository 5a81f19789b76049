"""What the center of a block's rounds could be: each takes log ratios (last axis: rounds) to one number."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from audit_runs import Floats

from tare.statistics.descriptive import centers

_TRIMMED = 0.25


def median(values: Floats) -> Floats:
    """What tare takes."""
    return centers(values, np.ones(values.shape, dtype=bool))


def hodges_lehmann(values: Floats) -> Floats:
    """The median of the means of all pairs, each value with itself, too.

    Hodges and Lehmann, "Estimates of location based on rank tests", Annals of Mathematical Statistics 34 (1963),
    598-611.
    """
    one, two = np.triu_indices(values.shape[-1])
    means = np.sort((values[..., one] + values[..., two]) / 2, axis=-1)
    last = means.shape[-1] - 1
    return np.asarray((means[..., last // 2] + means[..., (last + 1) // 2]) / 2)


def trimmed_mean(values: Floats, share: float = _TRIMMED) -> Floats:
    """The mean without the lowest and the highest quarter; a value on the border counts in part."""
    count = values.shape[-1]
    places = np.arange(count)
    from_below, from_above = places + 1 - share * count, count - places - share * count
    weights = np.clip(np.minimum(from_below, from_above), 0.0, 1.0)
    return np.asarray((np.sort(values, axis=-1) * weights).sum(axis=-1) / weights.sum())


def mean(values: Floats) -> Floats:
    """What a burst moves the most."""
    return np.asarray(values.mean(axis=-1))


CENTERS: Mapping[str, Callable[[Floats], Floats]] = {
    "mean": mean,
    "trimmed mean, 25 %": trimmed_mean,
    "Hodges-Lehmann": hodges_lehmann,
    "median": median,
}

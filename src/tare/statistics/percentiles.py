"""Percentiles of single values, such as the starts of a run, where there are enough of them.

A percentile is the smallest value that at least so many percent of all do not exceed (nearest rank). Of fewer values
than `least_count`, it would be the largest of all: chance alone would decide it.
"""

from __future__ import annotations

from collections.abc import Sequence


def least_count(percent: int) -> int:
    """Return how many values a percentile needs, so that one of them is larger: 20 for the 95th, 100 for the 99th."""
    return -(-100 // (100 - percent))


def percentile(values: Sequence[float], percent: int) -> float | None:
    """Return a percentile, from the 1st to the 99th; None for too few values."""
    if len(values) < least_count(percent):
        return None
    return sorted(values)[-(-len(values) * percent // 100) - 1]

"""Percentiles of single values: the nearest rank, and none where it would be the largest of all."""

from __future__ import annotations

import pytest

from tare.statistics.percentiles import least_count, percentile


def _unsorted(count: int) -> list[float]:
    """Return the numbers from 1 on, the odd ones after the even ones."""
    return [float(each) for first in (2, 1) for each in range(first, count + 1, 2)]


@pytest.mark.parametrize(
    ("count", "percent", "expected"),
    [(2, 50, 1), (3, 50, 2), (20, 95, 19), (39, 95, 38), (40, 95, 38), (41, 95, 39), (100, 99, 99), (200, 99, 198)],
)
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(
    count: int, percent: int, expected: float
) -> None:
    assert percentile(_unsorted(count), percent) == expected


@pytest.mark.parametrize(("percent", "least"), [(50, 2), (90, 10), (95, 20), (99, 100)])
def test_fewer_values_have_no_percentile_below_their_largest(percent: int, least: int) -> None:
    assert least_count(percent) == least
    assert percentile(_unsorted(least - 1), percent) is None
    found = percentile(_unsorted(least), percent)
    assert found is not None
    assert found < least

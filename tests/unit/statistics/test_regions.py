"""Intervals beside regions: inside, outside, across; and the evidence for it."""

from __future__ import annotations

import math

import pytest

from tare.statistics.ratios import block_ratio
from tare.statistics.regions import Placed, Region, Seen, place

SEEN = Seen(0.9, 0.88, 0.9**2 / 0.88, 12)  # up to 0.9205


@pytest.mark.parametrize(("region", "where"), [
    (Region(high=1.0), "inside"),
    (Region(0.88, 0.93), "inside"),
    (Region(low=0.5), "inside"),
    (Region(), "inside"),
    (Region(low=1.0), "outside"),
    (Region(high=0.87), "outside"),
    (Region(0.95, 1.05), "outside"),
    (Region(low=0.9), "across"),
    (Region(0.89, 0.91), "across"),
    (Region(high=0.9), "across"),
])  # fmt: skip
def test_an_interval_lies_inside_of_a_region_outside_or_across_its_border(region: Region, where: str) -> None:
    assert place(SEEN, region).place == where


def test_without_an_interval_nothing_is_known() -> None:
    assert place(Seen(0.9, None, None, 4), Region(low=1.0)) == Placed("unknown")


def test_the_evidence_at_the_end_of_an_interval_is_that_which_makes_the_interval() -> None:
    assert place(SEEN, Region(low=0.88)).evidence == pytest.approx(math.log(20))
    assert place(SEEN, Region(0.88, 5.0)).evidence == pytest.approx(math.log(20))


def test_the_evidence_against_no_difference_is_that_of_the_ratio_itself() -> None:
    ratio = block_ratio([91.0, 90.2, 89.5, 90.0, 90.9, 89.8], [100.0] * 6)
    assert ratio is not None
    assert ratio.side == "less"
    found = place(Seen(ratio.ratio, ratio.low, ratio.high, ratio.n), Region(high=1.0))
    assert found.place == "inside"
    assert found.evidence == pytest.approx(ratio.evidence)


def test_the_evidence_grows_with_the_distance_from_the_border() -> None:
    near, far = (place(SEEN, Region(low=border)).evidence for border in (0.95, 1.5))
    assert math.log(20) < near < far


def test_an_interval_without_a_width_lies_somewhere_too() -> None:
    seen = Seen(0.9, 0.9, 0.9, 8)
    assert place(seen, Region(low=1.0)).place == "outside"
    assert place(seen, Region(low=1.0)).evidence > math.log(20)
    assert place(seen, Region(high=0.9)).place == "inside"


def test_the_inverse_has_the_inverse_ends() -> None:
    assert Seen(0.5, 0.4, 0.625, 7).inverse() == Seen(2.0, 1.6, 2.5, 7)
    assert Seen(0.5, None, None, 3).inverse() == Seen(2.0, None, None, 3)

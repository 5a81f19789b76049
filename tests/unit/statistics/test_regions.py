"""Intervals beside regions: inside, outside, across; and the evidence for it."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tare.statistics.anytime import widths_per_deviation
from tare.statistics.cells import Spread
from tare.statistics.ratios import block_ratio
from tare.statistics.regions import Placed, Region, Seen, place

SEEN = Seen(0.9, 12, Spread(math.log(0.9 / 0.88) / float(widths_per_deviation(np.array(12)))))  # 0.88 to 0.9205


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
    assert place(Seen(0.9, 4, Spread(0.01)), Region(low=1.0)) == Placed("unknown")


def test_the_evidence_at_the_end_of_an_interval_is_that_which_makes_the_interval() -> None:
    assert place(SEEN, Region(low=0.88)).evidence == pytest.approx(math.log(20))
    assert place(SEEN, Region(0.88, 5.0)).evidence == pytest.approx(math.log(20))


def test_the_evidence_against_no_difference_is_that_of_the_ratio_itself() -> None:
    ratio = block_ratio([91.0, 90.2, 89.5, 90.0, 90.9, 89.8], [100.0] * 6)
    assert ratio is not None
    assert ratio.side == "less"
    found = place(Seen(ratio.ratio, ratio.n, ratio.spread), Region(high=1.0))
    assert found.place == "inside"
    assert found.evidence == pytest.approx(ratio.evidence)


def test_the_evidence_grows_with_the_distance_from_the_border() -> None:
    near, far = (place(SEEN, Region(low=border)).evidence for border in (0.95, 1.5))
    assert math.log(20) < near < far


def test_an_interval_without_a_width_lies_somewhere_too() -> None:
    seen = Seen(0.9, 8, Spread(0.0))
    assert place(seen, Region(low=1.0)).place == "outside"
    assert place(seen, Region(low=1.0)).evidence > math.log(20)
    assert place(seen, Region(high=0.9)).place == "inside"


def test_what_borrows_is_surer_and_a_baseline_that_differs_from_itself_makes_it_less_sure() -> None:
    plain, surer, unsure = (Seen(0.9, 6, Spread(0.02, *more)) for more in ((), (10.0,), (10.0, 0.01)))
    assert surer.half < plain.half
    assert unsure.half == pytest.approx(surer.half + 0.01)
    evidences = [place(seen, Region(low=1.0)).evidence for seen in (plain, unsure, surer)]
    assert evidences == sorted(evidences)


def test_the_inverse_has_the_inverse_ends() -> None:
    inverse = SEEN.inverse()
    assert SEEN.low is not None
    assert SEEN.high is not None
    assert (inverse.estimate, inverse.low, inverse.high) == pytest.approx((1 / 0.9, 1 / SEEN.high, 1 / SEEN.low))
    assert Seen(0.5, 3, Spread(0.1)).inverse().low is None

"""The correction: an example worked by hand, and that its intervals hold in simulations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tare.answers.bill import Estimate
from tare.answers.correction import Reference, corrected, learn


def scored(score: float, predicted: float = 1.5) -> Reference:
    """A reference whose score is this."""
    x = math.log(predicted)
    return Reference(predicted, math.exp(x + score * (0.03 + abs(x))))


def test_nine_references_worked_by_hand() -> None:
    # Scores of 0.1 to 0.9, sum 4.5. The center is 4.5 / 11. Without score z it is (4.5 - z) / 10. Of nine, the interval
    # reaches from the smallest of center - distance to the largest of center + distance. Both are those of z = 0.9,
    # where the center is 0.36 and the distance 0.54.
    found = learn([scored(tenths / 10) for tenths in range(1, 10)])
    assert found is not None
    assert found.center == pytest.approx(4.5 / 11)
    assert found.low == pytest.approx(-0.18)
    assert found.high == pytest.approx(0.9)
    assert found.applications == 9


def test_fewer_than_nine_references_teach_nothing() -> None:
    assert learn([scored(0.1)] * 8) is None
    assert learn([scored(0.1)] * 9) is not None


def test_of_nineteen_references_one_may_lie_outside_and_of_nine_none() -> None:
    many, few = (learn([scored(0.0)] * others + [scored(5.0)]) for others in (18, 8))
    assert many is not None
    assert few is not None
    assert many.high < 1
    assert few.high == pytest.approx(5)


def test_bills_that_were_right_are_left_as_they_are() -> None:
    found = learn([scored(0.0)] * 9)
    assert found is not None
    time = corrected(Estimate(1.5, 1.4, 1.6), found)
    assert (time.value, time.low, time.high) == pytest.approx((1.5, 1.4, 1.6))


def test_bills_that_were_too_low_are_raised_by_most_of_the_error() -> None:
    found = learn([scored(0.2)] * 18)
    assert found is not None
    assert found.center == pytest.approx(0.18)  # 18 / 20 of it
    time = corrected(Estimate(3.0, 3.0, 3.0), found)
    assert time.value == pytest.approx(3 * math.exp(0.18 * (0.03 + math.log(3))))
    assert time.high is not None
    assert time.high >= 3 * math.exp(0.2 * (0.03 + math.log(3)))


def test_intervals_hold_new_applications_about_as_often_as_they_say() -> None:
    chance = np.random.default_rng(4)
    held = []
    for _ in range(600):
        bias = chance.normal(0, 0.3)
        own = [scored(bias + 0.2 * chance.standard_t(3), 1 + chance.exponential(0.8)) for _ in range(13)]
        found = learn(own[:12])
        assert found is not None
        time = corrected(Estimate(own[12].predicted, own[12].predicted, own[12].predicted), found)
        assert time.low is not None
        assert time.high is not None
        held.append(time.low <= own[12].measured <= time.high)
    assert 0.87 < np.mean(held) < 0.96

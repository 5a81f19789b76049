"""The correction: an example worked by hand, and that its intervals hold in simulations."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tare.features.advise.calibration import ReferencePrediction, apply_calibration, fit_calibration
from tare.features.advise.cost_model import CostEstimate


def exactly(value: float) -> CostEstimate:
    """A prediction that its prices leave no doubt of."""
    return CostEstimate(value, value, value)


def expected(predicted: float) -> float:
    """The error of its logarithm that can be expected."""
    return math.hypot(0.03, 0.3 * math.log(predicted))


def scored(score: float, predicted: float = 1.5) -> ReferencePrediction:
    """A reference whose score is this."""
    return ReferencePrediction(exactly(predicted), exactly(predicted * math.exp(score * expected(predicted))))


def test_nine_references_worked_by_hand() -> None:
    # Scores of 0.1 to 0.9, and four zeros: the median of these thirteen is the third score. Without a lower score it is
    # 0.35, without a higher one 0.25, each the mean of two. A shift is 0.3 |x| times that, here called h. The residual
    # of the last is 0.9 s - 0.25 h over s, so that the interval reaches from 0.25 h less that to 0.25 h more than that.
    found = fit_calibration([scored(tenths / 10) for tenths in range(1, 10)])
    assert found is not None
    assert found.center == pytest.approx(0.3)
    assert found.reference_count == 9
    scale, shift = expected(1.5), 0.3 * math.log(1.5)
    time = apply_calibration(exactly(1.5), found)
    ends = (math.log(end / 1.5) for end in (time.low or 0.0, time.value, time.high or 0.0))
    assert tuple(ends) == pytest.approx((0.5 * shift - 0.9 * scale, 0.3 * shift, 0.9 * scale))


def test_fewer_than_nine_references_teach_nothing() -> None:
    assert fit_calibration([scored(0.1)] * 8) is None
    assert fit_calibration([scored(0.1)] * 9) is not None


def test_of_nineteen_references_one_may_lie_outside_and_of_nine_none() -> None:
    many, few = (fit_calibration([scored(0.0)] * others + [scored(5.0)]) for others in (18, 8))
    assert many is not None
    assert few is not None
    ends = [(apply_calibration(exactly(1.5), each).high or 0.0) / 1.5 for each in (many, few)]
    assert math.log(ends[0]) < expected(1.5)
    assert math.log(ends[1]) == pytest.approx(5 * expected(1.5))


@pytest.mark.parametrize(("above", "center"), [(9, 0.0), (10, 0.2), (13, 0.2)])
def test_bills_are_corrected_where_three_in_four_were_off_to_the_same_side(above: int, center: float) -> None:
    found = fit_calibration([scored(0.2)] * above + [scored(-0.2)] * (13 - above))
    assert found is not None
    assert found.center == pytest.approx(center)


def test_an_application_that_is_far_off_does_not_move_the_correction() -> None:
    found, with_outlier = (fit_calibration([scored(0.1)] * 11 + [scored(last)]) for last in (0.1, 40.0))
    assert found is not None
    assert with_outlier is not None
    assert found.center == with_outlier.center == pytest.approx(0.1)


def test_an_error_counts_by_what_prices_and_measurement_allow() -> None:
    sure = ReferencePrediction(exactly(1.5), exactly(1.8))
    unsure = ReferencePrediction(CostEstimate(1.5, 1.0, 2.25), CostEstimate(1.8, 1.5, 2.16))
    assert sure.score == pytest.approx(math.log(1.2) / expected(1.5))
    assert unsure.score == pytest.approx(
        math.log(1.2) / math.hypot(expected(1.5), math.log(1.5) / 2, math.log(1.2) / 2)
    )


def test_bills_that_were_right_are_left_as_they_are() -> None:
    found = fit_calibration([scored(0.0)] * 9)
    assert found is not None
    time = apply_calibration(CostEstimate(1.5, 1.4, 1.6), found)
    assert (time.value, time.low, time.high) == pytest.approx((1.5, 1.5, 1.5))


def test_bills_that_were_too_low_are_raised_and_what_costs_nothing_is_not() -> None:
    found = fit_calibration([scored(0.2)] * 18)
    assert found is not None
    assert apply_calibration(exactly(3.0), found).value == pytest.approx(3 * math.exp(0.2 * 0.3 * math.log(3)))
    assert apply_calibration(exactly(1.0), found).value == 1.0


def test_intervals_hold_new_applications_about_as_often_as_they_say() -> None:
    chance = np.random.default_rng(4)
    held = []
    for _ in range(600):
        bias = chance.normal(0, 0.3)
        samples = [scored(bias + 0.2 * chance.standard_t(3), 1 + chance.exponential(0.8)) for _ in range(13)]
        found = fit_calibration(samples[:12])
        assert found is not None
        time = apply_calibration(samples[12].predicted, found)
        assert time.low is not None
        assert time.high is not None
        held.append(time.low <= samples[12].measured.value <= time.high)
    assert 0.87 < np.mean(held) < 0.96

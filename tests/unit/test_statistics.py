from __future__ import annotations

import numpy as np
import pytest

from tare.statistics.describe import describe
from tare.statistics.interval import student_interval
from tare.statistics.ratios import block_ratio

# Student (1908), the additional hours of sleep gained by the second drug over the first, of ten patients.
SLEEP = (1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4)


def test_the_interval_of_students_sleep_data_is_the_published_one() -> None:
    interval = student_interval(SLEEP)
    assert interval is not None
    assert (round(interval.mean, 2), round(interval.low, 2), round(interval.high, 2)) == (1.58, 0.70, 2.46)
    assert interval.n == 10


def test_students_sleep_data_are_described_as_published() -> None:
    found = describe(SLEEP)
    assert found is not None
    assert found.sd is not None
    assert (found.n, round(found.mean, 2), round(found.sd, 2)) == (10, 1.58, 1.23)
    assert (found.minimum, found.maximum) == (0.0, 4.6)


def test_a_higher_confidence_needs_a_wider_interval() -> None:
    interval = student_interval(SLEEP, confidence=0.99)
    assert interval is not None
    assert (round(interval.low, 2), round(interval.high, 2)) == (0.32, 2.84)


def test_one_value_has_no_interval_and_no_deviation() -> None:
    assert student_interval([4.0]) is None
    found = describe([4.0])
    assert found is not None
    assert (found.mean, found.sd, found.relative_sd) == (4.0, None, None)


def test_no_values_have_no_description() -> None:
    assert describe([]) is None
    assert student_interval([]) is None


def test_a_mean_of_zero_has_no_relative_deviation() -> None:
    found = describe([-1.0, 1.0])
    assert found is not None
    assert found.relative_sd is None


def test_large_values_close_together_keep_their_deviation() -> None:
    found = describe([1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16])
    assert found is not None
    assert found.sd == pytest.approx(5.477226)


def test_a_ratio_is_the_geometric_mean_of_its_blocks_with_students_interval() -> None:
    ratio = block_ratio([80.0, 180.0, 50.0], [100.0, 200.0, 50.0])
    assert ratio is not None
    assert ratio.ratio == pytest.approx(0.896281, abs=1e-6)
    assert ratio.low == pytest.approx(0.679223, abs=1e-5)
    assert ratio.high == pytest.approx(1.182705, abs=1e-5)
    assert (ratio.n, ratio.separated, ratio.zero_width) == (3, False, False)


def test_what_disturbs_a_whole_block_does_not_widen_the_interval() -> None:
    ratio = block_ratio([90.0, 45.1, 179.8], [100.0, 50.0, 200.0])
    assert ratio is not None
    assert ratio.separated
    assert ratio.high == pytest.approx(0.9038, abs=1e-3)


def test_one_block_gives_a_ratio_without_an_interval() -> None:
    ratio = block_ratio([90.0], [100.0])
    assert ratio is not None
    assert (ratio.low, ratio.high, ratio.separated) == (None, None, False)


def test_no_block_gives_no_ratio() -> None:
    assert block_ratio([], []) is None


def test_equal_ratios_have_an_interval_without_width_that_is_flagged() -> None:
    ratio = block_ratio([50.0, 100.0, 30.0], [100.0, 200.0, 60.0])
    assert ratio is not None
    assert ratio.low == ratio.ratio == ratio.high == pytest.approx(0.5)
    assert ratio.zero_width


def test_equal_values_are_not_separated_however_narrow_their_interval() -> None:
    ratio = block_ratio([7.0, 7.0], [7.0, 7.0])
    assert ratio is not None
    assert ratio.zero_width
    assert not ratio.separated


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_value_without_a_logarithm_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="above zero"):
        block_ratio([value, 1.0], [1.0, 1.0])


def test_two_wild_blocks_have_a_finite_interval() -> None:
    ratio = block_ratio([1e140, 1e-140], [1e-140, 1e140])
    assert ratio is not None
    assert ratio.high is not None
    assert np.isfinite(ratio.high)


def test_ninety_five_of_a_hundred_intervals_hold_the_true_ratio() -> None:
    chance = np.random.default_rng(1908)
    truth, runs, blocks = 0.93, 4000, 5
    native = np.exp(chance.normal(10, 0.2, (runs, blocks)))
    stack = native * truth * np.exp(chance.normal(0, 0.05, (runs, blocks)))
    found = [block_ratio(list(ours), list(theirs)) for ours, theirs in zip(stack, native, strict=True)]
    held = [ratio.low <= truth <= ratio.high for ratio in found if ratio and ratio.low and ratio.high]
    assert len(held) == runs
    assert 0.94 <= sum(held) / runs <= 0.96

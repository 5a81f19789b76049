from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tare.statistics.describe import Description, describe
from tare.statistics.ratios import Ratio, block_ratio

# Student (1908), the additional hours of sleep gained by the second drug over the first, of ten patients.
SLEEP = (1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4)


def described(*values: float) -> Description:
    found = describe(values)
    assert found is not None
    return found


def ratio_of(stack: Sequence[float], baseline: Sequence[float]) -> Ratio:
    ratio = block_ratio(stack, baseline)
    assert ratio is not None
    return ratio


def test_students_sleep_data_are_described_as_published() -> None:
    found = described(*SLEEP)
    assert (found.n, found.minimum, found.maximum) == (10, 0.0, 4.6)
    assert (found.mean, found.sd) == pytest.approx((1.58, 1.23), abs=0.005)


def test_one_value_has_no_deviation_a_mean_of_zero_no_relative_one_and_no_value_no_description() -> None:
    found = described(4.0)
    assert (found.mean, found.sd, found.relative_sd) == (4.0, None, None)
    assert described(-1.0, 1.0).relative_sd is None
    assert describe([]) is None


def test_large_values_close_together_keep_their_deviation() -> None:
    assert described(1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16).sd == pytest.approx(5.477226)


def test_a_ratio_is_the_geometric_mean_of_its_blocks_in_the_middle_of_its_interval() -> None:
    ratio = ratio_of([80.0, 180.0, 50.0, 45.0, 95.0], [100.0, 200.0, 50.0, 50.0, 100.0])
    assert ratio.ratio == pytest.approx((0.8 * 0.9 * 1 * 0.9 * 0.95) ** 0.2)
    assert ratio.ratio == pytest.approx(((ratio.low or 0.0) * (ratio.high or 0.0)) ** 0.5)
    assert (ratio.n, ratio.side, ratio.zero_width) == (5, "undecided", False)


def test_what_disturbs_a_whole_block_does_not_widen_the_interval() -> None:
    ratio = ratio_of([90.0, 45.1, 179.8, 9.02, 270.1], [100.0, 50.0, 200.0, 10.0, 300.0])
    assert ratio.side == "less"
    assert ratio.high == pytest.approx(0.905, abs=2e-3)


def test_equal_ratios_have_an_interval_without_width_that_is_flagged() -> None:
    ratio = ratio_of([50.0, 100.0, 30.0, 40.0, 10.0], [100.0, 200.0, 60.0, 80.0, 20.0])
    assert ratio.low == ratio.ratio == ratio.high == pytest.approx(0.5)
    assert (ratio.zero_width, ratio.side) == (True, "less")
    alike = ratio_of([7.0] * 5, [7.0] * 5)
    assert (alike.zero_width, alike.side) == (True, "equivalent")


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_value_without_a_logarithm_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="above zero"):
        block_ratio([value, 1.0], [1.0, 1.0])


def test_wild_blocks_have_a_finite_interval() -> None:
    ratio = ratio_of([1e140, 1e-140] * 3, [1e-140, 1e140] * 3)
    assert np.isfinite([ratio.low or np.nan, ratio.high or np.nan]).all()

from __future__ import annotations

import numpy as np
import pytest

from tare.statistics.describe import describe
from tare.statistics.ratios import block_ratio

# Student (1908), the additional hours of sleep gained by the second drug over the first, of ten patients.
SLEEP = (1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4)


def test_students_sleep_data_are_described_as_published() -> None:
    found = describe(SLEEP)
    assert found is not None
    assert found.sd is not None
    assert (found.n, round(found.mean, 2), round(found.sd, 2)) == (10, 1.58, 1.23)
    assert (found.minimum, found.maximum) == (0.0, 4.6)


def test_one_value_has_no_interval_and_no_deviation() -> None:
    found = describe([4.0])
    assert found is not None
    assert (found.mean, found.sd, found.relative_sd) == (4.0, None, None)


def test_no_values_have_no_description() -> None:
    assert describe([]) is None


def test_a_mean_of_zero_has_no_relative_deviation() -> None:
    found = describe([-1.0, 1.0])
    assert found is not None
    assert found.relative_sd is None


def test_large_values_close_together_keep_their_deviation() -> None:
    found = describe([1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16])
    assert found is not None
    assert found.sd == pytest.approx(5.477226)


def test_a_ratio_is_the_geometric_mean_of_its_blocks() -> None:
    ratio = block_ratio([80.0, 180.0, 50.0, 45.0, 95.0], [100.0, 200.0, 50.0, 50.0, 100.0])
    assert ratio is not None
    assert ratio.ratio == pytest.approx((0.8 * 0.9 * 1 * 0.9 * 0.95) ** 0.2)
    assert ratio.low is not None
    assert ratio.high is not None
    assert ratio.ratio == pytest.approx((ratio.low * ratio.high) ** 0.5)
    assert (ratio.n, ratio.side, ratio.zero_width) == (5, "undecided", False)


def test_what_disturbs_a_whole_block_does_not_widen_the_interval() -> None:
    ratio = block_ratio([90.0, 45.1, 179.8, 9.02, 270.1], [100.0, 50.0, 200.0, 10.0, 300.0])
    assert ratio is not None
    assert ratio.side == "less"
    assert ratio.high == pytest.approx(0.905, abs=2e-3)


@pytest.mark.parametrize("blocks", [1, 2, 4])
def test_few_blocks_give_a_ratio_without_an_interval(blocks: int) -> None:
    ratio = block_ratio([90.0] * blocks, [100.0] * blocks)
    assert ratio is not None
    assert (ratio.low, ratio.high, ratio.side) == (None, None, "too few blocks")


def test_no_block_gives_no_ratio() -> None:
    assert block_ratio([], []) is None


def test_equal_ratios_have_an_interval_without_width_that_is_flagged() -> None:
    ratio = block_ratio([50.0, 100.0, 30.0, 40.0, 10.0], [100.0, 200.0, 60.0, 80.0, 20.0])
    assert ratio is not None
    assert ratio.low == ratio.ratio == ratio.high == pytest.approx(0.5)
    assert (ratio.zero_width, ratio.side) == (True, "less")


def test_equal_values_are_equivalent() -> None:
    ratio = block_ratio([7.0] * 5, [7.0] * 5)
    assert ratio is not None
    assert (ratio.zero_width, ratio.side) == (True, "equivalent")


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_a_value_without_a_logarithm_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="above zero"):
        block_ratio([value, 1.0], [1.0, 1.0])


def test_wild_blocks_have_a_finite_interval() -> None:
    ratio = block_ratio([1e140, 1e-140] * 3, [1e-140, 1e140] * 3)
    assert ratio is not None
    assert ratio.high is not None
    assert np.isfinite(ratio.high)

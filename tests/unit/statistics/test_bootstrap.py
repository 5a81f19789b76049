"""Bootstrap intervals, against the formula written a second time, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tare.statistics.bootstrap import DRAW_COUNT, bootstrap_bounds, bootstrap_means, bootstrap_share, bootstrap_weights

ONES = [1.0, 1.0]  # as the baseline, they leave the mean as it is
VALUES = [4.81, 4.17, 4.41, 3.59, 5.87, 3.83, 6.03, 4.89, 4.32, 4.69]


def test_the_bootstrap_interval_is_efron_s() -> None:
    values = np.array(VALUES)
    means = np.random.default_rng(1987).choice(values, (400_000, len(values))).mean(axis=1)
    below = np.mean(means < values.mean()) + np.mean(means == values.mean()) / 2
    bias = stats.norm.ppf(below)
    left_out = np.array([np.delete(values, index).mean() for index in range(len(values))])
    away = left_out.mean() - left_out
    acceleration = (away**3).sum() / (6 * (away**2).sum() ** 1.5)
    ends = bias + stats.norm.ppf([0.025, 0.975])
    expected = np.quantile(means, stats.norm.cdf(bias + ends / (1 - acceleration * ends)))
    found = bootstrap_share(VALUES, ONES, seed=1)
    assert found.estimate == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=0.02)


def test_the_same_seed_gives_the_same_interval() -> None:
    assert bootstrap_share(VALUES, ONES, seed=7) == bootstrap_share(VALUES, ONES, seed=7)
    assert bootstrap_share(VALUES, ONES, seed=7) != bootstrap_share(VALUES, ONES, seed=8)


def test_the_interval_of_a_share_of_the_baseline_mostly_covers_the_truth() -> None:
    chance = np.random.default_rng(30)
    missed = 0
    for seed in range(200):
        found = bootstrap_share(list(chance.normal(92, 3, 30)), list(chance.normal(100, 3, 30)), seed)
        assert found.low is not None
        assert found.high is not None
        missed += not found.low <= 0.92 <= found.high
    assert missed / 200 <= 0.1


@pytest.mark.parametrize(
    ("values", "baseline", "estimate"),
    [
        ([4.0, 4.0], [5.0, 5.0], 0.8),
        ([4.0, 5.0], [5.0], 0.9),
        ([4.0, 0.0], [5.0, 6.0], None),
        ([1e200, 2e200], [1e-200, 2e-200], None),
        ([], [5.0, 6.0], None),
    ],
)
def test_no_variation_gives_no_interval_and_no_ratio_gives_no_share(
    values: list[float], baseline: list[float], estimate: float | None
) -> None:
    found = bootstrap_share(values, baseline, seed=1)
    assert found.estimate == (None if estimate is None else pytest.approx(estimate))
    assert (found.low, found.high) == (None, None)


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        bootstrap_share([1.0, float("inf")], ONES, seed=1)


# --- block bootstrap means: intervals hold also for few values, and whole blocks are resampled ---


def test_the_first_draw_is_the_mean_and_each_draw_has_as_many_values() -> None:
    weights = bootstrap_weights(4, np.random.default_rng(1))
    assert weights.shape == (DRAW_COUNT + 1, 4)
    assert (weights.sum(axis=1) == 4).all()
    values = np.array([1.0, 2.0, 3.0, 6.0])
    assert bootstrap_means(values, np.ones(4, dtype=bool), weights)[0] == 3.0


def test_two_rows_that_differ_by_a_constant_differ_by_it_in_every_draw() -> None:
    weights = bootstrap_weights(5, np.random.default_rng(1))
    row = np.array([0.3, 0.1, 0.9, 0.2, 0.5])
    means = bootstrap_means(np.stack([row, row + 7]), np.ones((2, 5), dtype=bool), weights)
    assert means.shape == (DRAW_COUNT + 1, 2)
    assert means[:, 1] - means[:, 0] == pytest.approx(7.0)


def test_what_is_missing_is_left_out_and_nothing_at_all_is_not_a_number() -> None:
    weights = bootstrap_weights(3, np.random.default_rng(1))
    present = np.array([[True, False, True], [False, False, False]])
    means = bootstrap_means(np.array([[1.0, 99.0, 2.0], [1.0, 1.0, 1.0]]), present, weights)
    assert means[0, 0] == 1.5
    assert np.isfinite(means[:, 0]).all()
    assert np.isnan(means[:, 1]).all()


@pytest.mark.parametrize("count", [3, 5, 12, 30])
def test_the_interval_of_a_mean_holds_in_about_ninety_of_a_hundred_cases(count: int) -> None:
    chance, held = np.random.default_rng(count), []
    for _ in range(300):
        values = chance.normal(size=count)
        low, high = bootstrap_bounds(
            bootstrap_means(values, np.ones(count, dtype=bool), bootstrap_weights(count, chance))
        )
        held.append(low <= 0 <= high)
    assert 0.83 < np.mean(held) < 0.96

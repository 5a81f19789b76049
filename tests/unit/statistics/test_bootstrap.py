"""Bootstrap intervals, against the formula written a second time, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from tare.statistics.bootstrap import bootstrap_mean, bootstrap_share

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
    found = bootstrap_mean(VALUES, seed=1)
    assert found.estimate == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=0.02)


def test_the_same_seed_gives_the_same_interval() -> None:
    assert bootstrap_mean(VALUES, seed=7) == bootstrap_mean(VALUES, seed=7)
    assert bootstrap_mean(VALUES, seed=7) != bootstrap_mean(VALUES, seed=8)


def test_five_values_make_the_bootstrap_too_narrow() -> None:
    chance = np.random.default_rng(5)
    missed = 0
    for seed in range(300):
        found = bootstrap_mean(list(chance.normal(10, 1, 5)), seed)
        assert found.low is not None
        assert found.high is not None
        missed += not found.low <= 10 <= found.high
    assert 0.08 < missed / 300 < 0.22


def test_a_share_of_the_baseline_has_an_interval_in_which_the_truth_mostly_lies() -> None:
    chance = np.random.default_rng(30)
    missed = 0
    for seed in range(200):
        found = bootstrap_share(list(chance.normal(92, 3, 30)), list(chance.normal(100, 3, 30)), seed)
        assert found.low is not None
        assert found.high is not None
        missed += not found.low <= 0.92 <= found.high
    assert missed / 200 <= 0.1


def test_without_variation_there_is_an_estimate_and_no_interval() -> None:
    assert bootstrap_mean([4.0, 4.0, 4.0], seed=1).reason == "all values are equal"
    assert bootstrap_share([4.0, 4.0], [5.0, 5.0], seed=1).estimate == pytest.approx(0.8)
    assert bootstrap_share([4.0, 4.0], [5.0, 5.0], seed=1).reason == "neither side varies"
    assert bootstrap_share([4.0, 0.0], [5.0, 6.0], seed=1).reason.startswith("a value is zero or negative")
    assert bootstrap_share([4.0, 5.0], [5.0], seed=1).reason == "the baseline has only one value"
    assert bootstrap_mean([], seed=1).reason == "there is no value"


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        bootstrap_mean([1.0, float("inf")], seed=1)

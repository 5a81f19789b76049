"""Means that are drawn anew: their intervals hold, also for few values, and whole blocks are drawn."""

from __future__ import annotations

import numpy as np
import pytest

from tare.statistics.redrawn import DRAWS, drawn_means, drawn_weights, ends_of


def test_the_first_draw_is_the_mean_and_each_draw_has_as_many_values() -> None:
    weights = drawn_weights(4, np.random.default_rng(1))
    assert weights.shape == (DRAWS + 1, 4)
    assert (weights.sum(axis=1) == 4).all()
    values = np.array([1.0, 2.0, 3.0, 6.0])
    assert drawn_means(values, np.ones(4, dtype=bool), weights)[0] == 3.0


def test_two_rows_that_differ_by_a_constant_differ_by_it_in_every_draw() -> None:
    weights = drawn_weights(5, np.random.default_rng(1))
    row = np.array([0.3, 0.1, 0.9, 0.2, 0.5])
    means = drawn_means(np.stack([row, row + 7]), np.ones((2, 5), dtype=bool), weights)
    assert means.shape == (DRAWS + 1, 2)
    assert means[:, 1] - means[:, 0] == pytest.approx(7.0)


def test_what_is_missing_is_left_out_and_nothing_at_all_is_not_a_number() -> None:
    weights = drawn_weights(3, np.random.default_rng(1))
    present = np.array([[True, False, True], [False, False, False]])
    means = drawn_means(np.array([[1.0, 99.0, 2.0], [1.0, 1.0, 1.0]]), present, weights)
    assert means[0, 0] == 1.5
    assert np.isfinite(means[:, 0]).all()
    assert np.isnan(means[:, 1]).all()


@pytest.mark.parametrize("count", [3, 5, 12, 30])
def test_the_interval_of_a_mean_holds_in_about_ninety_of_a_hundred_cases(count: int) -> None:
    chance, held = np.random.default_rng(count), []
    for _ in range(300):
        values = chance.normal(size=count)
        low, high = ends_of(drawn_means(values, np.ones(count, dtype=bool), drawn_weights(count, chance)))
        held.append(low <= 0 <= high)
    assert 0.83 < np.mean(held) < 0.96

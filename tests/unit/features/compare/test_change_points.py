"""Changes of level in a series of runs: what is found, how soon, and how often falsely."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import integrate, stats

from tare.features.compare.change_points import (
    _PRIOR_VARIANCE_RATIO,
    MIN_RUNS_PER_LEVEL,
    _split_points,
    change_points,
    estimate_autocorrelation,
    evidence_needed,
)

NONE = np.zeros(100)


def series(seed: int, count: int, *steps: tuple[int, float], sd: float = 1.0) -> NDArray[np.float64]:
    """Normal values, with a change of level by so much from a run on."""
    values = np.random.default_rng(seed).normal(0, sd, count)
    for at, size in steps:
        values[at:] += size
    return values


def test_the_evidence_for_a_place_is_the_likelihood_ratio_of_t() -> None:
    # From first principles: t is noncentral with δ√(n₁n₂/n), and δ is normal around 0 (Gönen et al. 2005, section 2).
    values = series(2, 12, (7, 1.5))
    places = _split_points(values, NONE[:12], 0, 12)
    assert places is not None
    for index, at in enumerate(places.at):
        root = math.sqrt(at * (12 - at) / 12)
        t = stats.ttest_ind(values[at:], values[:at]).statistic

        def density(d: float, t: float = t, root: float = root) -> float:
            return float(stats.nct.pdf(t, 10, d * root) * stats.norm.pdf(d, scale=math.sqrt(_PRIOR_VARIANCE_RATIO)))

        marginal, _ = integrate.quad(density, -8, 8, limit=200)
        expected = math.log(marginal / stats.t.pdf(t, 10))
        assert places.evidence[index] - places.log_weight[index] == pytest.approx(expected, abs=1e-3)


def test_the_weights_of_all_places_add_up_to_one() -> None:
    places = _split_points(np.zeros(10_000), np.zeros(10_000), 0, 10_000)
    assert places is not None
    assert np.exp(places.log_weight).sum() == pytest.approx(1, abs=2e-4)


def test_looking_after_every_run_gives_false_alarms_at_most_1_time_in_20() -> None:
    found = sum(bool(change_points(series(seed, 40), NONE[:40])) for seed in range(150))
    assert found / 150 <= 0.05


def test_a_change_of_five_deviations_is_found_in_a_few_runs_at_its_place() -> None:
    delays, places, others = [], [], 0
    for seed in range(50):
        points = [each for each in change_points(series(seed, 40, (12, 5.0)), NONE[:40]) if each.detected_at >= 12]
        delays.append(points[0].detected_at - 11)
        places.append(points[0].at)
        others += len(points) - 1
    assert np.median(delays) <= 5
    assert places.count(12) >= 45
    assert others <= 3


def test_the_interval_of_a_change_covers_it() -> None:
    points = [each for seed in range(80) for each in change_points(series(seed, 30, (12, 6.0)), NONE[:30])]
    covered = [abs(each.log_change - 6.0) <= each.half_width for each in points]
    assert np.mean(covered) >= 0.95


def test_the_interval_ends_where_the_evidence_falls_below_what_is_needed() -> None:
    values = series(5, 30, (12, 6.0))
    [point] = change_points(values, NONE[:30])
    for end in (point.log_change - point.half_width, point.log_change + point.half_width):
        moved = values.copy()
        moved[point.at :] -= end
        places = _split_points(moved, NONE[:30], 0, 30)
        assert places is not None
        [index] = np.flatnonzero(places.at == point.at)
        assert places.evidence[index] == pytest.approx(evidence_needed(1, 1))


def test_neither_two_bad_runs_in_a_row_nor_a_bad_first_run_is_a_change() -> None:
    for first, end in ((0, 1), (10, 12), (18, 20)):
        values = series(3, 20)
        values[first:end] += 30.0
        assert change_points(values, NONE[:20]) == ()


def test_levels_that_go_up_and_come_back_are_two_changes() -> None:
    points = change_points(series(4, 60, (20, 8.0), (40, -8.0)), NONE[:60])
    assert [each.at for each in points] == [20, 40]
    assert [each.log_change > 0 for each in points] == [True, False]


def test_runs_that_differ_by_less_than_their_own_errors_say_nothing() -> None:
    values = np.repeat([0.0, 0.01], 4)
    assert change_points(values, np.full(8, 0.02)) == ()
    assert len(change_points(np.repeat([0.0, 0.01], 10), np.full(20, 0.0001))) == 1


def test_independent_runs_are_uncorrelated_and_a_random_walk_is_correlated() -> None:
    assert np.mean([estimate_autocorrelation([series(seed, 30)], 1)[0] for seed in range(300)]) == pytest.approx(
        0, abs=0.03
    )
    beyond = [estimate_autocorrelation([series(seed, 30)], 1) for seed in range(300)]
    assert np.mean([found > chance for found, chance in beyond]) <= 0.06
    assert estimate_autocorrelation([np.cumsum(series(1, 60))], 1)[0] > 0.5
    assert estimate_autocorrelation([np.zeros(9), np.array([1.0])], 2) == (0.0, 1.0)


def test_a_change_is_firm_if_found_even_with_three_times_the_variance() -> None:
    values = series(1, 40, (12, 4.0))
    [point] = change_points(values, NONE[:40])
    assert point.robust_from is not None
    assert point.robust_from > point.detected_at
    [early] = change_points(values[: point.robust_from], NONE[: point.robust_from])
    assert (early.at, early.detected_at, early.robust_from) == (point.at, point.detected_at, None)
    assert (
        change_points(values[: point.robust_from + 1], NONE[: point.robust_from + 1])[0].robust_from
        == point.robust_from
    )


def test_noise_that_lasts_from_run_to_run_makes_no_firm_change() -> None:
    firm = found = 0
    for seed in range(80):
        values = series(seed, 40)
        for at in range(1, 40):
            values[at] = 0.5 * values[at - 1] + math.sqrt(0.75) * values[at]
        points = change_points(values, NONE[:40])
        found += bool(points)
        firm += any(point.robust_from is not None for point in points)
    assert firm / 80 <= 0.05
    assert found >= firm


def test_equal_values_have_not_changed() -> None:
    assert change_points(np.full(50, 0.3), NONE[:50]) == ()


def test_more_series_that_are_looked_at_together_need_more_evidence() -> None:
    values = series(1, 20, (10, 4.0))
    alone, together = (change_points(values, NONE[:20], count)[0] for count in (1, 1000))
    assert together.detected_at > alone.detected_at
    assert together.half_width > alone.half_width


@settings(max_examples=25)
@given(st.integers(0, 1000), st.integers(5, 40), st.floats(-9, 9))
def test_what_was_found_stays_found_when_runs_are_added(seed: int, count: int, size: float) -> None:
    values = series(seed, 40, (15, size))
    early = change_points(values[:count], NONE[:count])
    late = [each for each in change_points(values, NONE[:40]) if each.detected_at < count]
    assert [(each.at, each.detected_at) for each in late] == [(each.at, each.detected_at) for each in early]


@settings(max_examples=25)
@given(st.integers(0, 1000), st.floats(-5, 5), st.floats(0.001, 1000))
def test_neither_the_level_nor_the_unit_matters(seed: int, level: float, unit: float) -> None:
    values = series(seed, 25, (12, 6.0))
    plain = change_points(values, NONE[:25])
    other = change_points(level + values * unit, NONE[:25])
    assert [(each.at, each.detected_at) for each in other] == [(each.at, each.detected_at) for each in plain]
    assert [each.log_change for each in other] == pytest.approx([each.log_change * unit for each in plain])


def test_a_change_has_three_runs_on_either_side() -> None:
    for point in change_points(series(6, 30, (15, 20.0)), NONE[:30]):
        assert MIN_RUNS_PER_LEVEL <= point.at <= 30 - MIN_RUNS_PER_LEVEL
        assert point.earliest <= point.at <= point.latest

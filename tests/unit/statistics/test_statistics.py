from __future__ import annotations

from collections.abc import Sequence

import audit_runs
import audit_turns
import numpy as np
import pytest
from audit_centers import CENTERS, hodges_lehmann, median, trimmed_mean
from audit_turns import MOMENTS, ROUNDS, Bursts, Moment, speeds, turns_of
from hypothesis import given
from hypothesis import strategies as some
from scipy import stats

from tare.features.advise.capacity import response_seconds
from tare.features.papers.popularity import row_scores, shares_of_largest
from tare.statistics.dependence import BlockEffects, find_effects
from tare.statistics.descriptive import Description, describe, min_percentile_count, percentile
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


def test_one_value_has_no_sd_zero_mean_no_relative_sd_no_value_no_summary() -> None:
    found = described(4.0)
    assert (found.mean, found.sd, found.relative_sd) == (4.0, None, None)
    assert described(-1.0, 1.0).relative_sd is None
    assert describe([]) is None


def test_large_values_close_together_keep_their_deviation() -> None:
    assert described(1e9 + 4, 1e9 + 7, 1e9 + 13, 1e9 + 16).sd == pytest.approx(5.477226)


def test_a_ratio_is_the_geometric_mean_of_blocks_centered_in_its_interval() -> None:
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


# --- percentiles of single values: the nearest rank, and none where it would be the largest of all -------------------


def _unsorted(count: int) -> list[float]:
    """Return the numbers from 1 on, the odd ones after the even ones."""
    return [float(each) for first in (2, 1) for each in range(first, count + 1, 2)]


@pytest.mark.parametrize(
    ("count", "percent", "expected"),
    [(2, 50, 1), (3, 50, 2), (20, 95, 19), (39, 95, 38), (40, 95, 38), (41, 95, 39), (100, 99, 99), (200, 99, 198)],
)
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(
    count: int, percent: int, expected: float
) -> None:
    assert percentile(_unsorted(count), percent) == expected


@pytest.mark.parametrize(("percent", "least"), [(50, 2), (90, 10), (95, 20), (99, 100)])
def test_fewer_values_have_no_percentile_below_their_largest(percent: int, least: int) -> None:
    assert min_percentile_count(percent) == least
    assert percentile(_unsorted(least - 1), percent) is None
    found = percentile(_unsorted(least), percent)
    assert found is not None
    assert found < least


# --- the queue M/M/c, against a published table ----------------------------------------------------------------------


@pytest.mark.parametrize(("cpus", "waits"), [(1, 9.0), (2, 4.26), (5, 1.53), (10, 0.67), (20, 0.28)])
def test_it_agrees_with_adan_and_resing(cpus: int, waits: float) -> None:
    # Adan and Resing, "Queueing Systems", 2015, table 5.1: mean waiting times at a load of 0.9, service time 1.
    found = response_seconds(0.9 * cpus, 1.0, cpus)
    assert found is not None
    assert found - 1 == pytest.approx(waits, abs=0.0051)


def test_nobody_waits_without_load_and_nothing_is_answered_with_too_much() -> None:
    assert response_seconds(1e-9, 2.0, 4) == pytest.approx(2.0)
    assert response_seconds(2.0, 2.0, 4) is None


# --- VTmark's row_score, against what the paper's text says: the numbers in its Figures 1 to 3 are only drawn --------

TABLES = some.integers(1, 5).flatmap(
    lambda width: some.lists(some.lists(some.floats(0.001, 1e9), min_size=width, max_size=width), min_size=1)
)


def test_docker_and_kubernetes_have_the_scores_of_the_numbers_in_the_text() -> None:
    # Section 2.2: Docker has 75K threads on Stack Overflow, Kubernetes about 30 % of Docker's searches and questions.
    docker, kubernetes = (100, 75_000), (30, 22_500)
    assert row_scores((docker, kubernetes)) == pytest.approx((1, 0.3))


def test_searches_three_orders_of_magnitude_lower_have_almost_no_share() -> None:
    # Section 2.2: Docker is that much more popular than any competitor, so Figure 3 leaves it out.
    assert shares_of_largest(((1000, 75_000), (1, 75_000))) == ((1, 1), (0.001, 1))
    assert row_scores(((1000, 75_000), (1, 75_000))) == pytest.approx((1, 0.5005))


def test_a_score_averages_columns_and_large_numbers_give_no_extra_weight() -> None:
    assert row_scores(((4, 1_000_000), (2, 1_000_000), (1, 500_000))) == pytest.approx((1, 0.75, 0.375))


@given(TABLES)
def test_scores_are_from_0_to_1_and_no_unit_of_a_column_changes_them(rows: list[list[float]]) -> None:
    scores = row_scores(rows)
    assert all(0 < score <= 1 for score in scores)
    other_unit = [[number * (1000 if at == 0 else 1) for at, number in enumerate(row)] for row in rows]
    assert row_scores(other_unit) == pytest.approx(scores)


@pytest.mark.parametrize("rows", [((1, 0), (2, 0)), ((1, -1), (2, 1)), ((1, 2), (1,)), ((float("nan"),),)])
def test_a_table_without_scores_is_refused(rows: tuple[tuple[float, ...], ...]) -> None:
    with pytest.raises(ValueError, match=r"column|argument"):
        row_scores(rows)


# --- effects


def made(seed: int, slope: float = 0.0, drift: float = 0.0, blocks: int = 30) -> tuple[np.ndarray, np.ndarray]:
    chance = np.random.default_rng(seed)
    places = np.array([chance.permutation(5) for _ in range(blocks)]).T
    stacks, machine = chance.normal(0, 1, (5, 1)), chance.normal(0, drift, (1, blocks))
    return stacks + machine + slope * places + chance.normal(0, 0.02, (5, blocks)), places


def effects(logs: np.ndarray, usable: np.ndarray, places: np.ndarray) -> BlockEffects:
    found = find_effects(logs, usable, places)
    assert found is not None
    return found


def test_drift_and_order_are_found_as_they_were_put_in() -> None:
    logs, places = made(1, slope=0.01, drift=0.1)
    found = effects(logs, np.ones(logs.shape, dtype=bool), places)
    assert found.per_position == pytest.approx(0.01, abs=0.004)
    assert found.blocks == pytest.approx(0.1, rel=0.4)
    assert found.error == pytest.approx(0.02, rel=0.2)
    assert found.has_position_effect


def test_what_is_missing_does_not_move_the_estimates() -> None:
    logs, places = made(2, slope=0.01, drift=0.1)
    usable = np.random.default_rng(3).random(logs.shape) > 0.3
    found = effects(np.where(usable, logs, 1e6), usable, places)
    assert found.per_position == pytest.approx(0.01, abs=0.006)
    assert found.error == pytest.approx(0.02, rel=0.25)


def test_the_estimate_is_that_of_least_squares() -> None:
    logs, places = made(4, slope=0.02, drift=0.05, blocks=6)
    usable = np.random.default_rng(5).random(logs.shape) > 0.2
    rows = [(stack, block) for stack, block in np.ndindex(logs.shape) if usable[stack, block]]
    design = np.zeros((len(rows), 5 + 6 + 1))
    for row, (stack, block) in enumerate(rows):
        design[row, [stack, 5 + block]] = 1
        design[row, -1] = places[stack, block]
    wanted = np.linalg.lstsq(design, np.array([logs[row] for row in rows]), rcond=None)[0][-1]
    assert effects(logs, usable, places).per_position == pytest.approx(wanted)


def test_order_is_found_by_chance_in_one_run_of_twenty() -> None:
    runs = [made(seed, drift=0.05, blocks=12) for seed in range(400)]
    found = [find_effects(logs, np.ones(logs.shape, dtype=bool), places) for logs, places in runs]
    share = sum(each is not None and each.has_position_effect for each in found) / 400
    assert share == pytest.approx(0.05, abs=0.035)


@pytest.mark.parametrize(("stacks", "blocks"), [(1, 9), (5, 1), (0, 0)])
def test_too_little_says_nothing(stacks: int, blocks: int) -> None:
    logs = np.zeros((stacks, blocks))
    assert find_effects(logs, np.ones(logs.shape, dtype=bool), logs.astype(int)) is None


# --- centers

# Hamilton's depression scale of nine patients before and after a session of therapy: Salsburg (1970), as in Hollander
# and Wolfe, Nonparametric Statistical Methods (1973), examples 3.1 and 3.3.
BEFORE = np.array([1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30])
AFTER = np.array([0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29])
ROWS = some.lists(some.floats(-10, 10), min_size=1, max_size=12)


def test_the_hodges_lehmann_estimate_matches_the_hollander_wolfe_example() -> None:
    assert hodges_lehmann(AFTER - BEFORE) == pytest.approx(-0.46)


def test_the_trimmed_mean_is_scipys_where_whole_values_are_trimmed() -> None:
    values = np.random.default_rng(1).normal(size=(5, 12))
    assert trimmed_mean(values) == pytest.approx(stats.trim_mean(values, 0.25, axis=-1))
    # Of ten, two and a half on either side: the third and the eighth count half.
    assert trimmed_mean(np.arange(10.0) ** 2) == pytest.approx((4 / 2 + 9 + 16 + 25 + 36 + 49 / 2) / 5)


@pytest.mark.parametrize("name", CENTERS)
@given(row=ROWS)
def test_every_center_follows_a_shift_and_a_change_of_sign(name: str, row: list[float]) -> None:
    center, values = CENTERS[name], np.array(row)
    assert center(values + 3) == pytest.approx(center(values) + 3, abs=1e-9)
    assert center(-values) == pytest.approx(-center(values), abs=1e-9)


def test_what_runs_in_a_burst_loses_the_share_that_the_burst_takes() -> None:
    bursts = Bursts(np.array([[1.0]]), np.array([[2.0]]), np.array([[0.5]]))
    found = speeds(bursts, np.array([[0.0, 0.95, 1.2, 1.95, 3.0]]), 0.1)
    assert found == pytest.approx(np.array([[1.0, 0.75, 0.5, 0.75, 1.0]]))


def test_no_turn_starts_in_a_full_burst_and_a_running_one_ends_after_it() -> None:
    bursts = Bursts(np.array([[1.0]]), np.array([[2.0]]), np.array([[1.0]]))
    found = speeds(bursts, np.array([[0.0, 0.95, 1.2, 3.0]]), 0.1)
    # What had begun did 50 ms and saw the clock again a second later; what was to begin in the burst did so after it.
    assert found == pytest.approx(np.array([[1.0, 0.05 / 1.05, 1.0, 1.0]]))


@pytest.mark.parametrize("moment", [each for each in MOMENTS if each.share], ids=lambda each: each.name)
def test_bursts_have_the_share_of_the_time_that_was_asked_for(moment: Moment) -> None:
    bursts = audit_turns.bursts_of(moment, 4000, np.random.default_rng(2))
    assert bursts
    seconds = ROUNDS * moment.instances * moment.seconds
    within = (np.minimum(bursts.end, seconds) - np.maximum(bursts.begin, 0)).clip(0).sum() / seconds / 4000
    assert within == pytest.approx(moment.share, abs=0.04)


def test_turns_under_bursts_differ_tenfold_less_than_successive_runs() -> None:
    moment = next(each for each in MOMENTS if each.share == 0.5)
    turns, alone = turns_of(moment, 10, np.random.default_rng(3))
    assert turns.shape == (10, 3, audit_runs.BLOCKS, ROUNDS)
    one_by_one = (alone[:, 1] - alone[:, 0]).std()
    assert one_by_one > 10 * median(turns[:, 1] - turns[:, 0]).std()

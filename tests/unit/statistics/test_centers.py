"""The centers that the audit compares, and the time along which it simulates turns."""

from __future__ import annotations

import audit_runs
import audit_turns
import numpy as np
import pytest
from audit_centers import CENTERS, hodges_lehmann, median, trimmed_mean
from audit_turns import MOMENTS, ROUNDS, Bursts, Moment, speeds, turns_of
from hypothesis import given
from hypothesis import strategies as some
from scipy import stats

# Hamilton's depression scale of nine patients before and after a session of therapy: Salsburg (1970), as in Hollander
# and Wolfe, Nonparametric Statistical Methods (1973), examples 3.1 and 3.3.
BEFORE = np.array([1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30])
AFTER = np.array([0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29])
ROWS = some.lists(some.floats(-10, 10), min_size=1, max_size=12)


def test_the_hodges_lehmann_estimate_is_that_of_hollander_and_wolfes_example() -> None:
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


def test_a_burst_that_takes_all_lets_a_turn_begin_after_it_and_end_after_it() -> None:
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


def test_turns_under_bursts_differ_tenfold_less_than_what_is_measured_one_after_the_other() -> None:
    moment = next(each for each in MOMENTS if each.share == 0.5)
    turns, alone = turns_of(moment, 10, np.random.default_rng(3))
    assert turns.shape == (10, 3, audit_runs.BLOCKS, ROUNDS)
    one_by_one = (alone[:, 1] - alone[:, 0]).std()
    assert one_by_one > 10 * median(turns[:, 1] - turns[:, 0]).std()

"""Shapes of distributions: false alarms for noise, detection of real shapes, and the texts of notes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from numpy.typing import NDArray
from scipy import stats

from tare.statistics.shapes import Shapes, compute_scores, find_shapes

NOISE = 0.02
ROWS = 4000


def look(rows: NDArray[np.float64]) -> Shapes:
    return find_shapes(rows, np.ones(rows.shape, dtype=bool))


def shares(rows: NDArray[np.float64]) -> tuple[float, float, float, float]:
    """In percent of rows: blocks are far; tails are heavy; one of the two; there are two groups."""
    found = look(rows)
    assert not found.distinct.any()  # no row of continuous noise looks coarse
    far, two = found.is_far.any(axis=1), found.size > 0
    each = (far, found.is_heavy_tailed, far | found.is_heavy_tailed, two)
    return tuple(100 * float(said.mean()) for said in each)  # type: ignore[return-value]


# --- how often it speaks -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [8, 15, 30, 100])
def test_of_normal_noise_at_most_two_rows_in_a_hundred_have_a_note(count: int) -> None:
    rows = np.random.default_rng(1964).normal(-0.08, NOISE, (20_000, count))
    far, heavy, either, two = shares(rows)
    assert either + two <= 2.0
    assert min(far, heavy, two) > 0.3  # a detector that never speaks of noise hears little else


@pytest.mark.parametrize(("count", "expected"), [(15, (12, 6, 17)), (30, (31, 13, 37)), (100, (78, 54, 86))])
def test_heavy_tails_are_noted_as_often_as_the_module_says(count: int, expected: tuple[int, int, int]) -> None:
    rows = NOISE * np.random.default_rng(3).standard_t(3, (ROWS, count))
    assert shares(rows)[:3] == pytest.approx(expected, abs=2)
    assert shares(rows)[3] <= 1  # far values make no second group


@pytest.mark.parametrize(("away", "expected"), [(0.06, (6, 14, 56)), (0.12, (75, 94, 100))])
def test_two_groups_are_noted_as_often_as_the_module_says(away: float, expected: tuple[int, int, int]) -> None:
    chance = np.random.default_rng(1969)
    for count, share in zip((15, 30, 100), expected, strict=True):
        rows = chance.normal(0, NOISE, (ROWS, count)) + np.where(chance.random((ROWS, count)) < 0.3, np.log1p(-away), 0)
        assert shares(rows)[3] == pytest.approx(share, abs=2)


def test_lopsided_noise_is_hardly_ever_taken_for_two_groups() -> None:
    rows = np.exp(0.5 * np.random.default_rng(5).normal(size=(ROWS, 30)))
    assert shares(rows)[3] <= 3


# --- what it says --------------------------------------------------------------------------------------------------

CALM = np.log1p(np.array([1, -4, 3, 0, -2, 6, -1, 2, -3, 5, -5, 4, -6, 7, -7, 8]) / 1000)
LAPLACE = stats.laplace.ppf((np.arange(60) + 0.5) / 60) / 50


def notes(row: Sequence[float] | NDArray[np.float64], blocks: Sequence[int]) -> tuple[str, ...]:
    """Return the notes on one row of log ratios; `blocks` are the numbers of its values."""
    return look(np.asarray(row, dtype=float)).describe((), blocks)


def test_blocks_that_lie_far_from_the_others_are_named() -> None:
    row = np.insert(np.insert(CALM, 2, np.log(0.9)), 10, np.log(0.85))
    assert notes(row, range(1, 19))[0] == "2 of 18 blocks lie far from the others: blocks 3 and 11"


def test_of_many_far_blocks_six_are_named() -> None:
    row = np.concatenate([np.tile(CALM, 4) + np.arange(64) * 1e-5, np.linspace(0.1, 0.9, 9)])
    assert notes(row, range(1, 74)) == (
        "9 of 73 blocks lie far from the others: blocks 65, 66, 67, 68, 69, 70 and 3 more",
        "heavy tails: more blocks lie far out than normal noise explains",
    )


@pytest.mark.parametrize(("row", "note"), [
    (np.insert(CALM, 4, np.log(1.4)), "1 of 17 blocks lies far from the others: block 9"),  # it explains the heavy tail
    (LAPLACE, "heavy tails: more blocks lie far out than normal noise explains"),
    ([*np.log(1.01) + CALM[:12], *np.log(0.92) + CALM[:6]], "two groups of blocks: 6 around 92 %, 12 around 101 %"),
    ([*np.log(1.002) + CALM / 30, *np.log(0.999) + CALM / 30],
     "two groups of blocks: 16 around 99.9 %, 16 around 100.2 %"),
    (np.log([1.0, 1.0, 1.02, 1.0, 1.0, 0.98, 1.0, 1.02, 1.5]),
     "only 4 different ratios in 9 blocks: the measurement is coarser than its noise"),
], ids=["one far block", "heavy tails", "two groups", "two groups close together", "coarse"])  # fmt: skip
def test_a_row_has_one_diagnosis(row: Sequence[float], note: str) -> None:
    blocks = (1, 2, 3, 4, 9, *range(10, 100))[: len(row)]  # some blocks have failed
    assert notes(row, blocks) == (note,)


@pytest.mark.parametrize(
    "row",
    [
        [],
        [0.1],
        [0.1, 5.0, 0.1, 0.1],
        [0.1] * 30,
        list(0.1 + 1e-15 * np.arange(30)),
        list(CALM),
        list(np.linspace(-0.1, 0.1, 9)),
    ],
    ids=["none", "one", "four", "equal", "equal but for rounding", "calm", "even"],
)
def test_where_nothing_is_found_nothing_is_said(row: list[float]) -> None:
    assert notes(row, range(len(row))) == ()


# --- what must not matter ------------------------------------------------------------------------------------------

LOGS = some.lists(some.floats(-700, 700), max_size=40)


@given(LOGS)
def test_whatever_the_values_are_the_scores_are_numbers(row: list[float]) -> None:
    found = compute_scores(np.array(row), np.ones(len(row), dtype=bool))
    assert np.isfinite([found.evenness, found.groups, found.low, found.high]).all()
    assert np.isfinite(found.distance).all()
    text = " ".join(notes(row, range(len(row))))
    assert "nan" not in text
    assert "inf" not in text


@given(some.integers(0, 2**32), some.integers(5, 60), some.floats(-3, 3), some.floats(0.01, 100))
def test_moving_and_stretching_a_row_changes_no_score(seed: int, count: int, moved: float, factor: float) -> None:
    row = np.random.default_rng(seed).standard_t(3, count)
    there = np.ones(count, dtype=bool)
    before, after = compute_scores(row, there), compute_scores(moved + factor * row, there)
    assert after.distance == pytest.approx(before.distance)
    assert after.evenness == pytest.approx(before.evenness)
    assert after.groups == pytest.approx(before.groups)


@given(some.integers(0, 2**32), some.integers(5, 40), some.integers(0, 10))
def test_rows_do_not_touch_each_other_and_absent_values_none(seed: int, count: int, absent: int) -> None:
    chance = np.random.default_rng(seed)
    rows = chance.standard_t(2, (3, 2, count + absent))
    present = np.ones(rows.shape, dtype=bool)
    left_out = chance.permutation(count + absent)[:absent]
    present[1, 1, left_out] = False
    blocks = np.arange(1, count + absent + 1)
    alone = notes(rows[1, 1][present[1, 1]], tuple(blocks[present[1, 1]]))
    assert find_shapes(rows, present).describe((1, 1), tuple(blocks)) == alone
    assert find_shapes(np.where(present, rows, 1e300), present).describe((1, 1), tuple(blocks)) == alone


def test_a_workload_without_blocks_has_no_shape() -> None:
    found = find_shapes(np.zeros((4, 0)), np.zeros((4, 0), dtype=bool))
    assert found.is_far.shape == (4, 0)
    assert found.describe((2,), ()) == ()

"""Autocorrelated blocks: estimates by hand and by simulation, false alarms, and the decisions then."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from hypothesis.extra.numpy import arrays
from tare_fake.noise import DRAWS, Shape, shaped

from tare.statistics.dependence import (
    Dependence,
    autocorrelation_of_rows,
    explaining_correlation,
    pooled_autocorrelation,
    subtract_means,
)
from tare.statistics.headlines import relative_to_baseline
from tare.statistics.ratios import MARGIN, BaselineRows, CommonWidening, RatioComparison, compare, compare_together

SD = 0.037


def everywhere(values: np.ndarray) -> np.ndarray:
    return np.ones(values.shape, dtype=bool)


def noise(shape: Shape, size: tuple[int, int, int], correlation: float = 0.0, seed: int = 1954) -> np.ndarray:
    """Draw stacks, runs and blocks."""
    return shaped(np.random.default_rng(seed).normal(size=(*size, DRAWS)), shape, correlation)


def each(values: np.ndarray) -> Dependence:
    return autocorrelation_of_rows(values, everywhere(values), values.mean(axis=-1))


# --- one stack -------------------------------------------------------------------------------------------------------


def test_the_correlation_of_one_row_is_what_a_hand_computes() -> None:
    # Away from the mean of 3: -2, -1, 1, 2; products 2 - 1 + 2 = 3, squares 10. 0.3 + (1 + 0.9) / 4 = 0.775.
    found = each(np.array([1.0, 2.0, 4.0, 5.0]))
    assert found.correlation == pytest.approx(0.775)
    # Chance: a mean of -1/4 and a deviation of 2 / (4 √3) = 0.289, so that one in twenty is above 0.225.
    # The estimate is known to 1.75 · 0.289 = 0.505; with true ones of 0.3, 0.775 / (1 + (0.505 / 0.3)²) is believed.
    assert found.factor == pytest.approx(np.sqrt(1.2020 / 0.7980), rel=1e-3)


def test_a_correlation_widens_the_more_the_better_it_is_known() -> None:
    rising = [float(each(np.arange(float(blocks))).factor) for blocks in (5, 8, 20, 60)]
    assert rising == sorted(rising)
    assert rising[0] < 1.5  # chance alone makes five blocks rise
    assert rising[-1] > 2.5
    known = each(noise("correlated", (1, 1, 4000), 0.5))
    assert known.factor == pytest.approx(np.sqrt(1.5 / 0.5), rel=0.1)


def test_the_correlation_of_an_autoregression_is_found_without_bias() -> None:
    found = each(noise("correlated", (1, 4000, 40), 0.5))
    assert found.correlation.mean() == pytest.approx(0.5, abs=0.03)
    assert (found.factor > 1).mean() > 0.85


@pytest.mark.parametrize("blocks", [5, 8, 20, 60])
def test_independent_blocks_are_doubted_one_time_in_twenty(blocks: int) -> None:
    assert (each(noise("normal", (1, 4000, blocks))).factor > 1).mean() == pytest.approx(0.05, abs=0.02)


def test_three_blocks_say_nothing_of_their_correlation() -> None:
    found = each(np.array([1.0, 2.0, 3.0]))
    assert (float(found.correlation), float(found.factor)) == (0, 1)


def test_a_block_that_is_not_there_interrupts_the_series() -> None:
    values, present = np.array([1.0, 4.0, 9.0, 5.0, 2.0]), np.array([True, True, False, True, True])
    found = autocorrelation_of_rows(values, present, np.array(3.0))  # products -2 - 2 = -4, squares 10
    assert found.correlation == pytest.approx(-0.4 + (1 - 1.2) / 4)


# --- all stacks together ---------------------------------------------------------------------------------------------


def test_of_two_stacks_all_together_is_their_difference() -> None:
    logs = np.random.default_rng(1).normal(size=(2, 30))
    assert pooled_autocorrelation(logs, everywhere(logs)).correlation == pytest.approx(
        each(logs[1] - logs[0]).correlation
    )


def test_three_stacks_together_are_what_a_hand_computes() -> None:
    # The means of stacks and blocks are 0 as it is. Products of the second: 2 - 4 + 2 = 0, of the third as many.
    first = np.array([1.0, 2.0, -2.0, -1.0])
    logs = np.array([np.zeros(4), first, -first])
    found = pooled_autocorrelation(logs, everywhere(logs))
    assert found.correlation == pytest.approx(0 + (1 + 0) / 4)


@pytest.mark.parametrize(("stacks", "blocks"), [(3, 5), (3, 20), (12, 5), (12, 20), (12, 60)])
def test_independent_stacks_are_doubted_about_one_time_in_ten(stacks: int, blocks: int) -> None:
    found = pooled_autocorrelation(noise("normal", (stacks, 3000, blocks)), np.ones((stacks, 3000, blocks), dtype=bool))
    assert 0.06 < (found.factor > 1).mean() < 0.14


def test_a_dozen_stacks_show_in_eight_blocks_what_one_does_not() -> None:
    logs = noise("correlated", (12, 1000, 8), 0.5)
    found = pooled_autocorrelation(logs, everywhere(logs))
    assert (found.factor > 1).mean() > 0.9
    assert (each(logs).factor > 1).mean() < 0.3
    assert found.correlation.mean() == pytest.approx(0.5, abs=0.15)


def test_if_stacks_drift_apart_half_of_their_variance_never_averages_out() -> None:
    logs = noise("drift", (12, 500, 20))
    factor = pooled_autocorrelation(logs, everywhere(logs)).factor
    assert np.isclose(factor, np.sqrt((1 + 20) / 2)).mean() > 0.75


def test_five_blocks_that_rise_do_not_make_intervals_absurd() -> None:
    logs = np.arange(3)[:, np.newaxis] * np.arange(5.0) + 0.1 * np.random.default_rng(5).normal(size=(3, 5))
    assert pooled_autocorrelation(logs, everywhere(logs)).factor == pytest.approx(np.sqrt((1 + 5) / 2))


def test_one_noisy_stack_does_not_raise_more_false_alarms() -> None:
    logs = noise("normal", (12, 3000, 20))
    logs[3] *= 10
    assert (pooled_autocorrelation(logs, everywhere(logs)).factor > 1).mean() < 0.14


def test_stacks_that_leave_the_schedule_raise_no_false_alarm() -> None:
    logs = noise("normal", (12, 3000, 30))
    logs += np.arange(12)[
        :, np.newaxis, np.newaxis
    ]  # what a stack has for an effect must not stay in the blocks' means
    present = everywhere(logs)
    for stack in range(4, 12):
        present[stack, :, 2 * stack :] = False
    assert (pooled_autocorrelation(logs, present).factor > 1).mean() < 0.14


def test_values_that_differ_by_rounding_alone_do_not_depend_on_each_other() -> None:
    logs = np.array([np.zeros(8), 1e-15 * np.arange(8), np.ones(8)])
    found = pooled_autocorrelation(logs, everywhere(logs))
    assert (float(found.correlation), float(found.factor)) == (0, 1)


LOGS = arrays(float, some.tuples(some.integers(1, 5), some.integers(1, 12)), elements=some.floats(-3, 3))


@given(LOGS, some.floats(-2, 2))
def test_what_a_stack_or_a_block_has_for_an_effect_does_not_matter(logs: np.ndarray, effect: float) -> None:
    moved = logs + effect * np.arange(logs.shape[1]) - effect * np.arange(logs.shape[0])[:, np.newaxis]
    there, here = subtract_means(moved, everywhere(logs)), subtract_means(logs, everywhere(logs))
    assert there == pytest.approx(here, abs=1e-9)


@given(LOGS, some.data())
def test_whatever_is_there_the_factor_is_finite_and_widens(logs: np.ndarray, data: some.DataObject) -> None:
    present = data.draw(arrays(bool, logs.shape))
    found = pooled_autocorrelation(logs, present)
    assert np.abs(found.correlation) <= 0.9
    assert 1 <= found.factor <= np.sqrt(19) + 1e-9  # more than the drift of twelve blocks comes to


# --- decisions with autocorrelated blocks ---


def test_intervals_of_all_stacks_widen_if_all_depend_on_previous_blocks() -> None:
    logs = SD * noise("correlated", (8, 1, 12), 0.8)[:, 0]
    ratios = logs - logs[0]
    alone, found = (
        compare(ratios, everywhere(ratios)),
        compare_together(ratios, everywhere(ratios), MARGIN, BaselineRows(0)),
    )
    assert found.in_all_stacks[1:].any()
    assert (found.half_widths[1:] >= alone.half_widths[1:]).all()
    assert (found.half_widths[1:] > alone.half_widths[1:]).any()


def test_if_the_baseline_differs_from_itself_a_stack_must_differ_by_more() -> None:
    blocks = np.arange(8)
    shiver = 0.001 * (-1.0) ** blocks
    ratios = np.array([0 * shiver, 0.04 + shiver, 0.06 - shiver, 0.05 + shiver])
    found = compare_together(ratios, everywhere(ratios), MARGIN, BaselineRows(0, 3))
    assert found.offset == pytest.approx([0.05, 0.05, 0.05, 0])
    sides = [ratio.side for ratio in (found.ratio_at((row,)) for row in range(1, 4)) if ratio]
    assert sides == ["undecided", "more", "more"]
    plain = compare_together(ratios, everywhere(ratios), MARGIN, BaselineRows(0))
    assert found.difference_evidence[3] == plain.difference_evidence[3]
    assert found.difference_evidence[1] < 0 < found.difference_evidence[2] < plain.difference_evidence[2]


def test_a_baseline_that_is_like_itself_changes_nothing() -> None:
    logs = SD * noise("normal", (5, 1, 20), seed=3)[:, 0]
    ratios = relative_to_baseline(logs[..., np.newaxis], everywhere(logs)[..., np.newaxis], BaselineRows(0, 4)).logs
    with_control, without = (
        compare_together(ratios, everywhere(ratios), MARGIN, BaselineRows(0, row)) for row in (4, None)
    )
    assert (with_control.half_widths == without.half_widths).all()
    assert (with_control.evidence == without.evidence).all()


# --- what autocorrelation a decision tolerates ---------------------------------------------------------------------


def test_the_correlation_that_explains_a_distance_is_what_a_hand_computes() -> None:
    # Twice the half width: √((1 + 0.6) / (1 - 0.6)) = 2. Within it, nothing is needed; no width is never wide enough.
    away, half = np.array([2.0, 1.0, 0.5, -1.0, 1.0, 1.0, 0.0]), np.array([1.0, 1.0, 1.0, 1.0, 0.0, np.inf, 0.0])
    assert explaining_correlation(away, half) == pytest.approx([0.6, 0, 0, 0, 1, 0, 0])


ROWS = some.lists(some.floats(-0.2, 0.2), min_size=5, max_size=30)


@given(ROWS, some.floats(0, 0.02))
def test_up_to_what_it_tolerates_it_is_decided_and_beyond_it_is_not(row: list[float], offset: float) -> None:
    logs = np.array(row)
    there = everywhere(logs)

    def side(correlation: float) -> str:
        factor = np.sqrt((1 + correlation) / (1 - correlation))
        found = compare(logs, there, common=CommonWidening(np.array(factor), np.array(offset))).ratio_at(())
        assert found
        return found.side

    found = compare(logs, there, common=CommonWidening(np.array(1.0), np.array(offset))).ratio_at(())
    assert found
    if found.tolerated_autocorrelation is None:
        assert not found.is_decided
    elif found.tolerated_autocorrelation < 0.999:
        assert found.is_decided
        assert side(found.tolerated_autocorrelation - 1e-6) == found.side
        assert side(found.tolerated_autocorrelation + 1e-6) != found.side


def decided(found: RatioComparison) -> tuple[np.ndarray, np.ndarray]:
    """Return the masks of cells that are found different, and of those that are decided at all."""
    away = np.abs(found.mean)
    return away > found.half_widths, (away > found.half_widths) | (away + found.half_widths < found.limit)


NOISES: list[tuple[Shape, float]] = [("correlated", 0.3), ("correlated", 0.5), ("drift", 0.5)]


@pytest.mark.parametrize(("shape", "correlation"), NOISES)
def test_what_is_decided_early_seldom_tolerates_noise_that_decided_it(shape: Shape, correlation: float) -> None:
    logs = SD * noise(shape, (3, 2000, 40), correlation, seed=7)
    logs = relative_to_baseline(logs[..., np.newaxis], everywhere(logs)[..., np.newaxis], BaselineRows(0, 2)).logs
    false, unsaid, going = 0, 0, np.arange(2000)
    for count in range(5, 41):
        few = logs[:, going, :count]
        found = compare_together(few, everywhere(few), MARGIN, BaselineRows(0, 2))
        different, any_of = (each[1] for each in decided(found))
        false += different.sum()
        unsaid += (different & (found.tolerated_autocorrelation[1] >= correlation)).sum()
        going = going[~any_of]
    assert false > 0.05 * 2000
    assert unsaid <= 0.05 * 2000

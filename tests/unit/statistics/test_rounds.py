"""Turns: pairs within a round, both trials of the baseline, and a median that one wild round does not move."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from runs import DHRYSTONE, make_run, make_trial, measured

from tare.model.trial import MeasuredValue, Trial
from tare.statistics.descriptive import centers
from tare.statistics.grid import Grid, build_grid
from tare.statistics.headlines import LogRatios, log_ratios, relative_to_baseline
from tare.statistics.ratios import BaselineRows, compare_together
from tare.statistics.summarize import summarize

STACKS = ("native", "docker", "crun", "native-again")
BOTH = BaselineRows(0, 3)
ROUNDS = 5
TURNS = some.lists(some.floats(1e-3, 1e6), min_size=ROUNDS, max_size=ROUNDS)


def in_turns(*turns: float) -> MeasuredValue:
    return replace(measured("speed", float(np.mean(turns))), turns=tuple(turns))


def grid_of(*trials: Trial) -> Grid:
    return build_grid(DHRYSTONE, STACKS, trials)


def grid_in_turns(*rows: list[float]) -> Grid:
    """A block of all stacks, each with its turns."""
    return grid_of(*(make_trial(stack, 0, [in_turns(*row)]) for stack, row in zip(STACKS, rows, strict=True)))


def logs_of(grid: Grid, reference: BaselineRows = BOTH) -> np.ndarray:
    return log_ratios(grid, reference).logs[:, 0, 0]


def test_a_block_value_is_the_median_of_round_ratios_to_both_baselines() -> None:
    docker = [50.0, 60.0, 10.0, 40.0, 80.0]
    grid = grid_in_turns([100.0] * 5, docker, [100.0] * 5, [121.0] * 5)
    # The mean of the logarithms of both ratios is that of the ratio to 110.
    assert logs_of(grid) == pytest.approx([0.0, math.log(50 / 110), math.log(100 / 110), math.log(1.21)])
    assert (grid.values[1, 0, 0], grid.turns.shape) == (48.0, (4, 1, 1, 5))


def test_with_one_turn_per_stack_both_baseline_trials_count_too() -> None:
    grid = grid_of(*(make_trial(stack, 0, [measured("speed", value)]) for stack, value in zip(
        STACKS, (100.0, 55.0, 110.0, 121.0), strict=True
    )))  # fmt: skip
    assert logs_of(grid) == pytest.approx([0.0, math.log(0.5), 0.0, math.log(1.21)])
    assert logs_of(grid, BaselineRows(0)) == pytest.approx(np.log([1.0, 0.55, 1.1, 1.21]))


def test_if_a_baseline_trial_is_missing_stacks_are_compared_with_the_other() -> None:
    trials = [make_trial(stack, 0, [measured("speed", value)]) for stack, value in (("docker", 60.0), ("native", 100))]
    again = make_trial("native-again", 0, [measured("speed", 120.0)])
    assert logs_of(grid_of(*trials))[1] == pytest.approx(math.log(0.6))
    found = log_ratios(grid_of(trials[0], again), BOTH)
    assert found.logs[1, 0, 0] == pytest.approx(math.log(0.5))
    assert found.both[:, 0, 0].tolist() == [False, True, False, False]  # A/A has nothing to be compared with


def test_a_later_group_is_compared_with_baseline_turns_of_the_same_rounds() -> None:
    native = make_trial("native", 0, [in_turns(100.0, 100.0, 50.0, 50.0, 50.0)])
    docker = replace(make_trial("docker", 0, [in_turns(40.0, 40.0, 40.0)]), first_round=2)
    assert logs_of(grid_of(native, docker), BaselineRows(0))[1] == pytest.approx(math.log(0.8))


def test_rounds_that_only_one_side_has_say_nothing() -> None:
    native = make_trial("native", 0, [in_turns(100.0, 200.0)])
    docker = make_trial("docker", 0, [in_turns(50.0, 180.0, 7.0)])
    later = replace(make_trial("crun", 0, [in_turns(1.0, 2.0)]), first_round=2)
    found = log_ratios(grid_of(native, docker, later), BaselineRows(0))
    assert found.logs[1, 0, 0] == pytest.approx((math.log(0.5) + math.log(0.9)) / 2)
    assert found.both[:3, 0, 0].tolist() == [True, True, False]


def test_a_value_taken_once_per_trial_is_compared_whatever_the_rounds() -> None:
    native = make_trial("native", 0, [measured("memory", 100.0), in_turns(1.0, 1.0, 1.0)])
    docker = replace(make_trial("docker", 0, [measured("memory", 130.0), in_turns(1.0)]), first_round=2)
    grid = grid_of(native, docker)
    assert log_ratios(grid, BaselineRows(0)).logs[1, :, 0] == pytest.approx([0.0, math.log(1.3)])


def test_a_value_with_a_non_numeric_or_nonpositive_turn_is_not_compared() -> None:
    good = make_trial("native", 0, [in_turns(1.0, 1.0)])
    rejected = grid_of(good, make_trial("docker", 0, [replace(in_turns(1.0, 1.0), turns=(1.0, math.nan))]))
    assert (rejected.present[1, 0, 0], rejected.rejected_counts[1, 0], rejected.rejected_counts[0, 0]) == (False, 1, 0)
    zero = grid_of(good, make_trial("docker", 0, [in_turns(0.0, 2.0)]))
    assert (zero.present[1, 0, 0], zero.positive[1, 0, 0], zero.positive[0, 0, 0]) == (True, False, True)
    assert not log_ratios(zero, BaselineRows(0)).both[1, 0, 0]


def test_a_run_in_turns_is_decided_and_described() -> None:
    """A burst halves the speed of all in two rounds of each block, and of the one at turn in another."""
    chance = np.random.default_rng(5)
    trials = []
    for block in range(6):
        bursts = np.where(chance.permutation(10) < 2, 0.5, 1.0)
        for stack, speed in zip(STACKS, (100.0, 95.0, 100.0, 100.0), strict=True):
            turns = speed * bursts * np.exp(chance.normal(0, 0.005, 10))
            turns[chance.integers(10)] /= 2
            trials.append(make_trial(stack, block, [in_turns(*turns)]))
    summary = summarize(make_run(trials))
    docker, crun = (summary.headline("dhrystone", stack) for stack in ("docker", "crun"))
    assert (docker.verdict, crun.verdict, docker.n) == ("worse", "equivalent", 6)
    assert docker.ratio == pytest.approx(0.95, abs=0.005)
    assert docker.mean == pytest.approx(95 * 0.9 * 0.95, rel=0.03)


def test_turns_in_steps_that_are_larger_than_their_noise_are_called_coarse() -> None:
    chance, trials = np.random.default_rng(7), []
    for block in range(8):
        for stack, speed in zip(STACKS, (100.0, 90.0, 100.0, 100.0), strict=True):
            turns = speed + (chance.random(9) < 0.2)  # a clock that ticks once in a turn, or twice
            trials.append(make_trial(stack, block, [in_turns(*turns)]))
    cell = summarize(make_run(trials)).headline("dhrystone", "docker")
    assert (cell.verdict, cell.is_robust) == ("worse", False)
    assert "coarse-values" in [caution.kind for caution in cell.cautions]


@given(some.lists(TURNS, min_size=4, max_size=4), TURNS)
def test_what_all_turns_of_a_round_have_in_common_cancels(rows: list[list[float]], factors: list[float]) -> None:
    moved = [[turn * factor for turn, factor in zip(row, factors, strict=True)] for row in rows]
    assert logs_of(grid_in_turns(*moved)) == pytest.approx(logs_of(grid_in_turns(*rows)), abs=1e-9)


@given(some.lists(TURNS, min_size=4, max_size=4), some.integers(0, ROUNDS - 1), some.floats(1e-6, 1e9))
def test_one_wild_round_moves_nothing_beyond_what_the_others_say(
    rows: list[list[float]], place: int, wild: float
) -> None:
    hit = [list(row) for row in rows]
    hit[1][place] = wild
    turns = np.delete(np.log(np.array(rows)), place, axis=1)
    away = [turns[1] - turns[row] for row in (0, 3)]
    low, high = (sum(each(one) for one in away) / 2 for each in (np.min, np.max))
    assert low - 1e-9 <= logs_of(grid_in_turns(*hit))[1] <= high + 1e-9


@given(some.lists(some.floats(-1e3, 1e3), min_size=1, max_size=9), some.randoms(use_true_random=False))
def test_the_center_is_the_median_of_what_is_there(values: list[float], chance: object) -> None:
    row, there = np.array([*values, 1e9, -5.0]), np.array([True] * len(values) + [False] * 2)
    order = np.array(sorted(range(len(row)), key=lambda _: chance.random()))  # type: ignore[attr-defined]
    assert centers(row[order], there[order]) == pytest.approx(float(np.median(values)))
    assert centers(row, np.zeros(len(row), dtype=bool)) == 0


def in_rounds(logs: np.ndarray, reference: BaselineRows = BOTH) -> LogRatios:
    return relative_to_baseline(logs, np.ones(logs.shape, dtype=bool), reference)


def test_both_baseline_trials_together_reduce_the_variance_by_a_quarter() -> None:
    logs = np.random.default_rng(4).normal(0, 0.03, (4, 20_000, 1))
    alone, both = (in_rounds(logs, reference).logs for reference in (BaselineRows(0), BOTH))
    assert both[1].var() / alone[1].var() == pytest.approx(0.75, abs=0.02)
    assert (both[3] == alone[3]).all()


def hit_alone(chance: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Turns with 5 % of noise, of which one in ten is hit by a burst that the others of its round do not see."""
    noise = 0.05 * chance.normal(size=shape)
    return noise + np.log(np.where(chance.random(shape) < 0.1, chance.uniform(0.1, 0.9, shape), 1.0))


def test_bursts_that_hit_single_turns_make_no_stack_look_faster() -> None:
    """The median ratio to the mean of both baselines would be 1 % above the truth: one of two is hit more often."""
    turns = hit_alone(np.random.default_rng(3), (4, 40_000, 10))
    assert np.median(turns[1] - (turns[0] + turns[3]) / 2, axis=-1).mean() > 0.009
    assert np.abs(in_rounds(turns).logs[1].mean()) < 0.0006


def test_dependence_between_blocks_is_also_detected_with_both_baselines() -> None:
    """Whatever the control's difference is measured from, the table of all stacks is the same."""
    logs = np.cumsum(np.random.default_rng(6).normal(0, 0.03, (4, 15, 1)), axis=1)
    there = np.ones(logs.shape[:2], dtype=bool)
    alone, both = (
        compare_together(in_rounds(logs, reference).logs, there, 0.03, reference)
        for reference in (BaselineRows(0), BOTH)
    )
    assert alone.in_all_stacks[1]
    assert both.widening[1] == pytest.approx(alone.widening[1])


def test_intervals_of_rounds_hold_the_truth_at_every_look() -> None:
    """Instances differ by 1 % in addition to the bursts."""
    chance = np.random.default_rng(8)
    runs, blocks = 2000, 20
    turns = hit_alone(chance, (4, runs, blocks, 10)) + 0.01 * chance.normal(size=(4, runs, blocks, 1))
    logs, missed = in_rounds(turns).logs, np.zeros(runs, dtype=bool)
    for count in range(5, blocks + 1):
        found = compare_together(logs[..., :count], np.ones(logs[..., :count].shape, dtype=bool), 0.03, BOTH)
        missed |= np.abs(found.mean[1]) > found.half_widths[1]
    assert missed.mean() <= 0.04

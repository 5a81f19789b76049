"""Intervals and decisions at every look: against an independent integration, and by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, stats

from tare.statistics.anytime import e_bh, e_bh_with_control, log_evidence, min_value_count, widths_per_deviation
from tare.statistics.ratios import compare

BLOCKS = 60
SD = 0.037  # of a log ratio within a block, as it was measured on a small shared machine


@pytest.mark.parametrize(("count", "t"), [(5, 3.2), (10, -2.1), (30, 4.0), (6, 40.0)])
def test_the_evidence_is_the_average_of_two_integrated_bayes_factors(count: int, t: float) -> None:
    def weighted(effect: float) -> float:
        prior = 0.98 * stats.norm.pdf(effect) + 0.02 * stats.norm.pdf(effect, scale=10)
        return float(stats.nct.pdf(t, count - 1, effect * np.sqrt(count)) * prior)

    within = (t / np.sqrt(count) - 40, t / np.sqrt(count) + 40)
    factor = integrate.quad(weighted, *within, limit=1000, points=(0.0, t / np.sqrt(count)))[0]
    found = log_evidence(np.array(t / np.sqrt(count)), np.array(1.0), np.array(count))
    assert float(found) == pytest.approx(np.log(factor / stats.t.pdf(t, count - 1)), abs=1e-4)


def test_effects_of_many_deviations_are_sure_in_a_matrix_after_five_blocks() -> None:
    evidence = log_evidence(np.repeat([10.0, 0.1], [20, 30]), np.ones(50), np.full(50, 5))
    assert list(e_bh(evidence)) == [True] * 20 + [False] * 30


def test_the_interval_ends_where_the_evidence_against_a_mean_is_twenty() -> None:
    counts = np.array([5, 10, 30, 1000])
    evidence = log_evidence(widths_per_deviation(counts), np.ones(4), counts)
    assert np.exp(evidence) == pytest.approx(20)


def test_fewer_than_five_blocks_have_no_interval() -> None:
    assert min_value_count() == 5
    assert np.isinf(widths_per_deviation(np.array([0, 1, 2, 4]))).all()


def looks(truth: float, seed: int, runs: int = 2000) -> tuple[np.ndarray, np.ndarray]:
    """Simulate runs; return the lower and upper end of each interval, after every block."""
    values = np.random.default_rng(seed).normal(truth, SD, (runs, BLOCKS))
    ends = []
    for count in range(1, BLOCKS + 1):
        found = compare(values[:, :count], np.ones((runs, count), dtype=bool))
        ends.append((found.mean - found.half_widths, found.mean + found.half_widths))
    low, high = np.array(ends).transpose(1, 2, 0)
    return low, high


def test_looking_after_every_block_misses_the_truth_in_at_most_1_run_of_20() -> None:
    low, high = looks(0.02, seed=1976)
    missed = ((low > 0.02) | (high < 0.02)).any(axis=1).mean()
    assert missed <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 2000)
    assert missed > 0.005  # an interval that never misses is too wide


def decisions(truth: float, seed: int) -> tuple[list[str], list[int]]:
    """Simulate runs that stop when they are decided; return the decisions and their numbers of blocks."""
    low, high = looks(truth, seed)
    limit = np.log(1.03)
    said, after = [], []
    for lows, highs in zip(low, high, strict=True):
        alike, less, more = (lows > -limit) & (highs < limit), highs < 0, lows > 0
        done = np.nonzero(alike | less | more)[0]
        at = int(done[0]) if done.size else BLOCKS - 1
        said.append("alike" if alike[at] else "less" if less[at] else "more" if more[at] else "undecided")
        after.append(at + 1)
    return said, after


@pytest.mark.parametrize(
    ("effect", "right", "most_blocks"),
    [(0.0, "alike", 25), (0.03, "less", 18), (0.10, "less", 6), (0.30, "less", 5)],
)
def test_effects_are_found_in_a_fraction_of_thirty_runs(effect: float, right: str, most_blocks: int) -> None:
    said, after = decisions(float(np.log(1 - effect)), seed=int(100 * effect) + 7)
    assert np.median(after) <= most_blocks
    wrong = sum(word not in (right, "undecided") for word in said) / len(said)
    assert wrong <= 0.05
    assert said.count(right) / len(said) >= 0.95


def test_statements_are_made_together_as_e_bh_allows() -> None:
    evidence = np.log([100.0, 60.0, 30.0, 20.0, 1.0])  # needed: 100, 50, 33.3, 25, 20
    assert list(e_bh(evidence)) == [True, True, False, False, False]
    assert list(e_bh(np.log([26.0, 40.0, 30.0, 25.0, 1.0]))) == [True, True, True, True, False]
    assert list(e_bh(np.array([]))) == []


def test_what_is_said_of_the_baseline_itself_costs_the_stacks_no_evidence() -> None:
    evidence = np.log([[25.0, 1.0, 1.0], [25.0, 25.0, 1.0], [25.0, 100.0, 25.0]])  # of the first one alone 20 is needed
    found = e_bh_with_control(evidence, np.array([True, False, False]))
    assert found.tolist() == [[True, False, False], [True, False, False], [True, True, True]]


def test_among_many_equal_stacks_hardly_a_matrix_has_a_false_statement() -> None:
    chance = np.random.default_rng(2022)
    false = 0
    for _ in range(200):
        values = chance.normal(0, SD, (50, 20))
        found = [
            compare(values[:, :count], np.ones((50, count), dtype=bool)).difference_evidence for count in range(5, 21)
        ]
        false += any(e_bh(each).any() for each in found)
    assert false / 200 <= 0.05


# --- what must not matter ------------------------------------------------------------------------------------------

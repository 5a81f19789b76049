"""Moderated variances: the prior is found, evidence is that of the model, and a cell with luck is not calmed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from marks import slow
from numpy.typing import NDArray
from scipy import integrate, optimize, special, stats

from tare.statistics.anytime import log_evidence, widths_per_deviation
from tare.statistics.headlines import errors_of_rounds, relative_to_baseline
from tare.statistics.moderated_variance import VariancePrior, fit_prior, moderate_variances, variance_ratios
from tare.statistics.ratios import BaselineRows, Moderation, RatioComparison, compare_together

STACKS, BLOCKS, ROUNDS = 10, 6, 20


def _drawn(freedom: float, scale: float, shape: tuple[int, ...], seed: int = 1) -> tuple[NDArray[np.float64], float]:
    """Draw variances from the prior, then what `BLOCKS` values each say of them; return these and the true median."""
    chance = np.random.default_rng(seed)
    true = scale**2 * freedom / chance.chisquare(freedom, shape)
    seen = np.sqrt(true * chance.chisquare(BLOCKS - 1, shape) / (BLOCKS - 1))
    return seen, float(np.median(true))


def _counts(deviation: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.full(deviation.shape, BLOCKS)


def test_the_evidence_is_the_ratio_of_marginal_likelihoods_under_the_prior() -> None:
    """From first principles: the variance has a scaled inverse chi-squared prior, the mean a normal one."""
    count, deviation, prior, freedom, mean = 6, 0.03, 0.02, 8.0, 0.035
    square = (count - 1) * deviation**2

    def likelihood(variance: float, spread: float) -> float:
        wide = variance * (1 / count + spread)
        of_variance = stats.invgamma.pdf(variance, freedom / 2, scale=freedom * prior**2 / 2)
        of_deviation = stats.chi2.pdf(square / variance, count - 1) / variance
        return float(of_variance * of_deviation * stats.norm.pdf(mean, 0, math.sqrt(wide)))

    def marginal(spread: float) -> float:
        return float(integrate.quad(lambda each: likelihood(each, spread), 1e-6, 0.05, limit=400)[0])

    expected = math.log(sum(weight * marginal(spread) for spread, weight in ((1.0, 0.98), (100.0, 0.02))) / marginal(0))
    deviation = math.sqrt((freedom * prior**2 + square) / (freedom + count - 1))
    found = log_evidence(np.array(mean), np.array(deviation), np.array(count), np.array(freedom))
    assert float(found) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("freedom", [4.0, 12.0])
def test_the_prior_of_many_stacks_is_found(freedom: float) -> None:
    """Smyth (2004), section 6.2: the degrees of freedom and the scale follow from the logarithms of the variances."""
    seen, _ = _drawn(freedom, 0.02, (5000, 1))
    found = moderate_variances(seen, _counts(seen))
    believed = found.borrowed[found.borrowed > 0].max()
    assert believed == pytest.approx(freedom, rel=0.15)


def _fit_f_dist(variances: NDArray[np.float64], freedom: float) -> tuple[float, float]:
    """Return the scale and degrees of freedom that limma's `fitFDist` estimates, by its published formulas."""
    logs = np.log(variances) - special.digamma(freedom / 2) + math.log(freedom / 2)
    spread = logs.var(ddof=1) - special.polygamma(1, freedom / 2)
    prior = 2 * float(optimize.brentq(lambda half: special.polygamma(1, half) - spread, 1e-3, 1e6))
    return math.exp(logs.mean() + special.digamma(prior / 2) - math.log(prior / 2)), prior


def test_the_prior_is_that_of_fit_f_dist_by_the_formulas_of_limma() -> None:
    # Quantiles of the variances of six values under a prior of six degrees of freedom; none is exceptionally high.
    seen = 0.02 * np.sqrt(stats.f.ppf(np.linspace(0.02, 0.98, 400), BLOCKS - 1, 6.0))[:, np.newaxis]
    scale, freedom = _fit_f_dist(seen[:, 0] ** 2, BLOCKS - 1)
    ratios = variance_ratios(seen, _counts(seen), np.ones(seen.shape))
    found = fit_prior(ratios, np.ones((1, len(seen)), dtype=bool), has_rounds=False)
    # The usual spread of ten degrees of freedom, which counts like three cells of 400, moves both a little.
    assert float(found.freedom[0, 0]) == pytest.approx(freedom, rel=0.03)
    assert math.exp(float(found.log_scale[0, 0])) == pytest.approx(scale, rel=0.03)


def test_a_variance_is_squeezed_towards_a_higher_prior_as_by_limma() -> None:
    """`squeezeVar`: (d0 s0² + d s²) / (d0 + d), here with 12 and 5 degrees of freedom and all of the prior."""
    prior = VariancePrior(np.log([4.0]), np.array([12.0]))
    found = moderate_variances(np.array([1.0]), np.array([6]), np.array([1.0]), prior)
    assert float(found.deviation[0]) ** 2 == pytest.approx((12 * 4.0 + 5 * 1.0) / 17)
    assert float(found.borrowed[0]) == 12


def test_a_single_very_noisy_cell_hardly_moves_the_prior_of_others() -> None:
    seen, _ = _drawn(50.0, 0.02, (30, 1))
    wild = np.concatenate([seen, [[1.0]]])
    priors = [
        fit_prior(
            variance_ratios(each, _counts(each), np.ones(each.shape)),
            np.ones((1, len(each)), dtype=bool),
            has_rounds=False,
        )
        for each in (seen, wild)
    ]
    assert float(priors[1].freedom[0, 0]) > 0.6 * float(priors[0].freedom[0, 0])
    assert abs(float(priors[1].log_scale[0, 0] - priors[0].log_scale[0, 0])) < 0.15


def _prior_of_equal_ratios(ratio: float, cells: int) -> tuple[float, float]:
    """Return the scale and degrees of freedom of a prior from cells of five blocks with rounds."""
    seen = np.full((cells, 1), math.sqrt(ratio) * 0.02)
    ratios = variance_ratios(seen, np.full(seen.shape, 5), np.full(seen.shape, 0.02**2))
    found = fit_prior(ratios, np.ones((1, cells), dtype=bool), has_rounds=True)
    return math.exp(float(found.log_scale[0, 0])), float(found.freedom[0, 0])


@pytest.mark.parametrize(("ratio", "freedom"), [(1.0, 20.0), (11.0, 12.0)])
def test_three_cells_replace_the_expectation_of_equal_instances(ratio: float, freedom: float) -> None:
    """The cells have twelve degrees of freedom; the expected ratio of 1 adds eight where it fits them."""
    scale, known = _prior_of_equal_ratios(ratio, 3)
    assert known == freedom
    assert scale == pytest.approx(ratio, rel=0.25)


def test_two_cells_do_not_replace_the_expectation_of_equal_instances() -> None:
    scale, known = _prior_of_equal_ratios(11.0, 2)
    assert 0 < known < 8
    assert scale < 0.7 * 11.0


@given(some.lists(some.floats(1e-6, 1.0), min_size=2, max_size=9), some.floats(1e-9, 10.0), some.integers(2, 40))
def test_moderation_never_lowers_a_deviation(deviations: list[float], error: float, count: int) -> None:
    seen = np.array(deviations)
    found = moderate_variances(seen, np.full(seen.shape, count), np.full(seen.shape, error))
    assert (found.deviation >= seen * (1 - 1e-12)).all()
    assert (found.borrowed <= 20).all()


@pytest.mark.parametrize("rounds", [5, 10, 40])
def test_rounds_explain_the_variance_of_blocks_whose_instances_are_equal(rounds: int) -> None:
    turns, reference = np.random.default_rng(9).normal(size=(3, 20_000, rounds)), BaselineRows(0, 2)
    there = np.ones(turns.shape, dtype=bool)
    errors, logs = errors_of_rounds(turns, there, reference), relative_to_baseline(turns, there, reference).logs
    assert errors is not None
    assert errors.mean(axis=-1)[1:] / logs.var(axis=-1)[1:] == pytest.approx(1.0, abs=0.2)


def test_too_few_or_equal_rounds_explain_nothing() -> None:
    few, equal = np.random.default_rng(9).normal(size=(3, 4, 4)), np.zeros((3, 4, 10))
    assert errors_of_rounds(few, np.ones(few.shape, dtype=bool), BaselineRows(0, 2)) is None
    errors = errors_of_rounds(equal, np.ones(equal.shape, dtype=bool), BaselineRows(0, 2))
    assert errors is not None
    assert (errors == 0).all()


def _in_rounds(luck: float, runs: int, blocks: int, stacks: int = 1) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Draw log ratios of a baseline, stacks and A/A, and what their rounds explain; the first stack's instances differ.

    `luck` is their variance in those that rounds explain, which is 1.
    """
    chance, reference = np.random.default_rng([11, round(10 * luck)]), BaselineRows(0, stacks + 1)
    size = (stacks + 2, runs, blocks)
    unit = 1 / math.sqrt(1.5 * math.pi / 2 * 8 / 9 / ROUNDS)
    turns = unit * chance.normal(size=(*size, ROUNDS))
    turns[1] += math.sqrt(luck) * chance.normal(size=size[1:])[..., np.newaxis]
    there = np.ones(turns.shape, dtype=bool)
    errors = errors_of_rounds(turns, there, reference)
    assert errors is not None
    return relative_to_baseline(turns, there, reference).logs, errors


def _compared(logs: NDArray[np.float64], errors: NDArray[np.float64], count: int) -> RatioComparison:
    seen, reference = logs[..., :count], BaselineRows(0, len(logs) - 1)
    return compare_together(seen, np.ones(seen.shape, dtype=bool), 0.03, reference, Moderation(errors[..., :count]))


@pytest.mark.parametrize("stacks", [1, 2])
def test_rounds_make_intervals_at_most_twice_as_wide_as_students(stacks: int) -> None:
    logs, errors = _in_rounds(0.0, 500, 5, stacks)
    for count in (3, 4, 5):
        half = _compared(logs, errors, count).half_widths[1]
        student = stats.t.ppf(0.975, count - 1) / math.sqrt(count)
        assert np.median(half) / logs[1].std() < 2.1 * student


@pytest.mark.parametrize("luck", slow([0.0, 1.0, 3.0, 5.0, 8.0, 15.0, 50.0], [1.0, 3.0, 8.0, 15.0]))
def test_luck_of_instances_rarely_makes_a_false_difference(luck: float) -> None:
    """One stack by itself, with a look after every block at the threshold of a single statement."""
    logs, errors = _in_rounds(luck, 2000, 25)
    ever = np.zeros(logs.shape[1], dtype=bool)
    for count in range(3, logs.shape[-1] + 1):
        ever |= _compared(logs, errors, count).difference_evidence[1] >= math.log(20)
    assert ever.mean() <= 0.05


def test_whatever_the_prior_of_the_run_is_false_differences_are_rare() -> None:
    """The priors expect a hundredth to a hundred times the true variance."""
    chance = np.random.default_rng(12)
    logs = chance.normal(size=(1, 20_000, 25))
    prior = VariancePrior(np.repeat(np.log(np.geomspace(0.01, 100, 10)), 2000)[np.newaxis], np.full((1, 20_000), 20.0))
    ever = np.zeros(logs.shape[1], dtype=bool)
    for count in range(3, logs.shape[-1] + 1):
        seen = logs[..., :count]
        deviation, ones = seen.std(axis=-1, ddof=1), np.ones(seen.shape[:2])
        found = moderate_variances(deviation, np.full(deviation.shape, count), ones, prior)
        ever |= (
            log_evidence(seen.mean(axis=-1), found.deviation, np.full(deviation.shape, count), found.borrowed)
            >= math.log(20)
        )[0]
    assert ever.reshape(10, -1).mean(axis=1).max() <= 0.055


def test_a_stack_that_is_noisier_than_all_others_borrows_nothing() -> None:
    deviation = np.array([0.02, 0.021, 0.019, 0.02, 0.022, 0.1])[:, np.newaxis]
    found = moderate_variances(deviation, _counts(deviation))
    assert found.borrowed[-1] == 0
    assert found.deviation[-1] == 0.1
    assert (found.borrowed[:-1] > 0).all()  # those of a calm stack are not drawn away by the noisy one alone


def test_few_stacks_and_values_without_noise_neither_lend_nor_borrow() -> None:
    deviation = np.array([[0.02, 0.02], [0.021, 0.0], [0.019, 0.021], [0.0, 0.02]])
    found = moderate_variances(deviation, _counts(deviation))
    assert (found.borrowed == 0).all()
    assert (found.deviation == deviation).all()


def test_with_borrowed_freedom_three_values_are_enough_for_an_interval() -> None:
    count, borrowed = np.array([2, 3, 3, 4, 5]), np.array([8.0, 8.0, 7.9, 8.0, 0.0])
    assert np.isfinite(widths_per_deviation(count, borrowed)).tolist() == [False, True, False, True, True]


def test_intervals_halve_after_five_blocks_if_all_stacks_are_similar() -> None:
    chance = np.random.default_rng(3)
    logs = chance.normal(0, 0.02, (STACKS + 1, 300, 5))
    logs[0] = 0.0
    found = compare_together(logs, np.ones(logs.shape, dtype=bool), 0.03, BaselineRows(0))
    plain_widths = widths_per_deviation(found.count) * logs.std(axis=-1, ddof=1)
    assert np.median(found.half_widths[1:] / plain_widths[1:]) < 0.6


@pytest.mark.parametrize("noisy", slow([1.0, 2.0, 3.0, 5.0, 10.0], [2.0, 3.0, 5.0]))
def test_looks_after_every_block_rarely_find_a_false_difference(noisy: float) -> None:
    """Error rates of any stack, and of one that is noisier than nine others, at the threshold of a single statement."""
    chance = np.random.default_rng(4)
    logs = chance.normal(0, 0.02, (STACKS + 1, 1000, 25))
    logs[0], logs[1] = 0.0, logs[1] * noisy
    ever = np.zeros(logs.shape[:2], dtype=bool)
    for count in range(3, logs.shape[-1] + 1):
        seen = logs[..., :count]
        found = compare_together(seen, np.ones(seen.shape, dtype=bool), 0.03, BaselineRows(0))
        ever |= found.difference_evidence >= math.log(20)
    assert ever[1:].mean() <= 0.03
    assert ever[1].mean() <= 0.05

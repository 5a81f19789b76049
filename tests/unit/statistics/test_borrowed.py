"""Standard deviations that borrow: the prior is found, evidence is that of the model, and the noisy are not calmed."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import integrate, stats

from tare.statistics.anytime import log_evidence, widths_per_deviation
from tare.statistics.moderated_variance import moderate_variances
from tare.statistics.ratios import BaselineRows, compare_together

STACKS, BLOCKS = 10, 6


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


@pytest.mark.parametrize("noisy", [1.0, 2.0, 3.0, 5.0, 10.0])
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
    assert ever[1].mean() <= 0.065  # a noisy one, alone; among many e-BH asks for more

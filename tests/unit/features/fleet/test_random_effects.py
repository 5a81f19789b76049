"""Machines as a random effect: variances as lme4 has them, intervals for a machine that was not measured, sick ones."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike
from scipy import optimize, stats

from tare.features.fleet import random_effects
from tare.features.fleet.random_effects import (
    MachineSample,
    MachineVariance,
    estimate_variance,
    half_width,
    outlier_p_values,
    summarize_machine,
)

# Yield of dyestuff from samples of six batches, in grams of standard color (Davies and Goldsmith, *Statistical Methods
# in Research and Production*, 4th edition, Hafner 1972; `Dyestuff` in lme4).
DYESTUFF = (
    (1545, 1440, 1440, 1520, 1580),
    (1540, 1555, 1490, 1560, 1495),
    (1595, 1550, 1605, 1510, 1560),
    (1445, 1440, 1595, 1465, 1545),
    (1595, 1630, 1515, 1635, 1625),
    (1520, 1455, 1450, 1480, 1445),
)


def groups(values: Iterable[ArrayLike] = DYESTUFF) -> list[MachineSample]:
    return [summarize_machine(np.array(group, dtype=float)) for group in values]


def test_the_variances_of_the_dyestuff_are_those_that_lme4_prints() -> None:
    # lmer(Yield ~ 1 + (1 | Batch), Dyestuff), in Bates, "lme4: Mixed-effects modeling with R" (2010), chapter 1.
    found = estimate_variance(groups())
    assert found is not None
    assert found.mean == pytest.approx(1527.5)
    assert math.sqrt(found.between) == pytest.approx(42.00, abs=0.005)
    assert math.sqrt(found.within) == pytest.approx(49.51, abs=0.005)
    assert found.share == pytest.approx(1764 / (1764 + 2451), abs=1e-3)


def test_the_criterion_of_the_dyestuff_is_that_which_lme4_prints() -> None:
    found = estimate_variance(groups())
    assert found is not None
    ratio = found.between / found.within
    counts = np.full(6, 5.0)
    freedom = 29
    assert random_effects._criterion(counts, ratio, found.within * freedom) == pytest.approx(319.6543, abs=1e-3)


@settings(max_examples=25)
@given(st.integers(0, 10_000), st.floats(0, 3), st.integers(2, 8))
def test_with_equal_block_counts_the_variances_are_those_of_anova(seed: int, between: float, machines: int) -> None:
    chance = np.random.default_rng(seed)
    values = chance.normal(0, between, (machines, 1)) + chance.normal(0, 1, (machines, 6))
    found = estimate_variance(groups(values))
    assert found is not None
    of_means, within = 6 * values.mean(axis=1).var(ddof=1), values.var(axis=1, ddof=1).mean()
    if of_means > within:  # else the best variance between is 0
        assert found.between == pytest.approx((of_means - within) / 6, rel=1e-4, abs=1e-7)
        assert found.within == pytest.approx(within, rel=1e-4)
    else:
        assert found.between == 0
        assert found.within == pytest.approx(values.var(ddof=1))


def test_with_unequal_block_counts_the_variances_maximize_the_likelihood() -> None:
    # With matrices: y is normal, with the variance V = between JJ' + within I (Searle et al. 1992, section 6.6).
    chance = np.random.default_rng(4)
    values = [chance.normal(level, 1, count) for level, count in zip((0.0, 2.0, -1.0, 0.5), (3, 12, 5, 2), strict=True)]
    y = np.concatenate(values)
    same = np.equal.outer(*([np.repeat(range(4), [len(each) for each in values])] * 2)).astype(float)
    ones = np.ones(len(y))

    def minus_twice(logs: np.ndarray) -> float:
        v = math.exp(logs[0]) * same + math.exp(logs[1]) * np.eye(len(y))
        inverse = np.linalg.inv(v)
        precision = ones @ inverse @ ones
        away = y - (ones @ inverse @ y) / precision
        return float(np.linalg.slogdet(v)[1] + math.log(precision) + away @ inverse @ away)

    best = optimize.minimize(minus_twice, np.zeros(2), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12})
    found = estimate_variance(groups(values))
    assert found is not None
    assert (math.log(found.between), math.log(found.within)) == pytest.approx(tuple(best.x), abs=1e-4)


def test_too_little_data_has_no_variances_and_equal_values_none_between() -> None:
    assert estimate_variance(groups([[1.0, 2.0]])) is None
    assert estimate_variance(groups([[1.0], [2.0]])) is None
    assert estimate_variance(groups([[2.0] * 4] * 3)) == MachineVariance(2.0, 0.0, 0.0)
    found = estimate_variance(groups([[1.0] * 4, [3.0] * 4]))
    assert found == MachineVariance(2.0, 2.0, 0.0)
    assert found is not None
    assert found.share == 1


def test_the_factor_of_the_prediction_interval_is_the_published_one() -> None:
    # Hahn 1969: for 95 %, one future value, and five and twenty observed ones 3.04 and 2.14 deviations.
    for count, factor in ((5, 3.04), (20, 2.14)):
        means = np.random.default_rng(1).normal(0, 1, count)
        assert half_width(means, 0.05) / means.std(ddof=1) == pytest.approx(factor, abs=0.005)
    assert half_width(np.array([1.0]), 0.05) == math.inf


@pytest.mark.parametrize("share", [0.0, 0.2, 0.8])
@pytest.mark.parametrize("machines", [2, 5, 20])
def test_the_interval_covers_an_unmeasured_machine_in_19_of_20_cases(machines: int, share: float) -> None:
    chance, blocks, times = np.random.default_rng(7), 8, 500
    between, within = math.sqrt(share), math.sqrt(1 - share)
    held = 0
    for _ in range(times):
        means = chance.normal(0, between, machines) + chance.normal(0, within / math.sqrt(blocks), machines)
        another = chance.normal(0, between)
        held += abs(means.mean() - another) <= half_width(means, 0.05)
    assert held / times >= 0.95 - 3 * math.sqrt(0.05 * 0.95 / times)


def test_a_sick_machine_is_named_and_healthy_ones_seldom_are() -> None:
    chance, times = np.random.default_rng(5), 200
    named = sum(bool((outlier_p_values(chance.normal(0, 1, 8)) < 0.05).any()) for _ in range(times))
    assert named / times <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / times)
    means = chance.normal(0, 1, 8)
    means[3] -= 12
    assert np.flatnonzero(outlier_p_values(means) < 0.05).tolist() == [3]


def test_a_machine_has_the_p_value_of_its_externally_studentized_residual() -> None:
    # Cook and Weisberg 1982, section 2.2.2: t² = r² (n - p - 1) / (n - p - r²), of the internally studentized r.
    means = np.array([0.0, 0.4, -0.3, 0.1, 1.5])
    away = means - means.mean()
    internal = away / (means.std(ddof=1) * math.sqrt(1 - 1 / 5))
    external = internal * np.sqrt(3 / (4 - internal**2))
    expected = np.minimum(1, 5 * 2 * stats.t.sf(np.abs(external), 3))
    assert outlier_p_values(means) == pytest.approx(expected)


def test_two_machines_say_nothing_of_one_another_and_equal_ones_are_alike() -> None:
    assert outlier_p_values(np.array([0.0, 9.0])).tolist() == [1, 1]
    assert outlier_p_values(np.zeros(5)).tolist() == [1] * 5
    assert outlier_p_values(np.full(3, 0.1)).tolist() == [1] * 3  # whose mean differs from each by rounding
    assert outlier_p_values(np.array([0.0, 0.0, 0.0, 1.0]))[3] == 0

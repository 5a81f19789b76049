"""The papers' way, against published examples and against formulas written a second time."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some
from scipy import stats

from tare.features.papers.classical import (
    Groups,
    GroupTest,
    Pairs,
    RankTest,
    dunn,
    games_howell,
    holm,
    kruskal_wallis,
    mann_whitney,
    one_way_anova,
    run_classical_tests,
    tukey,
    welch_anova,
)

# Data sets of R, with the results that R gives.
PLANTS = {
    "ctrl": [4.17, 5.58, 5.18, 6.11, 4.50, 4.61, 5.17, 4.53, 5.33, 5.14],
    "trt1": [4.81, 4.17, 4.41, 3.59, 5.87, 3.83, 6.03, 4.89, 4.32, 4.69],
    "trt2": [6.31, 5.12, 5.54, 5.50, 5.37, 5.29, 4.92, 6.15, 5.80, 5.26],
}
SLEEP = {
    "1": [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0],
    "2": [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4],
}
SPRAYS: dict[str, list[float]] = {
    "A": [10, 7, 20, 14, 14, 12, 10, 23, 17, 20, 14, 13],
    "B": [11, 17, 21, 11, 16, 14, 17, 17, 19, 21, 7, 13],
    "C": [0, 1, 7, 2, 3, 1, 2, 1, 3, 0, 1, 4],
    "D": [3, 5, 12, 6, 4, 3, 5, 5, 5, 5, 2, 4],
    "E": [3, 5, 3, 5, 3, 6, 1, 1, 3, 2, 6, 4],
    "F": [11, 9, 15, 22, 15, 16, 13, 10, 26, 26, 24, 13],
}
# NIST/SEMATECH e-Handbook of Statistical Methods, 7.4.7.1.
HANDBOOK = {
    "1": [6.9, 5.4, 5.8, 4.6, 4.0],
    "2": [8.3, 6.8, 7.8, 9.2, 6.5],
    "3": [8.0, 10.5, 8.1, 6.9, 9.3],
    "4": [5.8, 3.8, 6.1, 5.6, 6.2],
}


# --- whether groups differ at all ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("test", "groups", "statistic", "within", "p"),
    [
        (one_way_anova, PLANTS, 4.846, 27, 0.01591),
        (one_way_anova, SPRAYS, 34.70, 66, None),
        (one_way_anova, {name: HANDBOOK[name] for name in "123"}, 9.59, 12, None),  # e-Handbook, 7.4.3
        (welch_anova, PLANTS, 5.181, 17.128, 0.01739),
        (welch_anova, SPRAYS, 36.065, 30.043, 7.999e-12),
        (welch_anova, SLEEP, 1.8608**2, 17.776, 0.07939),  # of two groups, Welch's t squared
        (kruskal_wallis, PLANTS, 7.9882, None, 0.01842),
        (kruskal_wallis, SPRAYS, 54.691, None, 1.511e-10),
    ],
)
def test_groups_differ_as_published(
    test: Callable[[Groups], GroupTest], groups: Groups, statistic: float, within: float | None, p: float | None
) -> None:
    found = test(groups)
    assert found.statistic == pytest.approx(statistic, rel=5e-4)
    assert found.between == len(groups) - 1
    assert found.within == (None if within is None else pytest.approx(within, abs=6e-4))
    if p is not None:
        assert found.p == pytest.approx(p, rel=5e-4)
    assert found.reason == ""


# --- which groups differ -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("groups", "pair", "p"),
    [
        (PLANTS, ("ctrl", "trt1"), 0.3908711),  # R: TukeyHSD(aov(weight ~ group, data = PlantGrowth))
        (PLANTS, ("ctrl", "trt2"), 0.1979960),
        (PLANTS, ("trt1", "trt2"), 0.0120064),
        ({**PLANTS, "once": [5.0]}, ("ctrl", "once"), 0.9999),
    ],
)
def test_tukey_s_pairs_of_plants_are_those_of_r(groups: Groups, pair: tuple[str, str], p: float) -> None:
    assert tukey(groups)[pair] == pytest.approx(p, abs=1e-6 if p < 0.99 else 1e-4)


@pytest.mark.parametrize(("test", "common"), [(tukey, True), (games_howell, False)])
def test_pairs_of_unequal_groups_are_those_of_scipy(test: Callable[[Groups], Pairs], common: bool) -> None:
    groups = {"a": PLANTS["ctrl"][:6], "b": PLANTS["trt1"], "c": PLANTS["trt2"][:4]}
    reference: Any = stats.tukey_hsd(*groups.values(), equal_var=common)
    places = {pair: reference.pvalue["abc".index(pair[0]), "abc".index(pair[1])] for pair in combinations("abc", 2)}
    assert test(groups) == pytest.approx(places)


def test_dunn_s_pairs_are_his_formula_adjusted_after_holm() -> None:
    values = [(value, name) for name, counts in SPRAYS.items() for value in counts]
    ranks: dict[str, list[float]] = {name: [] for name in SPRAYS}
    for value, name in values:  # the mean of the places that equal values share
        below = sum(other < value for other, _ in values)
        ranks[name].append(below + (sum(other == value for other, _ in values) + 1) / 2)
    ties = [sum(other == value for other, _ in values) for value in {value for value, _ in values}]
    variance = 72 * 73 / 12 - sum(tie**3 - tie for tie in ties) / (12 * 71)
    plain = {}
    for one, two in combinations(SPRAYS, 2):
        z = (np.mean(ranks[two]) - np.mean(ranks[one])) / np.sqrt(variance * 2 / 12)
        plain[one, two] = 2 * stats.norm.sf(abs(z))
    least, previous = {}, 0.0
    for step, (names, p) in enumerate(sorted(plain.items(), key=lambda item: item[1])):
        least[names] = previous = max(previous, min(1.0, (15 - step) * p))
    assert dunn(SPRAYS) == pytest.approx(least)


def test_holm_adjusts_step_by_step() -> None:
    assert holm(np.array([0.01, 0.04, 0.03, 0.005])) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm(np.array([0.5, 0.9])) == pytest.approx([1.0, 1.0])


# --- Mann and Whitney ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("counts", "table"),
    [
        ((3, 3), [0.050, 0.100, 0.200, 0.350]),
        ((4, 4), [0.014, 0.029, 0.057, 0.100, 0.171, 0.243, 0.343]),
        ((5, 5), [0.004, 0.008, 0.016, 0.028, 0.048, 0.075, 0.111, 0.155, 0.210]),
    ],
)
def test_the_chances_are_those_of_mann_and_whitney_s_table(counts: tuple[int, int], table: list[float]) -> None:
    places = range(sum(counts))
    for u, chance in enumerate(table):
        first = next(
            sample for sample in combinations(places, counts[0]) if sum(sample) - counts[0] * (counts[0] - 1) // 2 == u
        )
        found = mann_whitney(first, [place for place in places if place not in first])
        assert found.p == pytest.approx(2 * chance, abs=1.01e-3)


def test_with_few_values_no_small_p_can_be_reached() -> None:
    found = mann_whitney([1, 2, 3], [4, 5, 6])
    assert found.p == found.smallest_p == pytest.approx(0.1)
    assert mann_whitney([1], [2]).smallest_p == 1.0
    assert mann_whitney([1, 2, 3, 4], [5, 6, 7, 8]).smallest_p == pytest.approx(2 / 70)


def test_many_ties_are_approximated_as_r_does() -> None:
    assert mann_whitney(SLEEP["1"], SLEEP["2"]).p == pytest.approx(0.06933, abs=5e-6)  # R: W = 25.5


def test_few_ties_are_counted_through_all_arrangements() -> None:
    first, second = [1.0, 2.0, 2.0, 3.0], [2.0, 3.0, 4.0, 4.0, 5.0]

    def u(sample: tuple[float, ...], rest: list[float]) -> float:
        return sum((mine > other) + (mine == other) / 2 for mine in sample for other in rest)

    pool = first + second
    all_us = []
    for sample in combinations(range(9), 4):
        rest = [pool[place] for place in range(9) if place not in sample]
        all_us.append(u(tuple(pool[place] for place in sample), rest))
    seen = u(tuple(first), second)
    expected = 2 * min(np.mean(np.array(all_us) <= seen), np.mean(np.array(all_us) >= seen))
    assert mann_whitney(first, second).p == pytest.approx(expected)
    assert mann_whitney(second, first).p == pytest.approx(expected)
    assert mann_whitney([2.0], [2.0, 3.0, 3.0]).p == pytest.approx(1.0)


# --- all of it -----------------------------------------------------------------------------------------------------


def test_a_table_has_percent_of_the_baseline_and_all_tests() -> None:
    found = run_classical_tests(PLANTS, "ctrl", seed=1)
    ctrl, _, trt2 = found.rows
    assert ctrl.description is not None
    assert ctrl.description.mean == pytest.approx(5.032)
    assert ctrl.description.sd == pytest.approx(0.5830914)  # R: sd()
    assert ctrl.description.relative_sd == pytest.approx(0.5830914 / 5.032)
    assert ctrl.share.estimate is None
    assert trt2.share.estimate == pytest.approx(5.526 / 5.032)
    assert trt2.ranks == mann_whitney(PLANTS["trt2"], PLANTS["ctrl"])
    assert found.groups == (one_way_anova(PLANTS), welch_anova(PLANTS), kruskal_wallis(PLANTS))
    assert found.pairs == (tukey(PLANTS), games_howell(PLANTS), dunn(PLANTS))


@pytest.mark.parametrize(
    ("groups", "reason"),
    [
        ({}, "there is no stack"),
        ({"native": [1.0, 2.0]}, "there is only one stack"),
        ({"native": [1.0, 2.0], "docker": []}, "docker has no value"),
        ({"native": [1.0], "docker": [2.0]}, "no stack has more than one value"),
        ({"native": [2.0, 2.0], "docker": [2.0, 2.0]}, "all values are equal"),
        ({"native": [2.0, 2.0], "docker": [3.0, 3.0]}, "no stack's values vary"),
        ({"native": [2.0, 2.0], "docker": [2.0, 2.0 + 4e-16]}, "all values are equal"),
    ],
)
def test_what_cannot_be_tested_says_why(groups: Groups, reason: str) -> None:
    found = one_way_anova(groups)
    assert (found.statistic, found.p) == (None, None)
    assert found.reason.startswith(reason)
    assert not tukey(groups)


def test_constant_values_of_a_stack_stop_only_tests_that_need_its_variance() -> None:
    groups = {"native": [1.0, 1.1, 1.2], "docker": [3.0, 3.0, 3.0], "lxd": [2.0, 2.0, 2.0]}
    assert welch_anova(groups).reason == "the values of docker do not vary, and their variance is a divisor"
    assert one_way_anova(groups).p is not None
    found = games_howell(groups)
    assert found["native", "lxd"] is not None
    assert found["docker", "lxd"] is None


def test_a_group_of_one_value_is_compared_where_the_variance_is_common() -> None:
    groups = {**PLANTS, "once": [5.0]}
    assert len(tukey(groups)) == 6
    assert not games_howell(groups)
    assert kruskal_wallis(groups).p is not None


def test_equal_values_on_both_sides_have_no_ranks() -> None:
    assert mann_whitney([1.0, 1.0], [1.0, 1.0, 1.0]) == RankTest(None, 0.2)


def test_values_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        one_way_anova({"native": [1.0, float("nan")], "docker": [1.0]})


def numbers(found: Any) -> Iterator[float]:
    """Every number in a result, however deep."""
    if isinstance(found, float):
        yield found
    elif isinstance(found, tuple | Mapping):
        for each in found.values() if isinstance(found, Mapping) else found:
            yield from numbers(each)
    elif is_dataclass(found):
        for field in fields(found):
            yield from numbers(getattr(found, field.name))


VALUES = some.lists(
    some.one_of(some.floats(-1e150, 1e150), some.sampled_from([0.0, 1.0, 1.0 + 1e-15, 2.0])), max_size=5
)


@settings(max_examples=20, deadline=None)
@given(some.lists(VALUES, max_size=3))
@example([[1.0, 1.0], [2.0, 2.0], [2.0, 2.5]])
@example([[1e-200, 2e-200], [1.0, 1.0]])
@example([[5e-324, 0.0], [0.0, 5e-324]])
@example([[1e150, -1e150], [1.0, 2.0], [1e-150]])
@example([[0.0, 1.0], [114838304.0]])
@example([[5e-324], [1.0]])
def test_any_values_give_only_finite_numbers_and_no_warning(lists: list[list[float]]) -> None:
    groups = {str(index): values for index, values in enumerate(lists)}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = run_classical_tests(groups, "0", seed=1)
    assert all(np.isfinite(number) for number in numbers(found))


def test_groups_of_equal_values_have_an_anova_without_a_difference() -> None:
    found = one_way_anova({"a": [0.0, 0.0, 0.0, 1.0, 17.0], "b": [0.0, 0.0, 0.0, 1.0, 17.0]})
    assert (found.statistic, found.p) == (0.0, 1.0)


@pytest.mark.parametrize("factor", [1e-9, 1e120])
def test_scaling_a_metric_changes_no_chance(factor: float) -> None:
    scaled = {name: [factor * value for value in values] for name, values in PLANTS.items()}
    for test in (one_way_anova, welch_anova, kruskal_wallis):
        assert test(scaled).p == pytest.approx(test(PLANTS).p)
    for pairs in (tukey, games_howell, dunn):
        assert pairs(scaled) == pytest.approx(pairs(PLANTS))

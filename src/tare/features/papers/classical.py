"""Classical tests after a fixed number of runs, exactly as they are defined.

Mean ± standard deviation and percent of bare metal; one-way ANOVA with Tukey's test, as in the paper of 2017; for
unequal variances or shapes Welch's ANOVA with the Games-Howell test, Kruskal-Wallis with Dunn's test, Mann-Whitney, and
bootstrap intervals. None of these tests uses blocks, and none is valid for repeated looks at a running run: tare
decides with `tare.statistics.ratios`, and shows these tests for comparison with papers.

Groups are values by the name of their stack. A number that does not exist is None; no result is NaN or infinite. All
functions raise ValueError for values that are not finite.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb

import numpy as np
import scipy
from numpy.typing import NDArray

from tare.statistics.bootstrap import Interval, bootstrap_share
from tare.statistics.descriptive import Description, describe

_ROUNDING = 1e-12  # of the largest value of a group: a smaller range is rounding, not variance
_MIN_SHARE = 1e-70  # of the largest value of all: the fourth power of a smaller range underflows to zero
_MAX_EXACT_PAIRS = 2500  # SciPy counts arrangements without ties quickly up to about 50 values on either side
_MAX_EXACT_ARRANGEMENTS = 20_000  # with ties, the exact test enumerates all arrangements

Groups = Mapping[str, Sequence[float]]
Pairs = Mapping[tuple[str, str], float | None]
"""The p-value of each pair of stacks, adjusted for all pairs together; empty where these groups have no such test."""

_Arrays = dict[str, NDArray[np.float64]]


@dataclass(frozen=True)
class GroupTest:
    """Test of all groups together, or the `reason` why it is impossible.

    `between` and `within` are degrees of freedom; a test of ranks has only the former.
    """

    test: str
    statistic: float | None = None
    between: float | None = None
    within: float | None = None
    p: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class RankTest:
    """Mann-Whitney test: `p`, and the smallest p that this number of values can reach (complete separation)."""

    p: float | None = None
    smallest_p: float | None = None


@dataclass(frozen=True)
class ClassicalRow:
    """Row of a stack: summary of its values, its mean relative to the baseline's, and the test of ranks with that."""

    stack: str
    description: Description | None
    share: Interval
    ranks: RankTest


@dataclass(frozen=True)
class ClassicalTests:
    """All classical tests of a metric at a point."""

    baseline: str
    rows: tuple[ClassicalRow, ...]
    groups: tuple[GroupTest, ...]
    pairs: tuple[Pairs, ...]


def run_classical_tests(groups: Groups, baseline: str, seed: int) -> ClassicalTests:
    """Compute all tests. The studentized range takes 5 ms per pair of stacks, much longer than tare's intervals."""
    return ClassicalTests(
        baseline=baseline,
        rows=tuple(_classical_row(stack, groups, baseline, seed) for stack in groups),
        groups=(one_way_anova(groups), welch_anova(groups), kruskal_wallis(groups)),
        pairs=(tukey(groups), games_howell(groups), dunn(groups)),
    )


def one_way_anova(groups: Groups) -> GroupTest:
    """Compare the means of groups that have one common variance.

    Fisher, Statistical Methods for Research Workers (1925).
    """
    name, arrays = "one-way ANOVA", _scale_values(groups)
    reason = _problem(arrays, min_values=1) or _no_variance_problem(arrays)
    if reason:
        return GroupTest(name, reason=reason)
    result = scipy.stats.f_oneway(*arrays.values())
    if not np.isfinite(result.statistic):
        return GroupTest(name, reason="the variance within the stacks is too small for floating-point numbers")
    count = sum(map(len, arrays.values()))
    # For equal means, rounding can make F slightly negative, and its p is NaN.
    statistic, chance = (float(result.statistic), result.pvalue) if result.statistic >= 0 else (0.0, 1.0)
    return GroupTest(name, statistic, len(arrays) - 1, count - len(arrays), _clip_p_value(chance))


def welch_anova(groups: Groups) -> GroupTest:
    """Compare the means of groups with unequal variances.

    Welch, "On the comparison of several mean values: an alternative approach", Biometrika 38 (1951), 330-336.
    """
    name, arrays = "Welch's ANOVA", _scale_values(groups)
    steady = [stack for stack, values in arrays.items() if values.size and np.ptp(values) == 0]
    reason = _problem(arrays, min_values=2) or _no_variance_problem(arrays)
    if reason or steady:
        return GroupTest(
            name, reason=reason or f"the values of {steady[0]} do not vary, and their variance is a divisor"
        )
    result = scipy.stats.f_oneway(*arrays.values(), equal_var=False)
    weights = np.array([len(values) / values.var(ddof=1) for values in arrays.values()])
    counts = np.array([len(values) for values in arrays.values()])
    uncertainty = float(((1 - weights / weights.sum()) ** 2 / (counts - 1)).sum())
    within = (len(arrays) ** 2 - 1) / (3 * uncertainty)
    return GroupTest(name, float(result.statistic), len(arrays) - 1, within, _clip_p_value(result.pvalue))


def kruskal_wallis(groups: Groups) -> GroupTest:
    """Compare the ranks of groups, with the chi-squared distribution.

    Kruskal and Wallis, "Use of ranks in one-criterion variance analysis", Journal of the American Statistical
    Association 47 (1952), 583-621.
    """
    name, arrays = "Kruskal-Wallis", _to_arrays(groups)
    reason = _problem(arrays, min_values=1) or _all_equal_problem(arrays)
    if reason:
        return GroupTest(name, reason=reason)
    result = scipy.stats.kruskal(*arrays.values())
    return GroupTest(name, float(result.statistic), len(arrays) - 1, None, _clip_p_value(result.pvalue))


def tukey(groups: Groups) -> Pairs:
    """Compare all pairs of means of groups that have one common variance.

    Tukey, The Problem of Multiple Comparisons (1953); for unequal counts Kramer, "Extension of multiple range tests to
    group means with unequal numbers of replications", Biometrics 12 (1956), 307-310. Written with SciPy's studentized
    range, not its `tukey_hsd`, which takes no group of one value and computes each pair twice.
    """
    arrays = _scale_values(groups)
    if _problem(arrays, min_values=1) or _no_variance_problem(arrays):
        return {}
    freedom = sum(map(len, arrays.values())) - len(arrays)
    squares = [_variance(values) * (len(values) - 1) for values in arrays.values() if len(values) > 1]
    variance = sum(squares) / freedom
    pairs = list(combinations(arrays.values(), 2))
    errors = np.array([variance * (1 / len(one) + 1 / len(two)) for one, two in pairs])
    return _compare_studentized_ranges(arrays, errors, np.full(len(pairs), float(freedom)))


def games_howell(groups: Groups) -> Pairs:
    """Compare all pairs of means of groups with unequal variances. A pair without variance has no p-value.

    Games and Howell, "Pairwise multiple comparison procedures with unequal N's and/or variances", Journal of
    Educational Statistics 1 (1976), 113-125.
    """
    arrays = _scale_values(groups)
    if _problem(arrays, min_values=2) or _no_variance_problem(arrays):
        return {}
    errors = {stack: (_variance(values) / len(values), len(values)) for stack, values in arrays.items()}
    squares, freedoms = [], []
    for (one, count), (two, other) in combinations(errors.values(), 2):
        squares.append(one + two)
        uncertainty = one**2 / (count - 1) + two**2 / (other - 1)
        freedoms.append((one + two) ** 2 / uncertainty if uncertainty > 0 else 1.0)
    return _compare_studentized_ranges(arrays, np.array(squares), np.array(freedoms))


def dunn(groups: Groups) -> Pairs:
    """Compare all pairs of mean ranks, with the ranks of Kruskal-Wallis, corrected for ties.

    Dunn, "Multiple comparisons using rank sums", Technometrics 6 (1964), 241-252, adjusted after Holm, "A simple
    sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979), 65-70.
    """
    arrays = _to_arrays(groups)
    if _problem(arrays, min_values=1) or _all_equal_problem(arrays):
        return {}
    together = np.concatenate(list(arrays.values()))
    ties = np.unique(together, return_counts=True)[1].astype(float)
    count = together.size
    variance = count * (count + 1) / 12 - float((ties**3 - ties).sum()) / (12 * (count - 1))
    ends = np.cumsum([len(values) for values in arrays.values()])[:-1]
    pairs = list(combinations(np.split(scipy.stats.rankdata(together), ends), 2))
    away = np.array([two.mean() - one.mean() for one, two in pairs])
    errors = np.sqrt([variance * (1 / len(one) + 1 / len(two)) for one, two in pairs])
    return _to_pairs(arrays, holm(2 * scipy.stats.norm.sf(np.abs(away) / errors)))


def holm(p_values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Adjust p-values for the probability of any false rejection among all of them (Holm 1979, as in `dunn`)."""
    order = np.argsort(p_values)
    grown = np.maximum.accumulate(p_values[order] * np.arange(len(p_values), 0, -1))
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(grown, 1.0)
    return adjusted


def mann_whitney(first: Sequence[float], second: Sequence[float]) -> RankTest:
    """Compare the ranks of two groups, two-sided; exactly for small groups, else by the normal approximation.

    Mann and Whitney, "On a test of whether one of two random variables is stochastically larger than the other", The
    Annals of Mathematical Statistics 18 (1947), 50-60.
    """
    arrays = _to_arrays({"the first": first, "the second": second})
    if _problem(arrays, min_values=1):
        return RankTest()
    one, two = arrays.values()
    arrangements = comb(len(one) + len(two), len(one))
    smallest = min(1.0, 2 / arrangements)
    if _all_equal_problem(arrays):
        return RankTest(None, smallest)
    tied = len(np.unique(np.concatenate([one, two]))) < len(one) + len(two)
    if tied and arrangements <= _MAX_EXACT_ARRANGEMENTS:
        chance = _exact_p_value(one, two)
    else:
        exact = not tied and len(one) * len(two) <= _MAX_EXACT_PAIRS
        chance = float(scipy.stats.mannwhitneyu(one, two, method="exact" if exact else "asymptotic").pvalue)
    # With ties, the normal approximation can be smaller than the p of any arrangement.
    return RankTest(max(_clip_p_value(chance), smallest), smallest)


def _exact_p_value(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """Return twice the share of arrangements whose rank sum of the smaller group is as extreme as the observed one."""
    ranks = scipy.stats.rankdata(np.concatenate([one, two]))
    smaller = ranks[: len(one)] if len(one) <= len(two) else ranks[len(one) :]
    sums = np.array(list(combinations(ranks, len(smaller)))).sum(axis=1)
    return 2 * float(min(np.mean(sums <= smaller.sum()), np.mean(sums >= smaller.sum())))


def _classical_row(stack: str, groups: Groups, baseline: str, seed: int) -> ClassicalRow:
    values, theirs = groups[stack], groups.get(baseline, ())
    if stack == baseline:
        return ClassicalRow(stack, describe(values), Interval(), RankTest())
    return ClassicalRow(stack, describe(values), bootstrap_share(values, theirs, seed), mann_whitney(values, theirs))


def _compare_studentized_ranges(arrays: _Arrays, squares: NDArray[np.float64], freedom: NDArray[np.float64]) -> Pairs:
    """Compare all pairs of means, given the squared standard error of each difference and its degrees of freedom."""
    away = np.array([two.mean() - one.mean() for one, two in combinations(arrays.values(), 2)])
    known = squares > 0
    errors = np.sqrt(squares[known] / 2)  # of a mean, of which the studentized range is a multiple
    chances = np.full(len(away), np.nan)
    chances[known] = scipy.stats.studentized_range.sf(np.abs(away[known]) / errors, len(arrays), freedom[known])
    return _to_pairs(arrays, chances)


def _to_pairs(arrays: _Arrays, chances: NDArray[np.float64]) -> Pairs:
    named = zip(combinations(arrays, 2), chances, strict=True)
    return {pair: None if np.isnan(chance) else _clip_p_value(chance) for pair, chance in named}


def _to_arrays(groups: Groups) -> _Arrays:
    arrays = {stack: np.asarray(values, dtype=float) for stack, values in groups.items()}
    if not all(np.isfinite(values).all() for values in arrays.values()):
        raise ValueError("a test needs finite values")
    return arrays


def _scale_values(groups: Groups) -> _Arrays:
    """Divide all values by the largest, so that no square overflows; make groups constant that vary by rounding."""
    arrays = _to_arrays(groups)
    scale = max((float(np.abs(values).max()) for values in arrays.values() if values.size), default=0.0) or 1.0
    shares = {stack: values / scale for stack, values in arrays.items()}
    return {
        stack: np.full(values.shape, values[0]) if _is_constant(values) else values for stack, values in shares.items()
    }


def _is_constant(shares: NDArray[np.float64]) -> bool:
    return shares.size > 0 and bool(np.ptp(shares) <= max(_ROUNDING * np.abs(shares).max(), _MIN_SHARE))


def _variance(values: NDArray[np.float64]) -> float:
    """Return the variance (n - 1), exactly 0 for equal values; NumPy's mean of equal values is rounded."""
    return 0.0 if np.ptp(values) == 0 else float(values.var(ddof=1))


def _problem(arrays: _Arrays, min_values: int) -> str:
    """Return why these groups cannot be compared; "" if they can."""
    if len(arrays) < 2:
        return "there is only one stack" if arrays else "there is no stack"
    for stack, values in arrays.items():
        if len(values) < min_values:
            return f"{stack} has {'only one' if len(values) else 'no'} value"
    return ""


def _all_equal_problem(arrays: _Arrays) -> str:
    return "all values are equal" if np.ptp(np.concatenate(list(arrays.values()))) <= 0 else ""


def _no_variance_problem(arrays: _Arrays) -> str:
    if all(len(values) < 2 for values in arrays.values()):
        return "no stack has more than one value"
    if all(np.ptp(values) == 0 for values in arrays.values()):
        return _all_equal_problem(arrays) or "no stack's values vary, so there is nothing to measure differences with"
    return ""


def _clip_p_value(p: float) -> float:
    return min(max(float(p), 0.0), 1.0)

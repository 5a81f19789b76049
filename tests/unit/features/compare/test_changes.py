"""The means of two runs, compared as independent samples."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from tare.features.compare.changes import LogRatioSample, compare_samples, evidence, half_width


def test_for_equal_samples_the_evidence_is_the_likelihood_ratio_of_t() -> None:
    # From first principles: Student's t is noncentral with δ√(n/2), and δ is standard normal (Gönen et al. 2005).
    count, deviation, distance = 12, 0.04, 0.05
    sample = LogRatioSample(0.0, deviation, count)
    root, freedom = math.sqrt(count / 2), 2 * count - 2
    t = distance / (deviation / root)
    marginal, _ = integrate.quad(lambda d: stats.nct.pdf(t, freedom, d * root) * stats.norm.pdf(d), -10, 10)
    assert evidence(distance, sample, sample) == pytest.approx(math.log(marginal / stats.t.pdf(t, freedom)), rel=1e-6)


def test_the_interval_ends_where_the_evidence_reaches_twenty() -> None:
    for one, other in (((0.04, 15), (0.04, 15)), ((0.02, 8), (0.06, 40)), ((0.0, 9), (0.03, 6))):
        first, second = LogRatioSample(0.0, *one), LogRatioSample(0.0, *other)
        assert evidence(half_width(first, second), first, second) == pytest.approx(math.log(20))


def test_fifteen_blocks_in_each_run_resolve_as_documented() -> None:
    sample = LogRatioSample(0.0, 0.037, 15)
    assert half_width(sample, sample) == pytest.approx(0.0443, abs=0.0001)


@pytest.mark.parametrize(("counts", "deviations"), [((40, 60), (1, 1)), ((8, 60), (0.2, 1)), ((8, 60), (5, 1))])
def test_looking_after_every_block_gives_false_alarms_at_most_1_time_in_20(
    counts: tuple[int, int], deviations: tuple[float, float]
) -> None:
    chance, found, times = np.random.default_rng(3), 0, 300
    for _ in range(times):
        old, new = chance.normal(0, deviations[0], counts[0]), chance.normal(0, deviations[1], counts[1])
        first = LogRatioSample(float(old.mean()), float(old.std(ddof=1)), len(old))
        for count in range(5, len(new) + 1):
            seen = new[:count]
            second = LogRatioSample(float(seen.mean()), float(seen.std(ddof=1)), count)
            if evidence(second.mean - first.mean, first, second) >= math.log(20):
                found += 1
                break
    assert found / times <= 0.05


@given(st.floats(-1, 1), st.floats(0.001, 0.3), st.floats(0.001, 0.3), st.integers(5, 60), st.integers(5, 60))
def test_the_other_way_round_a_change_is_the_same_with_its_sign_flipped(
    mean: float, one: float, other: float, few: int, many: int
) -> None:
    first, second = LogRatioSample(0.0, one, few), LogRatioSample(mean, other, many)
    there, back = compare_samples(first, second, 0.03), compare_samples(second, first, 0.03)
    assert there.ratio == pytest.approx(1 / back.ratio)
    flipped = {"more": "less", "less": "more"}
    assert back.side == flipped.get(there.side, there.side)
    if there.low is not None and back.high is not None:
        assert there.low == pytest.approx(1 / back.high)


@pytest.mark.parametrize(("shift", "side"), [(0.0, "equivalent"), (0.1, "more")])
def test_runs_without_any_noise_are_compared_without_dividing_by_it(shift: float, side: str) -> None:
    found = compare_samples(LogRatioSample(0.0, 0.0, 8), LogRatioSample(shift, 0.0, 8), 0.03)
    assert (found.side, found.low, found.zero_width) == (side, found.high, True)
    assert math.isfinite(found.evidence)


def test_a_run_with_fewer_blocks_than_an_interval_needs_decides_nothing() -> None:
    found = compare_samples(LogRatioSample(0.0, 0.01, 4), LogRatioSample(1.0, 0.01, 30), 0.03)
    assert (found.side, found.low, found.evidence) == ("too few blocks", None, 0.0)

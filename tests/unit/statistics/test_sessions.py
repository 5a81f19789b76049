"""Sessions: sums of workloads with weights, their intervals, and how often these miss the truth."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from numpy.random import Generator
from sessions import RATIOS, SECONDS, WEIGHTS, run_of_sessions

from tare.model.run_folder import Run
from tare.statistics.cells import Cell, Spread
from tare.statistics.ratios import block_ratio
from tare.statistics.sessions import SessionCost, combine_ratios, compare_sessions, find_best
from tare.statistics.summarize import summarize


def cell(ratio: float, low: float | None = None, high: float | None = None, offset: float = 0.0) -> Cell:
    spread = Spread(0.1, 0.0, offset)
    return Cell("w", "time", None, "docker", "s", "lower", "worse", 5, ratio=ratio, low=low, high=high, spread=spread)


def test_the_ratio_of_a_session_is_a_mean_with_the_baselines_shares() -> None:
    assert combine_ratios([cell(1.0), cell(3.0)], [0.75, 0.25])[0] == pytest.approx(1.5)


def test_a_session_of_one_workload_has_its_interval() -> None:
    assert combine_ratios([cell(1.2, 1.1, 1.4)], [1.0]) == pytest.approx((1.2, 1.1, 1.4))
    # as a logarithm, an offset is part of the interval on both sides
    assert combine_ratios([cell(1.2, 1.1, 1.4, offset=0.05)], [1.0]) == pytest.approx((1.2, 1.1, 1.4))
    assert combine_ratios([cell(1.2, 1.2, 1.2)], [1.0]) == pytest.approx((1.2, 1.2, 1.2))


def test_distances_to_the_bounds_add_up_as_squares_on_each_side() -> None:
    _, low, high = combine_ratios([cell(1.0, 0.7, 1.5), cell(2.0, 1.6, 3.2)], [0.5, 0.5])
    assert low == pytest.approx(1.5 - math.hypot(0.15, 0.2))
    assert high == pytest.approx(1.5 + math.hypot(0.25, 0.6))


def test_the_difference_of_the_control_adds_up_as_it_is() -> None:
    parts = [cell(1.0, math.exp(-0.1), math.exp(0.1), offset=0.1)] * 2
    assert combine_ratios(parts, [0.5, 0.5]) == pytest.approx((1.0, math.exp(-0.1), math.exp(0.1)))
    without = [replace(each, spread=Spread(0.1)) for each in parts]
    assert combine_ratios(without, [0.5, 0.5])[2] == pytest.approx(1 + (math.exp(0.1) - 1) / math.sqrt(2))


def test_a_session_has_no_interval_if_a_workload_has_none() -> None:
    assert combine_ratios([cell(1.0, 0.9, 1.1), cell(3.0)], [0.5, 0.5]) == (2.0, None, None)


@pytest.mark.parametrize(("squeeze", "is_covered"), [(1.0, True), (0.35, False)])
def test_the_interval_of_a_session_seldom_misses_the_truth_at_any_look(squeeze: float, is_covered: bool) -> None:
    """Intervals of a third of the width miss it often: the simulation can tell."""
    random, missed, repetitions = np.random.default_rng(11), 0, 300
    for _ in range(repetitions):
        missed += misses_at_some_look(random, squeeze)
    assert (missed / repetitions <= 0.05) == is_covered


def misses_at_some_look(random: Generator, squeeze: float) -> bool:
    """Return whether the interval misses the true ratio at a look, after 5 to 20 blocks; the workloads are unlike.

    The shares are estimated from the same noisy baseline.
    """
    ratios, seconds = np.array([1.02, 1.4, 6.0]), np.array([4.0, 1.0, 0.1])
    noise, blocks = np.array([0.02, 0.1, 0.3]), np.array([8, 20, 20])  # the first workload was decided earlier
    truth = float((ratios * seconds).sum() / seconds.sum())
    common = random.normal(0, 0.05, (3, 20))  # of a block, on both sides
    baselines = np.exp(np.log(seconds)[:, None] + common + random.normal(0, noise[:, None] / 3, (3, 20)))
    stacks = np.exp(np.log(ratios * seconds)[:, None] + common + random.normal(0, noise[:, None], (3, 20)))
    for look in (5, 8, 12, 20):
        count = [min(look, int(most)) for most in blocks]
        means = np.array([np.exp(np.log(baselines[row, :n]).mean()) for row, n in enumerate(count)])
        cells = []
        for row, n in enumerate(count):
            found = block_ratio(stacks[row, :n], baselines[row, :n])
            assert found is not None
            assert found.low is not None
            assert found.high is not None
            narrow = [found.ratio * (bound / found.ratio) ** squeeze for bound in (found.low, found.high)]
            cells.append(cell(found.ratio, *narrow))
        _, low, high = combine_ratios(cells, list(means / means.sum()))
        assert low is not None
        assert high is not None
        if not low <= truth <= high:
            return True
    return False


def sessions(run: Run) -> dict[str, SessionCost]:
    return {cost.stack: cost for cost in compare_sessions(summarize(run), run.record)}


def test_a_session_adds_up_the_seconds_of_its_workloads() -> None:
    found = sessions(run_of_sessions())
    assert list(found) == ["native", "crun", "docker", "gvisor", "podman", "qemu"]
    native, gvisor = found["native"].cell, found["gvisor"].cell
    whole = sum(SECONDS[name] * WEIGHTS[name] for name in WEIGHTS)
    assert native.verdict == "baseline"
    assert (native.ratio, native.low, native.n) == (1.0, None, 8)
    assert native.usual == pytest.approx(whole, rel=0.1)
    ratios = dict(zip(SECONDS, RATIOS["gvisor"], strict=True))
    truth = sum(SECONDS[name] * WEIGHTS[name] * ratios[name] for name in WEIGHTS) / whole
    assert gvisor.low is not None
    assert gvisor.high is not None
    assert gvisor.low < truth < gvisor.high
    assert gvisor.high / gvisor.low < 1.1
    assert gvisor.verdict == "worse"
    assert gvisor.usual == pytest.approx((native.usual or 0.0) * (gvisor.ratio or 0.0))
    assert gvisor.usual_low == pytest.approx((native.usual or 0.0) * gvisor.low)
    assert sum(found["gvisor"].parts.values()) == pytest.approx(gvisor.usual)


def test_a_stack_without_a_workload_has_no_session_and_names_it() -> None:
    found = sessions(run_of_sessions())
    podman = found["podman"]
    assert (podman.cell.verdict, podman.cell.ratio, podman.cell.usual) == ("no value", None, None)
    assert podman.missing == {"tests": "failed"}
    assert set(podman.parts) == {"clone", "startup"}
    assert found["qemu"].missing == dict.fromkeys(WEIGHTS, "skipped")


def test_few_blocks_have_a_session_without_an_interval() -> None:
    crun = sessions(run_of_sessions(blocks=2))["crun"].cell
    assert (crun.verdict, crun.low, crun.high, crun.usual_low, crun.n) == ("too few blocks", None, None, None, 2)
    assert crun.ratio is not None


def test_a_run_without_weights_has_no_session() -> None:
    run = run_of_sessions()
    for weight in (0.0, math.nan, math.inf, -1.0):  # a run folder may be damaged
        records = tuple(replace(each, weight=weight) for each in run.record.workloads)
        assert sessions(replace(run, record=replace(run.record, workloads=records))) == {}


def test_a_baseline_without_a_value_leaves_no_session() -> None:
    run = run_of_sessions()
    trials = tuple(each for each in run.trials if (each.workload, each.stack) != ("clone", "native"))
    found = sessions(replace(run, trials=trials))
    assert {cost.cell.verdict for cost in found.values()} == {"no value"}
    assert found["native"].missing == {"clone": "not measured"}
    assert found["crun"].missing == {"clone": "not measured on native"}


def test_the_best_are_those_whose_intervals_overlap_the_shortest() -> None:
    cells = [cell(1.0, 0.9, 1.1), cell(1.15, 1.05, 1.25), cell(1.3, 1.2, 1.4), cell(2.0)]
    costs = [SessionCost(replace(each, stack=name), {}, {}) for name, each in zip("abcd", cells, strict=True)]
    assert find_best(costs) == {"a", "b"}
    assert find_best(costs[2:]) == {"c"}
    assert find_best(costs[3:]) == frozenset()  # without an interval
    assert find_best([costs[3], SessionCost(replace(cells[3], ratio=1.0, verdict="baseline", stack="e"), {}, {})]) == {
        "e"
    }
    assert find_best([SessionCost(replace(cells[0], ratio=None), {}, {"w": "failed"})]) == find_best([]) == frozenset()

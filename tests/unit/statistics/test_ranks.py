"""Ranking of a headline: equal stacks share ranks, and different ones are distinguished."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest
from runs import DHRYSTONE, SPEED, believable_run, make_run, make_trial

from tare.features.papers.claims import IntervalEstimate, Region, RegionVerdict, locate_interval
from tare.model.run_folder import Run
from tare.model.trial import Better, MeasuredValue
from tare.statistics.anytime import widths_per_deviation
from tare.statistics.cells import Cell, Spread, Verdict
from tare.statistics.ranking import _rank_cells, rankings
from tare.statistics.ratios import block_ratio
from tare.statistics.summarize import summarize

FOUND = Mapping[str, tuple[int, int]]
SPEEDS = {"native": 1.0, "native-again": 1.0, "docker": 0.9, "podman": 0.9, "qemu": 0.5}


def run_of(speeds: Mapping[str, float], blocks: int = 12, better: Better = "higher", noise: float = 0.01) -> Run:
    chance = np.random.default_rng(3)
    metric = replace(SPEED, better=better)
    trials = [
        make_trial(
            stack,
            block,
            [MeasuredValue("speed", None, 1000 * float(speed * np.exp(chance.normal(0, noise))), metric.unit, better)],
        )
        for block in range(blocks)
        for stack, speed in speeds.items()
    ]
    return make_run(trials, [replace(DHRYSTONE, metrics=(metric,))])


def ranks_of(run: Run) -> FOUND:
    [ranking] = rankings(summarize(run))
    return {rank.cell.stack: (rank.best, rank.worst) for rank in ranking}


def test_indistinguishable_stacks_share_ranks_and_the_control_has_none() -> None:
    assert ranks_of(run_of(SPEEDS)) == {"native": (1, 1), "docker": (2, 3), "podman": (2, 3), "qemu": (4, 4)}


def test_less_is_better_where_a_workload_says_so() -> None:
    found = ranks_of(run_of(SPEEDS, better="lower"))
    assert found == {"qemu": (1, 1), "docker": (2, 3), "podman": (2, 3), "native": (4, 4)}


def test_what_the_matrix_leaves_open_is_a_tie_with_the_baseline() -> None:
    run = run_of(SPEEDS | {"docker": 0.99, "podman": 1.01}, noise=0.05)
    summary = summarize(run)
    assert {summary.headline("dhrystone", stack).verdict for stack in ("docker", "podman")} == {"undecided"}
    assert ranks_of(run) == {"native": (1, 3), "docker": (1, 3), "podman": (1, 3), "qemu": (4, 4)}


def test_fewer_blocks_than_an_interval_needs_rank_nothing() -> None:
    assert ranks_of(run_of(SPEEDS, blocks=4)) == {}


def test_every_headline_has_a_ranking_without_stacks_that_lack_a_value() -> None:
    run = believable_run()
    summary = summarize(run)
    found = dict(zip((rule.name for rule in summary.rules), rankings(summary), strict=True))
    assert list(found) == [rule.name for rule in summary.rules]
    assert "gvisor" not in {rank.cell.stack for rank in found["nginx"]}
    assert found["nginx"][-1].cell.stack == "qemu-tcg"


def _told(cells: Sequence[Cell], *pairs: tuple[str, str]) -> FOUND:
    told = np.zeros((len(cells), len(cells)), dtype=bool)
    names = [cell.stack for cell in cells]
    for ahead, behind in pairs:
        told[names.index(ahead), names.index(behind)] = True
    return {rank.cell.stack: (rank.best, rank.worst) for rank in _rank_cells(cells, told)}


def _cells(**verdicts: Verdict) -> list[Cell]:
    cell = Cell("redis", "get", None, "", "requests/s", "higher", "undecided", ratio=1.0)
    return [replace(cell, stack=stack, verdict=verdict) for stack, verdict in verdicts.items()]


def test_who_is_better_than_the_baseline_is_better_than_who_is_worse() -> None:
    found = _told(_cells(native="baseline", docker="better", podman="worse"))
    assert found == {"docker": (1, 1), "native": (2, 2), "podman": (3, 3)}


def test_a_tie_need_not_reach_from_the_first_to_the_last() -> None:
    found = _told(_cells(first="undecided", middle="undecided", last="undecided"), ("first", "last"))
    assert found == {"first": (1, 2), "middle": (1, 3), "last": (2, 3)}


def test_statements_that_contradict_each_other_distinguish_nothing() -> None:
    cells = _cells(one="undecided", two="undecided", three="undecided")
    found = _told(cells, ("one", "two"), ("two", "three"), ("three", "one"))
    assert found == {"one": (1, 3), "two": (1, 3), "three": (1, 3)}


def test_of_very_many_stacks_only_the_baseline_is_compared_with() -> None:
    speeds = {"native": 1.0} | {f"stack-{number}": 0.5 + 0.4 * (number % 2) for number in range(60)}
    found = ranks_of(run_of(speeds, blocks=8))
    assert found["native"] == (1, 1)
    assert set(found.values()) == {(1, 1), (2, 61)}


# --- positions of intervals relative to regions: inside, outside, across; and the evidence for them ---

SEEN = IntervalEstimate(
    0.9, 12, Spread(math.log(0.9 / 0.88) / float(widths_per_deviation(np.array(12))))
)  # 0.88 to 0.9205


@pytest.mark.parametrize(("region", "where"), [
    (Region(high=1.0), "inside"),
    (Region(0.88, 0.93), "inside"),
    (Region(low=0.5), "inside"),
    (Region(), "inside"),
    (Region(low=1.0), "outside"),
    (Region(high=0.87), "outside"),
    (Region(0.95, 1.05), "outside"),
    (Region(low=0.9), "across"),
    (Region(0.89, 0.91), "across"),
    (Region(high=0.9), "across"),
])  # fmt: skip
def test_an_interval_lies_inside_of_a_region_outside_or_across_its_border(region: Region, where: str) -> None:
    assert locate_interval(SEEN, region).position == where


def test_without_an_interval_nothing_is_known() -> None:
    assert locate_interval(IntervalEstimate(0.9, 4, Spread(0.01)), Region(low=1.0)) == RegionVerdict("unknown")


def test_the_evidence_at_an_interval_end_is_the_threshold_of_the_interval() -> None:
    assert locate_interval(SEEN, Region(low=0.88)).evidence == pytest.approx(math.log(20))
    assert locate_interval(SEEN, Region(0.88, 5.0)).evidence == pytest.approx(math.log(20))


def test_the_evidence_against_no_difference_is_that_of_the_ratio_itself() -> None:
    ratio = block_ratio([91.0, 90.2, 89.5, 90.0, 90.9, 89.8], [100.0] * 6)
    assert ratio is not None
    assert ratio.side == "less"
    found = locate_interval(IntervalEstimate(ratio.ratio, ratio.n, ratio.spread), Region(high=1.0))
    assert found.position == "inside"
    assert found.evidence == pytest.approx(ratio.evidence)


def test_the_evidence_grows_with_the_distance_from_the_border() -> None:
    near, far = (locate_interval(SEEN, Region(low=border)).evidence for border in (0.95, 1.5))
    assert math.log(20) < near < far


def test_an_interval_without_a_width_lies_somewhere_too() -> None:
    seen = IntervalEstimate(0.9, 8, Spread(0.0))
    assert locate_interval(seen, Region(low=1.0)).position == "outside"
    assert locate_interval(seen, Region(low=1.0)).evidence > math.log(20)
    assert locate_interval(seen, Region(high=0.9)).position == "inside"


def test_borrowing_increases_certainty_and_a_baseline_shift_reduces_it() -> None:
    plain, surer, unsure = (IntervalEstimate(0.9, 6, Spread(0.02, *more)) for more in ((), (10.0,), (10.0, 0.01)))
    assert surer.half_width < plain.half_width
    assert unsure.half_width == pytest.approx(surer.half_width + 0.01)
    evidences = [locate_interval(seen, Region(low=1.0)).evidence for seen in (plain, unsure, surer)]
    assert evidences == sorted(evidences)


def test_the_inverse_has_the_inverse_ends() -> None:
    inverse = SEEN.inverse
    assert SEEN.low is not None
    assert SEEN.high is not None
    assert (inverse.value, inverse.low, inverse.high) == pytest.approx((1 / 0.9, 1 / SEEN.high, 1 / SEEN.low))
    assert IntervalEstimate(0.5, 3, Spread(0.1)).inverse.low is None

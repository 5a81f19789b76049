"""How right predictions are (research/validated.py): examples worked by hand, and that none has seen its answer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import validated
from captured import SAMPLES
from priced import NATIVE, application, basket, priced
from runs import pairs
from validate import done_in
from validated import ADVICE, BEGIN, BILL, END, MEAN, METHODS, NEAREST, Cell

from tare.features.advise.advice import AdviceOptions, advise
from tare.features.advise.application_profile import ApplicationProfile
from tare.features.advise.cost_model import CostEstimate
from tare.model.trial import RawOutput
from tare.plugins.workload import Workload
from tare.suites.suite import read_suite

SUITE = read_suite(Path(__file__).parents[4] / "research/validate.toml")


def cell(place: str, measured: float, advised: CostEstimate, *, is_ranked: bool = True, **predicted: float) -> Cell:
    """A cell, such as `web/docker`; the other methods predict 1."""
    name, stack = place.split("/")
    whole = dict.fromkeys(METHODS, 1.0) | {ADVICE: advised.value} | predicted
    return Cell(name, stack, CostEstimate(measured), advised, is_ranked, whole, (("page faults", 0.25),))


def test_coverage_counts_the_intervals_that_hold_what_was_measured() -> None:
    told = CostEstimate(1.2, 1.1, 1.3)
    cells = [
        cell("a/x", 1.1, told),
        cell("a/y", 1.31, told),
        cell("a/z", 1.2, told),
        cell("b/x", 9.0, CostEstimate(1.0)),
    ]
    assert validated.coverage(cells) == pytest.approx(2 / 3)
    assert validated.coverage(cells[3:]) is None


def test_errors_are_in_points_below_twice_bare_metal_and_relative_above() -> None:
    cells = [
        cell("a/x", 1.0, CostEstimate(1.1)),
        cell("a/y", 1.5, CostEstimate(1.2)),
        cell("b/x", 1.9, CostEstimate(2.0)),
        cell("b/y", 4.0, CostEstimate(5.0)),
    ]
    score = validated.score(cells, ADVICE)
    assert score.error == pytest.approx(0.1)
    assert score.relative == pytest.approx(0.25)
    assert validated.score(cells, MEAN).error == pytest.approx(0.5)
    assert validated.score(cells, MEAN).relative == pytest.approx(0.75)


def test_a_first_stack_is_good_within_2_percent_of_the_cheapest() -> None:
    cells = [
        cell("web/docker", 1.02, CostEstimate(1.0)),
        cell("web/podman", 1.0, CostEstimate(1.1)),
        cell("db/docker", 1.5, CostEstimate(1.0), is_ranked=False),
        cell("db/podman", 1.8, CostEstimate(1.2)),
    ]
    found = validated.choices(cells, ADVICE)
    assert (found["web"].first, found["web"].cheapest) == ("docker", "podman")
    assert found["web"].regret == pytest.approx(0.02)
    assert (found["db"].first, found["db"].cheapest) == ("podman", "docker")
    assert found["db"].regret == pytest.approx(0.2)
    assert validated.score(cells[2:], ADVICE).good == 0.0
    assert validated.score(cells[:1], ADVICE).good == 1.0


def test_advice_that_ranks_no_stack_makes_no_choice_and_other_ways_do() -> None:
    cells = [cell("db/docker", 1.5, CostEstimate(1.0), is_ranked=False)]
    assert validated.choices(cells, ADVICE) == {}
    assert validated.choices(cells, BILL)["db"].first == "docker"
    assert validated.score(cells, ADVICE).good is None


def test_spearmans_rank_correlation_worked_by_hand() -> None:
    # Ranks 1, 2, 3 are measured as 1, 3, 2: 1 - 6 (0 + 1 + 1) / (3 (9 - 1)) = 0.5.
    cells = [
        cell("a/x", 1.0, CostEstimate(1.1)),
        cell("a/y", 3.0, CostEstimate(1.2)),
        cell("a/z", 2.0, CostEstimate(1.3)),
    ]
    assert validated.correlations(cells, ADVICE) == {"a": pytest.approx(0.5)}
    assert validated.correlations(cells, MEAN) == {}  # it says the same of all
    assert validated.correlations(cells[:2], ADVICE) == {}


def test_the_nearest_application_spends_its_time_on_the_same_kinds_of_work() -> None:
    others = {"web": {"user": 0.5, "message": 0.5}, "build": {"user": 0.6, "fault": 0.4}}
    assert validated.nearest({"user": 0.6, "message": 0.4}, others) == "web"
    assert validated.nearest({"user": 0.9}, others) == "build"


def test_a_time_is_that_of_bare_metal_over_a_speed_and_the_other_way_round() -> None:
    slower, faster = [50.0, 50.5, 49.5, 50.0, 50.2, 49.8], [100.0] * 6
    as_speed = validated.times_of(pairs(slower, faster))["dhrystone"]["docker"]
    as_time = validated.times_of(pairs(slower, faster, "lower"))["dhrystone"]["docker"]
    assert as_speed.value == pytest.approx(2.0, rel=1e-3)
    assert as_time.value == pytest.approx(0.5, rel=1e-3)
    for each in (as_speed, as_time):
        assert each.low is not None
        assert each.high is not None
        assert each.low < each.value < each.high


# --- leave one out

PRICES = priced()
APPLICATIONS: dict[str, ApplicationProfile] = {
    f"app-{number}": application(
        basket({"user": 1e-5, "call": 2.0 * number, "message": 1.0 + 0.1 * number, "fault": 0.2 * number})
    )
    for number in range(1, 12)
}


def measured(**other: float) -> dict[str, dict[str, CostEstimate]]:
    """What was measured: 1.1 in Docker and 3 in gVisor, but for what is said."""
    return {name: {"docker": CostEstimate(other.get(name, 1.1)), "gvisor": CostEstimate(3.0)} for name in APPLICATIONS}


@pytest.fixture(scope="module", name="before")
def predicted() -> dict[tuple[str, str], Cell]:
    """The cells, by application and stack."""
    return {(each.application, each.stack): each for each in validated.cells_of(APPLICATIONS, PRICES, measured())}


def test_each_application_is_predicted_in_each_stack_where_it_was_measured(
    before: dict[tuple[str, str], Cell],
) -> None:
    assert {*before} == {(name, stack) for name in APPLICATIONS for stack in ("docker", "gvisor")}
    assert all(each.advised.low is not None for each in before.values())


def test_measurements_of_an_application_change_only_predictions_of_others(
    before: dict[tuple[str, str], Cell],
) -> None:
    after = {
        (each.application, each.stack): each
        for each in validated.cells_of(APPLICATIONS, PRICES, measured(**{"app-3": 2.2}))
    }
    cell = "app-3", "docker"
    assert after[cell].predicted == before[cell].predicted
    assert after[cell].advised == before[cell].advised
    other = "app-4", "docker"
    assert after[other].predicted[ADVICE] > before[other].predicted[ADVICE]
    assert after[other].predicted[MEAN] == pytest.approx(1.1 * 2 ** (1 / 10))
    assert after[other].predicted[NEAREST] in {1.1, 2.2}
    assert after[other].predicted[BILL] == before[other].predicted[BILL]


def test_the_mean_is_geometric_and_of_the_others() -> None:
    times = {name: {"docker": CostEstimate(time)} for name, time in zip(APPLICATIONS, (1.0, 4.0, 7.0), strict=False)}
    cells = validated.cells_of(APPLICATIONS, PRICES, times)
    assert next(each for each in cells if each.application == "app-3").predicted[MEAN] == pytest.approx(2.0)


def test_shares_of_time_are_counts_times_prices() -> None:
    advice = advise(application(basket({"user": 1e-5, "message": 2.0})), PRICES, AdviceOptions())
    elapsed = 1e-5 + 2 * NATIVE["message"]
    assert validated.shares_of_time(advice) == {
        "user": pytest.approx(1e-5 / elapsed),
        "message": pytest.approx(2 * NATIVE["message"] / elapsed, rel=0.05),
    }


# --- the page


def test_the_page_shows_emulated_stacks_and_judges_without_them() -> None:
    cells = [
        cell("web/docker", 1.1, CostEstimate(1.2, 1.0, 1.4)),
        cell("web/qemu-tcg", 12.0, CostEstimate(3.0, 2.0, 4.0), is_ranked=False),
    ]
    text = validated.section(cells, ["qemu-tcg"], "One application.")
    assert "In all stacks but qemu-tcg, 100 % of the intervals of 90 %" in text
    assert "| tare advise | 10.0 points | none | 100 % of 1 | 100 % | none |" in text
    assert "| web | 1.10: 1.20 (1.00-1.40) | 12: 3.00 (2.00-4.00) !? |" in text
    assert "| web | qemu-tcg | 12: 3.00 (2.00-4.00) !? | page faults +25 |" in text


def test_the_results_replace_those_before_in_a_page() -> None:
    page = f"# Advice\n\n{BEGIN}old\n{END}\nMore.\n"
    assert validated.within(page, "new\n") == f"# Advice\n\n{BEGIN}\nnew\n\n{END}\nMore.\n"
    assert validated.within(validated.within(page, "old\n"), "new\n") == validated.within(page, "new\n")
    with pytest.raises(ValueError, match="the page has no lines"):
        validated.within("# Advice\n", "new\n")


# --- what was done in a turn


def planned(name: str) -> Workload:
    return SUITE.by_name[name]


@pytest.mark.parametrize(
    ("name", "raw", "units", "seconds"),
    [
        (
            "nginx",
            RawOutput("clients 50", ("wrk",), "requests: 3000\nseconds: 0.1\ncpu_seconds: 0.05\nturn: done\n", 0.12),
            3600,
            0.12,
        ),
        (
            "memcached",
            RawOutput(
                "load", ("memcslap",), "Time to get           20000 keys by   10 threads:     0.475 seconds.\n", 0.6
            ),
            20_000,
            0.475,
        ),
        (
            "bind",
            RawOutput(
                "load",
                ("sh", "-c", "dnsperf"),
                "  Queries completed:    8000 (100.00%)\n  Queries per second:   20000.000000\n",
                0.5,
            ),
            8000,
            0.4,
        ),
    ],
)
def test_a_turn_says_how_many_requests_it_had(name: str, raw: RawOutput, units: float, seconds: float) -> None:
    done = done_in(raw, planned(name))
    assert done.units == pytest.approx(units)
    assert done.seconds == pytest.approx(seconds)


def test_a_turn_of_redis_says_so_in_its_command_line() -> None:
    argv = ("redis-benchmark", "-h", "198.18.0.10", "-n", "4000", "-c", "50")
    done = done_in(RawOutput("GET 50", argv, (SAMPLES / "redis/get-50.csv").read_text(), 0.1), planned("redis"))
    assert done.units == 4000


def test_a_turn_without_a_number_of_requests_is_refused() -> None:
    raw = RawOutput("GET 50", ("redis-benchmark",), (SAMPLES / "redis/get-50.csv").read_text(), 0.1)
    with pytest.raises(SystemExit, match="redis: nothing says how many requests a turn had"):
        done_in(raw, planned("redis"))


def test_all_stacks_are_in_the_price_list() -> None:
    prices = read_suite(Path(__file__).parents[4] / "examples/prices.toml")
    assert {each.name for each in SUITE.stacks} <= {each.name for each in prices.stacks}
    assert (prices.limits, len(SUITE.workloads)) == (SUITE.limits, 14)


def test_a_cell_without_an_interval_is_neither_inside_nor_outside() -> None:
    whole = cell("web/docker", 1.1, CostEstimate(1.2, 1.0, 1.4))
    assert whole.is_inside
    assert replace(whole, measured=CostEstimate(1.5)).is_inside is False
    assert replace(whole, advised=CostEstimate(1.2)).is_inside is None

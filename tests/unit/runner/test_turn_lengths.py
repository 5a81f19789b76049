"""How a run chooses the length of turns: from synthetic pairs, and in a run on fakes."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from fakes import Bench, suite
from tare_fake.technology import FakeProcess

from tare.model.run_folder import WorkloadRecord
from tare.model.turn_length import TurnChoice, TurnLength, TurnProbe
from tare.runner.schedule import DurationEstimates
from tare.runner.turn_lengths import (
    ProbePair,
    TimedProbe,
    choose_turn_length,
    plan_probes,
    smooth_deviations,
)
from tare.suites.plan import plan
from tare.suites.suite import Suite
from tare.workloads.dhrystone import Dhrystone

DISCARDS = (0.001, 0.002, 0.005, 0.01)
MEASURES = (0.005, 0.01, 0.02, 0.05)
LENGTHS = tuple(TurnLength(discard, measure) for discard in DISCARDS for measure in MEASURES)
MARGIN = 0.03
NOISE = 0.005  # of the part to discard relative to the rest of its turn


def white(measure_seconds: float) -> float:
    return 0.01 * math.sqrt(0.01 / measure_seconds)


def flicker(measure_seconds: float) -> float:  # noqa: ARG001 - as `white`
    return 0.01


def _pairs(
    deviation: Callable[[float], float] = flicker,
    overhead: float = 0.001,
    cold: float = 0.0,
    shortest: float = 0.0,
    seed: int = 1,
) -> list[ProbePair]:
    """Make pairs of turns that lose all work of their first `cold` seconds, and take `shortest` seconds at least."""
    chance = random.Random(seed)  # noqa: S311 - nothing secret

    def turn(length: TurnLength) -> TimedProbe:
        speed, before = (
            math.exp(chance.gauss(0, each / math.sqrt(2))) for each in (deviation(length.measure_seconds), NOISE)
        )
        discard, measured = length.discard_seconds, max(shortest, length.measure_seconds)
        lost, later = min(cold, discard), max(0.0, cold - discard)
        discarded_rate = speed * before * (1 - lost / discard)
        probe = TurnProbe(discard, discarded_rate, measured, speed * max(0.0, 1 - later / measured))
        return TimedProbe(length, probe, discard + measured + overhead)

    return [(turn(each), turn(each)) for each in plan_probes(LENGTHS) * 4]


def test_pairs_of_every_length_are_spread_over_the_time() -> None:
    planned = plan_probes(LENGTHS)
    assert Counter(each.measure_seconds for each in planned) == {0.005: 20, 0.01: 16, 0.02: 10, 0.05: 6}
    assert {each.measure_seconds for each in planned[: len(planned) // 3]} == set(MEASURES)
    for seconds in MEASURES[:3]:
        assert {each.discard_seconds for each in planned if each.measure_seconds == seconds} == set(DISCARDS)


def test_a_cold_start_of_3_ms_is_found_and_discarded() -> None:
    choice = choose_turn_length(_pairs(cold=0.003), MARGIN)
    assert choice
    found = {each.seconds: each.lost_seconds for each in choice.cold_parts}
    assert found == pytest.approx({0.001: 0.001, 0.002: 0.002, 0.005: 0.003, 0.01: 0.003}, abs=2e-5)
    assert choice.length.discard_seconds == 0.005


def test_a_warm_start_discards_as_little_as_possible() -> None:
    choice = choose_turn_length(_pairs(), MARGIN)
    assert choice
    assert {each.length.discard_seconds for each in choice.costs} == {0.001}
    assert all(abs(each.cold_share) < 0.003 + 2 * each.cold_error for each in choice.costs)


def test_a_cold_part_matters_less_to_long_turns() -> None:
    choice = choose_turn_length(_pairs(lambda _: 1e-6, cold=0.0011), MARGIN)
    assert choice
    discards = {each.length.measure_seconds: each.length.discard_seconds for each in choice.costs}
    assert (discards[0.005], discards[0.05]) == (0.002, 0.001)


def test_noise_like_1_over_f_prefers_the_shortest_turn() -> None:
    choices = [choose_turn_length(_pairs(seed=seed), MARGIN) for seed in range(10)]
    assert Counter(each.length.measure_seconds for each in choices if each)[0.005] >= 8


def test_white_noise_with_an_overhead_prefers_long_turns() -> None:
    choices = [choose_turn_length(_pairs(white, 0.003, seed=seed), MARGIN) for seed in range(10)]
    assert min(each.length.measure_seconds for each in choices if each) >= 0.02  # 50 ms costs hardly less than 20


@pytest.mark.parametrize(("overhead", "expected"), [(0.001, 0.005), (0.01, 0.05)])
def test_the_usual_length_stays_unless_another_is_clearly_cheaper(overhead: float, expected: float) -> None:
    choice = choose_turn_length(_pairs(white, overhead), MARGIN, TurnLength(0.001, 0.005))
    assert choice
    assert choice.length.measure_seconds == expected


def test_of_equal_costs_the_longer_turn_wins() -> None:
    choice = choose_turn_length(_pairs(lambda _: 0.0), MARGIN)
    assert choice
    assert {each.cost for each in choice.costs} == {0.0}
    assert choice.length.measure_seconds == 0.05


def test_turns_that_a_program_cannot_make_shorter_are_left_out() -> None:
    choice = choose_turn_length(_pairs(shortest=0.0062), MARGIN)
    assert choice
    assert [each.length.measure_seconds for each in choice.costs] == [0.005, 0.01, 0.02, 0.05]


def test_without_enough_pairs_nothing_is_chosen() -> None:
    pairs = _pairs()
    dead = [(replace(one, probe=replace(one.probe, measured_rate=0.0)), other) for one, other in pairs]
    assert choose_turn_length([], MARGIN) is None
    assert choose_turn_length(pairs[:3], MARGIN) is None
    assert choose_turn_length(dead, MARGIN) is None
    few = choose_turn_length(pairs[:20], MARGIN)  # only two of the longest turns
    assert few
    assert [each.length.measure_seconds for each in few.costs] == [0.005, 0.01, 0.02]


def test_deviations_follow_a_power_between_white_noise_and_1_over_f() -> None:
    counts = dict.fromkeys((0.001, 0.01), 10)
    assert smooth_deviations({0.001: 0.1, 0.01: 0.2}, counts)[0.001] == pytest.approx(math.sqrt(0.02))
    assert smooth_deviations({0.001: 0.2, 0.01: 0.1}, counts) == pytest.approx({0.001: 0.2, 0.01: 0.1})
    steep = smooth_deviations({0.001: 0.9, 0.01: 0.1}, counts)
    assert steep[0.001] / steep[0.01] == pytest.approx(math.sqrt(10))


# --- in a run ------------------------------------------------------------------------------------------------------


def _record(bench: Bench, name: str = "dhrystone") -> WorkloadRecord:
    return next(each for each in bench.read().record.workloads if each.name == name)


def _dhrystone_suite(*stacks: str, blocks: int) -> Suite:
    """Return a suite of Dhrystone with a duration for which a length can be chosen: 25 usual turns of 10 + 20 ms."""
    what = suite(*stacks, blocks=blocks, workloads=("dhrystone",))
    workloads = tuple(replace(each, workload=Dhrystone(duration=0.5)) for each in what.workloads)
    return replace(what, workloads=workloads)


@pytest.fixture
def _telling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeProcess, "tells_discarded", True)


@pytest.mark.usefixtures("_telling")
def test_a_run_chooses_a_length_once_and_a_resumed_run_goes_on_with_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = _dhrystone_suite('a: jitter = "1%"', 'b: jitter = "1%"', blocks=3)
    bench.work(replace(what, only_blocks=frozenset({0})))
    chosen = _record(bench).turns
    assert chosen
    assert (chosen.length.discard_seconds, len(chosen.costs)) == (0.01, 2)
    turns = math.ceil(25 * 0.03 / chosen.length.seconds)  # as long together as 25 usual ones
    monkeypatch.setattr("tare.runner.loop.choose_turn_length", None)  # nothing is chosen again
    bench.work(what)
    assert _record(bench).turns == chosen
    assert len(bench.all_trials) == 9
    assert {len(trial.turns) for trial in bench.all_trials} == {turns}
    assert {trial.status for trial in bench.all_trials} == {"ok"}


@pytest.mark.usefixtures("_telling")
@pytest.mark.parametrize(("rounds", "turns"), [(None, 13), (150, 156)])
def test_the_rounds_of_the_first_block_follow_from_the_chosen_length(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, rounds: int | None, turns: int
) -> None:
    choice = TurnChoice(TurnLength(0.01, 0.05), (), (), 1.0)
    monkeypatch.setattr("tare.runner.loop.choose_turn_length", lambda *_: choice)
    bench.work(replace(_dhrystone_suite("a:", "b:", blocks=1), rounds=rounds))
    assert _record(bench).turns == choice
    assert {len(trial.turns) for trial in bench.all_trials} == {turns}


@pytest.mark.usefixtures("_telling")
def test_a_number_in_the_suite_fixes_the_length(bench: Bench) -> None:
    what = _dhrystone_suite("a:", "b:", blocks=1)
    fixed = tuple(replace(each, workload=Dhrystone(turn=0.02, discard=0.005)) for each in what.workloads)
    bench.work(replace(what, workloads=fixed))
    assert _record(bench).turns is None
    assert {len(trial.turns) for trial in bench.all_trials} == {10}


def test_if_the_probes_fail_the_usual_length_stays(bench: Bench) -> None:
    bench.work(_dhrystone_suite("a:", "b:", blocks=2))  # the fake does not print the part to discard
    assert _record(bench).turns is None
    assert {len(trial.turns) for trial in bench.all_trials} == {25}
    assert {trial.status for trial in bench.all_trials} == {"ok"}


@pytest.mark.usefixtures("_telling")
@pytest.mark.parametrize("excluded", ["a", "a-again"])
def test_nothing_is_chosen_without_the_baseline_or_its_control(bench: Bench, excluded: str) -> None:
    what = _dhrystone_suite("a:", "b:", blocks=1)
    names = tuple(replace(each, exclude=(excluded,)) for each in what.workloads)
    bench.work(replace(what, workloads=names))
    assert _record(bench).turns is None


def test_an_estimate_counts_the_choice_once() -> None:
    what = _dhrystone_suite("a:", "b:", blocks=2)
    estimates = DurationEstimates(what.by_name, control=what.control)
    fixed = DurationEstimates({"dhrystone": Dhrystone(turn=0.02, discard=0.01, duration=0.5)})
    more = [estimates.seconds_of(step) - fixed.seconds_of(step) for block in plan(what) for step in block.trials]
    assert sorted(round(each, 6) for each in more)[-2:] == [pytest.approx(0, abs=0.2), pytest.approx(2.2, abs=0.2)]

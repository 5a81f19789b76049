"""Passes of a block, turns of far slower stacks, and several starts of a stack."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import create_autospec

import numpy as np
import pytest
from fakes import TICKS, Bench, suite
from tare_fake.technology import Fake

from tare.model.errors import SuiteError
from tare.model.trial import Caution, Mark, MeasuredValue, RawOutput, Trial, Turn
from tare.runner.decisions import Decisions
from tare.runner.extra_instances import measure_layer_footprint
from tare.runner.loop import BlockDuration, RemainingWork, _set_passes, block_duration, optimal_passes
from tare.runner.schedule import DurationEstimates, Schedule
from tare.runner.trial_log import TrialLog, has_time_for_another_start, mark_as_warm_up, merge_starts
from tare.statistics.planning import VarianceComponents, variance_components
from tare.suites.plan import plan
from tare.suites.suite import parse_suite
from tare.telemetry.sampler import Sampler, SamplingBackend
from tare.workloads.dhrystone import Dhrystone
from tare.workloads.startup import Startup


@pytest.mark.parametrize(
    ("costs", "variances", "passes"),
    [
        (BlockDuration(10.0, 10.0, 10), (1.0, 0.01), 3),  # sqrt(10 / 1 * 100) = 31.6 rounds
        (BlockDuration(10.0, 10.0, 10), (1.0, 1.0), 1),
        (BlockDuration(0.1, 10.0, 10), (1.0, 0.01), 1),
        (BlockDuration(90.0, 10.0, 10), (1.0, 1e-9), 10),  # the most
    ],
)
def test_rounds_are_as_many_as_kalibera_and_jones_say(
    costs: BlockDuration, variances: tuple[float, float], passes: int
) -> None:
    assert optimal_passes(VarianceComponents(*variances), costs) == passes


@pytest.mark.parametrize(("seconds", "passes"), [(math.inf, 6), (50.0, 4), (15.0, 1), (1.0, 1)])
def test_further_passes_end_within_the_time_that_a_block_may_take(seconds: float, passes: int) -> None:
    assert optimal_passes(VarianceComponents(1.0, 0.00254), BlockDuration(10.0, 10.0, 10), seconds) == passes


@pytest.mark.parametrize("between", [0.0, 0.02, 0.1])
def test_the_components_of_the_variance_are_those_of_the_simulation(between: float) -> None:
    """Return the variance of the ratio of two stacks; that of a median of ten rounds is pi / 2 times that of a mean."""
    chance, shape = np.random.default_rng(5), (40, 2, 30, 10)
    logs = 0.1 * chance.standard_normal(shape) + between * chance.standard_normal((*shape[:3], 1))
    found = variance_components(logs, np.ones(shape, dtype=bool), np.array([0.5, 0.5]), 0)
    assert found
    assert found.within == pytest.approx(0.1**2 * np.pi / 2, rel=0.15)
    assert found.between == pytest.approx(between**2, rel=0.25, abs=1e-4)


def test_after_one_block_instances_are_assumed_to_vary_less_than_rounds() -> None:
    logs = np.random.default_rng(5).standard_normal((9, 1, 1, 10))
    found = variance_components(logs, np.ones(logs.shape, dtype=bool), np.ones(1), 0)
    assert found
    assert found.between == pytest.approx(found.within / 16)


def test_with_too_few_or_equal_rounds_variance_components_are_unknown() -> None:
    there = np.ones((9, 1, 3, 2), dtype=bool)
    assert variance_components(np.zeros(there.shape), there, np.ones(1), 0) is None
    assert variance_components(np.zeros((9, 1, 3, 10)), np.ones((9, 1, 3, 10), dtype=bool), np.ones(1), 0) is None


def _learned(pace: DurationEstimates, stack: str, seconds: float, turns: int, each: float) -> None:
    of = tuple(Turn("dhrystone", number, 0.0, each) for number in range(turns))
    pace.learn(replace(Trial("t", 0, 0, "dhrystone", stack, "ok", "", 0.0, seconds), turns=of))


def test_a_trial_is_estimated_from_its_start_and_passes_of_the_next_block() -> None:
    pace = DurationEstimates({"dhrystone": Dhrystone()})  # ten rounds
    _learned(pace, "a", 5.0, 30, 0.1)  # three passes of 1 s
    [block] = plan(suite("a:", blocks=1, workloads=("dhrystone",)))
    step = next(step for step in block.trials if step.stack == "a")
    assert (pace.start_seconds_of(step), pace.pass_seconds_of(step)) == pytest.approx((2.0, 1.0))
    pace.passes["dhrystone"] = 4
    assert pace.seconds_of(step) == pytest.approx(6.0)
    assert pace.turns_of("dhrystone") == 40
    costs = block_duration(replace(block, trials=(step,)), pace)
    assert (costs.start_seconds, costs.pass_seconds, costs.rounds) == pytest.approx((2.0, 1.0, 10))


def test_a_stack_that_is_far_slower_is_measured_once() -> None:
    pace = DurationEstimates({"dhrystone": Dhrystone()}, {"dhrystone": 4})
    block = plan(suite("a:", "b:", "slow:", blocks=1, workloads=("dhrystone",)))[0]
    for stack, each in (("a", 0.1), ("a-again", 0.1), ("b", 0.2), ("slow", 0.5)):
        _learned(pace, stack, 10.0, 10, each)
    assert {step.stack: pace.passes_of(step) for step in block.trials} == {"a": 4, "a-again": 4, "b": 4, "slow": 1}


def test_a_suite_says_how_many_rounds_a_block_has_at_least(bench: Bench) -> None:
    what = suite('a: jitter = "10%"', 'b: jitter = "10%"', workloads=("dhrystone",))
    bench.work(replace(what, rounds=25))
    trials = bench.read().trials
    assert {len(trial.turns) for trial in trials} == {30}
    assert {len(trial.values[0].turns) for trial in trials} == {30}


@pytest.mark.parametrize(("noise", "turns"), [("0.1%", [10, 40, 10]), ("10%", [10, 40, 40])])
def test_rounds_are_no_more_where_the_first_blocks_decide_anyway(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, noise: str, turns: list[int]
) -> None:
    monkeypatch.setattr("tare.runner.loop.optimal_passes", lambda *_: 4)
    stacks = [f'{name}: noise = "{noise}"\njitter = "{noise}"\nseed = {seed}' for seed, name in enumerate("abc")]
    bench.work(suite(*stacks, blocks=3, workloads=("dhrystone",)))
    of_block = [[len(trial.turns) for trial in bench.all_trials if trial.block == block] for block in range(3)]
    assert [max(each) for each in of_block] == turns


@pytest.mark.parametrize(("budget", "passes"), [(500.0, 1), (521.0, 2), (1000.0, 10)])
def test_extra_passes_use_only_time_not_needed_for_the_first_five_blocks(budget: float, passes: int) -> None:
    """One workload lacks one block of 20 s, and the other one four of 120 s; a pass of the first takes 10 s."""
    what = suite("a:", blocks=8, workloads=("dhrystone", "whetstone"))
    pace = DurationEstimates({each.name: each.workload for each in what.workloads})
    for stack in ("a", "a-again"):
        _learned(pace, stack, 10.0, 10, 0.5)
        pace.learn(Trial("t", 0, 0, "whetstone", stack, "ok", "", 0.0, 60.0))
    blocks = [block for block in plan(what) if block.index >= (4 if block.workload == "dhrystone" else 1)]
    schedule = Schedule(tuple(blocks), budget, time.monotonic(), pace)
    undecided = create_autospec(Decisions, instance=True)
    undecided.variance_components.return_value, undecided.are_soon_decided.return_value = (
        VarianceComponents(1.0, 1e-9),
        False,
    )
    _set_passes(pace, schedule, undecided, RemainingWork(what, (), {}, budget))
    assert pace.passes["dhrystone"] == passes


@pytest.mark.parametrize("written", ["0", "-1", '"many"', "1.5"])
def test_a_number_of_rounds_that_makes_no_sense_is_refused(written: str) -> None:
    text = f'[suite]\nstacks = ["native"]\nrounds = {written}\n[[workloads]]\nuse = "dhrystone"\n'
    with pytest.raises(SuiteError, match="rounds"):
        parse_suite(text, "s.toml")


@dataclass(frozen=True)
class Slow(Fake):
    """A fake whose turns take far longer than those of others."""

    def _turns(self, number: int) -> Callable[[float], float]:  # noqa: ARG002 - all instances are alike
        def factor(seconds: float) -> float:  # noqa: ARG001 - likewise
            for _ in range(20):
                next(TICKS)
            return 0.1

        return factor


def test_from_the_second_block_on_others_do_not_wait_for_a_slow_stack(bench: Bench) -> None:
    what = suite("a:", "b:", "c:", "d:", workloads=("dhrystone",))
    slow = replace(what.stacks[3], layers=(Slow(),))
    bench.work(replace(what, stacks=(*what.stacks[:3], slow), rounds=20))
    turns = {trial.trial: len(trial.turns) for trial in bench.read().trials}
    assert {count for name, count in turns.items() if not name.endswith("-d")} == {20}
    assert [count for name, count in turns.items() if name.endswith("-d")] == [20, 3]


def test_a_baseline_that_is_far_slower_has_all_its_rounds(bench: Bench) -> None:
    what = suite("a:", "b:", "c:", workloads=("dhrystone",))
    bench.work(replace(what, stacks=(replace(what.stacks[0], layers=(Slow(),)), *what.stacks[1:])))
    assert {len(trial.turns) for trial in bench.read().trials} == {10}


# --- several starts of a stack ---------------------------------------------------------------------------------------


def _start(total: float, status: str = "ok", seconds: float = 0.1) -> TrialLog:
    marks = (Mark("requested", 0.0), Mark("ready", total))
    raw = RawOutput("timeline", (), json.dumps([[mark.name, mark.seconds] for mark in marks]), 0.0)
    if status == "ok":
        return TrialLog([*marks], raw=[raw], seconds=seconds)
    return TrialLog(status="failed", reason="it broke", seconds=seconds)


def test_several_starts_are_one_trial_of_the_usual_one_with_each_as_a_turn() -> None:
    mark_as_warm_up(first := _start(9.0))
    log = merge_starts(Startup(), [first, *map(_start, (0.3, 0.1, 5.0))])
    assert log.timeline[-1].seconds == 0.3
    assert log.values == (MeasuredValue("total", None, 0.3, "s", "lower"),)
    assert log.seconds == pytest.approx(0.4)
    assert [each.warm_up for each in log.raw] == [True, False, False, False]


def test_a_caution_of_several_starts_is_said_once_whatever_its_numbers() -> None:
    steal, swap = Caution("steal", "2 % of the CPU time"), Caution("swap", "5 pages came back")
    starts = [_start(0.1), _start(0.2), _start(0.3)]
    starts[0].cautions += [steal]
    starts[1].cautions += [replace(steal, text="9 % of the CPU time"), swap]
    assert merge_starts(Startup(), starts).cautions == [steal, swap]


def test_a_failing_start_decides_the_trial_and_no_other_start_follows() -> None:
    ended = [_start(0.1), _start(0.2, "failed")]
    assert not has_time_for_another_start(ended)
    log = merge_starts(Startup(), ended)
    assert (log.status, log.reason, log.values, len(log.raw)) == ("failed", "it broke", (), 1)


def test_a_stack_that_takes_long_starts_once_in_a_block() -> None:
    assert has_time_for_another_start([_start(0.1)] * 4)
    assert not has_time_for_another_start([_start(0.1, seconds=0.6)])


def test_quick_stacks_start_several_times_per_block_and_once_before(bench: Bench) -> None:
    what = suite('a: noise = "5%"', 'b: effect = "50%"', 'bad: fails = "start"', workloads=("startup",))
    several = replace(what.workloads[0], workload=Startup(starts=4))
    bench.work(replace(what, workloads=(several,)))
    found = Counter((trial.stack, trial.status, len(trial.turns)) for trial in bench.all_trials)
    assert found == {("a", "ok", 4): 2, ("a-again", "ok", 4): 2, ("b", "ok", 4): 2, ("bad", "failed", 0): 2}


def test_the_first_start_of_a_block_has_the_footprint_of_all(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    measure, sample = create_autospec(measure_layer_footprint, side_effect=measure_layer_footprint), Sampler
    sampled: list[Path] = []

    def count_samplers(target: Path, backend: SamplingBackend) -> Sampler:
        sampled.append(target)
        return sample(target, backend)

    monkeypatch.setattr("tare.runner.trial.measure_layer_footprint", measure)
    monkeypatch.setattr("tare.runner.trial.Sampler", count_samplers)
    what = suite('a: noise = "5%"', workloads=("startup",))
    bench.work(replace(what, workloads=(replace(what.workloads[0], workload=Startup(starts=4)),)))
    trials = bench.all_trials
    assert [len(trial.turns) for trial in trials] == [4] * 4
    assert all(trial.footprint for trial in trials)
    warm_ups = 2  # of the baseline and the control
    assert measure.call_count == len(sampled) == len(trials) + warm_ups


def test_a_cold_start_is_counted_alone() -> None:
    assert (Startup().rounds, Startup(caches="cold").rounds, Startup(starts=1).rounds) == (12, 1, 1)

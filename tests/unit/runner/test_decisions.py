"""Decisions during a run: cells that leave the schedule, on fakes with known effects and noise."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest
from fakes import Bench, suite
from marks import slow
from runs import make_trial, measured
from tare_fake.noise import DRAWS, shaped

from tare.model.run_folder import WorkloadRecord
from tare.model.trial import Metric, RawOutput, Value
from tare.runner.decisions import Decisions
from tare.runner.loop import shorten_to_fit
from tare.runner.schedule import DurationEstimates, Schedule
from tare.statistics.summarize import summarize
from tare.suites.plan import Block, plan
from tare.workloads.dhrystone import Dhrystone


def blocks_of(bench: Bench) -> dict[str, int]:
    return dict(Counter(trial.stack for trial in bench.all_trials))


def test_a_decided_stack_leaves_and_the_others_go_on(bench: Bench) -> None:
    stacks = ('a: noise = "2%"', 'slow: effect = "30%"\nnoise = "2%"\nseed = 2', 'wild: noise = "20%"\nseed = 3')
    assert bench.work(suite(*stacks, blocks=20, workloads=("dhrystone",))) == "plan"
    found = blocks_of(bench)
    assert found["slow"] <= 7
    assert found["a"] == found["wild"] == 20


def _steps(decisions: Decisions, quick: str = "", blocks: int = 9) -> list[set[str]]:
    """Return the stacks of the next blocks, where trials take a second; those of `quick`, a millisecond."""
    left = plan(suite("a:", "b:", "c:", blocks=blocks, workloads=("dhrystone",)))[6:]
    return [{step.stack for step in block.trials} for block in _needed(decisions, left, quick)]


def _needed(decisions: Decisions, blocks: Sequence[Block], quick: str = "") -> tuple[Block, ...]:
    return decisions.select_needed_blocks(blocks, lambda step: 1e-3 if step.stack == quick else 1.0)


def _decisions(spreads: Mapping[str, float], precision: float = 0.1, blocks: int = 6, factor: int = 3) -> Decisions:
    """Decide blocks of stacks `factor` times as slow as a, by the deviations of their ratios' logarithms."""
    metric, stacks = Metric("m0", "M0", "1/s", "higher"), ("a", *spreads, "a-again")
    record = WorkloadRecord("dhrystone", "dhrystone", "dhrystone", (metric,), None)
    decisions = Decisions((record,), stacks, "a", "a-again", 0.03, precision=precision)
    for block in range(blocks):
        for stack in stacks:
            sign = 1 - block % 2 * 2
            away = sign * spreads.get(stack, 0.0) - np.log(factor) * (stack in spreads and spreads[stack] < 1)
            decisions.learn(make_trial(stack, block, [measured("m0", 100 * np.exp(away))], "dhrystone"))
    return decisions


def test_a_cell_that_is_decided_goes_on_until_its_interval_is_narrow() -> None:
    """A deviation of 20 % makes six blocks 36 % wide, where a tenth of the logarithm of 3 is asked for."""
    known = {"b": 0.2, "c": 0.01}
    assert {("dhrystone", "b"), ("dhrystone", "c")} <= _decisions(known).decided_cells()
    assert _steps(_decisions(known)) == [{"a", "a-again", "b"}] * 3
    assert _steps(_decisions(known, precision=0.5)) == []
    assert (
        _decisions(known).expected_decisions()["dhrystone"]
        > _decisions({"b": 0.3, "c": 0.01}).expected_decisions()["dhrystone"]
        > 0
    )


def test_a_decided_stack_that_is_far_slower_leaves_with_a_wide_interval() -> None:
    known = {"b": 0.4, "c": 0.01}
    assert {("dhrystone", "b"), ("dhrystone", "c")} <= _decisions(known, factor=4).decided_cells()
    assert _steps(_decisions(known, factor=4)) == [{"a", "a-again", "b"}] * 3
    assert {("dhrystone", "b"), ("dhrystone", "c")} <= _decisions(known, factor=6).decided_cells()
    assert _steps(_decisions(known, factor=6)) == []


def test_what_is_soon_decided_is_not_said_before_blocks_have_differed() -> None:
    quiet, noisy = {"b": 0.01, "c": 0.02}, {"b": 0.01, "c": 2.0}
    assert not _decisions(quiet, blocks=1).are_soon_decided("dhrystone", 4)
    assert _decisions(quiet, blocks=2).are_soon_decided("dhrystone", 4)
    assert not _decisions(noisy, blocks=2).are_soon_decided("dhrystone", 4)


def test_a_start_is_precise_if_its_time_is_whatever_the_baseline_does() -> None:
    metric = Metric("total", "Time", "s", "lower", overall=False)
    decisions = Decisions(
        (WorkloadRecord("startup", "startup", "Start-up", (metric,), None),),
        ("a", "b", "a-again"),
        "a",
        "a-again",
        0.03,
    )
    for block, sign in enumerate((1, -1, 1, -1, 1, -1)):
        for stack, seconds, spread in (("a", 0.003, 0.5), ("b", 0.3, 0.01), ("a-again", 0.003, 0.5)):
            decisions.learn(make_trial(stack, block, [measured("total", seconds * np.exp(sign * spread))], "startup"))
    assert ("startup", "b") in decisions.decided_cells()
    left = plan(suite("a:", "b:", blocks=9, workloads=("startup",)))[6:]
    assert _needed(decisions, left) == ()


def test_a_decided_cell_waits_for_open_ones_unless_hopeless_or_it_is_free() -> None:
    known = {"b": 0.2, "c": 2.0}  # c is open, and no number of blocks that is left decides it
    assert _steps(_decisions(known)) == [{"a", "a-again", "b", "c"}] * 3
    near = {"b": 0.2, "c": 0.5}
    assert ("dhrystone", "c") not in _decisions(near).decided_cells()
    assert _steps(_decisions(near), blocks=30)[0] == {"a", "a-again", "c"}
    assert _steps(_decisions(near), quick="b", blocks=30)[0] == {"a", "a-again", "b", "c"}


def test_if_the_next_block_exceeds_the_budget_only_its_open_cells_run() -> None:
    """All trials take a second: four of them are too long for the last three and a half seconds."""
    known = {"b": 0.2, "c": 2.0}  # c is open, and b is decided but wide
    what = suite("a:", "b:", "c:", blocks=9, workloads=("dhrystone",))
    pace = DurationEstimates(what.by_name)
    for trial in (make_trial(stack, 0, [measured("m0", 1.0)]) for stack in ("a", "b", "c", "a-again")):
        pace.learn(replace(trial, seconds=1.0))
    schedule = Schedule(plan(what)[6:], 4.5, time.monotonic() - 1.0, pace, past_blocks=6)
    short = shorten_to_fit(schedule, _decisions(known), single_pass=True)
    assert {step.stack for step in short.blocks[0].trials} == {"a", "a-again", "c"}
    assert short.blocks[1:] == schedule.blocks[1:]
    longer = replace(schedule, budget_seconds=9.0)
    assert shorten_to_fit(longer, _decisions(known), single_pass=True) is longer
    none = replace(schedule, budget_seconds=2.0)
    assert shorten_to_fit(none, _decisions(known), single_pass=True) is none


def test_a_decided_cell_waits_for_open_ones_of_other_workloads_too() -> None:
    metric, stacks = Metric("m0", "M0", "1/s", "higher"), ("a", "b", "a-again")
    names = ("dhrystone", "whetstone")
    records = tuple(WorkloadRecord(name, name, name, (metric,), None) for name in names)
    decisions = Decisions(records, stacks, "a", "a-again", 0.03)
    for name, spread in zip(names, (0.2, 0.5), strict=True):
        for block in range(6):
            for stack in stacks:
                away = (1 - block % 2 * 2) * spread - np.log(3) if stack == "b" else 0.0
                decisions.learn(make_trial(stack, block, [measured("m0", 100 * np.exp(away))], name))
    assert decisions.decided_cells() >= {("dhrystone", "b")}
    assert ("whetstone", "b") not in decisions.decided_cells()
    left = [block for block in plan(suite("a:", "b:", blocks=30, workloads=names)) if block.index > 5]
    assert {block.workload for block in _needed(decisions, left)} == {"whetstone"}
    assert {block.workload for block in _needed(decisions, left, quick="b")} == set(names)


def test_a_run_ends_when_all_is_decided(bench: Bench) -> None:
    stacks = ('a: noise = "1%"', 'b: effect = "30%"\nnoise = "1%"\nseed = 2', 'c: noise = "1%"\nseed = 3')
    assert bench.work(suite(*stacks, blocks=30, workloads=("dhrystone",))) == "decided"
    assert max(blocks_of(bench).values()) < 15
    summary = summarize(bench.read())
    assert summary.headline("dhrystone", "b").verdict == "worse"
    assert summary.headline("dhrystone", "c").verdict == "equivalent"


def test_a_decided_control_is_measured_as_long_as_the_baseline(bench: Bench) -> None:
    stacks = ('a: noise = "0.5%"', 'b: effect = "30%"\nnoise = "0.5%"\nseed = 2', 'c: noise = "20%"\nseed = 3')
    bench.work(suite(*stacks, blocks=9, workloads=("dhrystone",)))
    assert blocks_of(bench) == {"a": 9, "a-again": 9, "b": 5, "c": 9}
    assert summarize(bench.read()).headline("dhrystone", "a-again").verdict == "equivalent"


def test_with_until_blocks_every_stack_has_them_all(bench: Bench) -> None:
    what = suite('a: noise = "1%"', 'b: effect = "30%"\nnoise = "1%"\nseed = 2', blocks=12, workloads=("dhrystone",))
    assert bench.work(replace(what, until="blocks")) == "plan"
    assert blocks_of(bench) == {"a": 12, "a-again": 12, "b": 12}


def test_a_run_that_goes_on_has_the_same_decisions(bench: Bench) -> None:
    what = suite('a: noise = "1%"', 'b: effect = "30%"\nnoise = "1%"\nseed = 2', blocks=30, workloads=("dhrystone",))
    bench.work(what)
    before = bench.all_trials
    assert bench.work(what) == "decided"
    assert bench.all_trials == before


@dataclass(frozen=True)
class Dice(Dhrystone):
    """Dhrystone whose values are chance: the last digits of what the program says."""

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        [value] = super().parse(raw)
        return (replace(value, value=1 + 1e3 * value.value % 1e4),)


def test_a_decided_workload_and_one_out_of_blocks_leave_a_run_undecided(bench: Bench) -> None:
    stacks = ('a: noise = "1%"', 'b: effect = "30%"\nnoise = "1%"\nseed = 2')
    what = suite(*stacks, blocks=9, workloads=("dhrystone", "whetstone"))
    what = replace(what, workloads=(what.workloads[0], replace(what.workloads[1], workload=Dice())))
    assert bench.work(what) == "plan"
    summary = summarize(bench.read())
    assert summary.headline("dhrystone", "b").verdict == "worse"
    assert summary.headline("whetstone", "b").verdict == "undecided"


def test_a_stack_leaves_when_its_throughput_and_latency_are_both_decided() -> None:
    metrics = (Metric("speed", "Speed", "iterations/s", "higher"), Metric("delay", "Delay", "s", "lower"))
    stacks = ("a", "b", "a-again")
    decisions = Decisions((WorkloadRecord("w", "w", "W", metrics, None),), stacks, "a", "a-again", 0.03)
    found = []
    for block in range(30):
        for stack in stacks:
            speed = 70.0 if stack == "b" else 100.0
            delay = 1 + 0.04 * (block % 2 - 0.5) * (stack == "b")
            values = [measured("speed", speed * 1.001 ** (block % 3)), measured("delay", delay, better="lower")]
            decisions.learn(make_trial(stack, block, values, "w"))
        found.append(("w", "b") in decisions.decided_cells())
    assert found.index(True) > 6  # the throughput alone is decided after five


def test_a_workload_is_the_nearer_to_decisions_the_less_its_blocks_differ() -> None:
    metric, stacks = Metric("m0", "M0", "1/s", "higher"), ("a", "b", "a-again")
    records = tuple(WorkloadRecord(name, name, name, (metric,), None) for name in ("far", "near", "done"))
    decisions = Decisions(records, stacks, "a", "a-again", 0.03)
    for block, sign in enumerate((1, -1, 1, -1, 1, -1)):
        for name, spread in (("far", 0.3), ("near", 0.04), ("done", 0.001)):
            for stack in stacks:
                value = 100 * np.exp(sign * spread * (stack == "b"))
                decisions.learn(make_trial(stack, block, [measured("m0", value)], name))
    near = decisions.expected_decisions()
    assert replace(decisions, all_blocks=True).expected_decisions() == {}
    assert ("done", "b") in decisions.decided_cells()
    assert near["done"] == 0
    assert 1 / 100 < near["near"] <= 1 / 5
    assert 0 < near["far"] < 1 / 500


@pytest.mark.parametrize("shape", slow(["normal", "correlated", "drift"], ["normal", "correlated"]))
def test_what_is_decided_while_it_runs_is_what_the_report_says(bench: Bench, shape: str) -> None:
    noise = f'noise = "2%"\nshape = "{shape}"'
    what = suite(f"a: {noise}", f'b: effect = "5%"\n{noise}\nseed = 2', f"c: {noise}\nseed = 4", blocks=30)
    bench.work(what)
    run = bench.read()
    decisions = Decisions(run.record.workloads, run.record.stacks, "a", "a-again", run.record.margin)
    for trial in run.trials:
        decisions.learn(trial)
    cells = {(cell.workload, cell.stack) for cell in summarize(run).headlines if cell.is_decided}
    assert decisions.decided_cells() == cells
    assert cells


def test_a_decided_stack_returns_on_drift_but_stays_decided_by_default() -> None:
    stacks, metric = ("a", *"bcdefghij", "a-again"), Metric("m0", "M0", "1/s", "higher")
    records = (WorkloadRecord("dhrystone", "dhrystone", "dhrystone", (metric,), None),)
    decisions = Decisions(records, stacks, "a", "a-again", 0.03, precision=1000)
    logs = 0.026 * shaped(np.random.default_rng(4).normal(size=(len(stacks), 30, DRAWS)), "drift")
    left = plan(suite(*(f"{stack}:" for stack in stacks[:-1]), blocks=30, workloads=("dhrystone",)))
    going, decided = [], [decisions.decided_cells()]
    while needed := _needed(decisions, left):
        left = left[left.index(next(block for block in left if block.index == needed[0].index)) + 1 :]
        for step in needed[0].trials:
            value = 100 * np.exp(logs[stacks.index(step.stack), step.block])
            decisions.learn(make_trial(step.stack, step.block, [measured("m0", value)], "dhrystone"))
        going.append({step.stack for step in needed[0].trials})
        decided.append(decisions.decided_cells())
    for stacks_then, before, after in zip(going, decided, decided[1:], strict=False):
        assert {stack for _, stack in before - after} <= stacks_then
    assert list(map(len, going))[15:22] == [6, 5, 4, 4, 3, 3, 11]
    assert list(map(len, decided))[20:23] == [8, 8, 0]


def test_a_stack_that_only_fails_is_given_up_after_three_blocks(bench: Bench) -> None:
    bench.work(suite('a: noise = "20%"', 'b: noise = "20%"\nseed = 2', 'c: fails = "crash"', blocks=8))
    assert Counter((trial.workload, trial.stack) for trial in bench.all_trials)["dhrystone", "c"] == 3


def test_a_baseline_that_only_fails_ends_its_workload(bench: Bench) -> None:
    bench.work(suite('a: fails = "crash"', "b:", blocks=8, workloads=("dhrystone",)))
    assert blocks_of(bench)["b"] <= 3


def test_a_suite_of_one_stack_compares_it_with_itself(bench: Bench) -> None:
    assert bench.work(suite('a: noise = "1%"', blocks=30, workloads=("dhrystone",))) == "decided"
    assert summarize(bench.read()).headline("dhrystone", "a-again").verdict == "equivalent"


def test_deciding_is_quick_with_twenty_stacks_and_a_hundred_metrics() -> None:
    metrics = tuple(Metric(f"m{number}", f"M{number}", "1/s", "higher") for number in range(100))
    stacks = ("native", "native-again", *(f"s{number}" for number in range(18)))
    decisions = Decisions((WorkloadRecord("big", "big", "Big", metrics, None),), stacks, "native", "native-again", 0.03)
    learning, deciding = [], []
    for block in range(30):
        began = time.process_time()
        for place, stack in enumerate(stacks):
            values = [measured(metric.name, 100.0 + (7 * block + place) % 11) for metric in metrics]
            decisions.learn(make_trial(stack, block, values, "big"))
        learned = time.process_time()
        decisions.decided_cells()
        learning.append(learned - began)
        deciding.append(time.process_time() - learned)
    # About twice as long; `make bench` measures how long that is.
    assert sorted(deciding[-5:])[2] < 20 * sorted(learning)[15]

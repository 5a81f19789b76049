"""A run in which nothing works stops after its first block."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from fakes import Bench, planned, suite
from runs import make_trial
from tare_fake.technology import FakeHost

from tare.model.errors import TimedOut
from tare.model.trial import Problem, RawOutput, Trial
from tare.plugins.workload import MeasurementContext
from tare.runner.loop import FailureWatch
from tare.suites.suite import Suite
from tare.workloads.dhrystone import Dhrystone

ABSENT = [Problem("no such engine", "install it")]
BROKEN = 'fails = "start"'
OTHERWISE = 'fails = "garbage"'


def outcomes(bench: Bench) -> Counter[tuple[str, str]]:
    return Counter((trial.workload, trial.status) for trial in bench.all_trials)


def broken(*workloads: str, blocks: int = 5) -> Suite:
    return suite(f"a: {BROKEN}", f"b: {BROKEN}", blocks=blocks, workloads=workloads)


def test_a_run_stops_if_all_trials_of_the_first_block_fail_for_one_reason(bench: Bench) -> None:
    assert bench.work(broken("dhrystone")) == "failing"
    assert outcomes(bench) == {("dhrystone", "failed"): 3}
    assert {trial.reason for trial in bench.all_trials} == {"the fake does not start"}


def test_every_workload_has_its_first_block_before_the_run_stops(bench: Bench) -> None:
    assert bench.work(broken("dhrystone", "startup")) == "failing"
    assert outcomes(bench) == {("dhrystone", "failed"): 3, ("startup", "failed"): 3}


def test_a_run_goes_on_while_one_stack_works(bench: Bench) -> None:
    assert bench.work(suite(f"a: {BROKEN}", "b:", workloads=("dhrystone",))) == "plan"
    assert {trial.status for trial in bench.all_trials if trial.stack == "b"} == {"ok"}
    assert {trial.block for trial in bench.all_trials} == {0, 1}


def test_a_run_goes_on_while_another_workload_works(bench: Bench) -> None:
    assert bench.work(suite("a:", "b:", workloads=("redis", "dhrystone"))) == "plan"
    assert outcomes(bench)["dhrystone", "ok"] == 6
    assert outcomes(bench)["redis", "failed"] == 6


def test_a_run_goes_on_where_stacks_fail_for_different_reasons(bench: Bench) -> None:
    bench.work(suite(f"a: {BROKEN}", f"b: {OTHERWISE}", workloads=("dhrystone",)))
    assert {trial.block for trial in bench.all_trials} == {0, 1}
    assert len({trial.reason for trial in bench.all_trials}) == 2


def test_a_skipped_stack_is_no_failure_and_stops_nothing(bench: Bench) -> None:
    assert bench.work(suite("a:", "b:", workloads=("dhrystone",)), unusable={"b": ABSENT}) == "plan"
    assert outcomes(bench) == {("dhrystone", "ok"): 4, ("dhrystone", "skipped"): 1}


def test_a_run_whose_other_stacks_are_skipped_stops_with_the_failing_ones(bench: Bench) -> None:
    assert bench.work(broken("dhrystone"), unusable={"b": ABSENT}) == "failing"
    assert outcomes(bench) == {("dhrystone", "failed"): 2, ("dhrystone", "skipped"): 1}


def test_a_resumed_run_tries_a_block_again_as_what_failed_may_be_fixed(bench: Bench) -> None:
    asked = broken("dhrystone", blocks=4)
    assert [bench.work(asked) for _ in range(2)] == ["failing", "failing"]
    assert [trial.trial for trial in bench.all_trials] == planned(asked)[:6]


def test_a_resumed_run_in_which_something_has_worked_goes_on(bench: Bench) -> None:
    asked = suite("a:", "b:", workloads=("dhrystone",), blocks=1)
    bench.work(asked)
    assert bench.work(broken("dhrystone", blocks=3)) == "plan"
    assert {trial.block for trial in bench.all_trials} == {0, 1, 2}


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("app: exit code 1: 10:02:03 cannot open", "app: exit code 1: 10:02:04 cannot open", True),
        ("no answer from 198.18.0.2", "no answer from 198.18.0.14", True),
        ("app: fault at 0x7ffe1c", "app: fault at 0x55d0aa", True),
        ("app: exit code 1: failed", "app: exit code 127: failed", False),
        ("app: ended by signal 9: it", "app: ended by signal 11: it", False),
        ("cannot open a", "cannot open b", False),
    ],
)
def test_reasons_are_one_where_they_differ_in_times_and_addresses(first: str, second: str, *, same: bool) -> None:
    failing = FailureWatch(frozenset({"dhrystone"}))
    for reason in (first, second):
        failing.learn(failed(reason))
    assert failing.is_certain() is same


def test_nothing_is_certain_before_a_trial() -> None:
    assert not FailureWatch(frozenset({"dhrystone"})).is_certain()
    assert not FailureWatch(frozenset()).is_certain()


def failed(reason: str) -> Trial:
    return replace(make_trial("a", 0, []), status="failed", reason=reason)


@dataclass(frozen=True)
class Endless(Dhrystone):
    """Dhrystone that never ends, unless its instance has a certain speed."""

    faster_than: float = math.inf

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        assert isinstance(setup.instance.inside, FakeHost)
        if setup.instance.inside.speed < self.faster_than:
            raise TimedOut(f"{setup.instance.name}: did not end within 20 s")
        yield from super().measure(setup)


def endless(what: Suite, faster_than: float = math.inf) -> Suite:
    """Return the suite with a first workload that ends only in instances that are faster."""
    planned = replace(what.workloads[0], workload=Endless(faster_than=faster_than))
    return replace(what, workloads=(planned, *what.workloads[1:]))


def test_the_first_baseline_timeout_ends_the_run_before_other_stacks_wait(bench: Bench) -> None:
    what = suite("b:", "c:", "a:", blocks=30, workloads=("dhrystone",))
    assert bench.work(endless(what)) == "failing"
    [trial] = bench.all_trials
    assert trial.stack == "b"
    assert "within" in trial.reason
    assert trial.ended is not None
    assert trial.started <= trial.ended


def test_a_time_out_of_another_stack_ends_nothing(bench: Bench) -> None:
    what = suite("a:", 'b: effect = "50%"', "c:", workloads=("dhrystone",))
    assert bench.work(endless(what, faster_than=0.9)) in {"plan", "decided"}
    assert {trial.status for trial in bench.all_trials if trial.stack == "b"} == {"failed"}
    assert {trial.status for trial in bench.all_trials if trial.stack != "b"} == {"ok"}


def test_a_workload_that_hangs_on_the_baseline_is_dropped_and_others_go_on(bench: Bench) -> None:
    what = suite("a:", "b:", blocks=4, workloads=("dhrystone", "whetstone"))
    assert bench.work(endless(what)) in {"plan", "decided"}
    assert outcomes(bench)["dhrystone", "failed"] == 1
    assert outcomes(bench)["whetstone", "ok"] > 3

"""A run that was stopped goes on where it was, and ends as one that was never stopped."""

from __future__ import annotations

import pytest
from fakes import Bench, planned, suite

from tare.hosts.process import STOP_ASKED
from tare.suites.plan import plan
from tare.suites.suite import Suite


def stopping(at: int, blocks: int = 3) -> Suite:
    return suite("a:", f'b: stack = "stopped"\nat = {at}', "c:", blocks=blocks)


def test_an_interrupt_during_a_trial_leaves_no_line_for_it(bench: Bench) -> None:
    with pytest.raises(KeyboardInterrupt):
        bench.work(stopping(at=3))
    [*_, (interrupted, _, _)] = bench.watcher.begun
    assert (interrupted.stack, interrupted.workload, interrupted.block) == ("b", "dhrystone", 1)
    whole = [step.trial for step, _, _ in bench.watcher.begun if step.block == 0]
    assert [trial.trial for trial in bench.all_trials] == whole  # what took turns with it is lost, too


def test_a_stop_that_a_library_has_dropped_ends_the_run_at_the_next_turn(bench: Bench) -> None:
    STOP_ASKED.set()
    try:
        with pytest.raises(KeyboardInterrupt):
            bench.work(suite("a:", "b:"))
    finally:
        STOP_ASKED.clear()
    assert bench.all_trials == ()


@pytest.mark.parametrize("at", [1, 2, 3, 4, 6])
def test_a_resumed_run_has_the_trials_of_an_uninterrupted_one(bench: Bench, at: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        bench.work(stopping(at))
    before = bench.all_trials
    assert bench.work(stopping(at=1000)) == "plan"
    assert bench.all_trials[: len(before)] == before
    assert [trial.trial for trial in bench.all_trials] == planned(stopping(1))
    assert len({trial.trial for trial in bench.all_trials}) == 24
    assert {trial.status for trial in bench.trials} == {"ok"}


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 6])
def test_late_trials_of_the_block_that_was_interrupted_say_so(bench: Bench, at: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        bench.work(stopping(at))
    stopped = bench.watcher.begun[-1][0]
    before = {trial.trial for trial in bench.all_trials}
    same_block = {
        step.trial
        for block in plan(stopping(at))
        for step in block.steps
        if (step.workload, step.block) == (stopped.workload, stopped.block)
    }
    bench.work(stopping(at=1000))
    cautioned = {trial.trial for trial in bench.all_trials if "resumed-block" in {each.kind for each in trial.cautions}}
    assert cautioned == (same_block - before if same_block & before else set())


def test_some_of_these_blocks_were_stopped_in_their_middle() -> None:
    orders = [[step.stack for step in block.steps].index("b") for block in plan(stopping(at=1))]
    assert set(orders) & {1, 2}


def test_a_run_stopped_between_blocks_has_no_doubts_when_it_goes_on(bench: Bench) -> None:
    what = suite("a:", "b:")
    bench.work(what, budget=0.0)
    bench.work(what)
    assert len(bench.trials) == 8
    assert not any(caution.kind == "resumed-block" for trial in bench.trials for caution in trial.cautions)


def test_nothing_is_done_again_in_a_run_that_is_complete(bench: Bench) -> None:
    what = suite("a:", "b:")
    bench.work(what)
    before = (bench.folder / "trials.jsonl").read_bytes()
    assert bench.work(what) == "plan"
    assert (bench.folder / "trials.jsonl").read_bytes() == before


def test_a_run_goes_on_after_a_torn_last_line(bench: Bench) -> None:
    what = suite("a:", "b:")
    bench.work(what, budget=0.0)
    path = bench.folder / "trials.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-40])
    assert bench.work(what) == "plan"
    assert [trial.trial for trial in bench.all_trials] == planned(what)


def test_another_unit_than_that_of_the_first_trial_fails_a_trial(bench: Bench) -> None:
    bench.work(suite("a:", 'b: effect = "10%"', blocks=2, workloads=("printing",)))
    assert {trial.stack: trial.status for trial in bench.all_trials} == {"a": "ok", "a-again": "ok", "b": "failed"}
    reasons = {trial.reason for trial in bench.all_trials if trial.stack == "b"}
    assert reasons == {"two units of speed: the command printed 'us' here, and 'ms' in a"}
    assert all(trial.quarantined and not trial.values for trial in bench.all_trials if trial.stack == "b")


def test_a_resumed_run_knows_the_unit_of_its_first_block(bench: Bench) -> None:
    bench.work(suite("a:", "b:", blocks=1, workloads=("printing",)))
    slow = 'effect = "10%"'
    bench.work(suite(f"a: {slow}", f"b: {slow}", blocks=2, workloads=("printing",)))
    assert [trial.status for trial in bench.all_trials] == ["ok"] * 3 + ["failed"] * 3

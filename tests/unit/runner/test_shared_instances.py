"""Instances that the workloads of a block share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import Bench, bare_context, by_stack, suite

from tare.hosts.local import LocalHost
from tare.plugins.workload import Instance
from tare.runner import shared_instances
from tare.runner.context import InstanceSpec
from tare.runner.layers import StartedLayer
from tare.runner.shared_instances import RunningInstance, SharedInstances
from tare.suites.suite import Suite

WORKLOADS = ("startup", "dhrystone", "whetstone")


def starts_of(asked: Suite) -> dict[str, int]:
    """Return how often each stack was started: each start draws the speed of a fake."""
    return {stack.name: len(stack.layers[0]._speeds) for stack in asked.stacks}


@pytest.mark.parametrize(("instances", "starts"), [("shared", 1), ("per-workload", 3)])
def test_a_block_starts_each_stack_once_unless_told_otherwise(bench: Bench, instances: str, starts: int) -> None:
    asked = suite("a:", "b:", blocks=2, workloads=WORKLOADS, instances=instances)
    bench.work(asked)
    assert starts_of(asked) == {"a": 2 * 2 * starts, "b": 2 * starts}  # the baseline is its own control, too
    assert {trial.status for trial in bench.trials} == {"ok"}


def test_a_trial_in_a_used_instance_has_no_timeline_and_no_footprint(bench: Bench) -> None:
    bench.work(suite("a:", "b:", blocks=3, workloads=WORKLOADS, instances="shared"))
    for trial in bench.all_trials:
        assert trial.footprint is None or not trial.reused
        assert bool(trial.timeline) == (trial.workload == "startup")
    assert not any(trial.reused for trial in by_stack(bench.all_trials, "b", "startup"))
    for block in range(3):
        later = [trial for name in WORKLOADS[1:] for trial in by_stack(bench.all_trials, "b", name)]
        assert sorted(trial.reused for trial in later if trial.block == block) == [False, True]


def test_workloads_take_turns_in_being_the_first_in_an_instance(bench: Bench) -> None:
    bench.work(suite("a:", "b:", blocks=8, workloads=WORKLOADS, instances="shared"))
    first = {trial.workload for trial in bench.all_trials if trial.workload != "startup" and not trial.reused}
    assert first == {"dhrystone", "whetstone"}


def test_after_a_failure_the_next_workload_gets_a_fresh_instance(bench: Bench) -> None:
    bench.work(suite("a:", 'b: fails = "crash"', blocks=1, workloads=WORKLOADS, instances="shared"))
    assert [trial.status for trial in by_stack(bench.all_trials, "b", "startup")] == ["ok"]
    failed = [trial for name in WORKLOADS[1:] for trial in by_stack(bench.all_trials, "b", name)]
    assert [(trial.status, trial.reused) for trial in failed] == [("failed", False)] * 2


class Processes:
    """Processes of an instance, which a workload may leave behind."""

    def __init__(self) -> None:
        self.pids = [1]
        self.written_bytes = 0


@pytest.fixture
def found() -> Processes:
    return Processes()


@pytest.fixture
def running(tmp_path: Path, found: Processes) -> Iterator[RunningInstance]:
    instance = Instance("i", LocalHost(), None, "none", lambda: found.pids, written_bytes=lambda: found.written_bytes)
    context = bare_context(tmp_path, LocalHost())
    spec = InstanceSpec((), context.images.main, context.limits)
    with ExitStack() as exits:
        each = RunningInstance((StartedLayer("i", context, spec, instance, 0.0),), exits)
        each.record_state()
        yield each


def test_processes_and_files_that_a_workload_leaves_are_found(
    running: RunningInstance, found: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_instances, "_END_SECONDS", 0.0)
    assert running.find_leftovers() == ""
    found.pids = [1, 7]
    assert running.find_leftovers() == "a process"
    found.pids = [1, 7, 8]
    assert running.find_leftovers() == "2 processes"
    found.pids, found.written_bytes = [1], 65 << 20
    assert running.find_leftovers() == "65 MiB of files"


def test_only_workloads_with_equal_limits_share(tmp_path: Path) -> None:
    asked = suite("a:", workloads=("startup", "dhrystone", "whetstone")).workloads
    context = bare_context(tmp_path, LocalHost())
    small = replace(asked[2], limits=replace(asked[2].limits, memory_bytes=1 << 28))
    shared = SharedInstances(context.ledger, (*asked[:2], small))
    with ExitStack() as exits:
        spec = InstanceSpec((), context.images.main, context.limits)
        layer = StartedLayer("i", context, spec, Instance("i", LocalHost(), None, "none", lambda: ()), 0.0)
        running = RunningInstance((layer,), exits)
        assert shared.has_use("dhrystone", running)
        assert not shared.has_use("whetstone", running)
        shared.begin_block("startup")
        shared.keep("startup", "a", running)
        assert shared.is_ready("dhrystone", "a")
        assert not shared.is_ready("whetstone", "a")
        shared.begin_block("whetstone")
        assert shared.take("whetstone", "a") is None

"""Instances that the workloads of a block share."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import create_autospec

import pytest
from fakes import Bench, bare_context, by_stack, suite
from tare_fake.technology import Fake

import tare.runner.block
from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.model.trial import Output
from tare.plugins.instance import Instance
from tare.runner import shared_instances
from tare.runner.context import InstanceSpec
from tare.runner.layers import StartedLayer
from tare.runner.shared_instances import InstanceState, RunningInstance, SharedInstances
from tare.suites.suite import Suite
from tare.workloads.startup import Startup

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


def test_no_start_is_timed_right_after_the_removal_of_the_stack(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    taken, take = list[tuple[str, str, bool]](), SharedInstances.take

    def note(shared: SharedInstances, workload: str, stack: str) -> RunningInstance | None:
        taken.append((workload, stack, stack in shared._running))
        return take(shared, workload, stack)

    monkeypatch.setattr(SharedInstances, "take", note)
    asked = suite("a:", "b:", blocks=2, workloads=WORKLOADS, instances="shared")
    startup, *others = asked.workloads
    bench.work(replace(asked, workloads=(replace(startup, workload=Startup(starts=3)), *others)))
    starts = [was_running for workload, _, was_running in taken if workload == "startup"]
    assert (len(starts), any(starts)) == (3 * (2 * 3 + 1), False)  # with a warm-up of each
    assert any(was_running for workload, _, was_running in taken if workload == "whetstone")


def test_turns_wait_until_all_instances_have_settled(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    slept = list[float]()
    monkeypatch.setattr(Fake, "settle_seconds", 0.4)
    monkeypatch.setattr(tare.runner.block, "time", SimpleNamespace(sleep=slept.append, monotonic=time.monotonic))
    bench.work(suite("a:", "b:", blocks=1, workloads=("dhrystone",)))
    [seconds] = slept
    assert 0 < seconds <= 0.4


def test_after_a_failure_the_next_workload_gets_a_fresh_instance(bench: Bench) -> None:
    bench.work(suite("a:", 'b: fails = "crash"', blocks=1, workloads=WORKLOADS, instances="shared"))
    assert [trial.status for trial in by_stack(bench.all_trials, "b", "startup")] == ["ok"]
    failed = [trial for name in WORKLOADS[1:] for trial in by_stack(bench.all_trials, "b", name)]
    assert [(trial.status, trial.reused) for trial in failed] == [("failed", False)] * 2


NOTHING = InstanceState(frozenset("1"), sockets=1, memory_bytes=0, written_bytes=0)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (NOTHING, ""),
        (replace(NOTHING, processes=frozenset("17")), "a process"),
        (replace(NOTHING, processes=frozenset("178")), "2 processes"),
        (replace(NOTHING, sockets=2), "a socket"),
        (replace(NOTHING, sockets=3), "2 sockets"),
        (replace(NOTHING, sockets=0), ""),
        (replace(NOTHING, memory_bytes=17 << 20), "17 MiB of memory"),
        (replace(NOTHING, memory_bytes=16 << 20), ""),
        (replace(NOTHING, written_bytes=65 << 20), "65 MiB of files"),
        (replace(NOTHING, written_bytes=64 << 20), ""),
    ],
)
def test_what_is_left_is_named(state: InstanceState, text: str) -> None:
    assert state.describe_leftovers(NOTHING) == text


@dataclass
class Inside:
    """Inside of an instance: its files, and what the script prints in an instance with a private kernel."""

    files: dict[str, str] = field(default_factory=dict)
    listed: str = ""

    def host(self) -> Host:
        host = create_autospec(Host, instance=True)
        host.read.side_effect = lambda path: self.files.get(path, "")
        host.run.side_effect = lambda *argv, **_: Output(argv, 0, self.listed.encode(), b"", 0.0)
        return cast("Host", host)


@contextmanager
def running_instance(tmp_path: Path, inside: Inside, path: str = "bridge") -> Iterator[RunningInstance]:
    """An instance whose only process, as the machine sees it, is that of the tests."""
    instance = Instance("i", inside.host(), None, path, lambda: (os.getpid(),))
    context = bare_context(tmp_path, LocalHost())
    spec = InstanceSpec((), context.images.main, context.limits)
    with ExitStack() as exits:
        running = RunningInstance((StartedLayer("i", context, spec, instance, 0.0),), exits)
        running.record_state()
        yield running


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_instances, "_END_SECONDS", 0.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("path", "text"), [("bridge", "2 sockets"), ("host", "")])
def test_sockets_count_unless_they_are_those_of_the_whole_machine(tmp_path: Path, path: str, text: str) -> None:
    inside = Inside(
        {"/proc/net/sockstat": "sockets: used 3\nTCP: inuse 1 orphan 0 tw 9 alloc 2 mem 0\nUDP: inuse 0 mem 0\n"}
    )
    with running_instance(tmp_path, inside, path) as running:
        assert running.find_leftovers() == ""
        inside.files["/proc/net/sockstat"] = "sockets: used 4\nTCP: inuse 2 orphan 0 tw 9 alloc 3 mem 0\nUDP: inuse 0\n"
        inside.files["/proc/net/sockstat6"] = "TCP6: inuse 0\nUDP6: inuse 1\nUDPLITE6: inuse 5\n"
        assert running.find_leftovers() == text


@pytest.mark.usefixtures("impatient")
def test_memory_of_processes_counts_where_no_control_group_counts_it(tmp_path: Path) -> None:
    with running_instance(tmp_path, Inside()) as running:
        assert running.find_leftovers() == ""
        held = b"x" * (64 << 20)
        assert running.find_leftovers().endswith(" MiB of memory")
        assert held


LISTED = """\
7 6
/proc/1/cmdline
/proc/7/cmdline
MemTotal:       100000 kB
MemAvailable:    80000 kB
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:426F 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0
   1: 0100007F:426F 0100007F:9C40 01 00000000:00000000 00:00000000 00000000     0        0 12 1 0 20 4 30 10 -1
"""
DATAGRAMS = "   0: 00000000:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 13 2 0 0\n"


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("/proc/7/", "/proc/8/", "a process"),
        (" 01 0", " 01 0", ""),
        ("   1: ", DATAGRAMS + "   1: ", "a socket"),
        ("80000 kB", "60000 kB", "19 MiB of memory"),
    ],
)
def test_an_instance_with_a_private_kernel_lists_what_is_in_it(tmp_path: Path, old: str, new: str, text: str) -> None:
    inside = Inside({"/proc/cmdline": "another kernel"}, LISTED)
    with running_instance(tmp_path, inside) as running:
        assert old in inside.listed
        inside.listed = inside.listed.replace(old, new)
        assert running.find_leftovers() == text


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

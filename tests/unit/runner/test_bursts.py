"""Instances that are requested together, and the time until nothing of a stopped one is left."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from fakes import bare_context
from tare_fake.technology import Fake

from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.model.errors import SuiteError, TrialFailed, Unavailable
from tare.model.lifecycle import BurstStart
from tare.model.trial import Mark
from tare.plugins.instance import Instance
from tare.plugins.technology import LaunchRequest
from tare.runner import bursts
from tare.runner.extra_instances import ExtraInstances
from tare.runner.prepare import require_memory
from tare.suites.suite import parse_suite

MARKS = (Mark("requested", 0.0), Mark("ready", 1.0))
MEMINFO = "MemTotal: 8388608 kB\nMemFree: 1 kB\nMemAvailable: 4194304 kB\n"


@dataclass(frozen=True)
class Machine(LocalHost):
    """A machine whose CPUs work a second between two readings, and that has these files."""

    files: dict[str, str] = field(default_factory=dict)
    readings: list[int] = field(default_factory=list)

    def read(self, path: str) -> str:
        if path == "/proc/stat":
            self.readings.append(len(self.readings))
            return f"cpu  {100 * len(self.readings)} 0 0 0 0 0 0 0 0 0\n"
        return self.files.get(path, "")


@dataclass(frozen=True)
class Together(Fake):
    """A fake that notes how many are alive, and does not start where `breaks` names its slot."""

    breaks: int = -1
    alive: list[str] = field(default_factory=list, compare=False)
    most: list[int] = field(default_factory=list, compare=False)
    requests: list[float] = field(default_factory=list, compare=False)

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        if launch.network.slot == self.breaks:
            raise TrialFailed("it does not start")
        with super().launch(host, launch) as instance:
            self.requests.append(time.monotonic())
            self.alive.append(launch.name)
            self.most.append(len(self.alive))
            try:
                yield instance
            finally:
                self.alive.remove(launch.name)


def starter(folder: Path, technology: Fake, host: LocalHost | None = None) -> ExtraInstances:
    context = bare_context(folder, host or Machine())
    return ExtraInstances(context, context.create_spec(technology), MARKS)


def test_a_burst_has_all_its_instances_alive_together_and_leaves_none(tmp_path: Path) -> None:
    technology = Together()
    found = starter(tmp_path, technology).start_burst(8, 0.0)
    assert len(found.starts) == 8
    assert all(start.seconds and start.seconds > 0 and not start.reason for start in found.starts)
    assert max(technology.most) == 8
    assert technology.alive == []
    assert found.cpu_seconds == 1.0  # one reading when all were requested, and one at the end


def test_the_slots_of_a_burst_are_free_afterwards(tmp_path: Path) -> None:
    instances = starter(tmp_path, Together())
    for _ in range(2):
        instances.start_burst(60, 0.0)
    assert instances._used_slots == set()


def test_an_instance_that_does_not_start_is_reported_and_stops_no_other(tmp_path: Path) -> None:
    technology = Together(breaks=2)  # the trial's own has slot 0
    found = starter(tmp_path, technology).start_burst(4, 0.0)
    assert [start.reason for start in found.starts] == ["", "it does not start", "", ""]
    assert [start.seconds is None for start in found.starts] == [False, True, False, False]
    assert technology.alive == []


def test_starts_in_a_burst_get_the_time_of_all_that_share_a_cpu() -> None:
    assert bursts.burst_timeout_seconds(10.0, 16) == 160.0 + bursts.GATE_SECONDS


def test_staggered_instances_are_requested_one_after_the_other(tmp_path: Path) -> None:
    technology = Together()
    starter(tmp_path, technology).start_burst(3, 0.1)
    first, second, third = technology.requests
    assert second - first > 0.05
    assert third - second > 0.05


def test_an_interrupt_ends_a_staggered_burst_before_the_later_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: Sequence[futures.Future[BurstStart]]) -> None:
        time.sleep(0.2)  # the first is requested at once, the next one in a minute
        raise KeyboardInterrupt

    technology = Together()
    monkeypatch.setattr(bursts, "wait", interrupt)
    with pytest.raises(KeyboardInterrupt):
        starter(tmp_path, technology).start_burst(3, 60.0)
    assert len(technology.requests) <= 1
    assert technology.alive == []


def test_a_burst_that_is_interrupted_ends_when_its_starts_have_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    technology, waits = Together(), list[int]()

    def wait(starts: Sequence[futures.Future[BurstStart]]) -> None:
        waits.append(len(starts))
        if len(waits) == 1:
            raise KeyboardInterrupt
        futures.wait(starts)

    monkeypatch.setattr(bursts, "wait", wait)
    with pytest.raises(KeyboardInterrupt):
        starter(tmp_path, technology).start_burst(4, 0.0)
    assert technology.alive == []
    assert threading.active_count() == 1


def test_a_stack_that_has_one_address_cannot_be_started_in_a_burst(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class BuiltIn(Fake):
        has_fixed_address = True

    with pytest.raises(Unavailable, match="cannot start extra instances"):
        starter(tmp_path, BuiltIn()).start_burst(1, 0.0)
    with pytest.raises(Unavailable, match="cannot start extra instances"):
        starter(tmp_path, BuiltIn()).measure_stop()


# --- stops


@dataclass(frozen=True)
class Lingering(Fake):
    """A fake with a process, which the machine's files describe."""

    @contextmanager
    def launch(self, host: Host, launch: LaunchRequest) -> Iterator[Instance]:
        with super().launch(host, launch) as instance:
            yield replace(instance, processes=lambda: (7,))


def test_a_stop_ends_when_the_last_process_is_gone(tmp_path: Path) -> None:
    machine = Machine({"/proc/7/stat": "7 (a) b) S 1"})
    threading.Timer(0.6, lambda: machine.files.update({"/proc/7/stat": "7 (a) b) Z 1"})).start()
    assert starter(tmp_path, Lingering(), machine).measure_stop() >= 0.25


def test_a_stop_without_leftovers_needs_no_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bursts, "_POLL_SECONDS", -1.0)  # time.sleep() refuses it
    instances = starter(tmp_path, Lingering())
    monkeypatch.setattr(bursts, "_REMOVAL_TIMEOUT_SECONDS", -1.0)
    assert instances.measure_stop() > 0


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"/proc/7/stat": "7 (a) S 1"}, "process 7 is left"),
        ({"/proc/self/mountinfo": "1 1 0:1 / /run/netns/tare-0-inside-01 rw - nsfs nsfs rw"}, "a mount of .* is left"),
    ],
)
def test_a_stop_that_leaves_something_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], what: str
) -> None:
    monkeypatch.setattr(bursts, "_REMOVAL_TIMEOUT_SECONDS", 0.05)
    instances = starter(tmp_path, Lingering(), Machine(files))
    name = instances.context.network.with_slot(1).inside_namespace
    for path, text in files.items():
        files[path] = text.replace("tare-0-inside-01", name)
    with pytest.raises(TrialFailed, match=what):
        instances.measure_stop()


# --- memory


SUITE = """
[suite]
stacks = ["native"]
[limits]
memory = "1GiB"
[[workloads]]
use = "startup-burst"
concurrency = [1, {}]
"""


@pytest.mark.parametrize("count", [2, 3])
def test_a_burst_that_fits_into_memory_is_accepted(count: int) -> None:
    require_memory(parse_suite(SUITE.format(count), "a.toml"), Machine({"/proc/meminfo": MEMINFO}))


def test_a_burst_beyond_memory_is_refused_with_the_number_that_fits() -> None:
    suite = parse_suite(SUITE.format(16), "a.toml")
    with pytest.raises(SuiteError) as error:
        require_memory(suite, Machine({"/proc/meminfo": MEMINFO}))
    (fault,) = error.value.faults
    assert fault.message == "startup-burst: 17 instances of 1 GiB at a time, and the machine has 4 GiB to spare"
    assert fault.hint == "3 fit next to the trial's own: lower concurrency, or memory in [limits]"


def test_a_machine_that_does_not_tell_its_memory_refuses_nothing() -> None:
    require_memory(parse_suite(SUITE.format(16), "a.toml"), Machine())

"""CPU time of instances in turns: parsed from captured texts, and counted on this machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from busy import BUSY, running, work
from waiting import wait_until

from tare.hosts.exec import ExecHost
from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.telemetry.kernel_files import parse_gathered, read_files
from tare.telemetry.procfs import CpuTimes
from tare.telemetry.turn_cpu import (
    InstanceCpu,
    TakenTime,
    TaskTimes,
    TurnUsage,
    parse_schedstat,
    parse_usage_1,
    parse_usage_2,
)
from tare.telemetry.turn_usage import CpuUsage, TurnBoundary

SAMPLES = Path(__file__).parents[2] / "samples" / "machine"
GROUP = "/sys/fs/cgroup/cpuacct/tare-busy"
TASK = "/proc/13567/task/13567/schedstat"


def entered() -> ExecHost:
    """This machine, reached only by commands, as over SSH."""
    host = ExecHost(LocalHost(), "env")
    host.supervisor = ""
    return host


def captured_turn() -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the files at both ends of a second in which two busy loops shared CPU 1; one is the instance."""
    before, after, _ = (SAMPLES / "turn-preempted").read_text(encoding="utf-8").split("=======\n")
    return parse_gathered(before)[0], parse_gathered(after)[0]


class Captured(ExecHost):
    """The machine of the captured turn; `texts` are the files that the next command reads."""

    def __init__(self) -> None:
        super().__init__(LocalHost(), "false")
        self.supervisor = ""
        self.texts: Mapping[str, str] = {}


def read_captured(host: Captured, *_: object) -> Mapping[str, str]:
    return host.texts


def captured_boundary(patch: pytest.MonkeyPatch, group: str = GROUP) -> tuple[Captured, TurnBoundary]:
    patch.setattr("tare.telemetry.turn_usage.read_files", read_captured)
    host = Captured()
    cpu = InstanceCpu(host, lambda: (13567,))
    cpu._group_path = f"{group}/cpuacct.usage" if group else ""
    return host, TurnBoundary(host, CpuUsage((1,)), None, instance_cpu=cpu)


# --- parsers -------------------------------------------------------------------------------------------------------


def test_the_cpu_time_of_a_group_is_read_in_nanoseconds_in_either_version() -> None:
    assert parse_usage_1("498267653\n") == 498267653
    assert parse_usage_2((SAMPLES / "group-2-cpu.stat").read_text(encoding="utf-8")) == 1411206000


def test_run_time_and_run_delay_of_a_task_are_read() -> None:
    assert parse_schedstat(b"159658301 171596086 42\n") == TaskTimes(159658301, 171596086)


# --- turns ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("group", [GROUP, ""])
def test_others_that_took_half_of_a_cpu_from_an_instance_are_reported(
    group: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, boundary = captured_boundary(monkeypatch, group)
    for warm_up in (True, False):
        host.texts, after = captured_turn()
        boundary.begin_turn()
        boundary._began -= 1.0  # the texts are a second apart
        host.texts = after
        usage = boundary.end_turn(0.0, warm_up)
        assert usage.cpu_seconds == pytest.approx(0.498, abs=0.001)
        assert usage.waited_seconds == pytest.approx(0.534, abs=0.001)
        assert bool(boundary.cautions()) is not warm_up
    (caution,) = boundary.cautions()
    assert caution.kind == "preempted"
    assert caution.text == "others took 51% of the CPU time that it wanted"


def test_a_group_that_vanished_leaves_a_turn_without_its_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    host, boundary = captured_boundary(monkeypatch, "/sys/fs/cgroup/cpuacct/gone")
    host.texts, after = captured_turn()
    boundary.begin_turn()
    host.texts = after
    assert boundary.end_turn(0.0)[1:] == (None, None)
    assert boundary.cautions() == ()


def test_tasks_with_little_work_do_not_give_the_time_waited(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    host, boundary = captured_boundary(monkeypatch)
    host.texts, after = captured_turn()
    boundary.begin_turn()
    host.texts = {**after, f"{GROUP}/cpuacct.usage": "2000000000\n"}  # most of it by a command that came and went
    assert boundary.end_turn(0.0)[1:] == (2.0, None)


def test_a_task_that_started_in_a_turn_does_not_count_with_its_life_before(monkeypatch: pytest.MonkeyPatch) -> None:
    host, boundary = captured_boundary(monkeypatch, "")
    before, after = captured_turn()
    host.texts = before
    boundary.begin_turn()
    host.texts = {**after, TASK.replace("task/13567", "task/13568"): "9000000000 9000000000 1\n"}
    assert boundary.end_turn(0.0).cpu_seconds == pytest.approx(0.498, abs=0.001)


def cpus(used: float, steal: float = 0.0, niced: float = 0.0) -> CpuTimes:
    return CpuTimes(used, 0.0, niced, 0.0, steal, niced_seconds=niced)


@pytest.mark.parametrize(
    ("usage", "times", "taken"),
    [
        (TurnUsage(0.0, 0.9, 0.0), cpus(0.9, 0.1), 0.1),
        (TurnUsage(0.0, 0.9, 8.0), cpus(0.9), 0.0),  # its tasks waited for each other
        (TurnUsage(0.0, 0.5, 0.3), cpus(1.0), 0.3),  # others used more, but while it did not want to run
        (TurnUsage(0.0, 0.2, 0.0), cpus(0.2, 0.4, 0.6), 0.1),  # most of it from what keeps the CPU awake
        (TurnUsage(0.0, 0.5, None), cpus(1.0, 0.2), 0.2),
        (TurnUsage(0.0, None, None), cpus(1.0, 0.2), 0.0),
        (TurnUsage(0.0, 0.5, 0.3), None, 0.0),
    ],
)
def test_others_took_no_more_than_they_used_of_the_wanted_time(
    usage: TurnUsage, times: CpuTimes | None, taken: float
) -> None:
    found = TakenTime()
    found.add_turn(1.0, usage, times)
    assert found.seconds == pytest.approx(taken)
    assert bool(found.caution()) is (taken > 0)


def test_a_short_wait_is_no_caution() -> None:
    found = TakenTime()
    found.add_turn(1.0, TurnUsage(0.0, 0.9, 0.04), cpus(0.95))
    assert found.caution() is None


@pytest.mark.parametrize("reach", [LocalHost, entered])
def test_the_cpu_time_of_a_turn_is_that_of_the_clock_of_the_process(reach: Callable[[], Host]) -> None:
    host = reach()
    with ExitStack() as stack:
        process = stack.enter_context(running(BUSY))
        boundary = TurnBoundary(host, CpuUsage((0,)), None, instance_cpu=InstanceCpu(host, lambda: (process.pid,)))
        boundary.begin_turn()
        assert boundary.end_turn(0.0).cpu_seconds == pytest.approx(0.0, abs=0.05)
        boundary.begin_turn()
        used = work(process)
        usage = boundary.end_turn(0.0)
        assert usage.cpu_seconds == pytest.approx(used, abs=0.05)
        assert usage.waited_seconds is not None
        boundary.begin_turn()
        process.kill()
        wait_until(lambda: process.poll() is not None)
        assert boundary.end_turn(0.0)[1:] == (None, None)
        boundary.resume()


# Has a hundred threads that wait before the one that works for as long as it may.
MANY_TASKS = """
import threading, time
for _ in range(100):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
def work():
    print("ready", flush=True)
    while time.process_time() < 60: pass
threading.Thread(target=work, daemon=True).start()
time.sleep(60)
"""


def test_a_task_that_works_is_found_among_more_tasks_than_a_turn_reads() -> None:
    with running(MANY_TASKS) as process:
        boundary = TurnBoundary(
            LocalHost(), CpuUsage((0,)), None, instance_cpu=InstanceCpu(LocalHost(), lambda: (process.pid,))
        )

        def has_worked_in_turn(seconds: float) -> bool:
            """A task that is only started or woken in a turn runs for less than a millisecond."""
            boundary.begin_turn()
            time.sleep(seconds)
            return (boundary.end_turn(0.0).cpu_seconds or 0.0) > 0.001

        wait_until(partial(has_worked_in_turn, 0.05))
        # From now on, the task is read in each turn. On a busy machine, it may not run in a short one.
        assert all(has_worked_in_turn(0.5) for _ in range(4))
        boundary.resume()


def test_over_ssh_patterns_and_paths_are_read_by_one_command() -> None:
    with LocalHost().spawn("sleep", "60") as process:
        paths = ("/proc/self/mounts", "/proc/none", "/proc/stat")
        texts = read_files(entered(), paths, (f"/proc/{process.pid}/task/*/schedstat", "/proc/0/task/*/schedstat"))
        here = read_files(LocalHost(), paths, (f"/proc/{process.pid}/task/*/schedstat",))
    tasks = f"/proc/{process.pid}/task/{process.pid}/schedstat"
    assert texts.keys() == here.keys() == {"/proc/self/mounts", "/proc/stat", tasks}

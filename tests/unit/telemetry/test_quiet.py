from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest
from waiting import wait_until

from tare.hosts.exec import ExecHost
from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.telemetry.procfs import parse_process_times
from tare.telemetry.turn_cpu import InstanceCpu, TurnUsage
from tare.telemetry.turn_usage import CpuUsage, IdleWatch, TurnBoundary

BUSY = "while :; do :; done"


def entered() -> ExecHost:
    """This machine, reached only by commands, as over SSH."""
    host = ExecHost(LocalHost(), "env")
    host.supervisor = ""
    return host


def edges_of(host: Host, pid: int) -> TurnBoundary:
    return TurnBoundary(host, CpuUsage((0,)), IdleWatch(host, lambda: (pid,)))


def caution_kind(edges: TurnBoundary) -> str:
    assert edges.idle_watch is not None
    caution = edges.idle_watch.caution()
    return caution.kind if caution else ""


def stat(own_ticks: int, reaped_ticks: int) -> str:
    return f"1 (p) S {'0 ' * 10}{own_ticks} 0 {reaped_ticks} 0{' 0' * 35}\n"


def cpu_seconds(pid: int) -> float:
    times = parse_process_times(LocalHost().read(f"/proc/{pid}/stat"))
    return times.user_seconds + times.system_seconds


HOSTS = pytest.mark.parametrize("reach", [LocalHost, entered])


@HOSTS
@pytest.mark.parametrize(("command", "kind"), [(BUSY, "busy-when-idle"), ("sleep 60", "")])
def test_a_process_that_works_while_others_have_their_turns_is_reported(
    reach: Callable[[], Host], command: str, kind: str
) -> None:
    with LocalHost().spawn("sh", "-c", command) as process:
        edges = edges_of(reach(), process.pid)
        for _ in range(3):
            edges.begin_turn()
            time.sleep(0.01)
            edges.end_turn(0.0)
            if kind:
                _goes_on(process.pid)
            else:
                time.sleep(0.15)
        edges.resume()
    assert caution_kind(edges) == kind


@HOSTS
def test_a_busy_process_is_paused_between_turns_and_resumed_at_the_end(reach: Callable[[], Host]) -> None:
    with LocalHost().spawn("sh", "-c", BUSY) as process:
        edges = edges_of(reach(), process.pid)
        going_on = []
        for _ in range(4):
            edges.begin_turn()
            time.sleep(0.1)
            edges.end_turn(0.0)
            going_on.append(_goes_on(process.pid))
        assert going_on[0]
        assert going_on[-2:] == [False, False]
        edges.begin_turn()  # there is no turn left
        edges.finish()
        assert not _goes_on(process.pid)
        edges.resume()
        assert _goes_on(process.pid)


@HOSTS
def test_a_process_that_has_ended_while_it_was_paused_does_no_harm(reach: Callable[[], Host]) -> None:
    with LocalHost().spawn("sh", "-c", BUSY) as process:
        edges = edges_of(reach(), process.pid)
        while not caution_kind(edges):
            edges.begin_turn()
            edges.end_turn(0.0)
            time.sleep(0.05)
        LocalHost().run("kill", "-9", str(process.pid), timeout=60)
        wait_until(lambda: not process.is_running())
        edges.begin_turn()
        edges.end_turn(0.0)
        edges.resume()


# A user-space kernel with a child that waits for it; the child has started a process that works.
SANDBOX = f"bash -c '{BUSY} & exec sleep 60' & {BUSY}"


@HOSTS
def test_what_gvisors_kernel_has_started_itself_gets_no_signal(reach: Callable[[], Host]) -> None:
    here = LocalHost()
    with here.spawn("bash", "-c", 'exec -a runsc-sandbox bash -c "$0"', SANDBOX) as process:

        def family() -> tuple[int, ...]:
            found = [process.pid]
            for pid in found:  # it grows meanwhile
                found += map(int, here.run("pgrep", "--parent", str(pid), timeout=60, check=False).text.split())
            return tuple(found)

        wait_until(lambda: len(family()) == 3)
        edges = TurnBoundary(reach(), CpuUsage((0,)), IdleWatch(reach(), family))
        while not caution_kind(edges):
            edges.begin_turn()
            edges.end_turn(0.0)
            time.sleep(0.05)
        for _ in range(2):
            edges.begin_turn()
            edges.end_turn(0.0)
        kernel, waiting, working = family()
        wait_until(lambda: _is_stopped(kernel) and _is_stopped(working))
        assert not _is_stopped(waiting)
        edges.resume()
        wait_until(lambda: not _is_stopped(kernel) and not _is_stopped(working))


def test_a_program_that_was_started_in_a_turn_has_not_worked_between_turns() -> None:
    """The usage in the turn does not count as usage during the turns of others."""
    running: list[int] = []
    quiet = IdleWatch(LocalHost(), lambda: tuple(running))
    edges = TurnBoundary(LocalHost(), CpuUsage((0,)), quiet)
    edges.begin_turn()
    running.append(os.getpid())  # which has worked for long
    edges.end_turn(0.0)
    edges.begin_turn()
    assert quiet.caution() is None


def test_a_child_ended_between_turns_is_not_counted_again_by_its_parent() -> None:
    quiet = IdleWatch(LocalHost(), lambda: (1, 2))
    quiet.end_turn({"/proc/1/stat": stat(0, 0), "/proc/2/stat": stat(500, 0)})
    quiet.begin_turn({"/proc/1/stat": stat(0, 500)})
    assert quiet.caution() is None


def test_a_child_that_outlives_its_turn_did_no_work_between_turns() -> None:
    quiet = IdleWatch(LocalHost(), lambda: (1, 2))
    quiet.end_turn({"/proc/1/stat": stat(7, 0)})
    quiet.begin_turn({"/proc/1/stat": stat(7, 500)})
    assert quiet.caution() is None


class Counting(ExecHost):
    """This machine, with a record of the commands."""

    def __init__(self) -> None:
        super().__init__(LocalHost(), "env")
        self.supervisor = ""
        self.commands: list[str] = []

    def wrap(self, *argv: str) -> tuple[str, ...]:
        self.commands.append(argv[0])
        return super().wrap(*argv)


def test_over_ssh_an_edge_of_a_turn_takes_one_command() -> None:
    host = Counting()
    with LocalHost().spawn("sleep", "60") as process:
        edges = TurnBoundary(
            host,
            CpuUsage((0,)),
            IdleWatch(host, lambda: (process.pid,)),
            instance_cpu=InstanceCpu(host, lambda: (process.pid,)),
        )
        host.commands.clear()
        for _ in range(2):
            edges.begin_turn()
            assert host.commands == ["sh"]
            edges.end_turn(0.0)
            assert host.commands == ["sh"] * 2
            host.commands.clear()
        edges.begin_turn()
        host.commands.clear()
        edges.finish()  # the generator had ended: nothing is read for a turn that does not take place
        assert host.commands == []


def test_a_machine_that_does_not_report_it_leaves_a_turn_without_its_steal() -> None:
    host = ExecHost(LocalHost(), "false")
    host.supervisor = ""
    edges = TurnBoundary(host, CpuUsage((0,)), None)
    edges.begin_turn()
    assert edges.end_turn(0.0) == TurnUsage(None)
    assert edges.usage.busy_share is None


def test_cpus_of_services_beside_are_counted_over_the_same_turns() -> None:
    (cpu, *_) = sorted(os.sched_getaffinity(0))
    edges = TurnBoundary(LocalHost(), CpuUsage((cpu,)), None, CpuUsage((cpu,)))
    edges.begin_turn()
    time.sleep(0.05)
    edges.end_turn(0.0)
    assert edges.sidecar_usage is not None
    assert edges.sidecar_usage.busy_share == edges.usage.busy_share is not None


def _goes_on(pid: int) -> bool:
    """Wait until a process has used some more ticks of CPU or is paused; return whether it is running."""
    before = cpu_seconds(pid)
    wait_until(lambda: _is_stopped(pid) or cpu_seconds(pid) > before + 0.05)
    if not _is_stopped(pid):
        return True
    before = cpu_seconds(pid)
    time.sleep(0.1)
    return cpu_seconds(pid) > before


def _is_stopped(pid: int) -> bool:
    return LocalHost().read(f"/proc/{pid}/stat").rpartition(") ")[2].startswith("T")


# --- CPU usage --------------------------------------------------------------------------------------------------------

BEFORE = "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 50 0 50 400 0 0 0 0 0 0\ncpu1 50 0 50 400 0 0 0 0 0 0\n"
AFTER = "cpu  160 0 120 900 0 0 0 20 0 0\ncpu0 50 0 50 500 0 0 0 0 0 0\ncpu1 110 0 70 400 0 0 0 20 0 0\n"


def test_what_was_stolen_is_a_share_of_what_was_wanted() -> None:
    spent = CpuUsage((1,))
    spent.begin_turn(BEFORE)
    assert spent.end_turn(AFTER, 0.0) == pytest.approx(20 / 100)


@pytest.mark.parametrize(("cpus", "share"), [((0,), 0.0), ((1,), 1.0), ((0, 1), 0.5), ((7,), None)])
def test_how_busy_cpus_were_is_counted_over_turns_alone(cpus: tuple[int, ...], share: float | None) -> None:
    between = AFTER.replace("cpu0 50", "cpu0 9999")  # usage between two turns must not count
    spent = CpuUsage(cpus)
    for before, after in ((BEFORE, AFTER), (between, between)):
        spent.begin_turn(before)
        spent.end_turn(after, 0.0)
    assert spent.busy_share == (None if share is None else pytest.approx(share))


@pytest.mark.parametrize(
    ("first", "rest_seconds", "busy_cpus"),
    [
        ("cpu0 50 0 50 500 0", 0.0, 1.0),  # it is idle, and the other one works all the time
        ("cpu0 80 0 50 470 0", 0.0, 1.3),
        ("cpu0 50 0 50 440 60", 0.0, 1.6),  # a disk lets it wait
        ("cpu0 50 0 50 500 0", 0.2, 1.25),
        ("", 0.0, 1.0),
    ],
)
def test_of_the_latest_turn_is_known_how_many_cpus_were_busy(first: str, rest_seconds: float, busy_cpus: float) -> None:
    spent = CpuUsage((0, 1))
    spent.begin_turn(BEFORE)
    spent.end_turn(AFTER.replace("cpu0 50 0 50 500 0", first), rest_seconds)
    assert spent.latest_busy_cpus == pytest.approx(busy_cpus)
    spent.begin_turn("")
    spent.end_turn("", 0.0)
    assert spent.latest_busy_cpus is None


def test_what_was_begun_and_is_no_turn_does_not_count() -> None:
    spent = CpuUsage((1,))
    spent.begin_turn(BEFORE)
    spent.begin_turn(AFTER)
    spent.end_turn(AFTER.replace("cpu1 110 0 70 400", "cpu1 110 0 70 500"), 0.0)
    assert spent.busy_share == 0.0


def test_a_machine_that_reports_nothing_leaves_both_unknown() -> None:
    spent = CpuUsage((0,))
    spent.begin_turn("")
    assert (spent.end_turn("", 0.0), spent.busy_share) == (None, None)


@pytest.mark.parametrize(("rest_seconds", "share"), [(0.0, 0.8), (0.2, 1.0)])
def test_time_before_a_load_sends_does_not_make_a_server_less_busy(rest_seconds: float, share: float) -> None:
    spent = CpuUsage((1,))
    spent.begin_turn(BEFORE)
    spent.end_turn(AFTER.replace("cpu1 110 0 70 400", "cpu1 110 0 50 420"), rest_seconds)
    assert spent.busy_share == pytest.approx(share)


def _stat(user: int, nice: int, idle: int) -> str:
    """Return a text of /proc/stat with the ticks of one CPU."""
    ticks = f"{user} {nice} 0 {idle} 0 0 0 0 0 0"
    return f"cpu  {ticks}\ncpu0 {ticks}\nintr 1\nctxt 1\n"


@pytest.mark.parametrize(("spun", "busy"), [({}, 1.0), ({0: 0.75}, 0.25), ({0: 1.0}, 0.0)])
def test_niced_time_is_use_except_that_of_threads_that_keep_cpus_awake(spun: dict[int, float], busy: float) -> None:
    usage = CpuUsage((0,))
    usage.begin_turn(_stat(100, 0, 100), dict.fromkeys(spun, 5.0))
    usage.end_turn(_stat(100, 100, 100), 0.0, {cpu: 5.0 + seconds for cpu, seconds in spun.items()})
    assert usage.latest_busy_cpus == pytest.approx(busy)
    assert usage.busy_share == pytest.approx(busy)

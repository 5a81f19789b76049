"""CPUs that are kept awake, on a real kernel."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from waiting import ENOUGH_SECONDS, wait_until

from tare.hosts.awake import AwakeCpus
from tare.hosts.cgroups import parse_layout
from tare.hosts.ledger import read_pending_undos
from tare.hosts.local import LocalHost
from tare.runner.context import RunContext
from tare.telemetry.turn_cpu import parse_schedstat

pytestmark = pytest.mark.machine
CPU = max(os.sched_getaffinity(0))
NAME = "tare-test-awake"


def group() -> Path:
    return Path(parse_layout(Path("/proc/self/mounts").read_text(encoding="utf-8")).mounts["cpu"], NAME)


def spinners() -> list[int]:
    return [int(pid) for pid in (group() / "cgroup.procs").read_text(encoding="ascii").split()]


def spun_seconds(awake: AwakeCpus) -> float:
    """Return the CPU time of the thread that spins."""
    return parse_schedstat(Path(awake.time_files()[CPU]).read_bytes()).run / 1e9


def has_spun(awake: AwakeCpus, seconds: float) -> bool:
    return spun_seconds(awake) >= seconds


def test_a_cpu_spins_only_while_it_is_kept_awake_and_nothing_is_left(testbed: RunContext) -> None:
    awake = AwakeCpus(testbed.ledger, (CPU,), NAME)
    for _ in range(2):
        with awake.keep_awake():
            goal = spun_seconds(awake) + 0.1
            wait_until(partial(has_spun, awake, goal))  # on a busy machine others have most of the CPU
        before = spun_seconds(awake)
        time.sleep(0.5)
        assert spun_seconds(awake) < before + 0.1
    pids = spinners()
    assert [Path(f"/proc/{pid}/comm").read_text(encoding="ascii") for pid in pids] == ["keep_awake\n"]
    awake.close()
    assert not group().exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_busy_program_loses_next_to_nothing_to_the_threads_that_spin(testbed: RunContext) -> None:
    """The class SCHED_IDLE alone would let them take half of the CPU from a program of another session."""
    awake = AwakeCpus(testbed.ledger, (CPU,), NAME)
    usual = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {CPU})
    try:
        with awake.keep_awake():
            began, spun = time.thread_time(), spun_seconds(awake)
            while time.thread_time() < began + 1.0:
                pass
            spun = spun_seconds(awake) - spun
    finally:
        os.sched_setaffinity(0, usual)
        awake.close()
    assert spun < 0.2


def test_clean_ends_the_threads_of_a_killed_run_whatever_wants_their_cpu(testbed: RunContext) -> None:
    """The kernel gives them next to no CPU time meanwhile, and without any they cannot end."""
    awake, host = AwakeCpus(testbed.ledger, (CPU,), NAME), LocalHost()
    busy = ("setsid", "taskset", "-c", str(CPU), "sh", "-c", "echo busy; while :; do :; done")
    with awake.keep_awake(), ExitStack() as stack:
        ledger = testbed.ledger.path
        [undo] = [each for each in read_pending_undos(ledger.parent)[ledger].entries if str(group()) in each]
        for _ in range(6):
            stack.enter_context(host.spawn(*busy)).read_line(ENOUGH_SECONDS)
        host.run(*undo, timeout=ENOUGH_SECONDS)
        assert not group().exists()
    awake.close()


def test_no_cpus_need_no_program(testbed: RunContext) -> None:
    with AwakeCpus(testbed.ledger, (), NAME).keep_awake():
        assert not group().exists()

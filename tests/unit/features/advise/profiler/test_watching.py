"""What the kernel says of processes without tracing: of a real one that works, and of one that ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing

import pytest
from waiting import wait_until

from tare.features.advise.profiler.command import find_process
from tare.features.advise.profiler.recording import Target, UsageWatch
from tare.hosts.local import LocalHost
from tare.model.errors import TareError

HOST = LocalHost()
# Reads and writes without end, and has a thread that waits.
WORKING = """
import threading
threading.Thread(target=threading.Event().wait, daemon=True).start()
with open("/dev/zero", "rb", buffering=0) as zeros, open("/dev/null", "wb", buffering=0) as nothing:
    while True:
        nothing.write(zeros.read(4096))
"""


@pytest.fixture
def working() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen((sys.executable, "-c", WORKING)) as process:
        try:
            wait_until(lambda: "Threads:\t2" in HOST.read(f"/proc/{process.pid}/status"))
            yield process
        finally:
            process.kill()


def test_a_process_that_works_has_its_time_memory_and_reads(working: subprocess.Popen[bytes]) -> None:
    with closing(UsageWatch(HOST, find_process(HOST, working.pid))) as watch:
        first = watch.take_snapshot()
        wait_until(lambda: watch.take_snapshot().since(first).reads_and_writes > 10_000)
        wait_until(lambda: (used := watch.read_total_usage()).user_seconds + used.system_seconds > 0.05)
        usage = watch.read_total_usage()
    assert usage.busiest_thread_seconds == pytest.approx(usage.user_seconds + usage.system_seconds, abs=0.03)
    assert usage.proportional_bytes is not None
    assert usage.resident_bytes is not None
    assert 1 << 20 < usage.proportional_bytes <= usage.resident_bytes


def test_a_process_that_ends_while_it_is_watched_is_an_error(working: subprocess.Popen[bytes]) -> None:
    target = find_process(HOST, working.pid)
    with closing(UsageWatch(HOST, target)) as watch:
        working.kill()
        wait_until(lambda: not HOST.read(f"/proc/{working.pid}/cmdline"))  # nobody has waited for it
        with pytest.raises(TareError, match=r"process \d+\): ended while it was watched"):
            watch.take_reading()


def test_an_application_without_processes_cannot_be_watched() -> None:
    with closing(UsageWatch(HOST, Target("nothing", tuple))) as watch, pytest.raises(TareError, match="nothing: ended"):
        watch.take_reading()

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pytest
from sampled import sample

from tare.hosts.local import LocalHost
from tare.model import Caution
from tare.telemetry.files import LocalFiles
from tare.telemetry.parsers import parse_cpu_total
from tare.telemetry.readings import Reading, Totals
from tare.telemetry.sampler import (
    Pace,
    Telemetry,
    Way,
    sampling,
    steal_caution,
    swap_caution,
    throttling_caution,
    way_to,
)
from tare.telemetry.series import Row, write

SAMPLES = Path(__file__).parents[2] / "samples" / "machine"
HERE = way_to(LocalHost())
OFTEN = Way(LocalFiles(), Pace(0.01, 1.0))
NO_PROCESS = 2**22 + 1  # above the highest number that Linux gives out

# Uses half a second of CPU once it is told to, says so, and stays.
BUSY = """
import sys, time
print("ready", flush=True)
sys.stdin.readline()
while time.process_time() < 0.5: pass
print("done", flush=True)
sys.stdin.readline()
"""

# Lets a child use 0.3 seconds of CPU, waits for it, and stays.
PARENT = """
import os, sys, time
print("ready", flush=True)
sys.stdin.readline()
child = os.fork()
if not child:
    while time.process_time() < 0.3: pass
    os._exit(0)
os.waitpid(child, 0)
print("done", flush=True)
sys.stdin.readline()
"""


def captured(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


@contextmanager
def running(program: str) -> Iterator[subprocess.Popen[str]]:
    argv = [sys.executable, "-c", program]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert hear(process) == "ready"
        try:
            yield process
        finally:
            process.kill()


def say(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def rows(file: Path, columns: str, scope: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        table = connection.read_parquet(str(file))
        return table.filter(f"scope = '{scope}'").order("seconds").project(columns).fetchall()


def used_cpu_seconds(file: Path) -> float:
    """The last known CPU time of the instance."""
    used: list[float] = [row[0] for row in rows(file, "cpu_user + cpu_system", "instance") if row[0] is not None]
    return used[-1]


def alone(pid: int) -> list[int]:
    return [pid]


def family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    return [pid, *(int(child) for child in children)]


# --- the sampler on this machine -----------------------------------------------------------------------------------


def test_the_cpu_time_of_a_busy_process_is_found(tmp_path: Path) -> None:
    with running(BUSY) as busy, sample(tmp_path / "trial.parquet", OFTEN, lambda: [busy.pid]):
        say(busy)
        assert hear(busy) == "done"
    # 0.5 less what the interpreter's own start took
    assert 0.35 <= used_cpu_seconds(tmp_path / "trial.parquet") <= 0.60
    ((memory,), *_) = rows(tmp_path / "trial.parquet", "memory_bytes", "instance")
    assert 1 * 2**20 < memory < 100 * 2**20
    host = rows(tmp_path / "trial.parquet", "cpu_user + cpu_system + cpu_steal", "host")
    assert host[-1][0] >= 0.3  # the kernel counts it by ticks for the host, and exactly for a process
    assert len(host) >= 5


@pytest.mark.parametrize("seen", [alone, family])
def test_the_cpu_time_of_a_child_is_counted_once_whether_it_was_seen_or_not(
    seen: Callable[[int], list[int]], tmp_path: Path
) -> None:
    with (
        running(PARENT) as parent,
        sample(tmp_path / "trial.parquet", OFTEN, lambda: seen(parent.pid)),
    ):
        say(parent)
        assert hear(parent) == "done"
    assert 0.27 <= used_cpu_seconds(tmp_path / "trial.parquet") <= 0.45


def test_cpu_time_never_falls_and_time_grows(tmp_path: Path) -> None:
    with running(PARENT) as parent, sample(tmp_path / "trial.parquet", OFTEN, lambda: family(parent.pid)):
        say(parent)
        hear(parent)
    for scope in ("host", "instance"):
        found = rows(tmp_path / "trial.parquet", "seconds, cpu_user", scope)
        assert found == sorted(found)
        assert len(set(found)) >= 5


def test_a_process_that_vanishes_leaves_nulls_and_its_cpu_time(tmp_path: Path) -> None:
    with running(BUSY) as busy, sample(tmp_path / "trial.parquet", OFTEN, lambda: [busy.pid]):
        say(busy)
        hear(busy)
        time.sleep(0.05)
        busy.kill()
        busy.wait()
        time.sleep(0.05)
    assert 0.35 <= used_cpu_seconds(tmp_path / "trial.parquet") <= 0.60
    assert rows(tmp_path / "trial.parquet", "cpu_user, memory_bytes", "instance")[-1] == (None, None)


def test_a_process_that_never_was_is_null_and_never_zero(tmp_path: Path) -> None:
    with sample(tmp_path / "trial.parquet", HERE, lambda: [NO_PROCESS]):
        pass
    for found in rows(tmp_path / "trial.parquet", "* exclude (seconds, scope, trial, time)", "instance"):
        assert {*found} == {None}


def test_what_an_instance_cannot_tell_is_null(tmp_path: Path) -> None:
    with sample(tmp_path / "trial.parquet", HERE, lambda: [os.getpid()]):
        pass
    columns = "cpu_iowait, cpu_steal, network_receive_bytes, network_send_bytes"
    assert rows(tmp_path / "trial.parquet", columns, "instance") == [(None, None, None, None)] * 2


def test_a_function_that_fails_does_not_fail_the_trial(tmp_path: Path) -> None:
    def broken() -> list[int]:
        raise RuntimeError

    with sample(tmp_path / "trial.parquet", OFTEN, broken):
        time.sleep(0.1)
    assert len(rows(tmp_path / "trial.parquet", "cpu_user", "instance")) >= 3
    assert rows(tmp_path / "trial.parquet", "cpu_user", "instance")[0] == (None,)
    assert rows(tmp_path / "trial.parquet", "cpu_user", "host")[-1][0] >= 0.0


def test_a_trial_that_fails_leaves_its_telemetry_and_no_thread(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match="the trial"),
        sample(tmp_path / "trial.parquet", HERE, lambda: [os.getpid()]),
    ):
        raise RuntimeError("the trial")
    assert len(rows(tmp_path / "trial.parquet", "seconds", "host")) == 2
    assert [thread.name for thread in threading.enumerate() if thread.name == "tare-sampler"] == []


def test_a_file_that_cannot_be_written_is_a_caution(tmp_path: Path) -> None:
    with sample(tmp_path / "missing" / "trial.parquet", HERE, lambda: [os.getpid()]) as telemetry:
        pass
    assert [caution.kind for caution in telemetry.cautions() if caution.kind == "telemetry"] == ["telemetry"]
    assert list(tmp_path.iterdir()) == []


def test_five_seconds_of_samples_are_written_about_as_quickly_as_one(tmp_path: Path) -> None:
    sampled = [Row(1.0, None, Reading(1.0, 1.0)), Row(1.0, "trial", Reading(1.0, 1.0))]
    used_seconds = {}
    for count in (1, 51):
        tries = []
        for _ in range(5):
            began = time.process_time()  # CPU time, so that a busy machine does not fail the test
            assert write(tmp_path / "trial.parquet", sampled * count, 0.0) == ""
            tries.append(time.process_time() - began)
        used_seconds[count] = min(tries)
    assert used_seconds[51] < 3 * used_seconds[1]
    assert len(rows(tmp_path / "trial.parquet", "seconds", "host")) == 51


def test_what_takes_many_files_is_read_once_a_second_and_at_both_ends(tmp_path: Path) -> None:
    file = tmp_path / "trial.parquet"
    with sample(file, OFTEN, lambda: [os.getpid()]):
        time.sleep(1.5)
    found = rows(file, "seconds, memory_bytes IS NOT NULL AND pressure_cpu IS NOT NULL", "host")
    moments = [seconds for seconds, whole in found if whole]
    assert len(found) > 10 * len(moments)
    assert (moments[0], moments[-1]) == (found[0][0], found[-1][0])
    assert min(later - earlier for earlier, later in pairwise(moments[1:-1])) > 0.9


def test_the_cpus_of_the_machine_are_told_apart_and_add_up(tmp_path: Path) -> None:
    file = tmp_path / "trial.parquet"
    with running(BUSY) as busy, sample(file, OFTEN, lambda: [busy.pid]):
        say(busy)
        hear(busy)
    *_, (each, together, count) = rows(file, "list_sum(cpus_user), cpu_user, len(cpus_user)", "host")
    assert together >= 0.1
    assert each == pytest.approx(together, abs=0.02 * count)
    assert rows(file, "cpus_user", "instance")[0] == (None,)


def test_the_time_of_a_sample_is_that_of_the_clock_on_the_wall(tmp_path: Path) -> None:
    before = datetime.now(UTC).replace(tzinfo=None)
    with sample(tmp_path / "trial.parquet", HERE, lambda: [os.getpid()]):
        pass
    ((first,), *_) = rows(tmp_path / "trial.parquet", "time", "host")
    assert before - timedelta(seconds=0.1) <= first <= datetime.now(UTC).replace(tzinfo=None) + timedelta(seconds=0.1)


# --- several instances together ------------------------------------------------------------------------------------


def test_what_is_alive_together_has_one_thread_and_one_file_with_one_series_of_the_machine(tmp_path: Path) -> None:
    file = tmp_path / "block.parquet"
    with running(BUSY) as busy, running(BUSY) as idle, sampling(file, OFTEN) as sampler:
        with sampler.watching("busy", lambda: [busy.pid]), sampler.watching("idle", lambda: [idle.pid]):
            assert [thread.name for thread in threading.enumerate()].count("tare-sampler") == 1
            say(busy)
            hear(busy)
        with sampler.watching("later", lambda: [busy.pid]):
            time.sleep(0.05)
    assert sampler.trouble == ""
    moments = [seconds for (seconds,) in rows(file, "seconds", "host")]
    assert moments == sorted(set(moments))
    assert {trial for (trial,) in rows(file, "trial", "host")} == {None}
    used: dict[str, list[float]] = {"busy": [], "idle": [], "later": []}
    for trial, seconds in rows(file, "trial, cpu_user + cpu_system", "instance"):
        used[trial].append(seconds)
    assert 0.35 <= used["busy"][-1] <= 0.60
    assert used["idle"][-1] < 0.1
    assert used["later"][0] == 0.0  # counted from its own beginning
    assert all(values == sorted(values) and len(values) >= 2 for values in used.values())


def test_a_trial_that_fails_beside_others_leaves_its_series_and_theirs(tmp_path: Path) -> None:
    file = tmp_path / "block.parquet"
    with sampling(file, OFTEN) as sampler, sampler.watching("other", lambda: [os.getpid()]) as telemetry:
        with pytest.raises(RuntimeError, match="the trial"), sampler.watching("failing", lambda: [os.getpid()]):
            raise RuntimeError("the trial")
        time.sleep(0.05)
    assert telemetry.trouble == ""
    counted = dict.fromkeys(("other", "failing"), 0)
    for (trial,) in rows(file, "trial", "instance"):
        counted[trial] += 1
    assert counted["failing"] == 2
    assert counted["other"] > 2


def test_samples_take_a_small_share_of_a_cpu_however_many_instances_there_are(tmp_path: Path) -> None:
    with sampling(tmp_path / "block.parquet", Way(LocalFiles(), Pace())) as sampler, ExitStack() as stack:
        for number in range(50):
            stack.enter_context(sampler.watching(f"trial-{number}", lambda: [os.getpid()]))
        (thread,) = [thread for thread in threading.enumerate() if thread.name == "tare-sampler"]
        began, used = time.monotonic(), cpu_seconds_of(thread)
        while time.monotonic() - began < 3 or cpu_seconds_of(thread) == used:
            time.sleep(0.01)
        share = (cpu_seconds_of(thread) - used) / (time.monotonic() - began)
    assert 0.0 < share < 0.0075  # 0.5 %, and what one sample takes; without the limit, it would be several percent


def cpu_seconds_of(thread: threading.Thread) -> float:
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


# --- summaries -----------------------------------------------------------------------------------------------------


def between(start: Totals, end: Totals) -> Telemetry:
    return Telemetry(start, end)


def captured_totals(name: str, swapped_in_pages: int = 0, throttled: int | None = None) -> Totals:
    text = captured(name)
    return Totals(parse_cpu_total(text), swapped_in_pages, throttled)


def test_summaries_are_none_before_the_end() -> None:
    telemetry = Telemetry()
    assert telemetry.steal_share is None
    assert telemetry.cautions() == ()


def test_what_happened_on_the_machine_becomes_cautions() -> None:
    telemetry = between(captured_totals("stat", 5, 1), captured_totals("stat-later", 8, 3))
    assert telemetry.cautions() == (
        Caution("steal", "the hypervisor gave 5.2% of the CPU time to others while the trial ran"),
        Caution("swap", "3 pages came back from swap while the trial ran"),
        Caution("throttling", "CPU cores were slowed down to cool 2 times while the trial ran"),
    )


def test_a_quiet_trial_has_no_cautions() -> None:
    assert steal_caution(0.01) is None
    assert swap_caution(5, 5) is None
    assert throttling_caution(None, None) is None

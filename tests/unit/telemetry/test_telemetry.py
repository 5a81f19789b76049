import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest
from busy import BUSY, PARENT, hear, running, tell, work
from sampled import sample
from waiting import wait_until

from tare.hosts.local import LocalHost
from tare.model.trial import Caution
from tare.telemetry.host_reader import HostTotals, UsageReading
from tare.telemetry.kernel_files import LocalFiles
from tare.telemetry.parquet import TelemetryRow, count_samples, write
from tare.telemetry.procfs import parse_cpu_total
from tare.telemetry.sampler import Sampler, SamplingBackend, SamplingBudget, Telemetry, backend_for, run_sampler

SAMPLES = Path(__file__).parents[2] / "samples" / "machine"
HERE = backend_for(LocalHost(), 0.1)
OFTEN = SamplingBackend(LocalFiles(), SamplingBudget(0.01, 1.0))
NO_PROCESS = 2**22 + 1  # above the highest number that Linux gives out

ALIKE = 0.15  # how near the kernel's ticks are to what a process has used by its own clock


def captured(name: str) -> str:
    return (SAMPLES / name).read_text(encoding="utf-8")


@contextmanager
def watched(file: Path, processes: Callable[[], Sequence[int]]) -> Iterator[Sampler]:
    """Sample this machine and the instance of one trial often."""
    with run_sampler(file, OFTEN) as sampler, sampler.sample_instance(file.stem, processes):
        yield sampler


def await_samples(sampler: Sampler, count: int) -> None:
    """Wait for n more samples, without a sample that has already begun."""
    enough = len(sampler.rows) + 2 + 2 * count  # each has a row of the machine, and one of an instance
    wait_until(lambda: len(sampler.rows) >= enough)


def machine_seconds() -> float:
    """Return the CPU usage and the steal time of this machine so far."""
    times = parse_cpu_total(Path("/proc/stat").read_text(encoding="ascii"))
    return times.user_seconds + times.system_seconds + times.steal_seconds


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


def test_the_cpu_time_of_the_machine_is_what_the_kernel_counts(tmp_path: Path) -> None:
    file = tmp_path / "trial.parquet"
    with running(BUSY) as busy:
        before = machine_seconds()
        with watched(file, lambda: [busy.pid]):
            inner = machine_seconds()
            work(busy)
            least = machine_seconds() - inner
        most = machine_seconds() - before
    *_, (used,) = rows(file, "cpu_user + cpu_system + cpu_steal", "host")
    assert least > 0
    assert least - 1e-6 < used < most + 1e-6


@pytest.mark.parametrize("seen", [alone, family])
def test_the_cpu_time_of_a_child_counts_once_whether_it_was_seen_or_not(
    seen: Callable[[int], list[int]], tmp_path: Path
) -> None:
    file = tmp_path / "trial.parquet"
    with running(PARENT) as parent, watched(file, lambda: seen(parent.pid)) as sampler:
        tell(parent)
        assert hear(parent) == "done"
        await_samples(sampler, 1)
        used = work(parent)
    assert used_cpu_seconds(file) == pytest.approx(used, rel=ALIKE)


def test_a_process_that_vanishes_leaves_nulls_and_its_cpu_time(tmp_path: Path) -> None:
    file = tmp_path / "trial.parquet"
    with running(BUSY) as busy, watched(file, lambda: [busy.pid]) as sampler:
        used = work(busy)
        await_samples(sampler, 1)
        busy.kill()
        busy.wait()
        await_samples(sampler, 1)
    assert used_cpu_seconds(file) == pytest.approx(used, rel=ALIKE)
    assert rows(file, "cpu_user, memory_bytes", "instance")[-1] == (None, None)


def test_a_process_that_never_was_is_null_and_never_zero(tmp_path: Path) -> None:
    with sample(tmp_path / "trial.parquet", HERE, lambda: [NO_PROCESS]):
        pass
    for found in rows(tmp_path / "trial.parquet", "* exclude (seconds, scope, trial, time)", "instance"):
        assert {*found} == {None}


def test_what_an_instance_cannot_report_is_null(tmp_path: Path) -> None:
    with sample(tmp_path / "trial.parquet", HERE, lambda: [os.getpid()]):
        pass
    columns = "cpu_iowait, cpu_steal, network_receive_bytes, network_send_bytes"
    assert rows(tmp_path / "trial.parquet", columns, "instance") == [(None, None, None, None)] * 2


def test_a_function_that_fails_does_not_fail_the_trial(tmp_path: Path) -> None:
    def broken() -> list[int]:
        raise RuntimeError

    with watched(tmp_path / "trial.parquet", broken) as sampler:
        await_samples(sampler, 3)
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
    sampled = [TelemetryRow(1.0, None, UsageReading(1.0, 1.0)), TelemetryRow(1.0, "trial", UsageReading(1.0, 1.0))]
    tries: dict[int, list[float]] = {1: [], 51: []}
    for _ in range(10):  # in turns, so that other load affects both equally
        for count, used in tries.items():
            began = time.process_time()
            assert write(tmp_path / "trial.parquet", sampled * count, 0.0) == ""
            used.append(time.process_time() - began)
    assert min(tries[51]) < 3 * min(tries[1])
    assert len(rows(tmp_path / "trial.parquet", "seconds", "host")) == 51


class Clock:
    """A clock that the test sets. The sampler waits by it and by that of the machine, and stamps its rows by it."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return time.time()


def test_what_takes_many_files_is_read_once_a_second_and_at_both_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tare.telemetry.sampler.time", clock := Clock())
    file = tmp_path / "trial.parquet"
    with watched(file, lambda: [os.getpid()]) as sampler:
        for moment in (100.0, 100.5, 101.0, 101.5, 102.0):
            clock.now = moment
            await_samples(sampler, 3)
    found = rows(file, "seconds, memory_bytes IS NOT NULL AND pressure_cpu IS NOT NULL", "host")
    counts = [Counter(seconds for seconds, whole in found if whole is wanted) for wanted in (True, False)]
    assert counts[0] == {0.0: 2, 1.0: 1, 2.0: 2}  # the first and the last of the instance are more
    assert all(counts[1][moment] >= 1 for moment in (0.0, 0.5, 1.0, 1.5, 2.0))


def test_the_cpus_of_the_machine_are_reported_one_by_one_and_add_up(tmp_path: Path) -> None:
    file = tmp_path / "trial.parquet"
    with running(BUSY) as busy, watched(file, lambda: [busy.pid]):
        used = work(busy)
    *_, (each, together, count) = rows(file, "list_sum(cpus_user), cpu_user, len(cpus_user)", "host")
    assert together >= 0.2 * used
    assert each == pytest.approx(together, abs=0.02 * count)
    assert rows(file, "cpus_user", "instance")[0] == (None,)


def test_the_time_of_a_sample_is_that_of_the_clock_on_the_wall(tmp_path: Path) -> None:
    before = datetime.now(UTC).replace(tzinfo=None)
    with sample(tmp_path / "trial.parquet", HERE, lambda: [os.getpid()]):
        pass
    ((first,), *_) = rows(tmp_path / "trial.parquet", "time", "host")
    assert before - timedelta(seconds=0.1) <= first <= datetime.now(UTC).replace(tzinfo=None) + timedelta(seconds=0.1)


# --- several instances together ------------------------------------------------------------------------------------


def test_concurrent_instances_share_a_thread_a_file_and_a_machine_series(tmp_path: Path) -> None:
    file = tmp_path / "block.parquet"
    with running(BUSY) as busy, running(BUSY) as idle, run_sampler(file, OFTEN) as sampler:
        with sampler.sample_instance("busy", lambda: [busy.pid]), sampler.sample_instance("idle", lambda: [idle.pid]):
            assert [thread.name for thread in threading.enumerate()].count("tare-sampler") == 1
            worked = work(busy)
        with sampler.sample_instance("later", lambda: [busy.pid]):
            await_samples(sampler, 1)
    assert sampler.failure_reason == ""
    moments = [seconds for (seconds,) in rows(file, "seconds", "host")]
    assert moments == sorted(set(moments))
    assert {trial for (trial,) in rows(file, "trial", "host")} == {None}
    used: dict[str, list[float]] = {"busy": [], "idle": [], "later": []}
    for trial, seconds in rows(file, "trial, cpu_user + cpu_system", "instance"):
        used[trial].append(seconds)
    assert used["busy"][-1] == pytest.approx(worked, rel=ALIKE)
    assert used["idle"][-1] < ALIKE * worked
    assert used["later"][0] == 0.0  # counted from its own beginning
    assert all(values == sorted(values) and len(values) >= 2 for values in used.values())


@dataclass(frozen=True)
class Noted(SamplingBudget):
    """The default budget, with a record of the end of each sample and of the thread's CPU time so far."""

    notes: list[tuple[float, float]] = field(default_factory=list)

    def within_budget_at(self, before: float, used: float, now: float) -> float:
        self.notes.append((now, time.thread_time()))
        return super().within_budget_at(before, used, now)


def test_samples_take_a_small_share_of_a_cpu_for_any_number_of_instances(tmp_path: Path) -> None:
    pace = Noted(0.1)
    with run_sampler(tmp_path / "block.parquet", SamplingBackend(LocalFiles(), pace)) as sampler, ExitStack() as stack:
        for number in range(50):
            stack.enter_context(sampler.sample_instance(f"trial-{number}", lambda: [os.getpid()]))
        wait_until(lambda: len(pace.notes) > 3)
    (_, at_first), *_, (_, before_last), (seconds, _) = pace.notes
    # Each sample waits until those before it are half a percent of the time.
    assert 0 < before_last - at_first <= pace.max_share * seconds


def test_the_file_is_written_while_the_last_instance_is_removed(tmp_path: Path) -> None:
    file = tmp_path / "block.parquet"
    with run_sampler(file, OFTEN) as sampler:
        with ExitStack() as first, sampler.sample_instance("last", lambda: [os.getpid()]):
            first.enter_context(sampler.sample_instance("first", lambda: [os.getpid()]))
            sampler.stop_when_unused()
            first.close()
            await_samples(sampler, 3)  # the other instance is still sampled
        wait_until(file.exists)
    assert sampler.failure_reason == ""
    assert {row.trial for row in sampler.rows} == {None, "first", "last"}
    assert count_samples(file, "last")[0] == sum(row.trial == "last" for row in sampler.rows)
    assert count_samples(file, "last")[0] >= 4


# --- summaries -----------------------------------------------------------------------------------------------------


def between(start: HostTotals, end: HostTotals) -> Telemetry:
    return Telemetry(start, end)


def captured_totals(name: str, swapped_in_pages: int = 0, throttled: int | None = None) -> HostTotals:
    text = captured(name)
    return HostTotals(parse_cpu_total(text), swapped_in_pages, throttled)


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
    assert between(captured_totals("stat", 5), captured_totals("stat", 5)).cautions() == ()

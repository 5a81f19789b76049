"""The sampler: it writes what host and instance use during a trial into one Parquet file.

It samples this machine ten times a second, and a machine over SSH every two seconds at most, at the beginning and at
the end. Over SSH, a sample of 21 processes took 31 ms, with 14 ms of CPU time on the machine. Slower samples are rarer:
they never take more than a hundredth of the time. A process that begins and ends between two samples counts only if its
parent belongs to the instance, too: over SSH, the CPU time is a lower bound.

Each sample gives two rows, one for each scope. A value that could not be read, or that the kernel does not count for a
scope, is NULL, never 0. Counters are cumulative from the first sample, so a missing sample loses nothing; a rate is the
difference of two rows.

| column | type | host | instance |
| --- | --- | --- | --- |
| `seconds` | double | since the first sample, monotonic clock | the same |
| `scope` | text | `host` | `instance` |
| `cpu_user` | double | seconds of all CPUs, guests' and niced too | of its processes, children waited for too |
| `cpu_system` | double | seconds, interrupts too | likewise |
| `cpu_iowait` | double | seconds | NULL: the kernel does not say by default |
| `cpu_steal` | double | seconds | NULL: nobody can tell whose time was stolen |
| `memory_bytes` | bigint | memory that cannot be had (MemTotal - MemAvailable) | sum of resident set sizes |
| `disk_read_bytes`, `disk_write_bytes` | bigint | whole disks | caused by its processes, without cache hits |
| `network_receive_bytes`, `network_send_bytes` | bigint | interfaces with hardware behind them | all but the loopback \
of the network namespace of its first process that has another one than tare; NULL if none has |

Resident set sizes count shared pages more than once. The footprint of a trial is exact, but takes too long to read ten
times a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tare.hosts.process import held_back
from tare.model import Caution
from tare.telemetry.files import Files, LocalFiles
from tare.telemetry.parsers import STEAL_LIMIT, CpuTimes
from tare.telemetry.readings import HostReader, InstanceReader, Reading, Totals, read_totals

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_JOIN_SECONDS = 5.0  # the trial goes on without a sample that takes longer


@dataclass(frozen=True)
class Sample:
    """What host and instance had used at a moment; `seconds` is since the first sample."""

    seconds: float
    host: Reading
    instance: Reading


class Telemetry:
    """The samples of a trial. Every summary is None before the end of the `sample` block."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self.start: Totals | None = None
        self.end: Totals | None = None
        self.trouble = ""

    @property
    def cpu_seconds(self) -> float | None:
        """CPU time of the instance in seconds, user and system; None if it could not be read."""
        return cpu_seconds([sample.instance for sample in self.samples]) if self.end else None

    @property
    def steal_share(self) -> float | None:
        """Share of the wanted CPU time, on all CPUs, that the hypervisor gave to others; 0 to 1."""
        if not (self.start and self.end and self.start.together and self.end.together):
            return None
        return self.end.together.since(self.start.together).steal_share

    def busy_share(self, cpus: Sequence[int]) -> float | None:
        """Share of the time of these CPUs that was not idle, including stolen time; 0 to 1, None if unknown."""
        spent = self._spent(cpus)
        return share(sum(each.used_seconds + each.steal_seconds for each in spent), spent)

    def client_cpu_share(self, cpus: Sequence[int]) -> float | None:
        """Share of the time of the client's CPUs in which something ran, without stolen time; 0 to 1 or None."""
        spent = self._spent(cpus)
        return share(sum(each.used_seconds for each in spent), spent)

    def cautions(self) -> tuple[Caution, ...]:
        """Give the trial's cautions about events on the machine: steal, swap, throttling, missing telemetry."""
        doubts = [steal_caution(self.steal_share)]
        if self.start and self.end:
            doubts.append(swap_caution(self.start.swapped_in_pages, self.end.swapped_in_pages))
            doubts.append(throttling_caution(self.start.throttled, self.end.throttled))
            if not (self.start.together and self.end.together):
                doubts.append(
                    Caution("telemetry", "the machine's counters could not be read at the beginning or the end")
                )
        if self.trouble:
            doubts.append(Caution("telemetry", f"the telemetry of this trial was not kept: {self.trouble}"))
        return tuple(caution for caution in doubts if caution)

    def _spent(self, cpus: Sequence[int]) -> list[CpuTimes]:
        if not (self.start and self.end) or not all(cpu in self.start.cpus and cpu in self.end.cpus for cpu in cpus):
            return []
        return [self.end.cpus[cpu].since(self.start.cpus[cpu]) for cpu in cpus]


def cpu_seconds(readings: Sequence[Reading]) -> float | None:
    """Give the CPU time of the last reading that has one."""
    for each in reversed(readings):
        if each.cpu_user is not None and each.cpu_system is not None:
            return each.cpu_user + each.cpu_system
    return None


def share(used_seconds: float, spent: Sequence[CpuTimes]) -> float | None:
    """Give used time as a share of the total time of some CPUs, 0 to 1; None if no time has passed."""
    total_seconds = sum(each.total_seconds for each in spent)
    return min(1.0, max(0.0, used_seconds / total_seconds)) if total_seconds > 0 else None


def steal_caution(steal_share: float | None) -> Caution | None:
    """Give a caution if the trial lost more than 1 % of its CPU time to others."""
    if steal_share is None or steal_share <= STEAL_LIMIT:
        return None
    return Caution("steal", f"the hypervisor gave {steal_share:.1%} of the CPU time to others while the trial ran")


def swap_caution(pages_before: int | None, pages_after: int | None) -> Caution | None:
    """Give a caution if pages came back from swap."""
    if pages_before is None or pages_after is None or pages_after <= pages_before:
        return None
    return Caution("swap", f"{pages_after - pages_before} pages came back from swap while the trial ran")


def throttling_caution(count_before: int | None, count_after: int | None) -> Caution | None:
    """Give a caution if CPUs were slowed down to cool."""
    if count_before is None or count_after is None or count_after <= count_before:
        return None
    times = count_after - count_before
    return Caution("throttling", f"CPU cores were slowed down to cool {times} times while the trial ran")


@dataclass(frozen=True)
class Pace:
    """How often samples are taken: the seconds from one to the next, and the share of the time that they may use."""

    period_seconds: float = 0.1
    most_share: float = 1.0

    def after(self, began: float, ended: float) -> float:
        """Give the due time of the sample after one with these times, all in seconds since the first.

        It is a multiple of the period. Late samples are skipped, so that they never pile up.
        """
        earliest = max(ended, began + (ended - began) / self.most_share)
        return (earliest // self.period_seconds + 1) * self.period_seconds


FAR = Pace(2.0, 0.01)
BESIDE = Pace(0.5, 0.002)  # of an instance beside others, all of which are sampled


@contextmanager
def sample(
    target: Path, processes: Callable[[], Sequence[int]], files: Files | None = None, pace: Pace | None = None
) -> Iterator[Telemetry]:
    """Sample host and instance until the block ends, then write the Parquet file `target`.

    The first and the last sample are at the beginning and the end of the block. `processes` gives the numbers of the
    instance's processes on its host, `files` that host's files. No failure here fails the trial: a failed reading is
    NULL; a file that cannot be written, or a sample that takes over 5 s, is a caution.
    """
    sampler = _Sampler(files or LocalFiles(), processes)
    telemetry, done = sampler.telemetry, threading.Event()
    telemetry.start = read_totals(sampler.files)
    sampler.keep()
    thread = threading.Thread(target=sampler.work, args=(done, pace or Pace()), name="tare-sampler", daemon=True)
    thread.start()
    try:
        yield telemetry
    finally:
        done.set()
        thread.join(_JOIN_SECONDS)
        if thread.is_alive():
            telemetry.trouble = f"a sample took longer than {_JOIN_SECONDS:.0f} s"
        else:
            telemetry.trouble = write(target, telemetry.samples)


class _Sampler:
    """Takes the samples of one trial."""

    def __init__(self, files: Files, processes: Callable[[], Sequence[int]]) -> None:
        self.telemetry = Telemetry()
        self.files = files
        self._processes = processes
        asked = time.monotonic()
        self.look()
        self._began = self._moment
        self._took_seconds = self._began - asked
        self._host, self._instance = HostReader(files), InstanceReader(files)
        self._before = self._host.read()

    def look(self) -> None:
        """List the processes, and fetch their files and the host's."""
        try:
            self._pids = tuple(self._processes())
        except Exception:  # noqa: BLE001 - a plug-in's function must not end the sampler: this sample is missing
            self._pids = ()
        self.files.look(self._pids)
        self._moment = time.monotonic()

    def keep(self) -> None:
        """Make a sample of the last `look`."""
        host = since(self._before, self._host.read())
        self.telemetry.samples.append(Sample(self._moment - self._began, host, self._instance.read(self._pids)))

    def work(self, done: threading.Event, pace: Pace) -> None:
        """Take samples at that pace, and a last one when `done` is set."""
        due_seconds = pace.after(-self._took_seconds, 0.0)
        while not done.wait(max(0.0, self._began + due_seconds - time.monotonic())):
            asked = time.monotonic()
            self.look()
            self.keep()
            due_seconds = pace.after(asked - self._began, time.monotonic() - self._began)
        self.look()
        self.telemetry.end = read_totals(self.files)
        self.keep()


def since(before: Reading, now: Reading) -> Reading:
    """Give what was used between two readings; memory, which is no counter, is that of the second."""

    def used(name: str) -> float | None:
        first, last = getattr(before, name), getattr(now, name)
        return None if first is None or last is None else last - first

    counters = {field.name: used(field.name) for field in fields(Reading) if field.name != "memory_bytes"}
    return Reading(memory_bytes=now.memory_bytes, **counters)


def write(target: Path, samples: Sequence[Sample]) -> str:
    """Write samples to a Parquet file, whole or not at all; gives the error, or ""."""
    import duckdb  # noqa: PLC0415 - a fifth of a second that only a run has to wait

    partial = target.with_name(f"{target.name}.partial")
    try:
        # DuckDB would turn Ctrl-C into an error of its own, and the run would end as if tare had a bug.
        with held_back():
            partial.unlink(missing_ok=True)  # also a link that a stranger has put there
            connection = _database()
            connection.register("samples", _columns(samples))
            connection.table("samples").write_parquet(str(partial), compression="zstd")
            connection.unregister("samples")
            partial.replace(target)
    except (duckdb.Error, OSError) as error:
        partial.unlink(missing_ok=True)
        return str(error).splitlines()[0]
    return ""


@cache
def _database() -> DuckDBPyConnection:
    """Give an empty database in memory; it is kept, because making one takes 15 ms."""
    import duckdb  # noqa: PLC0415 - see write

    return duckdb.connect(config={"threads": 1})


def _columns(samples: Sequence[Sample]) -> dict[str, Any]:
    """Give the table's columns as arrays, the quickest way into DuckDB, one element a row.

    DuckDB reads a masked array as a column with NULLs.
    """
    scopes = ("host", "instance")
    columns: dict[str, Any] = {
        "seconds": np.array([each.seconds for each in samples for _ in scopes]),
        "scope": np.array([scope for _ in samples for scope in scopes], dtype=object),
    }
    rows = [astuple(reading) for each in samples for reading in (each.host, each.instance)]
    for field, values in zip(fields(Reading), zip(*rows, strict=True), strict=True):
        missing = [value is None for value in values]
        kind = np.int64 if field.name.endswith("_bytes") else np.float64
        columns[field.name] = np.ma.MaskedArray(np.array([value or 0 for value in values], dtype=kind), missing)
    return columns

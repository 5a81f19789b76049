"""The sampler: it writes what a machine and the instances on it use into one Parquet file.

One thread samples all that is alive together: a trial that is alone on the machine, or a block whose stacks take
turns. It samples this machine up to ten times a second, less often where that would take more than half a percent of a
CPU; a machine over SSH every two seconds at most, and for a hundredth of the time at most. Over SSH, a sample of 21
processes took 31 ms, with 14 ms of CPU time on the machine. An instance is also sampled at its beginning and its end. A
process that begins and ends between two samples counts only if its parent belongs to the instance, too: over SSH, the
CPU time is a lower bound.

Each sample gives one row of the machine and one of each instance. A value that could not be read, or that the kernel
does not count for a scope, is NULL, never 0. Counters are cumulative from the first row of the same scope and trial, so
a missing sample loses nothing; a rate is the difference of two rows.

| column | type | host | instance |
| --- | --- | --- | --- |
| `seconds` | double | since the first sample, monotonic clock | the same |
| `scope` | text | `host` | `instance` |
| `trial` | text | NULL | its trial |
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
from dataclasses import dataclass, field, fields
from pathlib import Path

from tare.contracts import Host
from tare.hosts.local import LocalHost
from tare.model import Caution
from tare.telemetry.files import FarFiles, Files, LocalFiles
from tare.telemetry.parsers import STEAL_LIMIT
from tare.telemetry.readings import HostReader, InstanceReader, Reading, Totals, read_totals
from tare.telemetry.series import Row, write

_MOST_SECONDS = 5.0  # the trial goes on without a sample that takes longer
_SLOW = f"a sample took longer than {_MOST_SECONDS:.0f} s"


@dataclass
class Telemetry:
    """What happened on the machine from the beginning of a trial to its end.

    `start` and `end` are known after them. `trouble` tells why its rows were not kept.
    """

    start: Totals | None = None
    end: Totals | None = None
    trouble: str = ""

    @property
    def steal_share(self) -> float | None:
        """Share of the wanted CPU time, on all CPUs, that the hypervisor gave to others; 0 to 1."""
        if not (self.start and self.end and self.start.together and self.end.together):
            return None
        return self.end.together.since(self.start.together).steal_share

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
            doubts.append(not_kept(self.trouble))
        return tuple(caution for caution in doubts if caution)


def not_kept(trouble: str) -> Caution:
    """Give the caution of a trial whose rows were not kept."""
    return Caution("telemetry", f"the telemetry of this trial was not kept: {trouble}")


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
    """How often samples are taken: the seconds from one to the next, and the share of the time that they may use.

    What a sample uses is told by `clock`: by default the CPU time of the thread that takes it.
    """

    period_seconds: float = 0.1
    most_share: float = 0.005
    clock: Callable[[], float] = time.thread_time

    def after(self, used: float, now: float) -> float:
        """Give the due time of the sample after one that has used some seconds and has ended now.

        It is a multiple of the period. Late samples are skipped, so that they never pile up.
        """
        earliest = now - used + used / self.most_share
        return (max(earliest, now) // self.period_seconds + 1) * self.period_seconds


FAR = Pace(2.0, 0.01, time.monotonic)


@dataclass(frozen=True)
class Way:
    """How a machine is sampled."""

    files: Files
    pace: Pace


def way_to(host: Host) -> Way:
    """Give how a host is sampled: this machine, or one over SSH."""
    return Way(LocalFiles(), Pace()) if isinstance(host, LocalHost) else Way(FarFiles(host), FAR)


@dataclass(eq=False)
class _Instance:
    """An instance that is sampled. `reader` is None before its first sample."""

    trial: str
    processes: Callable[[], Sequence[int]]
    reader: InstanceReader | None = None
    pids: tuple[int, ...] = ()

    def look(self) -> None:
        """List its processes."""
        try:
            self.pids = tuple(self.processes())
        except Exception:  # noqa: BLE001 - a plug-in's function must not end the sampler: this sample is missing
            self.pids = ()

    def read(self, files: Files) -> Reading:
        """Read what they have used since the first sample."""
        self.reader = self.reader or InstanceReader(files)
        return self.reader.read(self.pids)


@dataclass
class Sampler:
    """Samples a machine, and the instances on it while they are watched; see `sampling`."""

    way: Way
    rows: list[Row] = field(default_factory=list)
    trouble: str = ""  # why they were not kept; known at the end
    _host: HostReader | None = None
    _before: Reading = field(default_factory=Reading)
    _instances: list[_Instance] = field(default_factory=list)
    _free: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def watching(self, trial: str, processes: Callable[[], Sequence[int]]) -> Iterator[Telemetry]:
        """Sample a trial's instance until the block ends, also right at its beginning and its end.

        `processes` gives the numbers of the instance's processes on the machine. No failure here fails the trial: a
        failed reading is NULL; a sample that takes over 5 s is a caution.
        """
        telemetry, instance = Telemetry(), _Instance(trial, processes)
        telemetry.start = self._sample_alone(instance)
        self._instances.append(instance)
        try:
            yield telemetry
        finally:
            self._instances.remove(instance)
            telemetry.end = self._sample_alone(instance)
            telemetry.trouble = "" if telemetry.start and telemetry.end else _SLOW

    def work(self, done: threading.Event) -> None:
        """Sample all at that pace, until `done` is set."""
        began = time.monotonic()
        due_seconds = self.way.pace.after(0.0, 0.0)
        while not done.wait(max(0.0, began + due_seconds - time.monotonic())):
            before = self.way.pace.clock()
            self.sample_all()
            used = self.way.pace.clock() - before
            due_seconds = self.way.pace.after(used, time.monotonic() - began)

    def sample_all(self) -> None:
        """Sample the machine and all instances that are watched."""
        with self._free:
            self._sample(tuple(self._instances))

    def _sample_alone(self, instance: _Instance) -> Totals | None:
        """Sample one instance, and read the machine's totals; None if the other thread's sample takes too long."""
        if not self._free.acquire(timeout=_MOST_SECONDS):
            return None
        try:
            self._sample((instance,))
            return read_totals(self.way.files)
        finally:
            self._free.release()

    def _sample(self, instances: Sequence[_Instance]) -> None:
        """Add a row of the machine, and one of each of these instances."""
        for each in instances:
            each.look()
        self.way.files.look([pid for each in instances for pid in each.pids])
        seconds = time.monotonic()
        if self._host is None:
            self._host = HostReader(self.way.files)
            self._before = self._host.read()
        self.rows.append(Row(seconds, None, since(self._before, self._host.read())))
        self.rows += [Row(seconds, each.trial, each.read(self.way.files)) for each in instances]


@contextmanager
def sampling(target: Path, way: Way) -> Iterator[Sampler]:
    """Sample a machine until the block ends, then write the Parquet file `target`.

    A file that cannot be written is the sampler's `trouble`.
    """
    sampler, done = Sampler(way), threading.Event()
    thread = threading.Thread(target=sampler.work, args=(done,), name="tare-sampler", daemon=True)
    thread.start()
    try:
        yield sampler
    finally:
        done.set()
        thread.join(_MOST_SECONDS)
        if thread.is_alive():
            sampler.trouble = _SLOW
        elif sampler.rows:  # where no instance has started, there may be none
            sampler.trouble = write(target, sampler.rows)


@contextmanager
def sample(target: Path, way: Way, processes: Callable[[], Sequence[int]]) -> Iterator[Telemetry]:
    """Sample a machine and the instance of one trial, which has the name of the file `target`."""
    with sampling(target, way) as sampler, sampler.watching(target.stem, processes) as telemetry:
        yield telemetry
    telemetry.trouble = telemetry.trouble or sampler.trouble


def since(before: Reading, now: Reading) -> Reading:
    """Give what was used between two readings; memory, which is no counter, is that of the second."""

    def used(name: str) -> float | None:
        first, last = getattr(before, name), getattr(now, name)
        return None if first is None or last is None else last - first

    counters = {field.name: used(field.name) for field in fields(Reading) if field.name != "memory_bytes"}
    return Reading(memory_bytes=now.memory_bytes, **counters)

"""The sampler: it writes what a machine and the instances on it use into one Parquet file.

One thread samples all that is alive together: a trial that is alone on the machine, or a block whose stacks take
turns. It samples this machine ten times a second unless asked otherwise, less often where that would take more than
half a percent of a CPU; a machine over SSH every two seconds at most, and for a hundredth of the time at most. Over
SSH, a sample of 21 processes took 31 ms, with 14 ms of CPU time on the machine. An instance is also sampled at its
beginning and its end. A process that begins and ends between two samples counts if the instance has a control group of
its own, or if its parent belongs to the instance, too: over SSH, the CPU time is a lower bound.

Each sample gives one row of the machine and one of each instance. What takes more files is read once a second, in a
whole sample; so are the first and the last of an instance. A value that was not read, or that the kernel does not count
for a scope, is NULL, never 0. Counters are cumulative from the first row of the same scope and trial, so a missing
sample loses nothing; a rate is the difference of two rows. docs/data.md lists the columns.

Resident set sizes count shared pages more than once. The footprint of a trial is exact, but takes too long to read ten
times a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.hosts.process import defer_signals
from tare.model.trial import Caution
from tare.telemetry.host_reader import HostReader, HostTotals, UsageReading, read_totals
from tare.telemetry.instance_reader import InstanceReader
from tare.telemetry.kernel_files import Files, LocalFiles, RemoteFiles
from tare.telemetry.parquet import TelemetryRow, write
from tare.telemetry.procfs import STEAL_LIMIT

_MAX_SAMPLE_SECONDS = 5.0  # the trial goes on without a sample that takes longer
_WHOLE_INTERVAL_SECONDS = 1.0  # from one whole sample to the next
_SLOW_REASON = f"a sample took longer than {_MAX_SAMPLE_SECONDS:.0f} s"


@dataclass
class Telemetry:
    """What happened on the machine from the beginning of a trial to its end.

    `start` and `stop` are known after them. `failure_reason` is the reason if its rows were not kept.
    """

    start: HostTotals | None = None
    end: HostTotals | None = None
    failure_reason: str = ""

    @property
    def steal_share(self) -> float | None:
        """Share of the wanted CPU time, on all CPUs, that the hypervisor gave to others; 0 to 1."""
        if not (self.start and self.end and self.start.all_cpus and self.end.all_cpus):
            return None
        return self.end.all_cpus.since(self.start.all_cpus).steal_share

    def cautions(self) -> tuple[Caution, ...]:
        """Return the trial's cautions about events on the machine: steal, swap, throttling, missing telemetry."""
        return tuple(self._find_cautions())

    def _find_cautions(self) -> Iterator[Caution]:
        if (share := self.steal_share) is not None and share > STEAL_LIMIT:
            yield Caution("steal", f"the hypervisor gave {share:.1%} of the CPU time to others while the trial ran")
        if self.start and self.end:
            if pages := _increase(self.start.swapped_in_pages, self.end.swapped_in_pages):
                yield Caution("swap", f"{pages} pages came back from swap while the trial ran")
            if times := _increase(self.start.throttled, self.end.throttled):
                text = f"CPU cores were slowed down to cool {times} times while the trial ran"
                yield Caution("throttling", text)
            if not (self.start.all_cpus and self.end.all_cpus):
                what = "the machine's counters could not be read at the beginning or the end"
                yield Caution("telemetry", what)
        if self.failure_reason:
            yield lost_telemetry_caution(self.failure_reason)


def _increase(before: int | None, after: int | None) -> int:
    """Return by how much a count has grown; 0 where it is unknown."""
    return 0 if before is None or after is None else max(0, after - before)


def lost_telemetry_caution(failure_reason: str) -> Caution:
    """Return the caution of a trial whose rows were not kept."""
    return Caution("telemetry", f"the telemetry of this trial was not kept: {failure_reason}")


@dataclass(frozen=True)
class SamplingBudget:
    """How often samples are taken: the seconds from one to the next, and the share of the time that they may use.

    `clock` measures what a sample uses: by default the CPU time of the thread that takes it.
    """

    interval_seconds: float
    max_share: float = 0.005
    clock: Callable[[], float] = time.thread_time

    def within_budget_at(self, before: float, used: float, now: float) -> float:
        """Return the moment at which what was used is that share of the time, from that of the sample before.

        What the last second left over may be used: whole samples take more than the others.
        """
        return max(before, now - _WHOLE_INTERVAL_SECONDS) + used / self.max_share

    def next_sample_at(self, earliest: float, now: float) -> float:
        """Return the due time of the next sample, a multiple of the period: late ones are skipped."""
        return (max(earliest, now) // self.interval_seconds + 1) * self.interval_seconds


REMOTE_BUDGET = SamplingBudget(2.0, 0.01, time.monotonic)


@dataclass(frozen=True)
class SamplingBackend:
    """How a machine is sampled."""

    files: Files
    budget: SamplingBudget


def backend_for(host: Host, interval_seconds: float) -> SamplingBackend:
    """Return how a host is sampled: this machine, or one over SSH."""
    if isinstance(host, LocalHost):
        return SamplingBackend(LocalFiles(), SamplingBudget(interval_seconds))
    return SamplingBackend(
        RemoteFiles(host),
        SamplingBudget(
            max(interval_seconds, REMOTE_BUDGET.interval_seconds), REMOTE_BUDGET.max_share, REMOTE_BUDGET.clock
        ),
    )


class _SampledInstance:
    """An instance that is sampled."""

    def __init__(self, trial: str, processes: Callable[[], Sequence[int]], files: Files) -> None:
        self.trial = trial
        self.pids: tuple[int, ...] = ()
        self._processes = processes
        self._files = files.for_reader()
        self._reader: InstanceReader | None = None  # before its first sample

    def update_pids(self, whole: bool) -> None:
        """List its processes, where that is needed."""
        if whole or self._reader is None or not self._reader.has_group:
            self.pids = self._list_processes()

    def read(self, whole: bool) -> UsageReading:
        """Read what they have used since the first sample."""
        self._reader = self._reader or InstanceReader(self._files, self._list_processes)
        return self._reader.read(self.pids, whole)

    def close(self) -> None:
        """Let go what is open of it."""
        self._files.close()

    def _list_processes(self) -> tuple[int, ...]:
        try:
            return tuple(self._processes())
        except Exception:  # noqa: BLE001 - a plug-in's function must not end the sampler: this sample is missing
            return ()


class Sampler:
    """Samples a machine, and the instances on it while they are watched, and writes a Parquet file at its end.

    `failure_reason` is the reason if the file was not written, known after `await_file`.
    """

    def __init__(self, target: Path, backend: SamplingBackend) -> None:
        self.rows: list[TelemetryRow] = []
        self.failure_reason = ""
        self._target, self._backend = target, backend
        self._clock_began = time.time() - time.monotonic()  # in seconds since 1970
        self._host: HostReader | None = None
        self._last_whole_at = -_WHOLE_INTERVAL_SECONDS
        self._instances: list[_SampledInstance] = []
        self._lock = threading.Lock()
        self._stop_requested, self._sampling_ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="tare-sampler", daemon=True)
        self._thread.start()

    @contextmanager
    def sample_instance(self, trial: str, processes: Callable[[], Sequence[int]]) -> Iterator[Telemetry]:
        """Sample a trial's instance until the block ends, also right at its beginning and its end.

        `processes` gives the numbers of the instance's processes on the machine. No failure here fails the trial: a
        failed reading is NULL; a sample that takes over 5 s is a caution.
        """
        telemetry, instance = Telemetry(), _SampledInstance(trial, processes, self._backend.files)
        telemetry.start = self._sample_one(instance)
        self._instances.append(instance)
        try:
            yield telemetry
        finally:
            self._instances.remove(instance)
            telemetry.end = self._sample_one(instance)
            instance.close()
            telemetry.failure_reason = "" if telemetry.start and telemetry.end else _SLOW_REASON

    def stop(self) -> None:
        """Take no more samples. The file is written meanwhile."""
        self._stop_requested.set()

    def await_file(self) -> None:
        """Wait until the file is written, whole or not at all."""
        with defer_signals():
            if self._sampling_ended.wait(_MAX_SAMPLE_SECONDS):
                self._thread.join()
            else:
                self.failure_reason = _SLOW_REASON

    def sample_all(self) -> None:
        """Sample the machine and all instances that are watched."""
        with self._lock:
            whole = (
                time.monotonic() - self._last_whole_at
                > _WHOLE_INTERVAL_SECONDS - self._backend.budget.interval_seconds / 2
            )
            self._sample(tuple(self._instances), whole)
            if whole:
                self._last_whole_at = self.rows[-1].seconds

    def _run(self) -> None:
        """Sample all until the end, then write the file."""
        try:
            self._sample_periodically()
        finally:
            self._backend.files.close()
            self._sampling_ended.set()
            # Where no instance has started, there may be no rows.
            self.failure_reason = write(self._target, self.rows, self._clock_began) if self.rows else ""

    def _sample_periodically(self) -> None:
        began = time.monotonic()
        pace, even_seconds, due_seconds = self._backend.budget, 0.0, self._backend.budget.interval_seconds
        last = pace.clock()
        while not self._stop_requested.wait(max(0.0, began + due_seconds - time.monotonic())):
            if pace.clock is time.monotonic:  # this clock also counts waiting, the thread's does not
                last = pace.clock()
            self.sample_all()
            now, used, last = time.monotonic() - began, pace.clock() - last, pace.clock()
            even_seconds = pace.within_budget_at(even_seconds, used, now)
            due_seconds = pace.next_sample_at(even_seconds, now)

    def _sample_one(self, instance: _SampledInstance) -> HostTotals | None:
        """Sample one instance, and read the machine's totals; None if the other thread's sample takes too long."""
        if not self._lock.acquire(timeout=_MAX_SAMPLE_SECONDS):
            return None
        try:
            self._sample((instance,), whole=True)
            return read_totals(self._backend.files)
        finally:
            self._lock.release()

    def _sample(self, instances: Sequence[_SampledInstance], whole: bool) -> None:
        """Add a row of the machine, and one of each of these instances."""
        for each in instances:
            each.update_pids(whole)
        self._backend.files.begin_sample([pid for each in instances for pid in each.pids])
        seconds = time.monotonic()
        self._host = self._host or HostReader(self._backend.files)
        self.rows.append(TelemetryRow(seconds, None, self._host.read(whole)))
        self.rows += [TelemetryRow(seconds, each.trial, each.read(whole)) for each in instances]


@contextmanager
def run_sampler(target: Path, backend: SamplingBackend) -> Iterator[Sampler]:
    """Sample a machine until the block ends, then write the Parquet file `target`."""
    sampler = Sampler(target, backend)
    try:
        yield sampler
    finally:
        sampler.stop()
        sampler.await_file()

"""Sampler: writes the resource usage of a machine and of the instances on it to one Parquet file.

One thread samples all instances that are alive at the same time: that of one trial, or those of a block whose stacks
take turns. The default sampling interval of this machine is a tenth of a second, and is longer if sampling would take
more than half a percent of a CPU. A machine over SSH is sampled at most every two seconds, and for at most a hundredth
of the time: a sample of 21 processes took 31 ms, with 14 ms of CPU time on the machine. An instance is also sampled at
its start and its end. A process that starts and ends between two samples counts if the instance has a dedicated control
group, or if its parent belongs to the instance, too. Over SSH, the CPU time is a lower bound.

A sample gives one row of the machine and one row per instance. A whole sample, once a second and at the start and the
end of an instance, includes the values for which more files must be read. A value that was not read, or that the kernel
does not count for a scope, is NULL, never 0. Counters are cumulative from the first row of the same scope and trial, so
that a missing sample loses nothing. A rate is the difference of two rows. docs/data.md lists the columns.

Resident set sizes count shared pages more than once. The footprint of a trial is exact, but reading it takes too long
to do so ten times a second.
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
from tare.telemetry.parquet import TelemetryRow, prepare_writing, write
from tare.telemetry.procfs import STEAL_LIMIT

_MAX_SAMPLE_SECONDS = 5.0  # a trial does not wait longer for a sample
_WHOLE_INTERVAL_SECONDS = 1.0  # between whole samples
_SLOW_REASON = f"a sample took longer than {_MAX_SAMPLE_SECONDS:.0f} s"


@dataclass
class Telemetry:
    """Counters of the machine at the start and the end of a trial.

    `start` and `end` are None until they are read, and if that fails. `failure_reason` is the reason why rows are
    missing in the file, "" if the telemetry is complete.
    """

    start: HostTotals | None = None
    end: HostTotals | None = None
    failure_reason: str = ""

    @property
    def steal_share(self) -> float | None:
        """Steal time of all CPUs as a share of used and steal time, 0 to 1; None if unknown."""
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
    """Return the increase of a count; 0 if it is unknown."""
    return 0 if before is None or after is None else max(0, after - before)


def lost_telemetry_caution(failure_reason: str) -> Caution:
    """Return the caution about a trial whose rows are missing in the file."""
    return Caution("telemetry", f"the telemetry of this trial was lost: {failure_reason}")


@dataclass(frozen=True)
class SamplingBudget:
    """Budget of a sampler: its sampling interval, and the share of the time that samples may use.

    `clock` measures the usage, by default as the CPU time of the sampler's thread.
    """

    interval_seconds: float
    max_share: float = 0.005
    clock: Callable[[], float] = time.thread_time

    def within_budget_at(self, before: float, used: float, now: float) -> float:
        """Return the earliest time of the next sample that keeps the share within `max_share`.

        `before` is the result for the previous sample, `used` the seconds that the last sample used. Time that the last
        second did not use may be used later, because whole samples take longer than others.
        """
        return max(before, now - _WHOLE_INTERVAL_SECONDS) + used / self.max_share

    def next_sample_at(self, earliest: float, now: float) -> float:
        """Return the due time of the next sample, a multiple of the interval: missed samples are skipped."""
        return (max(earliest, now) // self.interval_seconds + 1) * self.interval_seconds


REMOTE_BUDGET = SamplingBudget(2.0, 0.01, time.monotonic)


@dataclass(frozen=True)
class SamplingBackend:
    """Sampling backend of a machine: its files, and the budget."""

    files: Files
    budget: SamplingBudget


def backend_for(host: Host, interval_seconds: float) -> SamplingBackend:
    """Return the sampling backend for this machine or for a machine over SSH."""
    if isinstance(host, LocalHost):
        return SamplingBackend(LocalFiles(), SamplingBudget(interval_seconds))
    return SamplingBackend(
        RemoteFiles(host),
        SamplingBudget(
            max(interval_seconds, REMOTE_BUDGET.interval_seconds), REMOTE_BUDGET.max_share, REMOTE_BUDGET.clock
        ),
    )


class _SampledInstance:
    """Instance that the sampler reads."""

    def __init__(self, trial: str, processes: Callable[[], Sequence[int]], files: Files) -> None:
        self.trial = trial
        self.pids: tuple[int, ...] = ()
        self._processes = processes
        self._files = files.for_reader()
        self._reader: InstanceReader | None = None  # before its first sample

    def update_pids(self, whole: bool) -> None:
        """Update the list of the instance's processes if the next reading needs it."""
        if whole or self._reader is None or not self._reader.has_group:
            self.pids = self._list_processes()

    def read(self, whole: bool) -> UsageReading:
        """Return the instance's resource usage since the first sample."""
        self._reader = self._reader or InstanceReader(self._files, self._list_processes)
        return self._reader.read(self.pids, whole)

    def close(self) -> None:
        self._files.close()

    def _list_processes(self) -> tuple[int, ...]:
        try:
            return tuple(self._processes())
        except Exception:  # noqa: BLE001 - a plug-in's function must not end the sampler: this sample is missing
            return ()


class Sampler:
    """Thread that samples a machine and its registered instances, and writes a Parquet file at the end.

    `failure_reason` is known after `await_file`: the reason if the file was not written, else "". With
    `prepares_file`, the thread loads DuckDB before its first sample, so that nobody has to wait for that at the end.
    """

    def __init__(self, target: Path, backend: SamplingBackend, *, prepares_file: bool = False) -> None:
        self.rows: list[TelemetryRow] = []
        self.failure_reason = ""
        self._target, self._backend = target, backend
        self._clock_began = time.time() - time.monotonic()  # in seconds since 1970
        self._host: HostReader | None = None
        self._last_whole_at = -_WHOLE_INTERVAL_SECONDS
        self._instances: list[_SampledInstance] = []
        self._lock = threading.Lock()
        self._prepares_file = prepares_file
        self._stops_when_unused = False
        self._stop_requested, self._sampling_ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="tare-sampler", daemon=True)
        self._thread.start()

    @contextmanager
    def sample_instance(self, trial: str, processes: Callable[[], Sequence[int]]) -> Iterator[Telemetry]:
        """Context manager: sample a trial's instance, also at the start and the end of the block.

        `processes` returns the PIDs of the instance's processes on the machine. No failure here fails the trial: a
        failed reading is NULL in the file, and a sample that takes more than 5 s becomes a caution.
        """
        telemetry, instance = Telemetry(), _SampledInstance(trial, processes, self._backend.files)
        telemetry.start = self._sample_one(instance)
        self._instances.append(instance)
        try:
            yield telemetry
        finally:
            self._instances.remove(instance)
            telemetry.end = self._sample_one(instance)
            if self._stops_when_unused and not self._instances:
                self.stop()
            instance.close()
            telemetry.failure_reason = "" if telemetry.start and telemetry.end else _SLOW_REASON

    def stop(self) -> None:
        """Stop sampling, without waiting for the file, which the thread writes next."""
        self._stop_requested.set()

    def stop_when_unused(self) -> None:
        """Stop once no instance is sampled: then the file is written while the last instance is removed."""
        self._stops_when_unused = True
        if not self._instances:
            self.stop()

    def await_file(self) -> None:
        """Wait until the file is written; it is written atomically."""
        with defer_signals():  # an interrupt would end the daemon thread before the file is complete
            if self._sampling_ended.wait(_MAX_SAMPLE_SECONDS):
                self._thread.join()
            else:
                self.failure_reason = _SLOW_REASON

    def sample_all(self) -> None:
        """Sample the machine and all registered instances."""
        with self._lock:
            whole = (
                time.monotonic() - self._last_whole_at
                > _WHOLE_INTERVAL_SECONDS - self._backend.budget.interval_seconds / 2
            )
            self._sample(tuple(self._instances), whole)
            if whole:
                self._last_whole_at = self.rows[-1].seconds

    def _run(self) -> None:
        """Sample until `stop` is called, then write the file."""
        try:
            if self._prepares_file:
                prepare_writing()
            self._sample_periodically()
        finally:
            self._backend.files.close()
            self._sampling_ended.set()
            # There are no rows if no instance has started.
            self.failure_reason = write(self._target, self.rows, self._clock_began) if self.rows else ""

    def _sample_periodically(self) -> None:
        began = time.monotonic()
        budget, earliest_seconds, due_seconds = self._backend.budget, 0.0, self._backend.budget.interval_seconds
        last = budget.clock()
        while not self._stop_requested.wait(max(0.0, began + due_seconds - time.monotonic())):
            if budget.clock is time.monotonic:  # also counts the wait, unlike the clock of the thread
                last = budget.clock()
            self.sample_all()
            now, used, last = time.monotonic() - began, budget.clock() - last, budget.clock()
            earliest_seconds = budget.within_budget_at(earliest_seconds, used, now)
            due_seconds = budget.next_sample_at(earliest_seconds, now)

    def _sample_one(self, instance: _SampledInstance) -> HostTotals | None:
        """Sample one instance; return the machine's totals, None if the sampler's thread needs more than 5 s."""
        if not self._lock.acquire(timeout=_MAX_SAMPLE_SECONDS):
            return None
        try:
            self._sample((instance,), whole=True)
            return read_totals(self._backend.files)
        finally:
            self._lock.release()

    def _sample(self, instances: Sequence[_SampledInstance], whole: bool) -> None:
        """Add a row of the machine, and a row of each of these instances."""
        for instance in instances:
            instance.update_pids(whole)
        self._backend.files.begin_sample([pid for instance in instances for pid in instance.pids])
        seconds = time.monotonic()
        self._host = self._host or HostReader(self._backend.files)
        self.rows.append(TelemetryRow(seconds, None, self._host.read(whole)))
        self.rows += [TelemetryRow(seconds, instance.trial, instance.read(whole)) for instance in instances]


@contextmanager
def run_sampler(target: Path, backend: SamplingBackend) -> Iterator[Sampler]:
    """Context manager: sample a machine during the block, then write the Parquet file `target`."""
    sampler = Sampler(target, backend, prepares_file=True)
    try:
        yield sampler
    finally:
        sampler.stop()
        sampler.await_file()

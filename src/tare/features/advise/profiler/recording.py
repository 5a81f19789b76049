"""Recording of a profile: brief tracing, and resource usage throughout from kernel figures that need no tracing.

bpftrace counts in short windows that are spread over the time (bpftrace.py). If counting ends before the watch, the
counts stand for a part of the work: the share of all reads and writes, or else of all packets, until then.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import sub
from pathlib import Path
from typing import Literal, NamedTuple

from tare import __version__
from tare.features.advise.profiler.bpftrace import (
    BTF_FILE,
    PROGRAM,
    BpftraceCounter,
    CountingSchedule,
    build_program,
    counting_problem,
    find_tracepoints,
    find_uncountable,
    run_bpftrace,
    schedule_for,
)
from tare.features.advise.profiler.profile import FORMAT, Counts, Profile, TraceCounts, Unit, Usage
from tare.hosts.cgroups import CountingGroup
from tare.hosts.host import Host, Process
from tare.model.architecture import this_architecture
from tare.model.errors import TareError, TimedOut, TrialFailed
from tare.model.units import format_duration
from tare.telemetry.instance_reader import InstanceReader
from tare.telemetry.kernel_files import LocalFiles
from tare.telemetry.procfs import parse_interfaces, parse_process_times, read_or_none

_READING_INTERVAL_SECONDS = 1.0
_GRACE_SECONDS = 1.0  # bpftrace ends itself, and may be late
# Reads and writes, or packets: with fewer, their share is too noisy to tell how much of the work was counted.
_MIN_ACTIVITY_COUNT = 1000
_WHOLE_TIME_SHARE = 0.9  # of the time: counts of a longer part are scaled by the clock
_SLOW_START_SECONDS = 3.0  # a slower start is reported: users wonder about the delay
_NOTICE_SECONDS, _RUN_TIMEOUT_SECONDS = 60.0, 3600.0
# Runs the command for each line read, and prints its exit code: one shell for all runs, so that their cgroup is known.
_RUNNER = 'while read -r line; do "$@" </dev/null >/dev/null 2>&1; echo "$?"; done'
_UNCOUNTED_PREFIX = "system calls, page faults and context switches: "
_IO_URING_UNCOUNTED = "what it reads and writes by io_uring: it needs no system call"
_HINT = "watch it for less with --seconds, or let tare run it: tare profile -- COMMAND"
_PROPORTIONAL = re.compile(r"^Pss: +(\d+) kB$", re.MULTILINE)
# In /proc/PID/io: the kernel counts calls of read and write, but not recv and send on sockets.
_READS_AND_WRITES = re.compile(r"^sysc[rw]: (\d+)$", re.MULTILINE)

Say = Callable[[str], None]


@dataclass(frozen=True)
class Target:
    """Running application: its name, and a function that returns its current processes."""

    name: str
    processes: Callable[[], Sequence[int]]


@dataclass
class CountingSession:
    """Running counting session; `counter` is None if system calls cannot be counted, and `missing` says why.

    `traced` has the counts after `stop`.
    """

    counter: BpftraceCounter | None = None
    missing: tuple[str, ...] = ()
    traced: TraceCounts | None = None

    def has_enough(self) -> bool:
        """Wait for the next slot; return whether there is nothing more to count."""
        return self.counter is None or self.counter.has_enough()

    def stop(self) -> None:
        """Stop counting and set `traced`; raises TrialFailed."""
        if self.counter is not None:
            self.traced = self.counter.stop()
            if any(call.call.startswith("io_uring_") for call in self.traced.calls):
                self.missing = (*self.missing, _IO_URING_UNCOUNTED)


@dataclass(frozen=True)
class ProfileRecorder:
    """Recorder of a profile over `seconds`; `say` prints its progress."""

    host: Host
    seconds: float
    say: Say

    @contextmanager
    def count_calls(self, pids: Sequence[int], schedule: CountingSchedule) -> Iterator[CountingSession]:
        """Context manager: count the system calls of these processes; without bpftrace, the session has no counter."""
        known, typed, began = find_tracepoints(), BTF_FILE.is_file(), time.monotonic()
        with ExitStack() as stack:
            if problem := counting_problem(known, str(Path("/proc/self/ns/pid").readlink())):
                begun = CountingSession(missing=(_UNCOUNTED_PREFIX + problem,))
            else:
                self.say(f"starting {PROGRAM}, which takes a second, and more on a busy machine")
                try:
                    counter = stack.enter_context(
                        run_bpftrace(self.host, build_program(pids, known, typed, schedule, this_architecture()))
                    )
                    begun = CountingSession(counter, find_uncountable(known, typed))
                except TareError as error:
                    begun = CountingSession(missing=(_UNCOUNTED_PREFIX + str(error),))
            if begun.counter and (seconds := time.monotonic() - began) > _SLOW_START_SECONDS:
                self.say(f"{PROGRAM} took {format_duration(seconds)} to start, as the machine is busy")
            yield begun


def record_running(recorder: ProfileRecorder, target: Target, requests_per_second: float | None) -> Profile:
    """Watch a running application and return its profile; raises TareError.

    `requests_per_second` is None if its load is unknown.
    """
    started, per_second = current_time(), 1.0 if requests_per_second is None else requests_per_second
    schedule = schedule_for(recorder.seconds)
    with (
        recorder.count_calls(target.processes(), schedule) as begun,
        closing(UsageWatch(recorder.host, target)) as watch,
    ):
        recorder.say(f"watching {target.name} for {format_duration(recorder.seconds)}")
        usage, seconds, counted = _watch(recorder.seconds, begun, watch)
    unit: Unit = "second" if requests_per_second is None else "request"
    return Profile(
        format=FORMAT,
        tare=__version__,
        started=started,
        name=target.name,
        machine=recorder.host.facts(),
        unit=unit,
        units=per_second * seconds,
        seconds=seconds,
        usage=usage,
        counts=counts_of(begun.traced, per_second * counted),
        cost=begun.counter.cost_seconds / seconds if begun.counter else None,
        start_seconds=begun.counter.start_seconds if begun.counter else None,
        missing=begun.missing,
    )


def _watch(watch_seconds: float, session: CountingSession, watch: UsageWatch) -> tuple[Usage, float, float]:
    """Watch for the whole time, and count until the session has enough.

    Return the usage, the seconds that it took, and the seconds of average work that the counts stand for.
    """
    began, first, looks = time.monotonic(), watch.take_snapshot(), 1
    while not session.has_enough() and (since := time.monotonic() - began) < watch_seconds + _GRACE_SECONDS:
        if since > looks * _READING_INTERVAL_SECONDS:
            watch.take_reading()
            looks += 1
    part, deadline = watch.take_snapshot().since(first), began + watch_seconds
    # bpftrace takes a second to end: if the watch is nearly over, its usage is read first.
    if deadline - time.monotonic() > _READING_INTERVAL_SECONDS:
        session.stop()
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, _READING_INTERVAL_SECONDS))
        watch.take_reading()
    seconds, whole = time.monotonic() - began, watch.take_snapshot().since(first)
    usage = watch.read_total_usage()
    if session.traced is None:
        session.stop()
    return usage, seconds, counted_seconds(session.traced, seconds, part, whole) if session.traced else 0.0


def counted_seconds(traced: TraceCounts, seconds: float, part: UsageSnapshot, whole: UsageSnapshot) -> float:
    """Return the seconds of average work that counts stand for, by the activity in their time (`part`) and in all."""
    if traced.seconds >= _WHOLE_TIME_SHARE * seconds:
        return traced.seconds
    shares = ((part.reads_and_writes, whole.reads_and_writes), (part.packets, whole.packets))
    share = next((counted / total for counted, total in shares if _MIN_ACTIVITY_COUNT <= counted <= total), None)
    return traced.seconds if share is None else share * seconds


def record_command(recorder: ProfileRecorder, command: Sequence[str], group: CountingGroup) -> Profile:
    """Run a command in a private control group, at least once counted and once only watched; raises TareError.

    Usage is from runs that are not counted, as counting would add to it.
    """
    started, half = current_time(), recorder.seconds / 2
    with group.host.spawn(*group.join, "sh", "-c", _RUNNER, "sh", *command) as process:
        with recorder.count_calls((process.pid,), CountingSchedule()) as begun:
            if begun.counter is not None:
                recorder.say(f"running {command[0]} for {format_duration(half)}, counted")
            # Without a counter, one run is enough: after it, the process is surely in its control group.
            counted, _ = _run_repeatedly(0.0 if begun.counter is None else half, process, command[0], recorder.say)
            begun.stop()
        recorder.say(f"running {command[0]} for {format_duration(half)}, watched")
        with closing(UsageWatch(recorder.host, Target(command[0], group.processes))) as watch:
            number, seconds = _run_repeatedly(half, process, command[0], recorder.say)
            usage = watch.read_total_usage()
    return Profile(
        format=FORMAT,
        tare=__version__,
        started=started,
        name=" ".join(command),
        command=tuple(command),
        machine=recorder.host.facts(),
        unit="run",
        units=number,
        seconds=seconds,
        usage=usage,
        counts=counts_of(begun.traced, counted),
        missing=begun.missing,
    )


def _run_repeatedly(min_seconds: float, process: Process, name: str, say: Say) -> tuple[int, float]:
    """Run the command once, then repeat it until `min_seconds` are over; return the number of runs and their seconds.

    Raises TrialFailed if a run fails.
    """
    count, began = 0, time.monotonic()
    while not count or time.monotonic() - began < min_seconds:
        process.send("\n")
        try:
            code = process.read_line(_NOTICE_SECONDS).text
        except TimedOut:
            say(f"{name} is still running; a server does not end: start it, and profile it with --pid")
            code = process.read_line(_RUN_TIMEOUT_SECONDS).text
        if code != "0":
            raise TrialFailed(f"{name}: exit code {code}", "run it by hand: it has to succeed")
        count += 1
    return count, time.monotonic() - began


def counts_of(traced: TraceCounts | None, units: float) -> Counts | None:
    """Return the counts with the units of work that they stand for; None without counts."""
    return None if traced is None else Counts(**vars(traced), units=units)


def current_time() -> str:
    """Return the current UTC time to the second, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class UsageSnapshot(NamedTuple):
    """Activity of an application so far: packets in its network namespace, and calls of read and write."""

    packets: int
    reads_and_writes: int

    def since(self, earlier: UsageSnapshot) -> UsageSnapshot:
        """Return the difference to an earlier snapshot."""
        return UsageSnapshot(*map(sub, self, earlier))


class UsageWatch:
    """Watch of an application's usage since creation. Take a reading about once a second, and close it."""

    def __init__(self, host: Host, target: Target) -> None:
        self._host = host
        self._target = target
        self._files = LocalFiles()
        self._reader = InstanceReader(self._files, target.processes)
        self._first = self._last = self._reader.read(target.processes(), whole=True)
        self._largest_bytes = self._last.memory_bytes
        self._first_threads = _thread_seconds(host, target.processes())

    def close(self) -> None:
        """Close the kernel's files."""
        self._files.close()

    def take_reading(self) -> None:
        """Take a reading; raises TareError if no process is left."""
        pids = self._target.processes()
        reading = self._reader.read(pids, whole=True)
        # A zombie is still in the list of processes, but has no command line.
        if reading.cpu_user is None or not any(self._host.read(f"/proc/{pid}/cmdline") for pid in pids):
            raise TareError(f"{self._target.name}: ended while it was watched", _HINT)
        self._last = reading
        self._largest_bytes = max(self._largest_bytes or 0, reading.memory_bytes or 0)

    def read_total_usage(self) -> Usage:
        """Take the last reading and return the usage since creation; raises TareError if no process is left."""
        self.take_reading()
        pids = self._target.processes()
        return Usage(
            user_seconds=self._seconds_since_creation("cpu_user"),
            system_seconds=self._seconds_since_creation("cpu_system"),
            resident_bytes=None if self._largest_bytes is None else round(self._largest_bytes),
            proportional_bytes=_proportional_bytes(self._host, pids),
            busiest_thread_seconds=max(
                (
                    used - self._first_threads.get(thread, 0.0)
                    for thread, used in _thread_seconds(self._host, pids).items()
                ),
                default=None,
            ),
        )

    def take_snapshot(self) -> UsageSnapshot:
        """Return the activity of the application so far."""
        pids = self._target.processes()
        texts = [self._host.read(f"/proc/{pid}/io") for pid in pids]
        return UsageSnapshot(
            packets=_packet_count(self._host, pids),
            reads_and_writes=sum(int(number) for text in texts for number in _READS_AND_WRITES.findall(text)),
        )

    def _seconds_since_creation(self, name: Literal["cpu_user", "cpu_system"]) -> float:
        before, after = getattr(self._first, name), getattr(self._last, name)
        return 0.0 if before is None or after is None else max(0.0, after - before)


def _thread_seconds(host: Host, pids: Sequence[int]) -> dict[str, float]:
    """Return the CPU seconds of each thread so far, by the thread's folder in /proc."""
    seconds = {}
    for pid in pids:
        for folder in Path(f"/proc/{pid}/task").glob("*"):
            if times := read_or_none(parse_process_times, host.read, f"{folder}/stat"):
                seconds[str(folder)] = times.user_seconds + times.system_seconds
    return seconds


def _packet_count(host: Host, pids: Sequence[int]) -> int:
    """Return the packets in the network namespace of the first process, loopback included; 0 if unreadable."""
    for pid in pids:
        if interfaces := read_or_none(parse_interfaces, host.read, f"/proc/{pid}/net/dev"):
            return round(sum(each.in_count + each.out_count for each in interfaces))
    return 0


def _proportional_bytes(host: Host, pids: Sequence[int]) -> int | None:
    """Return the sum of the proportional set sizes; None if any is unreadable."""
    # Read only once, at the end: the kernel stops a large process for a moment to walk its page tables.
    sizes = [_PROPORTIONAL.search(host.read(f"/proc/{pid}/smaps_rollup")) for pid in pids]
    return 1024 * sum(int(size[1]) for size in sizes if size) if all(sizes) else None

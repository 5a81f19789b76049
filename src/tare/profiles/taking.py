"""A profile is taken: the application is counted for a short time, and watched for the whole time.

While it is counted, an application that uses all of its CPU is slower. So what it did meanwhile is not its usual rate
times the time, but less: as much less as its reads and writes, or else its packets, were fewer a second than usual.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol

from tare import __version__
from tare.errors import TareError
from tare.hosts.host import Host
from tare.profiles import counting, perf
from tare.profiles.counting import CALL_SECONDS, most_calls
from tare.profiles.finding import Target
from tare.profiles.kernel_types import offsets
from tare.profiles.profile import FORMAT, RECEIVING, SENDING, Counts, Profile, Traced, Unit
from tare.profiles.watching import Pulse, Watch

_LOOK_SECONDS = 1.0
_MANY = 1000  # reads and writes, or packets: from here on, their rate says how fast the application was
# Those that the kernel counts for each process.
_READS_AND_WRITES = (RECEIVING | SENDING) - {"recvfrom", "recvmsg", "recvmmsg", "sendto", "sendmsg", "sendmmsg"}
_UNSEEN = "what it reads and writes by io_uring: it needs no system call"

Say = Callable[[str], None]


class Counter(Protocol):
    """Counts until it is asked for the result. `start_seconds` are the CPU time that its start took."""

    start_seconds: float

    def has_enough(self) -> bool:
        """Wait for a moment; return whether counting has cost its share of the time."""

    def end(self) -> Traced:
        """Stop, and return what was counted; raises TrialFailed."""


@dataclass(frozen=True)
class Way:
    """A way to count system calls: by which program, how it is started for processes, and what it does not know."""

    by: Literal["bpftrace", "perf"]
    start: Callable[[Sequence[int]], AbstractContextManager[Counter]]
    missing: tuple[str, ...]


def way_to_count(host: Host, seconds: float, most: int) -> Way:
    """Return the best way that this machine has to count at most so many calls, or, of perf, in a share of the time.

    Raises TareError with the reason where it has none.
    """
    known = counting.tracepoints()
    if problem := counting.tracing_problem(known, str(Path("/proc/self/ns/pid").readlink())):
        raise TareError(problem)
    if shutil.which(counting.PROGRAM):
        places = offsets()

        def start(pids: Sequence[int]) -> AbstractContextManager[Counter]:
            return counting.counting(host, counting.program(pids, known, places, most))

        return Way("bpftrace", start, counting.missing(known, places is not None))
    if shutil.which(perf.PROGRAM):
        return Way("perf", lambda pids: perf.counting(host, pids, seconds), perf.MISSING)
    raise TareError("neither bpftrace nor perf is installed")


@dataclass(frozen=True)
class Window:
    """What was counted, and what is missing of it.

    `packet_rate` are the packets a second in the application's network meanwhile; None where they were few.
    `start_seconds` are the CPU time that it took to begin.
    """

    by: Literal["bpftrace", "perf"] = "bpftrace"
    traced: Traced | None = None
    missing: tuple[str, ...] = ()
    packet_rate: float | None = None
    start_seconds: float = 0.0


@dataclass(frozen=True)
class Taking:
    """How a profile is taken: for so many seconds; `say` is told how far it is."""

    host: Host
    seconds: float
    say: Say

    def counted(self, pids: Sequence[int], most: int, work: Callable[[Counter], float | None]) -> Window:
        """Count at most so many calls of these processes while `work` goes on, which returns the rate of packets."""
        with ExitStack() as stack:
            try:
                way = way_to_count(self.host, self.seconds, most)
                self.say(f"starting {way.by}")
                counter = stack.enter_context(way.start(pids))
            except TareError as error:
                return Window(missing=(f"system calls, page faults and context switches: {error}",))
            self.say("counting system calls")
            packet_rate = work(counter)
            traced = counter.end()
        unseen = any(call.call.startswith("io_uring_") for call in traced.calls)
        missing = (*way.missing, *((_UNSEEN,) if unseen else ()))
        return Window(way.by, traced, missing, packet_rate, counter.start_seconds)


def profile_of_running(taking: Taking, target: Target, rate: float | None) -> Profile:
    """Watch a running application, which does so many requests a second; None is unknown. Raises TareError."""
    started, per_second = now(), 1.0 if rate is None else rate
    with closing(Watch(taking.host, target)) as watch:
        began, first = time.monotonic(), watch.pulse()
        most = most_calls(taking.seconds)
        window = taking.counted(target.processes(), most, lambda counter: _count(counter, taking, watch))
        taking.say(f"watching {target.name}")
        while (left := began + taking.seconds - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SECONDS))
            watch.look()
        seconds, pulse = time.monotonic() - began, watch.pulse().since(first)
        usage = watch.usage(seconds)
    unit: Unit = "second" if rate is None else "request"
    traced = window.traced
    return Profile(
        format=FORMAT,
        tare=__version__,
        started=started,
        name=target.name,
        machine=taking.host.facts(),
        unit=unit,
        units=per_second * seconds,
        seconds=seconds,
        usage=usage,
        counts=counts_of(window, per_second * speed_of(window, pulse, seconds)),
        cost=traced.total * CALL_SECONDS / seconds if traced else None,
        start_seconds=window.start_seconds if traced else None,
        missing=window.missing,
    )


def _count(counter: Counter, taking: Taking, watch: Watch) -> float | None:
    """Count until that has cost its share of the time, or this is over; return the packets a second meanwhile."""
    first, began, looks = watch.pulse(), time.monotonic(), 1
    while not counter.has_enough() and (since := time.monotonic() - began) < taking.seconds:
        if since > looks * _LOOK_SECONDS:
            watch.look()
            looks += 1
    packets, seconds = watch.pulse().since(first).packets, time.monotonic() - began
    return packets / seconds if packets >= _MANY else None


def speed_of(window: Window, pulse: Pulse, seconds: float) -> float:
    """Return how many usual seconds' work the application did while it was counted.

    `pulse` is what it did in all `seconds`. It is the window's own length where too little was done to tell.
    """
    traced = window.traced
    if traced is None:
        return 0.0
    done = sum(call.count for call in traced.calls if call.call in _READS_AND_WRITES)
    if _MANY <= done <= pulse.reads_and_writes:
        return seconds * done / pulse.reads_and_writes
    if window.packet_rate is not None and pulse.packets > 0:
        return traced.seconds * window.packet_rate * seconds / pulse.packets
    return traced.seconds


def counts_of(window: Window, units: float) -> Counts | None:
    """Return what was counted, while the application did so many units of its work; None where nothing was."""
    traced = window.traced
    if traced is None:
        return None
    return Counts(**vars(traced), by=window.by, units=units)


def now() -> str:
    """Return the time, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")

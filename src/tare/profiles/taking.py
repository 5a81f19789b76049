"""Taking a profile: the application is watched for the whole time, and counted meanwhile.

bpftrace counts in short windows that are spread over the time (tare.profiles.counting), perf for its beginning. Where
counting ends before the watch, the counts stand for a part of the work: the share of all reads and writes, or else of
all packets, that fell into this part.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Protocol

from tare import __version__
from tare.errors import TareError
from tare.hosts.host import Host
from tare.profiles import counting, perf
from tare.profiles.counting import Schedule, schedule_for
from tare.profiles.finding import Target
from tare.profiles.kernel_types import offsets
from tare.profiles.profile import FORMAT, Counts, Profile, Traced, Unit, Usage
from tare.profiles.watching import Pulse, Watch
from tare.units import format_duration

_LOOK_SECONDS = 1.0
_GRACE_SECONDS = 1.0  # bpftrace ends itself, and may be late
_MANY = 1000  # reads and writes, or packets: from here on, their share says how much of the work was counted
_WHOLE = 0.9  # of the time: from here on, the clock says it
_SLOW_SECONDS = 3.0  # a start that took longer is told
_UNSEEN = "what it reads and writes by io_uring: it needs no system call"

Say = Callable[[str], None]


class Counter(Protocol):
    """Counts until it is asked for the result.

    `start_seconds` is the CPU time that its start took, `cost_seconds` what counting took, known after `end`.
    """

    start_seconds: float
    cost_seconds: float

    def has_enough(self) -> bool:
        """Wait for a moment; return whether counting has cost its share of the time, or its time is over."""

    def end(self) -> Traced:
        """Stop, and return what was counted; raises TrialFailed."""


@dataclass(frozen=True)
class Way:
    """A way to count system calls: by which program, how it is started for processes, and what it does not know."""

    by: Literal["bpftrace", "perf"]
    start: Callable[[Sequence[int]], AbstractContextManager[Counter]]
    missing: tuple[str, ...]


def way_to_count(host: Host, seconds: float, schedule: Schedule) -> Way:
    """Return the best way that this machine has to count.

    bpftrace counts by a schedule, perf in a share of `seconds`. Raises TareError with the reason where there is no way.
    """
    known = counting.tracepoints()
    if problem := counting.tracing_problem(known, str(Path("/proc/self/ns/pid").readlink())):
        raise TareError(problem)
    if shutil.which(counting.PROGRAM):
        places = offsets()

        def start(pids: Sequence[int]) -> AbstractContextManager[Counter]:
            return counting.counting(host, counting.program(pids, known, places, schedule))

        return Way("bpftrace", start, counting.missing(known, places is not None))
    if shutil.which(perf.PROGRAM):
        return Way("perf", lambda pids: perf.counting(host, pids, seconds), perf.MISSING)
    raise TareError("neither bpftrace nor perf is installed")


@dataclass(frozen=True)
class Window:
    """What was counted, and what is missing of it.

    `start_seconds` is the CPU time that it took to begin, `cost_seconds` what counting took.
    """

    by: Literal["bpftrace", "perf"] = "bpftrace"
    traced: Traced | None = None
    missing: tuple[str, ...] = ()
    start_seconds: float = 0.0
    cost_seconds: float = 0.0


@dataclass(frozen=True)
class Counting:
    """Counting that has begun; `counter` is None where system calls cannot be counted, `problem` says why."""

    way: Way | None = None
    counter: Counter | None = None
    problem: str = ""

    def has_enough(self) -> bool:
        """Wait for a moment; return whether there is nothing more to count."""
        return self.counter is None or self.counter.has_enough()

    def end(self) -> Window:
        """Stop, and return what was counted; raises TrialFailed."""
        if self.way is None or self.counter is None:
            return Window(missing=(f"system calls, page faults and context switches: {self.problem}",))
        traced = self.counter.end()
        unseen = any(call.call.startswith("io_uring_") for call in traced.calls)
        missing = (*self.way.missing, *((_UNSEEN,) if unseen else ()))
        return Window(self.way.by, traced, missing, self.counter.start_seconds, self.counter.cost_seconds)


@dataclass(frozen=True)
class Taking:
    """How a profile is taken: for so many seconds; `say` prints how far it is."""

    host: Host
    seconds: float
    say: Say

    @contextmanager
    def counting(self, pids: Sequence[int], schedule: Schedule) -> Iterator[Counting]:
        """Context manager: count the system calls of these processes."""
        with ExitStack() as stack:
            yield self._begin(stack, pids, schedule)

    def _begin(self, stack: ExitStack, pids: Sequence[int], schedule: Schedule) -> Counting:
        began = time.monotonic()
        try:
            way = way_to_count(self.host, self.seconds, schedule)
            self.say(f"starting {way.by}, which takes a second, and more on a busy machine")
            counter = stack.enter_context(way.start(pids))
        except TareError as error:
            return Counting(problem=str(error))
        if (seconds := time.monotonic() - began) > _SLOW_SECONDS:
            self.say(f"{way.by} took {format_duration(seconds)} to start, as the machine is busy")
        return Counting(way, counter)


def profile_of_running(taking: Taking, target: Target, rate: float | None) -> Profile:
    """Watch a running application, which does so many requests a second; None is unknown. Raises TareError."""
    started, per_second = now(), 1.0 if rate is None else rate
    schedule = schedule_for(taking.seconds)
    with taking.counting(target.processes(), schedule) as begun, closing(Watch(taking.host, target)) as watch:
        taking.say(f"watching {target.name} for {format_duration(taking.seconds)}")
        watched = _watched(taking, begun, watch)
    window, traced = watched.window, watched.window.traced
    unit: Unit = "second" if rate is None else "request"
    return Profile(
        format=FORMAT,
        tare=__version__,
        started=started,
        name=target.name,
        machine=taking.host.facts(),
        unit=unit,
        units=per_second * watched.seconds,
        seconds=watched.seconds,
        usage=watched.usage,
        counts=counts_of(window, per_second * watched.counted_seconds),
        cost=window.cost_seconds / watched.seconds if traced else None,
        start_seconds=window.start_seconds if traced else None,
        missing=window.missing,
    )


@dataclass(frozen=True)
class Watched:
    """What was seen of a running application in `seconds`; `part` of its pulse fell into the time that was counted."""

    window: Window
    usage: Usage
    seconds: float
    part: Pulse
    pulse: Pulse

    @property
    def counted_seconds(self) -> float:
        """How many usual seconds' work the counts stand for."""
        traced = self.window.traced
        if traced is None:
            return 0.0
        if traced.seconds >= _WHOLE * self.seconds:
            return traced.seconds
        shares = (
            (self.part.reads_and_writes, self.pulse.reads_and_writes),
            (self.part.packets, self.pulse.packets),
        )
        share = next((part / whole for part, whole in shares if _MANY <= part <= whole), None)
        return traced.seconds if share is None else share * self.seconds


def _watched(taking: Taking, begun: Counting, watch: Watch) -> Watched:
    """Watch for all of the time, and count for as much of it as may be counted."""
    began, first, looks = time.monotonic(), watch.pulse(), 1
    while not begun.has_enough() and (since := time.monotonic() - began) < taking.seconds + _GRACE_SECONDS:
        if since > looks * _LOOK_SECONDS:
            watch.look()
            looks += 1
    part, deadline = watch.pulse().since(first), began + taking.seconds
    # To end takes bpftrace a second: not in the time of a watch that is over.
    window = begun.end() if deadline - time.monotonic() > _LOOK_SECONDS else None
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, _LOOK_SECONDS))
        watch.look()
    seconds, pulse = time.monotonic() - began, watch.pulse().since(first)
    usage = watch.usage(seconds)
    return Watched(window or begun.end(), usage, seconds, part, pulse)


def counts_of(window: Window, units: float) -> Counts | None:
    """Return what was counted, while the application did so many units of its work; None where nothing was."""
    traced = window.traced
    if traced is None:
        return None
    return Counts(**vars(traced), by=window.by, units=units)


def now() -> str:
    """Return the time, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")

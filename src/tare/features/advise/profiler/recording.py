"""Record a profile: trace briefly, and watch resource usage throughout.

bpftrace counts in short windows that are spread over the time (bpftrace.py). Where counting ends before the
watch, the counts stand for a part of the work: the share of all reads and writes, or else of all packets, that fell
into this part.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from tare import __version__
from tare.features.advise.profiler.bpftrace import (
    PROGRAM,
    TYPES,
    Counter,
    Schedule,
    counting,
    counting_problem,
    missing,
    program,
    schedule_for,
    tracepoints,
)
from tare.features.advise.profiler.profile import FORMAT, Counts, Profile, Traced, Unit, Usage
from tare.features.advise.profiler.targets import Target
from tare.features.advise.profiler.usage import Pulse, Watch
from tare.hosts.cgroups import CountingGroup
from tare.hosts.host import Host, Process
from tare.model.errors import TareError, TimedOut, TrialFailed
from tare.model.units import format_duration

_LOOK_SECONDS = 1.0
_GRACE_SECONDS = 1.0  # bpftrace ends itself, and may be late
_MANY = 1000  # reads and writes, or packets: from here on, their share says how much of the work was counted
_WHOLE = 0.9  # of the time: from here on, the clock says it
_SLOW_SECONDS = 3.0  # a start that took longer is told
_UNSEEN = "what it reads and writes by io_uring: it needs no system call"

Say = Callable[[str], None]


@dataclass
class Counting:
    """Counting that has begun, and what is `missing` of it; `counter` is None where system calls cannot be counted.

    What was `traced` is known after `end`.
    """

    counter: Counter | None = None
    missing: tuple[str, ...] = ()
    traced: Traced | None = None

    def has_enough(self) -> bool:
        """Wait for a moment; return whether there is nothing more to count."""
        return self.counter is None or self.counter.has_enough()

    def end(self) -> None:
        """Stop; raises TrialFailed."""
        if self.counter is not None:
            self.traced = self.counter.end()
            if any(call.call.startswith("io_uring_") for call in self.traced.calls):
                self.missing = (*self.missing, _UNSEEN)


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
        known, typed, began = tracepoints(), TYPES.is_file(), time.monotonic()
        if problem := counting_problem(known, str(Path("/proc/self/ns/pid").readlink())):
            return _uncounted(problem)
        self.say(f"starting {PROGRAM}, which takes a second, and more on a busy machine")
        try:
            counter = stack.enter_context(counting(self.host, program(pids, known, typed, schedule)))
        except TareError as error:
            return _uncounted(str(error))
        if (seconds := time.monotonic() - began) > _SLOW_SECONDS:
            self.say(f"{PROGRAM} took {format_duration(seconds)} to start, as the machine is busy")
        return Counting(counter, missing(known, typed))


def _uncounted(problem: str) -> Counting:
    return Counting(missing=(f"system calls, page faults and context switches: {problem}",))


def profile_of_running(taking: Taking, target: Target, rate: float | None) -> Profile:
    """Watch a running application, which does so many requests a second; None is unknown. Raises TareError."""
    started, per_second = now(), 1.0 if rate is None else rate
    schedule = schedule_for(taking.seconds)
    with taking.counting(target.processes(), schedule) as begun, closing(Watch(taking.host, target)) as watch:
        taking.say(f"watching {target.name} for {format_duration(taking.seconds)}")
        watched = _watched(taking, begun, watch)
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
        counts=counts_of(begun.traced, per_second * watched.counted_seconds),
        cost=begun.counter.cost_seconds / watched.seconds if begun.counter else None,
        start_seconds=begun.counter.start_seconds if begun.counter else None,
        missing=begun.missing,
    )


@dataclass(frozen=True)
class Watched:
    """What was seen of a running application in `seconds`; `part` of its pulse fell into the time that was counted."""

    traced: Traced | None
    usage: Usage
    seconds: float
    part: Pulse
    pulse: Pulse

    @property
    def counted_seconds(self) -> float:
        """How many usual seconds' work the counts stand for."""
        if self.traced is None:
            return 0.0
        if self.traced.seconds >= _WHOLE * self.seconds:
            return self.traced.seconds
        shares = (
            (self.part.reads_and_writes, self.pulse.reads_and_writes),
            (self.part.packets, self.pulse.packets),
        )
        share = next((part / whole for part, whole in shares if _MANY <= part <= whole), None)
        return self.traced.seconds if share is None else share * self.seconds


def _watched(taking: Taking, begun: Counting, watch: Watch) -> Watched:
    """Watch for all of the time, and count for as much of it as may be counted."""
    began, first, looks = time.monotonic(), watch.pulse(), 1
    while not begun.has_enough() and (since := time.monotonic() - began) < taking.seconds + _GRACE_SECONDS:
        if since > looks * _LOOK_SECONDS:
            watch.look()
            looks += 1
    part, deadline = watch.pulse().since(first), began + taking.seconds
    # To end takes bpftrace a second: not in the time of a watch that is over.
    if deadline - time.monotonic() > _LOOK_SECONDS:
        begun.end()
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, _LOOK_SECONDS))
        watch.look()
    seconds, pulse = time.monotonic() - began, watch.pulse().since(first)
    usage = watch.usage(seconds)
    if begun.traced is None:
        begun.end()
    return Watched(begun.traced, usage, seconds, part, pulse)


def counts_of(traced: Traced | None, units: float) -> Counts | None:
    """Return what was counted, while the application did so many units of its work; None where nothing was."""
    return None if traced is None else Counts(**vars(traced), units=units)


def now() -> str:
    """Return the time, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


_PATIENCE_SECONDS, _RUN_SECONDS = 60.0, 3600.0
# Runs a command for each line that it reads, and prints its exit code.
_RUNNER = 'while read -r line; do "$@" </dev/null >/dev/null 2>&1; echo "$?"; done'


class Runs:
    """Runs a command again and again, each time to its end."""

    def __init__(self, process: Process, command: Sequence[str], say: Say) -> None:
        self._process = process
        self._command = command
        self._say = say

    def repeat(self, seconds: float) -> tuple[int, float]:
        """Run it once, and again until so many seconds are over; return how often, and how long all runs took.

        Raises TrialFailed where it fails.
        """
        count, began = 0, time.monotonic()
        while not count or time.monotonic() - began < seconds:
            self._process.send("\n")
            if (code := self._code()) != "0":
                raise TrialFailed(f"{self._command[0]}: exit code {code}", "run it by hand: it has to succeed")
            count += 1
        return count, time.monotonic() - began

    def _code(self) -> str:
        try:
            return self._process.read_line(_PATIENCE_SECONDS).text
        except TimedOut:
            self._say(f"{self._command[0]} goes on; a server does not end: start it, and profile it with --pid")
            return self._process.read_line(_RUN_SECONDS).text


def profile_of_command(taking: Taking, command: Sequence[str], group: CountingGroup) -> Profile:
    """Run a command in a control group of its own, at least once counted and once only watched. Raises TareError."""
    started, half = now(), taking.seconds / 2
    with group.host.spawn(*group.join, "sh", "-c", _RUNNER, "sh", *command) as process:
        runs = Runs(process, command, taking.say)
        with taking.counting((process.pid,), Schedule()) as begun:
            if begun.counter is not None:
                taking.say(f"running {command[0]} for {format_duration(half)}, counted")
            # Where nothing is counted, one run: after it, the process is surely in its control group.
            counted, _ = runs.repeat(0.0 if begun.counter is None else half)
            begun.end()
        taking.say(f"running {command[0]} for {format_duration(half)}, watched")
        with closing(Watch(taking.host, Target(command[0], group.processes))) as watch:
            number, seconds = runs.repeat(half)
            usage = watch.usage(seconds)
    return Profile(
        format=FORMAT,
        tare=__version__,
        started=started,
        name=" ".join(command),
        command=tuple(command),
        machine=taking.host.facts(),
        unit="run",
        units=number,
        seconds=seconds,
        usage=usage,
        counts=counts_of(begun.traced, counted),
        missing=begun.missing,
    )

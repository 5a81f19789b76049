"""A profile is taken: the application is counted for a short time, and watched for the whole time."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal, Protocol

from tare import __version__
from tare.errors import TareError, TrialFailed
from tare.hosts.control_groups import CountingGroup
from tare.hosts.host import Host, Process
from tare.profiles import counting, perf
from tare.profiles.counting import CALL_SECONDS, Traced, most_calls
from tare.profiles.finding import Target
from tare.profiles.profile import FORMAT, Counts, Profile, Unit
from tare.profiles.watching import Watch

_LOOK_SECONDS = 1.0
_RUN_SECONDS = 3600.0
_NO_LIMIT = 1 << 60  # of calls: whole runs are counted
_MANY_PACKETS = 2000  # from here on, their rate says how fast the application was
# Runs a command for each line that it reads, and prints its exit code.
_RUNNER = 'while read -r line; do "$@" </dev/null >/dev/null; echo "$?"; done'

Say = Callable[[str], None]


class Counter(Protocol):
    """Counts until it is asked for the result."""

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
    """Return the best way that this machine has; raises TareError with the reason where it has none."""
    known = counting.tracepoints()
    if problem := counting.tracing_problem(known):
        raise TareError(problem)
    if shutil.which(counting.PROGRAM):
        typed = bool(host.read(counting.TYPES)[:1])
        return Way("bpftrace", _bpftrace(host, known, typed, most), counting.missing(known, typed))
    if shutil.which(perf.PROGRAM):
        return Way("perf", lambda pids: perf.counting(host, pids, seconds), perf.MISSING)
    raise TareError("neither bpftrace nor perf is installed")


def _bpftrace(
    host: Host, known: frozenset[str], typed: bool, most: int
) -> Callable[[Sequence[int]], AbstractContextManager[Counter]]:
    return lambda pids: counting.counting(host, counting.program(pids, known, typed, most))


@dataclass(frozen=True)
class Window:
    """What was counted, and what is missing of it. `pace` are packets a second meanwhile, where there were many."""

    by: Literal["bpftrace", "perf"] = "bpftrace"
    traced: Traced | None = None
    missing: tuple[str, ...] = ()
    pace: float | None = None


@dataclass(frozen=True)
class Taking:
    """How a profile is taken: for so many seconds; `say` is told how far it is."""

    host: Host
    seconds: float
    say: Say

    def counted(self, pids: Sequence[int], most: int, work: Callable[[Counter], float | None]) -> Window:
        """Count at most so many calls of these processes while `work` goes on; a trouble is part of the answer."""
        try:
            way = way_to_count(self.host, self.seconds, most)
            self.say(f"starting {way.by}")
            with way.start(pids) as counter:
                self.say("counting system calls")
                pace = work(counter)
                return Window(way.by, counter.end(), way.missing, pace)
        except TrialFailed:
            raise
        except TareError as error:
            return Window(missing=(f"system calls, page faults and context switches: {error}",))


def profile_of_running(taking: Taking, target: Target, rate: float | None) -> Profile:
    """Watch a running application, which does so many requests a second; None is unknown. Raises TareError."""
    started, per_second = _now(), 1.0 if rate is None else rate
    with closing(Watch(taking.host, target)) as watch:
        began = time.monotonic()
        window = taking.counted(target.processes(), most_calls(taking.seconds), lambda counter: _count(counter, watch, taking.seconds))
        rest = _Pace(watch)
        taking.say(f"watching {target.name}")
        while (left := began + taking.seconds - time.monotonic()) > 0:
            time.sleep(min(left, _LOOK_SECONDS))
            watch.look()
        pace = _ratio(window.pace, rest.end())
        seconds = time.monotonic() - began
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
        counts=traced and _counts(window, traced, per_second * traced.seconds * (pace or 1.0)),
        slowdown=traced and _slowdown(traced, pace),
        missing=window.missing,
    )


class _Pace:
    """The packets a second of an application, from its making on."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._packets, self._began = watch.packets(), time.monotonic()

    def end(self) -> float | None:
        """Return the rate; None where there were too few packets to say."""
        seconds, packets = time.monotonic() - self._began, self._watch.packets() - self._packets
        return packets / seconds if packets >= _MANY_PACKETS and seconds > 0 else None


def _count(counter: Counter, watch: Watch, seconds: float) -> float | None:
    """Count until that has cost its share of so many seconds, or they are over; return the pace meanwhile."""
    pace, began, looks = _Pace(watch), time.monotonic(), 1
    while not counter.has_enough() and (since := time.monotonic() - began) < seconds:
        if since > looks * _LOOK_SECONDS:
            watch.look()
            looks += 1
    return pace.end()


def _ratio(counted: float | None, rest: float | None) -> float | None:
    return counted / rest if counted and rest else None


def _slowdown(traced: Traced, pace: float | None) -> float:
    """Return by how much counting slowed the application, as a share of its speed; at most, where nothing shows it."""
    if pace is not None:
        return max(0.0, 1 - pace)
    return min(1.0, traced.total * CALL_SECONDS / traced.seconds)


def _counts(window: Window, traced: Traced, units: float) -> Counts:
    return Counts(
        by=window.by,
        seconds=traced.seconds,
        units=units,
        calls=traced.calls,
        faults=traced.faults,
        waits=traced.waits,
        preemptions=traced.preemptions,
        programs=traced.programs,
        processes=traced.processes,
        threads=traced.threads,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


class _Runs:
    """Runs a command again and again, in a control group of its own."""

    def __init__(self, process: Process, command: Sequence[str]) -> None:
        self._process = process
        self._command = command
        self.count = 0
        self.seconds = 0.0

    def run(self) -> None:
        """Run it once more, to its end; raises TrialFailed where it fails."""
        began = time.monotonic()
        self._process.send("run\n")
        code = self._process.read_line(_RUN_SECONDS).text
        self.seconds += time.monotonic() - began
        self.count += 1
        if code != "0":
            said = self._process.errors().strip().splitlines()
            what = f"{self._command[0]}: exit code {code}{': ' if said else ''}{said[-1] if said else ''}"
            raise TrialFailed(what, "a command is profiled that succeeds")

    def repeat(self, until: Callable[[float], bool]) -> tuple[int, float]:
        """Run it, until this function of the seconds so far says that it is enough; return how often, and seconds."""
        count, seconds = self.count, self.seconds
        self.run()
        while not until(self.seconds - seconds):
            self.run()
        return self.count - count, self.seconds - seconds


def profile_of_command(taking: Taking, command: Sequence[str], group: CountingGroup) -> Profile:
    """Run a command again and again, counted first and then only watched, each at least once. Raises TareError."""
    started = _now()
    with group.host.spawn(*group.join, "sh", "-c", _RUNNER, "sh", *command) as process:
        runs = _Runs(process, command)
        half = taking.seconds / 2

        def counted(_: Counter) -> None:
            runs.repeat(lambda seconds: seconds >= half)

        window = taking.counted((process.pid,), _NO_LIMIT, counted)
        slow = runs.seconds / runs.count if runs.count else 0.0
        taking.say(f"watching {command[0]}")
        target = Target(command[0], group.processes)
        with closing(Watch(taking.host, target)) as watch:
            number, seconds = runs.repeat(lambda seconds: seconds >= half)
            usage = watch.usage(seconds)
    traced = window.traced
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
        counts=traced and _counts(window, traced, runs.count - number),
        slowdown=max(0.0, 1 - seconds / number / slow) if traced else None,
        missing=window.missing,
    )

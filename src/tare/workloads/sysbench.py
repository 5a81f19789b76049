"""sysbench's CPU test: how often a second it finds the prime numbers up to a limit by trial division.

One event checks every number from 3 to `max_prime`. It stays in the first cache and never enters the kernel; with
several `threads` it shows what a limit of CPUs costs. Results can be compared with published ones. Unlike Dhrystone and
Whetstone, it does not verify what it computes.

Each turn runs as many events as fill it at the rate so far; a probe before the first turn finds the rate. What counts
is the time in which threads worked on events. sysbench's own rate also counts the start of its threads, up to 7 ms of
each turn.

Settings: `duration`; `threads`; `max_prime`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field

from tare.contracts import Host, Setup, Workload
from tare.errors import TrialFailed, printed
from tare.loads.turns import limit_seconds, rounds_of, turn_seconds
from tare.model import Metric, Raw, Value
from tare.units import Duration

_RESULT = re.compile(
    r"sysbench 1\.\S+ .*\n\nRunning the test with following options:\nNumber of threads: (?P<threads>\d+)\n"
    r"Initializing random number generator from current time\n\n\nPrime numbers limit: (?P<limit>\d+)\n\n"
    r"Initializing worker threads\.\.\.\n\nThreads started!\n\n"
    r"CPU speed:\n    events per second: .*\n\n"
    r"General statistics:\n    total time: .*\n    total number of events: +(?P<events>\d{1,18})\n\n"
    r"Latency \(ms\):\n(?:    .*\n){4}         sum: +(?P<worked>\d+\.\d+)\n\nThreads fairness:\n(?:    .*\n){2}\n",
    re.ASCII,
)
_PROBES = 4
_LEAST_SECONDS = 1e-5  # of work that sysbench tells
_HINT = "`tare show` has the whole output; it is that of `sysbench cpu`, version 1.0"


@dataclass(frozen=True)
class Sysbench(Workload):
    """Prime numbers by trial division."""

    name: ClassVar[str] = "sysbench"
    title: ClassVar[str] = "sysbench: prime numbers"
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("rate", "Searches for prime numbers", "events/s", "higher"),)
    packages: ClassVar[tuple[str, ...]] = ("sysbench",)

    duration: Annotated[Duration, Field(gt=0, le=3600)] = 1.0
    threads: Annotated[int, Field(ge=1, le=1024)] = 1
    max_prime: Annotated[int, Field(ge=3, le=10_000_000)] = 10_000

    @property
    def rounds(self) -> int:
        """Turns of a tenth of the duration."""
        return rounds_of(self.duration)

    def measure(self, setup: Setup) -> Iterator[Raw]:
        """Run sysbench inside; raises TrialFailed without an inside."""
        if setup.instance.inside is None:
            raise TrialFailed(f"{setup.instance.name}: sysbench runs inside", "leave this stack out of sysbench")
        events = self.threads
        for _ in range(_PROBES):  # in one turn: the rounds of every stack begin after as many turns
            probe, tried = self._run(setup.instance.inside, events), events
            events = self._events(probe)
            if tried >= events / 2:
                break
        yield replace(probe, warm_up=True)
        for _ in range(self.rounds):
            raw = self._run(setup.instance.inside, events)
            yield raw
            events = self._events(raw)

    def parse(self, raw: Sequence[Raw]) -> Sequence[Value]:
        """Read the events a second; raises TrialFailed for anything but one whole result with these settings."""
        if [each.label for each in raw] != [self.name]:
            raise TrialFailed(f"expected one output of sysbench, found {[each.label for each in raw]}")
        events, seconds = self._work(raw[0].text)
        rate = events / seconds if 0 < seconds < math.inf else 0.0
        if not 0 < rate < math.inf:
            raise TrialFailed(f"sysbench gave no rate; {printed(raw[0].text)}", _HINT)
        return (Value("rate", None, rate),)

    def seconds(self) -> float:
        """Estimate the seconds of `measure`: probes, and the start of sysbench in each turn."""
        return 0.1 + 1.1 * self.duration + turn_seconds(self.duration) + 0.01 * self.rounds

    def _run(self, inside: Host, events: int) -> Raw:
        how = (f"--threads={self.threads}", f"--events={events}", "--time=0", f"--cpu-max-prime={self.max_prime}")
        argv = ("sysbench", "cpu", *how, "run")
        output = inside.run(*argv, timeout=limit_seconds(self.duration))
        return Raw(self.name, argv, output.text, output.seconds)

    def _events(self, raw: Raw) -> int:
        """Give the number of events that fill a turn, judged by an output; each thread has one at least."""
        events, seconds = self._work(raw.text)
        return max(self.threads, math.ceil(events / max(seconds, _LEAST_SECONDS) * turn_seconds(self.duration)))

    def _work(self, text: str) -> tuple[int, float]:
        """Read the number of events, and the mean of the seconds that the threads worked on them."""
        found = _RESULT.fullmatch(text)
        if found is None or (int(found["threads"]), int(found["limit"])) != (self.threads, self.max_prime):
            raise TrialFailed(f"sysbench gave no result as asked; {printed(text)}", _HINT)
        return int(found["events"]), float(found["worked"]) / 1000 / self.threads

"""sysbench's CPU test: how often a second it finds the prime numbers up to a limit by trial division.

One event checks every number from 3 to `max_prime`. It stays in the first cache and never enters the kernel; with
several `threads` it shows what a limit of CPUs costs. Results can be compared with published ones. Unlike Dhrystone and
Whetstone, it does not verify what it computes.

Settings: `duration`, rounded up to whole seconds, which is how sysbench counts; `threads`; `max_prime`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from tare.contracts import Setup, Workload
from tare.errors import TrialFailed
from tare.model import Metric, Raw, Value
from tare.units import Duration

_RESULT = re.compile(
    r"sysbench 1\.\S+ .*\n\nRunning the test with following options:\nNumber of threads: (?P<threads>\d+)\n"
    r"Initializing random number generator from current time\n\n\nPrime numbers limit: (?P<limit>\d+)\n\n"
    r"Initializing worker threads\.\.\.\n\nThreads started!\n\n"
    r"CPU speed:\n    events per second: +(?P<rate>\d+\.\d+)\n\n"
    r"General statistics:\n(?:    .*\n){2}\nLatency \(ms\):\n(?:    .*\n){5}\nThreads fairness:\n(?:    .*\n){2}\n",
    re.ASCII,
)


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

    def measure(self, setup: Setup) -> Iterable[Raw]:
        """Run sysbench inside; raises TrialFailed without an inside."""
        if setup.instance.inside is None:
            raise TrialFailed(f"{setup.instance.name}: sysbench runs inside", "leave this stack out of sysbench")
        seconds = math.ceil(self.duration)
        how = (f"--threads={self.threads}", f"--time={seconds}", f"--cpu-max-prime={self.max_prime}")
        argv = ("sysbench", "cpu", *how, "run")
        output = setup.instance.inside.run(*argv, timeout=60 + 10 * seconds)
        return (Raw(self.name, argv, output.text, output.seconds),)

    def parse(self, raw: Sequence[Raw]) -> Sequence[Value]:
        """Read the events a second; raises TrialFailed for anything but one whole result with these settings."""
        if [each.label for each in raw] != [self.name]:
            raise TrialFailed(f"expected one output of sysbench, found {[each.label for each in raw]}")
        match = _RESULT.fullmatch(raw[0].text)
        as_asked = match and (int(match["threads"]), int(match["limit"])) == (self.threads, self.max_prime)
        rate = float(match["rate"]) if match and as_asked else 0.0
        if not 0 < rate < math.inf:
            hint = "`tare show` has the whole output; it is that of `sysbench cpu`, version 1.0"
            raise TrialFailed(f"sysbench gave no rate as asked; it printed {raw[0].text[:800]!r}", hint)
        return (Value("rate", None, rate),)

    def seconds(self) -> float:
        """Estimate the seconds of `measure`."""
        return 0.1 + math.ceil(self.duration)

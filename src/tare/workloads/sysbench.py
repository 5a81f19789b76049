"""sysbench's CPU test: searches a second for the prime numbers up to a limit, by trial division.

An event checks every number from 3 to `max_prime`. It stays in the first cache and never enters the kernel. With
several `threads` it shows how a stack scales to several CPUs. None of the papers ran sysbench; its results can be
compared with published ones. Unlike Dhrystone and Whetstone, it does not verify its results.

Each turn runs the events that fill it (loads.cpu_programs). The start of sysbench's threads is not measured.

Settings: `duration`; `threads`, no more than the CPUs of an instance; `max_prime`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from tare.loads.cpu_programs import HEAD, TAIL, THREADS_STARTED, SysbenchTest
from tare.model.trial import Metric

_RESULT = re.compile(
    rf"{HEAD}Prime numbers limit: (?P<limit>\d+)\n\n{THREADS_STARTED}CPU speed:\n    events per second: .*\n\n{TAIL}",
    re.ASCII,
)


@dataclass(frozen=True)
class Sysbench(SysbenchTest):
    """Search for prime numbers by trial division."""

    name = "sysbench"
    title = "sysbench: prime numbers"
    metrics = (Metric("rate", "Searches for prime numbers", "events/s", "higher"),)
    test = "cpu"

    max_prime: Annotated[int, Field(ge=3, le=10_000_000)] = 10_000

    def options(self, events: int) -> tuple[str, ...]:  # noqa: ARG002 - only the memory test needs it
        """Return the limit of the primes."""
        return (f"--cpu-max-prime={self.max_prime}",)

    def match_output(self, text: str) -> re.Match[str] | None:
        """Match a complete output with this limit."""
        found = _RESULT.fullmatch(text)
        return found if found and int(found["limit"]) == self.max_prime else None

"""System calls: how often a second a process enters the kernel and comes back.

`perf bench syscall basic` calls getppid, which does next to nothing in the kernel: what it takes is the way there and
back. A sandbox that answers system calls itself, such as gVisor, takes another way; a container or a virtual machine
takes the same one as bare metal, unless filters of system calls or another kernel's defenses against side channels
make it longer.

Each turn makes as many calls as fill it. The start of perf is not measured. None of the papers measured system calls by
themselves.

Settings: `duration`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from tare.loads.perf_bench import MAX_LOOPS, Bench, PerfBench
from tare.loads.turns import TurnWorkload, turn_seconds
from tare.model.trial import Metric
from tare.model.units import Duration

_RESULT = re.compile(
    r"# Running 'syscall/basic' benchmark:\n# Executed (?P<loops>\d{1,10}) getppid\(\) calls\n"
    r"     Total time: \d+\.\d{3} \[sec\]\n\n +(?P<each>\d+\.\d{6}) usecs/op\n +-?\d+ ops/sec\n",
    re.ASCII,
)
_CLOCK_SECONDS = 1e-6  # the resolution of perf's clock


@dataclass(frozen=True)
class SystemCalls(TurnWorkload, PerfBench):
    """The way into the kernel and back."""

    name = "system-calls"
    title = "System calls"
    metrics = (Metric("rate", "System calls", "calls/s", "higher"),)
    benches = (Bench(("syscall", "basic"), _RESULT, 1, "rate"),)  # each loop is a call

    duration: Annotated[Duration, Field(gt=0, le=3600)] = 1.0

    @property
    def turn_seconds(self) -> float:
        """A tenth of the duration."""
        return turn_seconds(self.duration)

    def loops_after(self, loops: int, seconds: float) -> int:
        """Return the number of calls that fill a turn: perf's clock has nothing else in it."""
        return max(1, min(MAX_LOOPS, math.ceil(loops / max(seconds, _CLOCK_SECONDS) * self.turn_seconds)))

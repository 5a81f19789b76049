"""System calls: entries of a process into the kernel and back, a second.

`perf bench syscall basic` calls getppid, which does next to nothing in the kernel, so that the entry and the return are
the cost. A sandbox that implements system calls itself, such as gVisor, has another entry. A container or a virtual
machine has the same entry as bare metal, unless a filter of system calls, or a guest kernel's mitigations of side
channels, make it longer.

Each turn makes the calls that fill it. The start of perf is not measured. None of the papers measured system calls by
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
    """Entries into the kernel and back."""

    name = "system-calls"
    title = "System calls"
    metrics = (Metric("rate", "System calls", "calls/s", "higher"),)
    benches = (Bench(("syscall", "basic"), _RESULT, 1, "rate"),)  # a loop is a call

    duration: Annotated[Duration, Field(gt=0, le=3600)] = 1.0

    @property
    def turn_seconds(self) -> float:
        """Usual length of a turn."""
        return turn_seconds(self.duration)

    def loops_after(self, loops: int, seconds: float) -> int:
        """Return the number of calls that fill a turn. This is exact, because perf times nothing but the calls."""
        return max(1, min(MAX_LOOPS, math.ceil(loops / max(seconds, _CLOCK_SECONDS) * self.turn_seconds)))

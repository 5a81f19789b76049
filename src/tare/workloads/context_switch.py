"""Context switches: switches a second of one CPU between two processes.

In `perf bench sched pipe`, two processes pass a number back and forth over two pipes. Each has to wait for the other,
so that every round trip is two switches, with the write and the read that cause them. Both processes are pinned to one
CPU, the first CPU of the instance. On two CPUs, the benchmark measures the wake-up of an idle CPU. That took 17 times
as long on a virtual machine, and depends on the placement by the scheduler.

Every turn runs the same number of `loops`, which are round trips, on every stack. perf also counts the time in which
the second process starts and ends. With few loops, that would be most of the measured time.

None of the papers measured context switches by themselves.

Settings: `loops` of a turn; `repetitions`, the number of turns.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from tare.hosts.host import Host
from tare.loads.perf_bench import MAX_LOOPS, Bench, FixedLoopBench
from tare.model.errors import TrialFailed, quote_output
from tare.model.trial import Metric

_RESULT = re.compile(
    r"# Running 'sched/pipe' benchmark:\n# Executed (?P<loops>\d{1,10}) pipe operations between two processes\n\n"
    r"     Total time: \d+\.\d{3} \[sec\]\n\n +(?P<each>\d+\.\d{6}) usecs/op\n +\d+ ops/sec\n",
    re.ASCII,
)
_CPUS = re.compile(r"pid \d+'s current affinity list: (?P<first>\d+)(?:[-,]\d+)*\n", re.ASCII)
_SWITCHES = 2  # of a round trip


@dataclass(frozen=True)
class ContextSwitch(FixedLoopBench):
    """Switches between two processes that wait for each other on one CPU."""

    name = "context-switch"
    title = "Context switches"
    metrics = (Metric("rate", "Context switches", "switches/s", "higher"),)
    benches = (Bench(("sched", "pipe"), _RESULT, _SWITCHES, "rate"),)  # a loop is a round trip
    usual_rate = 2e5

    loops: Annotated[int, Field(ge=1000, le=MAX_LOOPS)] = 20_000

    def perf_command(self, inside: Host) -> tuple[str, ...]:
        """Return the command line that starts perf on the first CPU of the instance; raises TrialFailed."""
        text = inside.run("sh", "-c", 'exec taskset --cpu-list --pid "$$"', timeout=60).text
        if not (found := _CPUS.fullmatch(text)):
            raise TrialFailed(f"taskset did not print the CPUs of {self.name}; {quote_output(text)}")
        return ("taskset", "--cpu-list", found["first"], *super().perf_command(inside))

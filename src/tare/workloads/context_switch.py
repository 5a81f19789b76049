"""Context switches: how often a second one CPU goes from one process to another.

`perf bench sched pipe` lets two processes pass a number back and forth over two pipes. Each has to wait for the other,
so every trip there and back is two switches, with the write and the read that cause them. Both are kept on one CPU, the
first that the instance may use: on two, what is measured is the waking of an idle CPU, which took 17 times as long on a
virtual machine, and changes with where the scheduler puts them.

Every turn makes the same number of `loops`, trips there and back, on every stack. perf also counts the time in which
the second process starts and ends; with few loops, that would be most of what is measured.

None of the papers measured context switches by themselves.

Settings: `loops` of a turn; `repetitions`, the turns.
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
_SWITCHES = 2  # of a trip there and back


@dataclass(frozen=True)
class ContextSwitch(FixedLoopBench):
    """Two processes that wait for each other on one CPU."""

    name = "context-switch"
    title = "Context switches"
    metrics = (Metric("rate", "Context switches", "switches/s", "higher"),)
    benches = (Bench(("sched", "pipe"), _RESULT, _SWITCHES, "rate"),)  # each loop is a trip there and back
    usual_rate = 2e5

    loops: Annotated[int, Field(ge=1000, le=MAX_LOOPS)] = 20_000

    def perf_command(self, inside: Host) -> tuple[str, ...]:
        """Keep perf on the first CPU that the instance may use."""
        text = inside.run("sh", "-c", 'exec taskset --cpu-list --pid "$$"', timeout=60).text
        if not (found := _CPUS.fullmatch(text)):
            raise TrialFailed(f"taskset did not print the CPUs of {self.name}; {quote_output(text)}")
        return ("taskset", "--cpu-list", found["first"], *super().perf_command(inside))

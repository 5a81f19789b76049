"""Memory search at a rate: httperf opens new connections at one rate (loads.httperf), with less and less memory.

In the 2015 paper (section 3.3) OSv ran out of memory with 128 MB at 4000 requests a second. The throughput is the
answers a second, whether or not the server follows the rate. A stack that does not follow the rate with all its memory
is still compared with itself.

A run in which the client failed, or without any good answer, is repeated. After five such runs in a row the memory
misses the goal; with all the memory, the trial fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from tare.loads.client_load import MAX_RATE, LoadDuration
from tare.loads.density import LoadServerWorkload
from tare.loads.http import PageSize
from tare.loads.httperf import HttperfLoad
from tare.loads.memory_search import SmallestMemory
from tare.loads.parsing import as_output
from tare.model.errors import TimedOut, TrialFailed, quote_output
from tare.model.trial import Metric, RawOutput, Value
from tare.model.units import Duration, Size
from tare.plugins.workload import MeasurementContext

_ROUNDS = 5
_REPEATS = 5  # a burst of other work on the machine has outlasted three short runs
_ANSWERED, _TIMED_OUT = "answered", "timed-out"  # metrics of httperf


@dataclass(frozen=True)
class FixedRateLoad(LoadServerWorkload):
    """Server and load of another workload, at one rate: `rate` new connections a second."""

    name = "at-rate"
    title = "A server at one rate"
    metrics = (Metric(_ANSWERED, "Answers", "requests/s", "higher"),)
    rounds = _ROUNDS

    base_load: HttperfLoad
    rate: int

    @property
    def load(self) -> HttperfLoad:
        """Workload that provides the server."""
        return self.base_load

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run the load, the first time as a warm-up; raises TrialFailed, or TimedOut for a silent server."""
        for number in range(1 + self.rounds):
            yield self._run(setup, warm_up=number == 0)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the answers a second."""
        values = [value for each in raw for value in self.base_load.read_rate_result(each, self.rate).values]
        return tuple(value for value in values if value.metric == _ANSWERED)

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`."""
        return (1 + self.rounds) * (0.1 + self.base_load.duration)

    def _run(self, setup: MeasurementContext, *, warm_up: bool) -> RawOutput:
        """Run the load once; repeat a run in which the client failed, or without any good answer."""
        for _ in range(_REPEATS):
            raw = self.base_load.run_rate(setup, self.rate)
            answers = self.base_load.read_rate_result(raw, self.rate)
            if answers.answered_share > 0 and not answers.client_problem:
                return raw.as_warm_up() if warm_up else raw
        output = as_output(raw)
        if answers.client_problem:
            raise TrialFailed(f"at {self.rate}/s, {answers.client_problem}", "set a lower rate", output)
        is_silent = any(value.metric == _TIMED_OUT and value.value > 0 for value in answers.values)
        failure = TimedOut if is_silent else TrialFailed
        raise failure(f"the server gave no good answer at all at {self.rate}/s; {quote_output(raw.text)}", "", output)


@dataclass(frozen=True)
class SmallestMemoryAtRate(SmallestMemory):
    """Search for the smallest memory of a server at one rate. A plug-in sets `load_class`, the workload."""

    client_packages = HttperfLoad.client_packages
    usual_port = HttperfLoad.usual_port
    load_class: ClassVar[type[HttperfLoad]]

    least: Annotated[Size, Field(ge=1 << 16)] = 1 << 16  # lighttpd has met its goal with 1 MiB
    duration: Annotated[LoadDuration, Field(ge=0.5)] = 1.0
    rate: Annotated[int, Field(ge=100, le=MAX_RATE)] = 4000
    timeout: Annotated[Duration, Field(ge=0.01, le=60)] = 1.0
    size: PageSize = 1024

    @property
    def load(self) -> FixedRateLoad:
        """Load at the rate, in runs that take the duration together."""
        base_load = self.load_class(
            duration=self.duration / _ROUNDS, tolerance=1 - self.goal, timeout=self.timeout, size=self.size
        )
        return FixedRateLoad(base_load, self.rate)

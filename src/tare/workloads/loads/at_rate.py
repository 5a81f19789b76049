"""Memory pressure at a rate: a server of pages is asked at one rate of new connections, with less and less memory.

The 2015 paper (section 3.3) did this with its HTTP servers, halving the memory from 1 GiB: OSv ran out of it with 128
MB at 4000 requests a second. httperf asks as in loads.httperf, whether answers follow or not; the answers a second
are the throughput whose share is the goal (loads.pressure). A stack that does not follow the rate with all its
memory is still compared with itself.

A run that the client fails in, or that has no good answer at all, is no round: it is repeated. After five in a row the
memory has missed the goal, or the trial has failed if that was all the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field

from tare.contracts.workloads import MeasurementContext, Workload
from tare.errors import TimedOut, TrialFailed, printed
from tare.model.trials import Metric, Raw, Service, Value
from tare.units import Duration, Size
from tare.workloads.loads.http import PageSize
from tare.workloads.loads.httperf import HttperfLoad
from tare.workloads.loads.load import MOST_RATE, LoadDuration
from tare.workloads.loads.outputs import as_output
from tare.workloads.loads.pressure import UnderPressure

_ROUNDS = 5
_LOOKS = 5  # a burst of other work on the machine outlasted three short runs
_ANSWERED, _TIMED_OUT = "answered", "timed-out"


@dataclass(frozen=True)
class AtRate(Workload):
    """The server and the load of another workload, at one rate."""

    name = "at-rate"
    title = "A server at one rate"
    metrics = (Metric(_ANSWERED, "Answers", "requests/s", "higher"),)
    rounds = _ROUNDS

    of: HttperfLoad
    rate: int

    @property
    def port(self) -> int:
        """The port of its server."""
        return self.of.port

    @property
    def server(self) -> str:
        """The name under which it is served."""
        return self.of.server

    def service(self, listen: str) -> Service | None:
        """Return its server."""
        return self.of.service(listen)

    def measure(self, setup: MeasurementContext) -> Iterator[Raw]:
        """Ask; the first run warms up. Raises TrialFailed, or TimedOut for a server that is silent."""
        for number in range(1 + self.rounds):
            yield self._run(setup, warm_up=number == 0)

    def parse(self, raw: Sequence[Raw]) -> Sequence[Value]:
        """Read the answers a second."""
        values = [value for each in raw for value in self.of.answers(each, self.rate).values]
        return tuple(value for value in values if value.metric == _ANSWERED)

    def seconds(self) -> float:
        """Estimate the seconds of `measure`."""
        return (1 + self.rounds) * (0.1 + self.of.duration)

    def _run(self, setup: MeasurementContext, *, warm_up: bool) -> Raw:
        for _ in range(_LOOKS):
            raw = self.of.load(setup, self.rate)
            answers = self.of.answers(raw, self.rate)
            if answers.share > 0 and not answers.client:
                return replace(raw, warm_up=warm_up)
        output = as_output(raw)
        if answers.client:
            raise TrialFailed(f"at {self.rate}/s, {answers.client}", "set a lower rate", output)
        is_silent = any(value.metric == _TIMED_OUT and value.value > 0 for value in answers.values)
        kind = TimedOut if is_silent else TrialFailed
        raise kind(f"the server gave no good answer at all at {self.rate}/s; {printed(raw.text)}", "", output)


@dataclass(frozen=True)
class UnderPressureAtRate(UnderPressure):
    """Looks for the smallest memory of a server at one rate. A plug-in sets `of`, the workload."""

    client_packages = HttperfLoad.client_packages
    usual_port = HttperfLoad.usual_port
    of: ClassVar[type[HttperfLoad]]

    least: Annotated[Size, Field(ge=1 << 16)] = 1 << 16  # lighttpd has met its goal with 1 MiB
    duration: Annotated[LoadDuration, Field(ge=0.5)] = 1.0
    rate: Annotated[int, Field(ge=100, le=MOST_RATE)] = 4000
    timeout: Annotated[Duration, Field(ge=0.01, le=60)] = 1.0
    size: PageSize = 1024

    @property
    def load(self) -> AtRate:
        """The page at the rate, in runs that take the duration together."""
        each_seconds, tolerance = self.duration / _ROUNDS, 1 - self.goal
        of = self.of(duration=each_seconds, tolerance=tolerance, timeout=self.timeout, size=self.size)
        return AtRate(of, self.rate)

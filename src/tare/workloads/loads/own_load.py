"""Loads of a server of the user's: tare's HTTP loads with the user's requests, or a command on the client.

Each run of a command is a turn, however long it takes: so stacks alternate. There are as many as begin within the
duration, 20 at most. The first one warms up the server, and does not count. The load's CPU time is measured, against
all CPUs that the client has, as it is unknown how many it can use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tare.contracts.workloads import MeasurementContext, Workload
from tare.errors import TimedOut
from tare.hosts.host import Host
from tare.model.trials import Metric, Raw, Value
from tare.units import format_duration
from tare.workloads.loads.http import HTTP_PORT, HttpLoad
from tare.workloads.loads.latency import LatencyLoad
from tare.workloads.loads.load import client_cpus, measured_load, server_address, server_port
from tare.workloads.loads.outputs import check_labels
from tare.workloads.loads.own_metrics import OwnMetric, values_of
from tare.workloads.loads.requests import Request

MOST_RUNS = 20
_USUAL_SECONDS = 0.2  # of a run, whose length is unknown before
LABEL = "load"


def filled(text: str, **places: object) -> str:
    """Put values in the places of a text that are named in braces, and leave all other braces as they are."""
    for name, value in places.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text


@dataclass(frozen=True)
class WithoutPause(HttpLoad):
    """wrk asks for the requests again and again."""

    name = "without-pause"
    server = "service"
    title = "HTTP without a pause"
    page_bytes = 0

    asked: tuple[Request, ...] = ()
    port: int = HTTP_PORT


@dataclass(frozen=True)
class AtRates(LatencyLoad):
    """wrk asks for the requests at constant rates."""

    name = "at-rates"
    server = "service"
    title = "HTTP at constant rates"
    page_bytes = 0

    asked: tuple[Request, ...] = ()
    port: int = HTTP_PORT


@dataclass(frozen=True)
class OwnLoad(Workload):
    """Runs a command on the client, with the server's address and port in the places of {address} and {port}."""

    name = "own-load"
    server = "service"
    title = "A load of the user's own"
    rounds = MOST_RUNS  # there may be fewer

    argv: tuple[str, ...] = ()
    metrics: tuple[OwnMetric, ...] = ()
    port: int = HTTP_PORT
    duration: float = 1.0
    timeout: float = 60.0

    @property
    def all_metrics(self) -> Sequence[Metric]:
        """The user's metrics, as the report has them."""
        return tuple(each.metric for each in self.metrics)

    def measure(self, setup: MeasurementContext) -> Iterator[Raw]:
        """Run the load again and again; raises TrialFailed where it fails, or prints no metric."""
        address, port = server_address(setup), server_port(setup, self.server, self.port)
        argv = tuple(filled(word, address=address, port=port) for word in self.argv)
        cpus, spent_seconds = client_cpus(setup.client), 0.0
        for number in range(1 + self.rounds):
            raw = run_own(setup.client, argv, self.timeout, cpus)
            yield replace(raw, warm_up=number == 0)
            self.parse((raw,))  # what is wrong ends the trial now, not with its last run
            spent_seconds += raw.seconds if number else 0.0
            if number and spent_seconds >= self.duration:
                return

    def parse(self, raw: Sequence[Raw]) -> Sequence[Value]:
        """Read the user's metrics of a run; raises TrialFailed if one is missing, or is there twice."""
        check_labels(raw, [LABEL])
        return values_of(self.metrics, raw[0].text, raw[0].errors)

    def seconds(self) -> float:
        """Estimate the seconds of `measure`, as if a run took a fifth of a second."""
        return _USUAL_SECONDS + self.duration


def run_own(client: Host, argv: Sequence[str], timeout: float, cpus: int) -> Raw:
    """Run a load of the user's, once; raises TrialFailed if it fails, and TimedOut if it does not end."""
    try:
        return measured_load(client, LABEL, *argv, timeout=timeout, cpus=cpus)
    except TimedOut as error:
        what = f"{argv[0]}: did not end within {format_duration(timeout)}"
        raise TimedOut(what, "give it a longer timeout, or less to do", error.output) from error

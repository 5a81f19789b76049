"""redis-density: how many instances with a key-value store a machine holds, and the memory of each additional one.

The server is that of `redis`. redis-benchmark drives each instance over one connection (loads.density). None of the
papers counted instances.

Settings: `goal`, the 99th percentile of the latency that each instance has to keep; `most`, the largest number of
instances; `spare`, the share of the machine's memory that stays free; `requests`, the number that each instance is sent
at a time; `operation`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from tare.loads.density import Density
from tare.loads.redis_benchmark import Operation, read_slow_seconds
from tare.model.trial import RawOutput
from tare.plugins.workload import MeasurementContext
from tare.workloads.redis import Redis


@dataclass(frozen=True)
class RedisDensity(Density):
    """Number of key-value stores that a machine holds."""

    name = "redis-density"
    title = "Redis: how many instances"
    packages = Redis.packages
    client_packages = Redis.client_packages
    usual_port = Redis.usual_port

    requests: Annotated[int, Field(ge=100, le=1_000_000)] = 500
    operation: Operation = "SET"

    @property
    def load(self) -> Redis:
        """`redis` with a single operation and client."""
        return Redis((self.operation,), (1,))

    def run_requests(self, setup: MeasurementContext, label: str) -> RawOutput:
        """Send the requests."""
        return self.load.run_requests(setup, label, self.requests)

    def read_slow_seconds(self, text: str) -> float:
        """Return the 99th percentile of the latency in seconds; raises TrialFailed if there is none."""
        return read_slow_seconds(text, self.operation)

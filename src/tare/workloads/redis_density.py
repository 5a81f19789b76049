"""redis-density: how many instances with a key-value store a machine holds, and the memory of each further one.

The server is that of `redis`. redis-benchmark asks each instance over one connection (loads.density). None of the
papers counted instances.

Settings: `goal`, the 99th percentile of the latency that each has to keep; `most` instances; `spare`, the share of the
machine's memory that is left alone; `requests`, how many each is sent at a time; `operation`.
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
    """How many key-value stores a machine holds."""

    name = "redis-density"
    title = "Redis: how many instances"
    packages = Redis.packages
    client_packages = Redis.client_packages
    usual_port = Redis.usual_port

    requests: Annotated[int, Field(ge=100, le=1_000_000)] = 500
    operation: Operation = "SET"

    @property
    def load(self) -> Redis:
        """One operation with one client."""
        return Redis((self.operation,), (1,))

    def run_requests(self, setup: MeasurementContext, label: str) -> RawOutput:
        """Send the requests."""
        return self.load.run_requests(setup, label, self.requests)

    def read_slow_seconds(self, text: str) -> float:
        """Read the 99th percentile of the latency."""
        return read_slow_seconds(text, self.operation)

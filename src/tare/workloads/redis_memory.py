"""Smallest memory of Redis with which it still answers as fast as with enough memory.

The server and the load are those of `redis`: an empty store without persistence, and redis-benchmark on the client.
The OSv paper (section 3.3) searched the smallest memory of HTTP servers only, from 1 GiB down, at a fixed rate. Here
the load sends as much as it can, and the goal is a share of the throughput with all the memory of the suite
(loads.memory_search).

Settings: `goal`, the share of the throughput with all the memory; `precision`, the largest difference between the
memory that meets the goal and the one that misses it; `least`, the smallest memory to try; `operation`; `clients`;
`duration` of each attempt.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.loads.client_load import ClientCount
from tare.loads.memory_search import SmallestMemory
from tare.loads.redis_benchmark import Operation
from tare.workloads.redis import Redis


@dataclass(frozen=True)
class RedisMemory(SmallestMemory):
    """Smallest memory of a key-value store."""

    name = "redis-memory"
    title = "Redis: smallest memory"
    packages = Redis.packages
    client_packages = Redis.client_packages
    usual_port = Redis.usual_port

    clients: ClientCount = 50
    operation: Operation = "SET"

    @property
    def load(self) -> Redis:
        """`redis` with a single operation and number of clients."""
        return Redis((self.operation,), (self.clients,), duration=self.duration, load="redis-benchmark")

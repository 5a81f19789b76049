"""The smallest memory of Redis: with how little the key-value store still answers as quickly as with enough.

The server and the load are those of `redis`: an empty store without persistence, and redis-benchmark on the client.
The OSv paper (section 3.3) did this with its HTTP servers alone, from 1 GiB down, at a fixed rate; here the load sends
as much as it can, and the goal is a share of what all the memory of the suite gives (loads.memory_search).

Settings: `goal`, the share of the throughput with all the memory; `precision`, how far the memory that misses the goal
may be below the one that meets it; `least`, below which none is tried; `operation`; `clients`; `duration` of each try.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.loads.client_load import ClientCount
from tare.loads.memory_search import SmallestMemory
from tare.loads.redis_benchmark import Operation
from tare.workloads.redis import Redis


@dataclass(frozen=True)
class RedisMemory(SmallestMemory):
    """The smallest memory of a key-value store."""

    name = "redis-memory"
    title = "Redis: smallest memory"
    packages = Redis.packages
    client_packages = Redis.client_packages
    usual_port = Redis.usual_port

    clients: ClientCount = 50
    operation: Operation = "SET"

    @property
    def load(self) -> Redis:
        """One operation with one number of clients."""
        return Redis((self.operation,), (self.clients,), duration=self.duration)

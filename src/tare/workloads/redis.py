"""Redis: GET and SET of a key-value store in memory, in requests a second over the number of clients.

A Redis server without persistence runs in the instance. redis-benchmark on the client keeps `clients` connections busy
with one short key, which is set at the start so that every GET finds it. The 2017 paper (section V-B, Figure 5)
measured GET and SET with 0 to 1000 clients in steps of 100, with keep-alive and pipelining. It does not give the depth
of the pipeline.

The paper ran redis-benchmark on a separate host, against Redis 3.0.1. Here redis-benchmark starts in each turn
(loads.redis_benchmark), because stacks take turns and it cannot pause. The time in which it starts and its clients
connect is not measured. With many clients, turns are longer and fewer.

Settings: `operations`; `clients`; `pipeline`, the requests that a client sends at once; `keep_alive`, without which
every request opens a new connection; `duration`, about how long each point is measured (but each client sends at least
5 times in a turn).
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.loads.redis_benchmark import REDIS_PORT, RedisLoad
from tare.model.trial import Service


@dataclass(frozen=True)
class Redis(RedisLoad):
    """GET and SET requests to a key-value store."""

    name = "redis"
    title = "Redis: key-value store"
    packages = ("redis-server",)
    usual_port = 6379

    def service(self, listen: str) -> Service:
        """Return a server without persistence; its backlog is somaxconn of the 2017 paper's Table III."""
        address = ("--port", str(REDIS_PORT), "--bind", listen, "--protected-mode", "no", "--tcp-backlog", "1024")
        # Without keep-alive, connections that the server has not yet closed count as clients, too.
        memory_only = ("--save", "", "--appendonly", "no", "--maxclients", "4000")
        return Service(("/usr/bin/redis-server", *address, *memory_only, "--daemonize", "no"), REDIS_PORT)

"""Redis: GET and SET of a key-value store in memory, in requests a second over the number of clients.

A Redis server without persistence runs in the instance. The client keeps `clients` connections busy with one short key,
which is set at the start so that every GET finds it. The 2017 paper (section V-B, Figure 5) measured GET and SET with 0
to 1000 clients in steps of 100, with keep-alive and pipelining. It does not give the depth of the pipeline.

The paper ran redis-benchmark on a separate host, against Redis 3.0.1. The load here is tare's load client
(loads.load_client), which sends the same requests in turns of a few milliseconds, or redis-benchmark. As stacks take
turns and redis-benchmark cannot pause, it starts in each turn (loads.redis_benchmark). The time in which it starts and
its clients connect is not measured. With many clients, its turns are longer and fewer.

Settings: `operations`; `clients`; `pipeline`, the requests that a client sends at once; `keep_alive`, without which
every request opens a new connection; `duration`, about how long each point is measured (but each client of
redis-benchmark sends at least 5 times in a turn); `turn`, the part of a turn that counts, and `discard`, the first
part, which does not count (0: the run chooses both); `load`, `tare` or `redis-benchmark`.
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

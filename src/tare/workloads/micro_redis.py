"""micro over Redis's protocol: GET and SET on tare's own small server, the same program as in the unikernels.

It compares unikernels with everything else: the server is one source with one thread (programs/unikernel), which uses
the kernel's sockets on Linux and smoltcp in a unikernel. The load is that of `redis`, by redis-benchmark. The 2017
paper (section V-B) compared Redis on OSv and Rumprun with Redis on Linux. Here the server is small and has one source
for all; its numbers cannot be compared with the paper's.

Settings: `operations`; `clients`; `pipeline`, the requests that a client sends at once; `keep_alive`, or else every
request takes a new connection; `duration`, about how long each point is measured, but each client sends 5 times.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.images.micro import SERVER
from tare.loads.redis_benchmark import RedisLoad
from tare.model.trial import Service


@dataclass(frozen=True)
class MicroRedis(RedisLoad):
    """GET and SET of tare's own key-value store."""

    name = "micro-redis"
    title = "micro: key-value store"

    def service(self, listen: str) -> Service:
        """Return the server, which a unikernel has built in."""
        return Service((SERVER, "--listen", listen), self.port)

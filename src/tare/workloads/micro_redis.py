"""micro over Redis's protocol: GET and SET on tare's small server, the same program as in the unikernels.

This workload compares unikernels with all other stacks. The server has one thread, and is built from the same source
for all (programs/unikernel): it uses the kernel's sockets on Linux, and smoltcp in a unikernel. The load is that of
`redis`. The 2017 paper (section V-B) compared Redis on OSv and Rumprun with Redis on Linux. The server of this workload
is much smaller, so its numbers cannot be compared with the paper's.

Settings: `operations`; `clients`; `pipeline`, the requests that a client sends at once; `keep_alive`, without which
every request opens a new connection; `duration`, about how long each point is measured (but each client of
redis-benchmark sends at least 5 times in a turn); `turn`, the part of a turn that counts, and `discard`, the first
part, which does not count (0: the run chooses both); `load`, `tare` or `redis-benchmark`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.images.micro import SERVER
from tare.loads.redis_benchmark import RedisLoad
from tare.model.trial import Service


@dataclass(frozen=True)
class MicroRedis(RedisLoad):
    """GET and SET requests to tare's key-value store."""

    name = "micro-redis"
    title = "micro: key-value store"

    def service(self, listen: str) -> Service:
        """Return the server. A unikernel has it built in."""
        return Service((SERVER, "--listen", listen), self.port)

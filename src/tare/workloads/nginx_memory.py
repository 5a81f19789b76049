"""Smallest memory of nginx with which it still serves a file as fast as with enough memory.

The server and the load are those of `nginx`: one worker, a small file, and wrk on the client. The OSv paper (section
3.3) halved the memory of its HTTP servers from 1 GiB: Apache on Ubuntu was normal down to 256 MB, OSv ran out of memory
with 128 MB at 4000 requests a second. Here the load sends as much as it can, and the goal is a share of the throughput
with all the memory of the suite (loads.memory_search).

Settings: `goal`, the share of the throughput with all the memory; `precision`, the largest difference between the
memory that meets the goal and the one that misses it; `least`, the smallest memory to try; `clients`; `size` of the
file; `duration` of each attempt.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.loads.client_load import ClientCount
from tare.loads.http import PageSize
from tare.loads.memory_search import SmallestMemory
from tare.workloads.nginx import Nginx


@dataclass(frozen=True)
class NginxMemory(SmallestMemory):
    """Smallest memory of a web server of a static file."""

    name = "nginx-memory"
    title = "nginx: smallest memory"
    packages = Nginx.packages
    client_packages = Nginx.client_packages
    usual_port = Nginx.usual_port
    paths = Nginx.paths

    clients: ClientCount = 50
    size: PageSize = 1024

    @property
    def load(self) -> Nginx:
        """`nginx` with a single number of clients."""
        return Nginx((self.clients,), self.duration, size=self.size, load="wrk")

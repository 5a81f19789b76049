"""The smallest memory of lighttpd: with how little it still answers as many new connections as with enough.

The server is that of `lighttpd`; httperf on the client opens 4000 connections a second, each for one request. The OSv
paper (section 3.3) halved the memory of lighttpd 1.4.35 on OSv from 1 GiB: it was normal down to 256 MB, and ran out of
memory with 128 MB at 4000 requests a second. Here the gap between the halves is divided, and the goal is a share of
what all the memory of the suite gives at the same rate (loads.memory_search).

Settings: `goal`, the share of the answers with all the memory; `precision`, how far the memory that misses the goal may
be below the one that meets it; `least`, below which none is tried; `rate` of requests; `duration` of each try;
`timeout` of an answer; `size` of the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.loads.memory_search import SmallestMemoryAtRate
from tare.workloads.lighttpd import Lighttpd


@dataclass(frozen=True)
class LighttpdMemory(SmallestMemoryAtRate):
    """The smallest memory of a server of new connections."""

    name = "lighttpd-memory"
    title = "lighttpd: smallest memory"
    packages = Lighttpd.packages
    paths = Lighttpd.paths
    load_class = Lighttpd

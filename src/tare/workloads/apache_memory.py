"""The smallest memory of Apache: with how little it still answers as many new connections as with enough.

The server is that of `apache`; httperf on the client opens 4000 connections a second, each for one request. The OSv
paper (section 3.3) halved the memory of Apache 2.4.7 on Linux from 1 GiB: it was normal down to 256 MB, the least that
Ubuntu Server is specified for. The paper does not look between its halves; here the gap is divided, and the goal is a
share of what all the memory of the suite gives at the same rate (loads.memory_search).

Settings: `goal`, the share of the answers with all the memory; `precision`, how far the memory that misses the goal may
be below the one that meets it; `least`, below which none is tried; `rate` of requests; `duration` of each try;
`timeout` of an answer; `size` of the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.loads.memory_search import SmallestMemoryAtRate
from tare.workloads.apache import Apache


@dataclass(frozen=True)
class ApacheMemory(SmallestMemoryAtRate):
    """The smallest memory of a server of new connections."""

    name = "apache-memory"
    title = "Apache: smallest memory"
    packages = Apache.packages
    paths = Apache.paths
    load_class = Apache

"""Smallest memory of Apache with which it still answers as many new connections as with enough memory.

The server is that of `apache`. httperf on the client opens 4000 connections a second, each for one request. The OSv
paper (section 3.3) halved the memory of Apache 2.4.7 on Linux from 1 GiB: it was normal down to 256 MB, the minimum of
Ubuntu Server. The paper does not look between its halves. Here the search continues between them, and the goal is a
share of the answers with all the memory of the suite at the same rate (loads.memory_at_rate).

Settings: `goal`, the share of the answers with all the memory; `precision`, the largest difference between the memory
that meets the goal and the one that misses it; `least`, the smallest memory to try; `rate` of requests; `duration` of
each attempt; `timeout` of an answer; `size` of the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.loads.memory_at_rate import SmallestMemoryAtRate
from tare.workloads.apache import Apache


@dataclass(frozen=True)
class ApacheMemory(SmallestMemoryAtRate):
    """Smallest memory of a web server under new connections."""

    name = "apache-memory"
    title = "Apache: smallest memory"
    needs_other_user = True
    packages = Apache.packages
    paths = Apache.paths
    load_class = Apache

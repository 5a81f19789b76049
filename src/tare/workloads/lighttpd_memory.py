"""Smallest memory of lighttpd with which it still answers as many new connections as with enough memory.

The server is that of `lighttpd`. httperf on the client opens 4000 connections a second, each for one request. The OSv
paper (section 3.3) halved the memory of lighttpd 1.4.35 on OSv from 1 GiB: it was normal down to 256 MB, and ran out of
memory with 128 MB at 4000 requests a second. Here the search continues between the halves, and the goal is a share of
the answers with all the memory of the suite at the same rate (loads.memory_at_rate).

Settings: `goal`, the share of the answers with all the memory; `precision`, the largest difference between the memory
that meets the goal and the one that misses it; `least`, the smallest memory to try; `rate` of requests; `duration` of
each attempt; `timeout` of an answer; `size` of the file.
"""

from __future__ import annotations

from dataclasses import dataclass

from tare.loads.memory_at_rate import SmallestMemoryAtRate
from tare.workloads.lighttpd import Lighttpd


@dataclass(frozen=True)
class LighttpdMemory(SmallestMemoryAtRate):
    """Smallest memory of a web server under new connections."""

    name = "lighttpd-memory"
    title = "lighttpd: smallest memory"
    packages = Lighttpd.packages
    paths = Lighttpd.paths
    load_class = Lighttpd

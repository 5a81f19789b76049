"""Number and hourly cost of machines that a load needs, with response times (M/M/c).

Requests come at random, each takes its time on one of c CPUs, and who finds all of them busy waits (Kleinrock,
"Queueing Systems", volume 1, Wiley 1975, section 3.5). With offered load a = rate · service time, and b the part of
requests that would be lost if none could wait (Erlang B, by its recursion in c), the part of requests that wait is

    C = b / (1 - (a / c) (1 - b))

and they wait for service time / (c - a) on the average.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


def response_seconds(rate: float, service_seconds: float, cpus: int) -> float | None:
    """Return the mean time from a request to its answer; None where the CPUs cannot keep up with the rate."""
    offered = rate * service_seconds
    if offered >= cpus:
        return None
    blocked = 1.0
    for number in range(1, cpus + 1):
        blocked = offered * blocked / (number + offered * blocked)
    waiting = blocked / (1 - offered / cpus * (1 - blocked))
    return service_seconds + waiting * service_seconds / (cpus - offered)


@dataclass(frozen=True)
class Kind:
    """A kind of machine whose CPUs are like those of the prices; `hourly` is its price. None is unknown."""

    cpus: int
    hourly: float | None = None
    memory_bytes: int | None = None
    name: str = ""


@dataclass(frozen=True)
class Machines:
    """Machines of one kind that serve a load: each an equal part of it, with one instance on each.

    `busy` is the share of their CPU time that is in use. `response_seconds` is the mean time from a request to its
    answer, without what it waits for beside CPUs.
    """

    kind: Kind
    count: int
    busy: float
    response_seconds: float

    @property
    def hourly(self) -> float | None:
        """What they cost an hour."""
        return None if self.kind.hourly is None else self.count * self.kind.hourly


def machines_for(kind: Kind, rate: float, cpu_seconds: float) -> Machines:
    """Return the fewest machines of a kind that keep up with so many requests a second."""
    count = math.floor(rate * cpu_seconds / kind.cpus) + 1
    busy = rate * cpu_seconds / (count * kind.cpus)
    seconds = response_seconds(rate / count, cpu_seconds, kind.cpus)
    return Machines(kind, count, busy, math.inf if seconds is None else seconds)


def cheapest(kinds: Iterable[Kind], rate: float, cpu_seconds: float, memory_bytes: int | None) -> Machines | None:
    """Return the machines that cost the least, or without prices the fewest; None where no kind has the memory."""
    found = [
        machines_for(kind, rate, cpu_seconds)
        for kind in kinds
        if kind.memory_bytes is None or memory_bytes is None or memory_bytes <= kind.memory_bytes
    ]
    return min(found, key=lambda each: (each.hourly or 0.0, each.count, each.response_seconds), default=None)

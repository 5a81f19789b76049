"""How many machines a load takes, what they cost an hour, and how long a request takes there."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from tare.statistics.queue import response_seconds


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

"""What a machine's CPUs did while turns went on: read right before and after each, and never while one goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tare.contracts import Host
from tare.telemetry.parsers import CpuTimes, parse_cpu_each, parse_cpu_total
from tare.telemetry.readings import read_as


@dataclass
class Stretch:
    """A stretch of time: `steal_share` is known after it, None where the machine does not say.

    `rest_seconds` are those in which nothing was asked of the CPUs, which is for others to say.
    """

    steal_share: float | None = None
    rest_seconds: float = 0.0


class Spent:
    """Adds up what some CPUs of a host did in stretches of time."""

    def __init__(self, host: Host, cpus: Sequence[int]) -> None:
        self._host = host
        self._cpus = tuple(cpus)
        self._times: list[tuple[Stretch, CpuTimes]] = []

    @property
    def busy_share(self) -> float | None:
        """Share of the time of these CPUs that was not idle, stolen time too; 0 to 1, None where it cannot be told.

        Leaves out the rests.
        """
        total = sum(each.total_seconds - stretch.rest_seconds for stretch, each in self._times)
        used = sum(each.used_seconds + each.steal_seconds for _, each in self._times)
        return min(1.0, used / total) if total > 0 else None

    @contextmanager
    def counted(self) -> Iterator[Stretch]:
        """Count what the CPUs do in the block."""
        stretch, before = Stretch(), self._host.read("/proc/stat")
        yield stretch
        after = self._host.read("/proc/stat")
        first, last = (read_as(parse_cpu_total, lambda text: text, text) for text in (before, after))
        if first and last:
            stretch.steal_share = last.since(first).steal_share
        earlier, later = (read_as(parse_cpu_each, lambda text: text, text) or {} for text in (before, after))
        known = [cpu for cpu in self._cpus if cpu in earlier and cpu in later]
        self._times += [(stretch, later[cpu].since(earlier[cpu])) for cpu in known]

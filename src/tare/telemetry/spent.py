"""What a machine's CPUs did while turns went on: read right before and after each, and never while one goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from tare.contracts import Host
from tare.telemetry.parsers import CpuTimes, parse_cpu_each, parse_cpu_total
from tare.telemetry.readings import read_as
from tare.telemetry.sampler import share


@dataclass
class Stretch:
    """A stretch of time: `steal_share` is known after it, None where the machine does not say."""

    steal_share: float | None = None


class Spent:
    """Adds up what some CPUs of a host did in stretches of time."""

    def __init__(self, host: Host, cpus: Sequence[int]) -> None:
        self._host = host
        self._cpus = tuple(cpus)
        self._times: list[CpuTimes] = []

    @property
    def busy_share(self) -> float | None:
        """Share of the time of these CPUs that was not idle, stolen time too; 0 to 1, None where it cannot be told."""
        return share(sum(each.used_seconds + each.steal_seconds for each in self._times), self._times)

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
        self._times += [later[cpu].since(earlier[cpu]) for cpu in self._cpus if cpu in earlier and cpu in later]

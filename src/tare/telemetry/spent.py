"""What a machine's CPUs did while turns went on: read right before and after each, and never while one goes on."""

from __future__ import annotations

from collections.abc import Sequence

from tare.telemetry.parsers import CpuTimes, parse_cpu_each, parse_cpu_total, parsed


class Spent:
    """Adds up what some CPUs of a machine did in turns, from texts of its /proc/stat; an empty one means unknown.

    `latest` is how many of them were busy in the latest turn, in the mean, such as 0.3; None where it is unknown.
    """

    def __init__(self, cpus: Sequence[int]) -> None:
        self._cpus = tuple(cpus)
        self._before = ""
        self._total_seconds = self._used_seconds = 0.0
        self.latest: float | None = None

    @property
    def busy_share(self) -> float | None:
        """Share of the time of these CPUs that was not idle, stolen time too; 0 to 1, None where it is unknown.

        Leaves out the rests.
        """
        return min(1.0, self._used_seconds / self._total_seconds) if self._total_seconds > 0 else None

    def begin(self, text: str) -> None:
        """Begin a turn."""
        self._before = text

    def end(self, text: str, rest_seconds: float) -> float | None:
        """End a turn, in which nothing was asked of the CPUs for so long; return the share of it that was stolen."""
        earlier, later = (parsed(parse_cpu_each, each) or {} for each in (self._before, text))
        turns = [later[cpu].since(earlier[cpu]) for cpu in self._cpus if cpu in earlier and cpu in later]
        for spent in turns:
            self._add(spent, rest_seconds)
        self.latest = _busy_cpus(turns, rest_seconds)
        first, last = (parsed(parse_cpu_total, each) for each in (self._before, text))
        return last.since(first).steal_share if first and last else None

    def _add(self, spent: CpuTimes, rest_seconds: float) -> None:
        self._total_seconds += spent.total_seconds - rest_seconds
        self._used_seconds += spent.used_seconds + spent.steal_seconds


def _busy_cpus(turns: Sequence[CpuTimes], rest_seconds: float) -> float | None:
    """Return how many CPUs did something or waited for a disk in a turn, in the mean; None if that is unknown."""
    seconds = max((spent.total_seconds - rest_seconds for spent in turns), default=0.0)
    return sum(spent.total_seconds - spent.idle_seconds for spent in turns) / seconds if seconds > 0 else None

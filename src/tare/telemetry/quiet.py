"""Whether an instance rests while other instances have their turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from tare.contracts import Host
from tare.model import Caution
from tare.telemetry.parsers import ProcessTimes, parse_process_times
from tare.telemetry.readings import TICKS_PER_SECOND, read_as

LIMIT = 0.02  # share of a CPU above which it is told


class Quiet:
    """Adds up the CPU time that the processes of an instance use while it is not its turn."""

    def __init__(self, host: Host, processes: Callable[[], Sequence[int]]) -> None:
        self._host = host
        self._processes = processes
        self._last: tuple[float, float] | None = None
        self._used_seconds = self._seconds = 0.0

    @property
    def busy_share(self) -> float | None:
        """What it used between its turns, as a share of one CPU; None where it had no two turns."""
        return self._used_seconds / self._seconds if self._seconds else None

    def caution(self) -> Caution | None:
        """Doubt the turns of the others where this one did not rest."""
        share = self.busy_share
        if share is None or share <= LIMIT:
            return None
        text = f"it used {share:.0%} of a CPU while others had their turns: they may seem slower than they are"
        return Caution("busy-when-idle", text)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Leave out what is used in the block: a turn."""
        if self._last is not None:
            now, used = time.monotonic(), self._cpu_seconds()
            self._seconds += now - self._last[0]
            self._used_seconds += max(0.0, used - self._last[1])  # less where a process has ended
        yield
        self._last = (time.monotonic(), self._cpu_seconds())

    def _cpu_seconds(self) -> float:
        used = 0.0
        for pid in self._processes():
            times = read_as(
                lambda text: parse_process_times(text, TICKS_PER_SECOND), self._host.read, f"/proc/{pid}/stat"
            )
            if times:
                used += times.user_seconds + times.system_seconds + times.reaped_user_seconds
                used += times.reaped_system_seconds
        return used


def _process_times(text: str) -> ProcessTimes:
    return parse_process_times(text, TICKS_PER_SECOND)

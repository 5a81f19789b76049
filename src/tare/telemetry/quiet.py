"""Whether an instance rests while other instances have their turns; one that does not is paused between its own."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from tare.contracts import Host
from tare.model import Caution
from tare.telemetry.parsers import ProcessTimes, parse_process_times
from tare.telemetry.readings import TICKS_PER_SECOND, read_as

LIMIT = 0.02  # share of a CPU above which it is paused
_LEAST_SECONDS = 0.02  # two ticks of the kernel's counters: one may be chance


class Quiet:
    """Adds up the CPU time that the processes of an instance on this machine use while it is not its turn."""

    def __init__(self, host: Host, processes: Callable[[], Sequence[int]]) -> None:
        self._host = host
        self._processes = processes
        self._last: tuple[float, float] | None = None
        self._used_seconds = self._seconds = 0.0
        self._share: float | None = None  # what it used when it was first paused
        self._paused: tuple[int, ...] = ()

    def caution(self) -> Caution | None:
        """Doubt the turns of the others before this one was paused."""
        if self._share is None:
            return None
        text = f"it used {self._share:.0%} of a CPU while others had their turns; from then on, it was paused meanwhile"
        return Caution("busy-when-idle", text)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Let it go on for the block, a turn, which is not counted."""
        self.resume()
        if self._last is not None and self._share is None:
            now, used = time.monotonic(), self._cpu_seconds()
            self._seconds += now - self._last[0]
            self._used_seconds += max(0.0, used - self._last[1])  # less if a process has ended
            if self._used_seconds > max(LIMIT * self._seconds, _LEAST_SECONDS):
                self._share = self._used_seconds / self._seconds
        yield
        if self._share is not None:
            self._pause()
        else:
            self._last = (time.monotonic(), self._cpu_seconds())

    def resume(self) -> None:
        """Let it go on, if it is paused."""
        self._signal(signal.SIGCONT)
        self._paused = ()

    def _pause(self) -> None:
        self._paused = tuple(self._processes())
        self._signal(signal.SIGSTOP)

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._paused:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

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

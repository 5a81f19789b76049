"""Whether an instance rests while other instances have their turns; one that does not is paused between its own.

gVisor's kernel, a process, starts further ones that change the memory of its programs for it. They wait for its answer
in the host's kernel (seccomp's notifications). A signal ends that wait, and gVisor's kernel may then take such a
process for dead and kill it with its program. So they are not paused: they do nothing by themselves.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.model.trials import Caution
from tare.telemetry.files import texts_of
from tare.telemetry.parsers import ProcessTimes, parse_process_times, parsed

LIMIT = 0.02  # share of a CPU above which it is paused
_LEAST_SECONDS = 0.02  # two ticks of the kernel's counters: one may be chance
_ANSWER_SECONDS = 30.0
_Times = tuple[float, float]  # of CPU, in seconds: of a process, and of the children that it has waited for
_GVISOR = "runsc-sandbox\0"  # how the command line of its kernel begins
_SIGNAL = 'kill -s "$@" 2>/dev/null; true'  # some may have ended


class Quiet:
    """Adds up the CPU time that the processes of an instance use while it is not its turn.

    The texts of the files in `wanted` are passed to it right before and right after each turn. A process that is new
    after a turn counts from the next one on: over SSH, listing them takes another command.
    """

    def __init__(self, host: Host, processes: Callable[[], Sequence[int]]) -> None:
        self._host = host
        self._processes = processes
        self._pids = tuple(processes())
        self._last: tuple[float, Mapping[str, _Times]] | None = None
        self._used_seconds = self._seconds = 0.0
        self._share: float | None = None  # what it used when it was first paused
        self._paused: tuple[int, ...] = ()
        self._parents: dict[int, int] = {}
        self._kernels: frozenset[int] | None = None  # those of gVisor; unknown until the first pause

    @property
    def wanted(self) -> tuple[str, ...]:
        """The files whose texts it wants; none once it is known not to rest, unless it is gVisor."""
        if self._share is not None and self._kernels == frozenset():
            return ()
        return tuple(f"/proc/{pid}/stat" for pid in self._pids)

    def caution(self) -> Caution | None:
        """Doubt the turns of the others before this one was paused."""
        if self._share is None:
            return None
        text = f"it used {self._share:.0%} of a CPU while others had their turns; from then on, it was paused meanwhile"
        return Caution("busy-when-idle", text)

    def begin(self, texts: Mapping[str, str]) -> None:
        """Count what it has used since its last turn."""
        times = self._take(texts)
        if self._last is None or self._share is not None:
            return
        self._seconds += time.monotonic() - self._last[0]
        self._used_seconds += _used_seconds(self._last[1], _cpu_times(times))
        if self._used_seconds > max(LIMIT * self._seconds, _LEAST_SECONDS):
            self._share = self._used_seconds / self._seconds

    def end(self, texts: Mapping[str, str]) -> None:
        """Watch it from now on, or pause it."""
        now, times = time.monotonic(), self._take(texts)
        self._pids = tuple(self._processes())
        if self._share is not None:
            self._paused = self._pausable()
            self._signal(signal.SIGSTOP)
            return
        self._last = (now, _cpu_times(times))

    def leave(self) -> None:
        """Take note that it has no more turns: pause it again if it does not rest."""
        self._last = None
        if self._share is not None:
            self.end({})

    def resume(self) -> None:
        """Let it go on, if it is paused."""
        self._signal(signal.SIGCONT)
        self._paused = ()

    def _take(self, texts: Mapping[str, str]) -> dict[str, ProcessTimes]:
        """Read the files of processes, and remember their parents."""
        found = {path: parsed(parse_process_times, text) for path, text in texts.items() if path != "/proc/stat"}
        times = {path: each for path, each in found.items() if each}
        self._parents |= {_number(path): each.parent for path, each in times.items()}
        return times

    def _pausable(self) -> tuple[int, ...]:
        """Return its processes, of gVisor without those that its kernel has started.

        There, one that is new in a turn is paused from the next one on: over SSH, reading its parent takes a command.
        """
        if self._kernels is None:
            self._kernels = self._find_kernels()
        if not self._kernels:
            return self._pids
        return tuple(pid for pid in self._pids if pid in self._parents and self._parents[pid] not in self._kernels)

    def _find_kernels(self) -> frozenset[int]:
        parents = {f"/proc/{self._parents[pid]}/cmdline" for pid in self._pids if pid in self._parents}
        texts = texts_of(self._host, sorted(parents))
        return frozenset(_number(path) for path, text in texts.items() if text.startswith(_GVISOR))

    def _signal(self, number: signal.Signals) -> None:
        if not self._paused:
            return
        if not isinstance(self._host, LocalHost):
            words = (number.name.removeprefix("SIG"), *map(str, self._paused))
            self._host.run("sh", "-c", _SIGNAL, "sh", *words, timeout=_ANSWER_SECONDS)
            return
        for pid in self._paused:
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def _number(path: str) -> int:
    """Return the number of the process of a path below /proc."""
    return int(path.split("/")[2])


def _cpu_times(times: Mapping[str, ProcessTimes]) -> dict[str, _Times]:
    """Return the CPU time of each process, and that of the children that it has waited for, by its file."""
    return {
        path: (each.user_seconds + each.system_seconds, each.reaped_user_seconds + each.reaped_system_seconds)
        for path, each in times.items()
    }


def _used_seconds(before: Mapping[str, _Times], now: Mapping[str, _Times]) -> float:
    """Return what processes that were known before have used since.

    That of one that has ended is its parent's now. It is unknown when a process that is new used its time, nor what its
    parent then counts when it ends: a server's process for a connection works in a turn, and ends right after it.
    """
    known = before.keys() & now.keys()
    used = sum(now[path][0] - before[path][0] for path in known)
    if ended := before.keys() - known:
        reaped = sum(now[path][1] - before[path][1] for path in known)
        used += max(0.0, reaped - sum(sum(before[path]) for path in ended))
    return max(0.0, used)

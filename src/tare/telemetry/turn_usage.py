"""CPU usage at turn boundaries, and detection of instances busy outside their turns.

gVisor's kernel, a process, starts further ones that change the memory of its programs for it. They wait for its answer
in the host's kernel (seccomp's notifications). A signal ends that wait, and gVisor's kernel may then take such a
process for dead and kill it with its program. So they are not paused: they do nothing by themselves.

Over SSH, that is one command at each edge. It is waited for outside of the turn: no round trip is in one.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.model.trial import Caution
from tare.telemetry.kernel_files import read_files
from tare.telemetry.procfs import (
    CpuTimes,
    ProcessTimes,
    parse_cpu_each,
    parse_cpu_total,
    parse_or_none,
    parse_process_times,
)

BUSY_SHARE_LIMIT = 0.02  # share of a CPU above which it is paused
_MIN_BUSY_SECONDS = 0.02  # two ticks of the kernel's counters: one may be chance
_ANSWER_SECONDS = 30.0
_Times = tuple[float, float]  # of CPU, in seconds: of a process, and of the children that it has waited for
_GVISOR = "runsc-sandbox\0"  # how the command line of its kernel begins
_SIGNAL = 'kill -s "$@" 2>/dev/null; true'  # some may have ended
_STAT_PATH = "/proc/stat"


class IdleWatch:
    """Adds up the CPU time that the processes of an instance use while it is not its turn.

    The texts of the files in `needed_paths` are passed to it right before and right after each turn. A process that is
    new after a turn counts from the next one on: over SSH, listing them takes another command.
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
    def needed_paths(self) -> tuple[str, ...]:
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

    def begin_turn(self, texts: Mapping[str, str]) -> None:
        """Count what it has used since its last turn."""
        times = self._parse_texts(texts)
        if self._last is None or self._share is not None:
            return
        self._seconds += time.monotonic() - self._last[0]
        self._used_seconds += _used_seconds(self._last[1], _cpu_times(times))
        if self._used_seconds > max(BUSY_SHARE_LIMIT * self._seconds, _MIN_BUSY_SECONDS):
            self._share = self._used_seconds / self._seconds

    def end_turn(self, texts: Mapping[str, str]) -> None:
        """Watch it from now on, or pause it."""
        now, times = time.monotonic(), self._parse_texts(texts)
        self._pids = tuple(self._processes())
        if self._share is not None:
            self._paused = self._pausable_pids()
            self._signal(signal.SIGSTOP)
            return
        self._last = (now, _cpu_times(times))

    def finish(self) -> None:
        """Take note that it has no more turns: pause it again if it does not rest."""
        self._last = None
        if self._share is not None:
            self.end_turn({})

    def resume(self) -> None:
        """Let it go on, if it is paused."""
        self._signal(signal.SIGCONT)
        self._paused = ()

    def _parse_texts(self, texts: Mapping[str, str]) -> dict[str, ProcessTimes]:
        """Read the files of processes, and remember their parents."""
        found = {path: parse_or_none(parse_process_times, text) for path, text in texts.items() if path != "/proc/stat"}
        times = {path: each for path, each in found.items() if each}
        self._parents |= {_pid_of(path): each.parent for path, each in times.items()}
        return times

    def _pausable_pids(self) -> tuple[int, ...]:
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
        texts = read_files(self._host, sorted(parents))
        return frozenset(_pid_of(path) for path, text in texts.items() if text.startswith(_GVISOR))

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


def _pid_of(path: str) -> int:
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


class CpuUsage:
    """Adds up what some CPUs of a machine did in turns, from texts of its /proc/stat; an empty one means unknown.

    `latest_busy_cpus` is how many of them were busy in the latest turn, in the mean, such as 0.3; None where it is
    unknown.
    """

    def __init__(self, cpus: Sequence[int]) -> None:
        self._cpus = tuple(cpus)
        self._before = ""
        self._total_seconds = self._used_seconds = 0.0
        self.latest_busy_cpus: float | None = None

    @property
    def busy_share(self) -> float | None:
        """Share of the time of these CPUs that was not idle, stolen time too; 0 to 1, None where it is unknown.

        Leaves out the rests.
        """
        return min(1.0, self._used_seconds / self._total_seconds) if self._total_seconds > 0 else None

    def begin_turn(self, text: str) -> None:
        """Begin a turn."""
        self._before = text

    def end_turn(self, text: str, idle_seconds: float) -> float | None:
        """End a turn, in which nothing was asked of the CPUs for so long; return the share of it that was stolen."""
        earlier, later = (parse_or_none(parse_cpu_each, each) or {} for each in (self._before, text))
        turns = [later[cpu].since(earlier[cpu]) for cpu in self._cpus if cpu in earlier and cpu in later]
        for spent in turns:
            self._add(spent, idle_seconds)
        self.latest_busy_cpus = _busy_cpus(turns, idle_seconds)
        first, last = (parse_or_none(parse_cpu_total, each) for each in (self._before, text))
        return last.since(first).steal_share if first and last else None

    def _add(self, spent: CpuTimes, idle_seconds: float) -> None:
        self._total_seconds += spent.total_seconds - idle_seconds
        self._used_seconds += spent.used_seconds + spent.steal_seconds


def _busy_cpus(turns: Sequence[CpuTimes], idle_seconds: float) -> float | None:
    """Return how many CPUs did something or waited for a disk in a turn, in the mean; None if that is unknown."""
    seconds = max((spent.total_seconds - idle_seconds for spent in turns), default=0.0)
    return sum(spent.total_seconds - spent.idle_seconds for spent in turns) / seconds if seconds > 0 else None


class TurnBoundary:
    """Reads what was used at the edges of turns; `idle_watch` is None where no other instances have turns in between.

    `sidecar_usage` are CPUs of the same machine on which services run beside the instance, None without such services.
    """

    def __init__(
        self, host: Host, usage: CpuUsage, idle_watch: IdleWatch | None, sidecar_usage: CpuUsage | None = None
    ) -> None:
        self._host = host
        self.usage = usage
        self.idle_watch = idle_watch
        self.sidecar_usage = sidecar_usage

    def begin_turn(self) -> None:
        """Let the instance go on, and begin a turn."""
        if self.idle_watch:
            self.idle_watch.resume()
        texts = self._read_texts()
        if self.idle_watch:
            self.idle_watch.begin_turn(texts)
        for spent in filter(None, (self.usage, self.sidecar_usage)):
            spent.begin_turn(texts.get(_STAT_PATH, ""))

    def end_turn(self, idle_seconds: float) -> float | None:
        """End a turn, in which the load did not send for so long; return the share of the CPU time that was stolen."""
        texts = self._read_texts()
        if self.idle_watch:
            self.idle_watch.end_turn(texts)
        if self.sidecar_usage:
            self.sidecar_usage.end_turn(texts.get(_STAT_PATH, ""), idle_seconds)
        return self.usage.end_turn(texts.get(_STAT_PATH, ""), idle_seconds)

    def finish(self) -> None:
        """Record that what has begun is no turn, because none is left."""
        if self.idle_watch:
            self.idle_watch.finish()

    def resume(self) -> None:
        """Let the instance go on."""
        if self.idle_watch:
            self.idle_watch.resume()

    def _read_texts(self) -> Mapping[str, str]:
        return read_files(self._host, (_STAT_PATH, *(self.idle_watch.needed_paths if self.idle_watch else ())))

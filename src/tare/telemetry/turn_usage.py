"""CPU usage at turn boundaries, and detection of instances busy outside their turns.

Instances that are not idle are paused by SIGSTOP between their turns. gVisor's kernel is a process with child processes
that change the memory of its programs. The children wait for the kernel's answer in seccomp's notifications. A signal
ends the wait, and gVisor's kernel may then take a child for dead and kill the child with its program. So tare does not
pause these children, which do nothing by themselves.

Over SSH, a boundary takes one command. tare waits for the command outside of the turn, so that no turn includes a
round trip.
"""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.model.trial import Caution
from tare.telemetry.cpu_quota import QuotaWatch
from tare.telemetry.kernel_files import pid_of_path, read_files
from tare.telemetry.procfs import (
    CpuTimes,
    ProcessTimes,
    parse_cpu_each,
    parse_cpu_total,
    parse_or_none,
    parse_process_times,
)
from tare.telemetry.turn_cpu import InstanceCpu, TakenTime, TurnUsage, parse_schedstat

BUSY_SHARE_LIMIT = 0.02  # share of a CPU above which an instance is paused
_MIN_BUSY_SECONDS = 0.02  # two ticks of the kernel's counters, as a single tick may be chance
_ANSWER_SECONDS = 30.0
_Times = tuple[float, float]  # CPU seconds of a process, and of the children that it has waited for
_GVISOR = "runsc-sandbox\0"  # the start of the command line of gVisor's kernel
_SIGNAL = 'kill -s "$@" 2>/dev/null; true'  # some processes may have ended
_STAT_PATH = "/proc/stat"
_NOTHING_SPUN: Mapping[int, float] = {}
_PROCESS_STAT = re.compile(r"/proc/\d+/stat")


class IdleWatch:
    """Watch over an instance between its turns: adds up its CPU time, and pauses an instance that is not idle.

    The caller passes the texts of the files in `needed_paths` right before and right after each turn. A process that
    started during a turn counts from the next turn on, because listing processes takes another command over SSH.
    """

    def __init__(self, host: Host, processes: Callable[[], Sequence[int]]) -> None:
        self._host = host
        self._processes = processes
        self._pids = tuple(processes())
        self._last: tuple[float, Mapping[str, _Times]] | None = None
        self._used_seconds = self._seconds = 0.0
        self._share: float | None = None  # share of a CPU that the instance used before the first pause
        self._paused: tuple[int, ...] = ()
        self._parents: dict[int, int] = {}
        self._kernels: frozenset[int] | None = None  # PIDs of gVisor's kernels; None before the first pause

    @property
    def pids(self) -> tuple[int, ...]:
        """The instance's processes after its last turn."""
        return self._pids

    @property
    def needed_paths(self) -> tuple[str, ...]:
        """Paths of the files to read; () for a paused instance, except gVisor, whose parents must be known."""
        if self._share is not None and self._kernels == frozenset():
            return ()
        return tuple(f"/proc/{pid}/stat" for pid in self._pids)

    def caution(self) -> Caution | None:
        """Return the caution if the instance was busy between its turns and slowed the others; else None."""
        if self._share is None:
            return None
        text = f"it used {self._share:.0%} of a CPU during turns of others; from then on, it was paused during them"
        return Caution("busy-when-idle", text)

    def begin_turn(self, texts: Mapping[str, str]) -> None:
        """Add the CPU time that the instance has used since its last turn."""
        times = self._parse_texts(texts)
        if self._last is None or self._share is not None:
            return
        self._seconds += time.monotonic() - self._last[0]
        self._used_seconds += _used_seconds(self._last[1], _cpu_times(times))
        if self._used_seconds > max(BUSY_SHARE_LIMIT * self._seconds, _MIN_BUSY_SECONDS):
            self._share = self._used_seconds / self._seconds

    def end_turn(self, texts: Mapping[str, str]) -> None:
        """Start watching the instance, or pause it if it was busy before."""
        now, times = time.monotonic(), self._parse_texts(texts)
        self._pids = tuple(self._processes())
        if self._share is not None:
            self._paused = self._pausable_pids()
            self._signal(signal.SIGSTOP)
            return
        self._last = (now, _cpu_times(times))

    def finish(self) -> None:
        """Record that the instance has no more turns in this block; pause it again if it is not idle."""
        self._last = None
        if self._share is not None:
            self.end_turn({})

    def resume(self) -> None:
        """Resume the instance if it is paused."""
        self._signal(signal.SIGCONT)
        self._paused = ()

    def _parse_texts(self, texts: Mapping[str, str]) -> dict[str, ProcessTimes]:
        """Parse the files of processes, and record the processes' parents."""
        parsed = {
            path: parse_or_none(parse_process_times, text)
            for path, text in texts.items()
            if _PROCESS_STAT.fullmatch(path)
        }
        times = {path: process for path, process in parsed.items() if process}
        self._parents |= {pid_of_path(path): process.parent for path, process in times.items()}
        return times

    def _pausable_pids(self) -> tuple[int, ...]:
        """Return the PIDs of the instance without the children of gVisor's kernels.

        In gVisor, a process that started during a turn is paused from the next turn on, because reading its parent
        takes another command over SSH.
        """
        if self._kernels is None:
            self._kernels = self._find_kernels()
        if not self._kernels:
            return self._pids
        return tuple(pid for pid in self._pids if pid in self._parents and self._parents[pid] not in self._kernels)

    def _find_kernels(self) -> frozenset[int]:
        parents = {f"/proc/{self._parents[pid]}/cmdline" for pid in self._pids if pid in self._parents}
        texts = read_files(self._host, sorted(parents))
        return frozenset(pid_of_path(path) for path, text in texts.items() if text.startswith(_GVISOR))

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


def _cpu_times(times: Mapping[str, ProcessTimes]) -> dict[str, _Times]:
    """Return the CPU times of processes and of the children that they have waited for, by the processes' files."""
    return {
        path: (each.user_seconds + each.system_seconds, each.reaped_user_seconds + each.reaped_system_seconds)
        for path, each in times.items()
    }


def _used_seconds(before: Mapping[str, _Times], now: Mapping[str, _Times]) -> float:
    """Return the CPU seconds that the processes of `before` have used between the two readings.

    The time of an ended process is part of its parent's time. New processes do not count, because it is unknown when
    they used their time: a server's process for a connection works during a turn, and ends right after the turn.
    """
    known = before.keys() & now.keys()
    used = sum(now[path][0] - before[path][0] for path in known)
    if ended := before.keys() - known:
        reaped = sum(now[path][1] - before[path][1] for path in known)
        used += max(0.0, reaped - sum(sum(before[path]) for path in ended))
    return max(0.0, used)


class CpuUsage:
    """Usage of some CPUs of a machine during turns, from texts of its /proc/stat; "" means unknown.

    Time of tasks with a raised nice level is use, except that of the threads that keep CPUs awake: gVisor lets the
    programs of its instances run at such a level. Single turns are rough, as the kernel counts it in ticks of 10 ms.

    Of the latest turn, `latest_busy_cpus` is the mean number of busy CPUs, such as 0.3, and `latest_times` the sum of
    the CPUs' times; None if unknown.
    """

    def __init__(self, cpus: Sequence[int]) -> None:
        self._cpus = tuple(cpus)
        self._before = ""
        self._spun_before: Mapping[int, float] = {}
        self._total_seconds = self._used_seconds = 0.0
        self.latest_busy_cpus: float | None = None
        self.latest_times: CpuTimes | None = None

    @property
    def busy_share(self) -> float | None:
        """Used and steal time as a share of the turns without their idle phases, 0 to 1; None if unknown."""
        return min(1.0, self._used_seconds / self._total_seconds) if self._total_seconds > 0 else None

    def begin_turn(self, text: str, spun: Mapping[int, float] = _NOTHING_SPUN) -> None:
        """Start a turn. `spun` has the seconds of the threads that keep CPUs awake so far, by CPU."""
        self._before, self._spun_before = text, spun

    def end_turn(self, text: str, idle_seconds: float, spun: Mapping[int, float] = _NOTHING_SPUN) -> float | None:
        """End a turn; return the steal share of all CPUs of the machine in it, None if unknown.

        For `idle_seconds` of the turn, the load sent no requests.
        """
        earlier, later = (parse_or_none(parse_cpu_each, stat) or {} for stat in (self._before, text))
        turns = [
            _count_niced_as_used(later[cpu].since(earlier[cpu]), spun.get(cpu, 0.0) - self._spun_before.get(cpu, 0.0))
            for cpu in self._cpus
            if cpu in earlier and cpu in later
        ]
        for times in turns:
            self._total_seconds += times.total_seconds - idle_seconds
            self._used_seconds += times.used_seconds + times.steal_seconds
        self.latest_busy_cpus = _busy_cpus(turns, idle_seconds)
        self.latest_times = CpuTimes(*map(sum, zip(*turns, strict=True))) if turns else None
        first, last = (parse_or_none(parse_cpu_total, stat) for stat in (self._before, text))
        return last.since(first).steal_share if first and last else None


def _count_niced_as_used(times: CpuTimes, spun_seconds: float) -> CpuTimes:
    """Return the times with the time of niced tasks as used and not as idle, except the spun seconds."""
    niced = times.niced_seconds - spun_seconds
    return times._replace(
        user_seconds=times.user_seconds + niced,
        idle_seconds=times.idle_seconds - niced,
        niced_seconds=spun_seconds,
    )


def _busy_cpus(turns: Sequence[CpuTimes], idle_seconds: float) -> float | None:
    """Return the mean number of CPUs that were busy or waited for a disk in a turn; None if it is unknown."""
    seconds = max((times.total_seconds - idle_seconds for times in turns), default=0.0)
    return sum(times.total_seconds - times.idle_seconds for times in turns) / seconds if seconds > 0 else None


class TurnBoundary:
    """Turn boundaries of an instance, at which its CPU usage is read.

    `idle_watch` is None if no other instances have turns in between. `sidecar_usage` is the usage of the CPUs of
    sidecar services on the same machine, None without such services. `instance_cpu` is None if the instance's CPU time
    is not to be read. `quota_watch` is None if quotas are not watched. `awake_time_files` returns the files with the
    CPU time of the threads that keep CPUs awake, by CPU (hosts/awake.py).
    """

    def __init__(
        self,
        host: Host,
        usage: CpuUsage,
        idle_watch: IdleWatch | None,
        sidecar_usage: CpuUsage | None = None,
        instance_cpu: InstanceCpu | None = None,
    ) -> None:
        self._host = host
        self.quota_watch: QuotaWatch | None = None
        self.awake_time_files: Callable[[], Mapping[int, str]] = dict
        self.usage = usage
        self.idle_watch = idle_watch
        self.sidecar_usage = sidecar_usage
        self._instance_cpu = instance_cpu
        self._taken = TakenTime()
        self._began = 0.0

    def begin_turn(self) -> None:
        """Resume the instance and start a turn."""
        if self.idle_watch:
            self.idle_watch.resume()
        texts = self._read_texts()
        if self.idle_watch:
            self.idle_watch.begin_turn(texts)
        spun = self._spun_seconds(texts)
        for usage in filter(None, (self.usage, self.sidecar_usage)):
            usage.begin_turn(texts.get(_STAT_PATH, ""), spun)
        if self._instance_cpu:  # last, as opening its files takes some time
            self._instance_cpu.begin_turn(texts)
        self._began = time.monotonic()

    def end_turn(self, idle_seconds: float, warm_up: bool = False) -> TurnUsage:
        """End a turn and return the CPU usage in it. The load sent nothing for `idle_seconds`."""
        seconds = time.monotonic() - self._began
        texts = self._read_texts()
        used = self._instance_cpu.end_turn(texts) if self._instance_cpu else (None, None)
        if self.idle_watch:
            self.idle_watch.end_turn(texts)
            if self._instance_cpu:
                self._instance_cpu.pids = self.idle_watch.pids
        stat, spun = texts.get(_STAT_PATH, ""), self._spun_seconds(texts)
        if self.sidecar_usage:
            self.sidecar_usage.end_turn(stat, idle_seconds, spun)
        steal = self.usage.end_turn(stat, idle_seconds, spun)
        usage = TurnUsage(steal, *used)
        if not warm_up:
            self._taken.add_turn(seconds, usage, self.usage.latest_times)
        return usage

    def cautions(self) -> tuple[Caution, ...]:
        """Return the cautions about the trial's turns so far."""
        noticed = (watch.caution() for watch in (self.idle_watch, self._taken, self.quota_watch) if watch)
        return tuple(filter(None, noticed))

    def finish(self) -> None:
        """Record that the started turn does not take place, because the block has no more turns."""
        if self._instance_cpu:
            self._instance_cpu.close()
        if self.idle_watch:
            self.idle_watch.finish()

    def end(self) -> None:
        """Resume the instance after its last turn, and read the counters that vanish with it."""
        self.resume()
        if self.quota_watch:
            self.quota_watch.finish()

    def resume(self) -> None:
        """Resume the instance."""
        if self._instance_cpu:
            self._instance_cpu.close()
        if self.idle_watch:
            self.idle_watch.resume()

    def _read_texts(self) -> Mapping[str, str]:
        watched = self.idle_watch.needed_paths if self.idle_watch else ()
        paths, patterns = (self._instance_cpu.paths, self._instance_cpu.patterns) if self._instance_cpu else ((), ())
        spinning = self.awake_time_files().values()
        return read_files(self._host, (_STAT_PATH, *paths, *watched, *spinning), patterns)

    def _spun_seconds(self, texts: Mapping[str, str]) -> Mapping[int, float]:
        """Return the seconds of the threads that keep CPUs awake, by CPU."""
        files = self.awake_time_files().items()
        return {cpu: parse_schedstat(texts[path].encode()).run / 1e9 for cpu, path in files if path in texts}


def create_boundary(
    host: Host,
    processes: Callable[[], Sequence[int]],
    cpus: Sequence[int],
    *,
    sidecar_cpus: Sequence[int],
    takes_turns: bool,
) -> TurnBoundary:
    """Return the turn boundary of an instance with these processes, which reads its CPU usage during turns.

    Where instances take turns, it also checks that the instance is idle between its turns. `cpus` are the CPUs of the
    instance, `sidecar_cpus` those of sidecar services; empty without services.
    """
    idle_watch = IdleWatch(host, processes) if takes_turns else None
    sidecar_usage = CpuUsage(sidecar_cpus) if sidecar_cpus else None
    instance_cpu = InstanceCpu(host, processes)
    boundary = TurnBoundary(host, CpuUsage(cpus), idle_watch, sidecar_usage, instance_cpu)
    boundary.quota_watch = QuotaWatch(host, instance_cpu.group_texts)
    return boundary

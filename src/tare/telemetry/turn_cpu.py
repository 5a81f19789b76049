"""CPU time of an instance in its turns, and the time in which others kept it from running.

The kernel's CPU time of a control group or a task, in nanoseconds, contains neither the time in which another task had
the CPU nor steal time. Both are part of the wall time that a load sees. The kernel documents the files in
Documentation/scheduler/sched-stats.rst, admin-guide/cgroup-v1/cpuacct.rst and admin-guide/cgroup-v2.rst.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from tare.hosts.cgroups import processes_below
from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.model.trial import Caution
from tare.telemetry.instance_reader import InstanceCgroup, find_instance_cgroup, parse_counts
from tare.telemetry.kernel_files import pid_of_path, read_group_files
from tare.telemetry.procfs import CpuTimes, parse_or_none

_Item = TypeVar("_Item")

TAKEN_SHARE_LIMIT = 0.05  # share of the turns that others may take from an instance without a caution
_MIN_TASK_SHARE = 0.5  # of the instance's CPU time: tasks with less of it do not stand for the instance
_MAX_TASKS = 40  # to read on this machine: one takes about 10 µs in a turn, and gVisor has over a hundred
_SCHEDSTAT = re.compile(r"/proc/\d+/task/\d+/schedstat")
_TIMES = re.compile(rb"(\d+) (\d+) \d+")
_READ_BYTES = 100  # more than three numbers of 64 bits take


class TaskTimes(NamedTuple):
    """Time that a task has run, and time that it was runnable but did not run, in nanoseconds since its start."""

    run: int
    delay: int


class TurnUsage(NamedTuple):
    """CPU usage in one turn: see the fields of the same names of `Turn`."""

    steal: float | None
    cpu_seconds: float | None = None
    waited_seconds: float | None = None


class _Reading(NamedTuple):
    """CPU time of the group in nanoseconds, None if unknown or without a group, and the files of tasks by path."""

    group: int | None
    tasks: Mapping[str, bytes]


class InstanceCpu:
    """CPU time and run delay of an instance in its turns.

    The CPU time is that of the instance's control group, plus that of its processes outside of the group. Without a
    dedicated group, it is that of the tasks that are alive at both ends of the turn, such as a monitor's.

    On this machine, the files of tasks are opened when a turn begins, and stay open until it ends: opening a file takes
    several times as long as reading it, and another task with the same ID is never taken for the first one. Over SSH,
    the caller's command reads the files (`paths` and `patterns`). `group_texts` has the texts of `read_group_files`.
    """

    def __init__(self, host: Host, processes: Callable[[], Sequence[int]]) -> None:
        self.pids = tuple(processes())
        self._is_local = isinstance(host, LocalHost)
        self.group_texts = texts = read_group_files(host, self.pids)
        group = find_instance_cgroup(processes, lambda path: texts.get(path) or host.read(path), host)
        # Processes outside of the group, such as a shim, start the first one inside: a later process is not outside.
        self._outside = frozenset(self.pids) - frozenset(processes_below(host, group.cpu)) if group else frozenset()
        self._group_path, self._parse_group = _group_file(group) if group else ("", parse_usage_1)
        self._before = _Reading(None, {})
        self._open_files: dict[str, int] = {}
        self._ran: set[str] = set()  # files of tasks that have run in a turn
        self._turns = 0

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths of the files to read at a turn boundary."""
        return (self._group_path,) if self._group_path else ()

    @property
    def patterns(self) -> tuple[str, ...]:
        """Shell patterns of the files to read at a turn boundary; () on this machine."""
        return () if self._is_local else tuple(f"/proc/{pid}/task/*/schedstat" for pid in self.pids)

    def begin_turn(self, texts: Mapping[str, str]) -> None:
        """Start a turn, from the texts of the files."""
        self.close()
        if self._is_local:
            self._open_task_files()
        self._before = self._read(texts)

    def end_turn(self, texts: Mapping[str, str]) -> tuple[float | None, float | None]:
        """End a turn; return the seconds of CPU time and the seconds of run delay, None if unknown."""
        before, now = self._before, self._read(texts)
        self.close()
        if not now.tasks.keys() & before.tasks.keys() and not self._group_path:
            return None, None
        changes = {
            path: _subtract(parse_schedstat(text), parse_schedstat(before.tasks[path]))
            for path, text in now.tasks.items()
            if before.tasks.get(path, text) != text  # most tasks are idle, and parsing takes longer than reading
        }
        self._ran.update(changes)
        ran = sum(each.run for each in changes.values())
        if not self._group_path:
            used = ran
        elif now.group is None or before.group is None:
            return None, None
        else:
            outside = (each.run for path, each in changes.items() if pid_of_path(path) in self._outside)
            used = now.group - before.group + sum(outside)
        waited_seconds = sum(each.delay for each in changes.values()) / 1e9
        return used / 1e9, waited_seconds if ran >= _MIN_TASK_SHARE * used else None

    def close(self) -> None:
        """Close all files."""
        for descriptor in self._open_files.values():
            os.close(descriptor)
        self._open_files = {}

    def _open_task_files(self) -> None:
        """Open the files of up to 40 tasks: of those outside of the group, of those that ran before, and of others.

        If there are more, each turn has others, so that those that run are found.
        """
        self._open(path for pid in self._outside for path in _task_files(pid))
        self._open(tuple(self._ran))
        for pid in _rotate(self.pids, self._turns):
            if len(self._open_files) < _MAX_TASKS:
                self._open(_rotate(_task_files(pid), self._turns * _MAX_TASKS // 2))
        self._turns += 1

    def _open(self, paths: Iterable[str]) -> None:
        for path in paths:
            if path not in self._open_files and len(self._open_files) < _MAX_TASKS:
                try:
                    self._open_files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                except OSError:  # the task has ended
                    self._ran.discard(path)

    def _read(self, texts: Mapping[str, str]) -> _Reading:
        group = parse_or_none(self._parse_group, texts.get(self._group_path, ""))
        if self._is_local:
            return _Reading(group, _read_open_files(self._open_files))
        return _Reading(group, {path: text.encode() for path, text in texts.items() if _SCHEDSTAT.fullmatch(path)})


def parse_schedstat(text: bytes) -> TaskTimes:
    """Parse /proc/PID/task/TID/schedstat; zeros for an unexpected text."""
    match = _TIMES.match(text)
    return TaskTimes(int(match[1]), int(match[2])) if match else TaskTimes(0, 0)


def _subtract(now: TaskTimes, before: TaskTimes) -> TaskTimes:
    return TaskTimes(now.run - before.run, now.delay - before.delay)


def parse_usage_1(text: str) -> int:
    """Parse the nanoseconds of CPU time from cpuacct.usage, of version 1."""
    return int(text)


def parse_usage_2(text: str) -> int:
    """Parse the nanoseconds of CPU time from cpu.stat, of version 2."""
    return parse_counts(text, "usage_usec")[0] * 1000


def _group_file(group: InstanceCgroup) -> tuple[str, Callable[[str], int]]:
    return (
        (f"{group.cpu}/cpu.stat", parse_usage_2)
        if group.version == 2
        else (f"{group.cpu}/cpuacct.usage", parse_usage_1)
    )


def _task_files(pid: int) -> Sequence[str]:
    """Return the paths of the schedstat of the tasks of a process."""
    try:
        return [f"/proc/{pid}/task/{task}/schedstat" for task in os.listdir(f"/proc/{pid}/task")]  # noqa: PTH208
    except OSError:  # the process has ended
        return ()


def _rotate(items: Sequence[_Item], count: int) -> Sequence[_Item]:
    """Return the items with the first `count` modulo their number at the end."""
    first = count % max(1, len(items))
    return (*items[first:], *items[:first])


def _read_open_files(files: Mapping[str, int]) -> dict[str, bytes]:
    """Return the contents of open files by path, without those of tasks that have ended."""
    contents = {}
    for path, descriptor in files.items():
        with suppress(OSError):
            contents[path] = os.pread(descriptor, _READ_BYTES, 0)
    return contents


class TakenTime:
    """CPU time that others took from an instance during its turns, by preemption and as steal time.

    The run delay of an instance with several tasks on one CPU contains the time in which its other tasks ran. So the
    instance was preempted for no longer than others used its CPUs. CPUs are also kept from running where only tasks of
    the lowest priority want to run, which is no loss of the instance's.
    """

    def __init__(self) -> None:
        self._wall_seconds = self._cpu_seconds = 0.0
        self._waited_seconds = self._steal_seconds = self._busy_seconds = 0.0

    def add_turn(self, seconds: float, usage: TurnUsage, cpus: CpuTimes | None) -> None:
        """Add a turn of `seconds`, in which the instance's CPUs had the times `cpus`."""
        if usage.cpu_seconds is None or cpus is None:
            return
        self._wall_seconds += seconds
        self._cpu_seconds += usage.cpu_seconds
        self._waited_seconds += usage.waited_seconds or 0.0
        self._busy_seconds += cpus.used_seconds
        ran_seconds = cpus.used_seconds + cpus.niced_seconds
        self._steal_seconds += cpus.steal_seconds * (cpus.used_seconds / ran_seconds if ran_seconds > 0 else 1.0)

    @property
    def seconds(self) -> float:
        """CPU time that others took in all turns."""
        preempted = min(self._waited_seconds, max(0.0, self._busy_seconds - self._cpu_seconds))
        return preempted + max(0.0, self._steal_seconds)

    def caution(self) -> Caution | None:
        """Return the caution if others took more than 5 % of the turns from the instance; else None."""
        taken = self.seconds
        if taken <= TAKEN_SHARE_LIMIT * max(self._wall_seconds, taken + self._cpu_seconds):
            return None
        share = taken / (taken + self._cpu_seconds)
        return Caution("preempted", f"others took {share:.0%} of the CPU time that it wanted")

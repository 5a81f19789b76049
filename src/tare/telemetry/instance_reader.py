"""Read an instance's cumulative usage from its cgroup and processes.

A group counts for all its processes, also for those that have ended. It stands for the instance only if every process
in it, and in the groups below it, is one of the instance's. The others of the instance, such as the shim of a
container, are read one by one (instances.py). Formats: the kernel's Documentation/admin-guide/cgroup-v2.rst,
cgroup-v1/cpuacct.rst and cgroup-v1/memory.rst.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tare.hosts.cgroups import Layout, parse_group, parse_layout, processes_below
from tare.hosts.local import LocalHost
from tare.model.errors import TareError
from tare.telemetry.host_reader import Fields, UsageReading, network_fields, pressure_fields
from tare.telemetry.kernel_files import Files
from tare.telemetry.processes import Count, Identity, ResourceUsage
from tare.telemetry.procfs import (
    TICKS_PER_SECOND,
    ByteCounters,
    Pressure,
    ProcessTimes,
    parse_interfaces,
    parse_pressure,
    parse_process_times,
    parse_process_transfer,
    parse_resident_bytes,
    read_or_none,
    sum_counters,
    whole_disks,
)

_T = TypeVar("_T")

_MAX_ATTEMPTS = 3  # a process may begin between two lists of them
_RESOURCES = ("cpu", "memory", "io")
_CPU_V2 = ("_usec", "cpu.stat", 1_000_000)
_DEVICE = re.compile(r"^(\d+:\d+) .*?\brios=(\d+) wios=(\d+)", re.MULTILINE)
Processes = Callable[[], Sequence[int]]


@dataclass(frozen=True)
class InstanceCgroup:
    """A control group that an instance has alone: its folders. `memory` is empty where memory is counted elsewhere."""

    version: int
    cpu: str
    memory: str


def find_instance_cgroup(processes: Callable[[], Sequence[int]], read: Callable[[str], str]) -> InstanceCgroup | None:
    """Find the group of this machine that has most of an instance's processes, and none of others.

    Over SSH, where `read` has no other files than those of a sample, there is none.
    """
    try:
        layout = parse_layout(read("/proc/self/mounts"))
    except (OSError, TareError):
        return None
    found = (_find_cgroup(layout, tuple(processes()), read) for _ in range(_MAX_ATTEMPTS))
    return next((group for group in found if group), None)


def _find_cgroup(layout: Layout, pids: Sequence[int], read: Callable[[str], str]) -> InstanceCgroup | None:
    try:
        lists = [read(f"/proc/{pid}/cgroup") for pid in pids]
    except OSError:  # one has ended meanwhile
        return None
    names = [parse_group(text, "cpuacct", layout.version) for text in lists]
    for name in sorted({*names} - {"", "/"}, key=lambda name: (-names.count(name), name)):
        cpu, memory = (f"{layout.mounts.get(controller, '')}{name}" for controller in ("cpuacct", "memory"))
        if _has_only(cpu, pids):
            counted = {parse_group(text, "memory", layout.version) for text in lists}
            return InstanceCgroup(layout.version, cpu, memory if name in counted and _has_only(memory, pids) else "")
    return None


def _has_only(folder: str, pids: Collection[int]) -> bool:
    within = processes_below(LocalHost(), folder)
    return bool(within) and {*pids} >= {*within}


class CgroupReader:
    """Reads what a group has counted; None for what its version does not count, or what cannot be read."""

    def __init__(self, files: Files, group: InstanceCgroup) -> None:
        self._files = files
        self._group = group
        self._devices = frozenset(read_or_none(device_numbers, files.text, "/proc/diskstats") or ())

    def members(self) -> frozenset[int]:
        """Return the numbers of its processes."""
        return frozenset(processes_below(LocalHost(), self._group.cpu))

    def cpu_seconds(self) -> tuple[float, float] | None:
        """Read what all have used, in user mode and in the kernel, since it was made."""
        name, file, per_second = _CPU_V2 if self._group.version == 2 else ("", "cpuacct.stat", TICKS_PER_SECOND)
        times = self._read(lambda text: parse_counts(text, f"user{name}", f"system{name}"), file)
        return (times[0] / per_second, times[1] / per_second) if times else None

    def charged_bytes(self) -> tuple[int | None, int | None]:
        """Read what is charged to it: memory, with the page cache, and swap."""
        if self._group.version == 2:
            return self._read_memory("memory.current"), self._read_memory("memory.swap.current")
        memory, both = self._read_memory("memory.usage_in_bytes"), self._read_memory("memory.memsw.usage_in_bytes")
        # The two are not read in one moment.
        return memory, None if memory is None or both is None else max(0, both - memory)

    def pressures(self) -> Iterator[Pressure | None]:
        """Read the pressure on CPU, memory and disks."""
        for resource in _RESOURCES:
            yield self._read(parse_pressure, f"{resource}.pressure") if self._group.version == 2 else None

    def transfers(self) -> tuple[int, int] | None:
        """Read how many reads and writes reached disks. Version 1 does not know whose the delayed writes are."""
        if self._group.version == 1:
            return None
        return self._read(lambda text: parse_transfers(text, self._devices), "io.stat")

    def _read(self, parse: Callable[[str], _T], name: str) -> _T | None:
        return read_or_none(parse, self._files.short_text, f"{self._group.cpu}/{name}")

    def _read_memory(self, name: str) -> int | None:
        return read_or_none(int, self._files.short_text, f"{self._group.memory}/{name}") if self._group.memory else None


def parse_counts(text: str, *names: str) -> tuple[int, ...]:
    """Read counters of lines with a name and a number. Raises ValueError if one is missing."""
    counts = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    missing = [name for name in names if name not in counts]
    if missing:
        raise ValueError(f"no {missing[0]} in {text[:60]!r}")
    return tuple(int(counts[name]) for name in names)


def parse_transfers(text: str, devices: Collection[str]) -> tuple[int, int]:
    """Read from io.stat the numbers of reads and writes of these devices, `MAJOR:MINOR`."""
    found = [(int(reads), int(writes)) for device, reads, writes in _DEVICE.findall(text) if device in devices]
    return sum(reads for reads, _ in found), sum(writes for _, writes in found)


def device_numbers(text: str) -> tuple[str, ...]:
    """Read from /proc/diskstats the numbers of whole disks, `MAJOR:MINOR`."""
    lines = [line.split(None, 3) for line in text.splitlines()]
    numbers = {words[2]: f"{words[0]}:{words[1]}" for words in lines if len(words) == 4}
    return tuple(numbers[name] for name in whole_disks(tuple(numbers)))


@dataclass(frozen=True)
class _ProcessReading:
    """One process as it was read. `transfer` is None without the permission to read it."""

    identity: Identity
    times: ProcessTimes
    resident_bytes: int
    transfer: ByteCounters | None


class InstanceReader:
    """Reads what an instance has used since the first reading, also by processes that have ended.

    The CPU time is that of its control group, and of those of its processes that are not in it. Without a group of its
    own, it is that of its processes.
    """

    def __init__(self, files: Files, processes: Processes) -> None:
        self._files = files
        group = find_instance_cgroup(processes, files.text)
        self._group = CgroupReader(files, group) if group else None
        self._group_began: tuple[float, float] | None = None
        # Like the start of a process, this is in hundredths, rounded down. If unknown, no process counts as born later.
        uptime = read_or_none(lambda text: float(text.partition(" ")[0]), files.text, "/proc/uptime")
        self._began_seconds = math.inf if uptime is None else uptime
        self._first = True
        self._starts: dict[int, float] = {}
        self._outside: tuple[int, ...] = ()
        self._user, self._system = ResourceUsage(), ResourceUsage()
        self._read, self._written = ResourceUsage(), ResourceUsage()
        self._network = _NetworkCounters(files)

    @property
    def has_group(self) -> bool:
        """Whether it has a group of its own: then its CPU time is known without a list of its processes."""
        return self._group is not None

    def read(self, pids: Sequence[int], whole: bool) -> UsageReading:
        """Read the CPU time and the traffic; if it is to be whole, also what takes a file for each of these processes.

        Without a group, it is always whole. All values are None if none of the processes can be read.
        """
        if self._group is not None and not whole:
            outside = [
                (pid, read_or_none(parse_process_times, self._files.short_text, f"/proc/{pid}/stat"))
                for pid in self._outside
            ]
            cpu = self._cpu_with_group(self._group, [(pid, times) for pid, times in outside if times is not None])
            return UsageReading(**cpu, **network_fields(self._network.read_again()))
        processes = self._read_processes(pids)
        if not processes:
            return UsageReading()
        if self._group is None:
            cpu = self._sum_cpu([(each.identity[0], each.times) for each in processes])
        else:
            members = self._group.members()
            outsiders = [(each.identity[0], each.times) for each in processes if each.identity[0] not in members]
            self._outside = tuple(pid for pid, _ in outsiders)
            cpu = self._cpu_with_group(self._group, outsiders)
        read_bytes, written_bytes = self._sum_transfers(processes)
        network = self._network.find_and_read([each.identity[0] for each in processes])
        self._first = False
        return UsageReading(
            **cpu,
            memory_bytes=sum(each.resident_bytes for each in processes),
            disk_read_bytes=read_bytes,
            disk_write_bytes=written_bytes,
            **network_fields(network),
            **(_cgroup_fields(self._group) if self._group else {}),
        )

    def _read_processes(self, pids: Sequence[int]) -> list[_ProcessReading]:
        # Parents before their children: a child that ends meanwhile is then missed for a moment, but never seen twice.
        ordered = sorted(dict.fromkeys(pids), key=lambda pid: self._starts.get(pid, math.inf))
        processes = [process for pid in ordered if (process := _read_process(self._files, pid)) is not None]
        self._starts = dict(each.identity for each in processes)
        return processes

    def _find_born(self, processes: Iterable[tuple[Identity, ProcessTimes]]) -> frozenset[Identity]:
        """Return those that began after the first reading."""
        if self._first:
            return frozenset()
        return frozenset(identity for identity, times in processes if times.started_seconds >= self._began_seconds)

    def _sum_cpu(self, processes: Sequence[tuple[int, ProcessTimes]]) -> Fields:
        """Add up processes, with the children that they have waited for."""
        times = {(pid, each.started_seconds): each for pid, each in processes}
        born = self._find_born(times.items())
        return {
            "cpu_user": self._user.update({key: _user_count(each) for key, each in times.items()}, born),
            "cpu_system": self._system.update({key: _system_count(each) for key, each in times.items()}, born),
        }

    def _cpu_with_group(self, group: CgroupReader, outside: Sequence[tuple[int, ProcessTimes]]) -> Fields:
        """Add up the group, and processes outside without their children: those in the group have been counted."""
        now = group.cpu_seconds()
        if now is None:
            return {}
        before = self._group_began = self._group_began or now
        alone = [(pid, replace(each, reaped_user_seconds=0.0, reaped_system_seconds=0.0)) for pid, each in outside]
        others = self._sum_cpu(alone)
        return {
            "cpu_user": now[0] - before[0] + others["cpu_user"],
            "cpu_system": now[1] - before[1] + others["cpu_system"],
        }

    def _sum_transfers(self, processes: Sequence[_ProcessReading]) -> tuple[float, float] | tuple[None, None]:
        born = self._find_born((each.identity, each.times) for each in processes)
        read: dict[Identity, Count] = {}
        written: dict[Identity, Count] = {}
        for each in processes:
            if each.transfer is None:  # a sum over the others would look like the whole
                return None, None
            read[each.identity] = _transfer_count(each, each.transfer.in_bytes)
            written[each.identity] = _transfer_count(each, each.transfer.out_bytes)
        return self._read.update(read, born), self._written.update(written, born)


def _cgroup_fields(group: CgroupReader) -> Fields:
    charged, swap = group.charged_bytes()
    reads, writes = group.transfers() or (None, None)
    counts = {"charged_bytes": charged, "swap_bytes": swap, "disk_reads": reads, "disk_writes": writes}
    return counts | pressure_fields(group.pressures())


def _read_process(files: Files, pid: int) -> _ProcessReading | None:
    times = read_or_none(parse_process_times, files.short_text, f"/proc/{pid}/stat")
    resident = read_or_none(parse_resident_bytes, files.short_text, f"/proc/{pid}/statm")
    if times is None or resident is None:  # it has vanished
        return None
    transfer = read_or_none(parse_process_transfer, files.short_text, f"/proc/{pid}/io")
    return _ProcessReading((pid, times.started_seconds), times, resident, transfer)


def _user_count(times: ProcessTimes) -> Count:
    return Count(times.parent, times.user_seconds + times.reaped_user_seconds, times.reaped_user_seconds)


def _system_count(times: ProcessTimes) -> Count:
    return Count(times.parent, times.system_seconds + times.reaped_system_seconds, times.reaped_system_seconds)


def _transfer_count(process: _ProcessReading, moved_bytes: float) -> Count:
    return Count(process.times.parent, moved_bytes, moved_bytes)


class _NetworkCounters:
    """Traffic since the first reading, in the network namespace of the first process whose namespace is not tare's.

    Over SSH, tare's namespace is that of the SSH server.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._ours = _read_namespace(files, "self")
        self._before: dict[int, ByteCounters] = {}
        self._source: tuple[int, int] | None = None  # the process, and its namespace

    def find_and_read(self, pids: Sequence[int]) -> ByteCounters | None:
        """Find the namespace among these processes, and read it."""
        self._source = None
        for pid in pids:
            namespace = _read_namespace(self._files, str(pid))
            if self._ours is not None and namespace is not None and namespace != self._ours:
                self._source = pid, namespace
                break
        return self.read_again()

    def read_again(self) -> ByteCounters | None:
        """Read the namespace that was found last."""
        if self._source is None:
            return None
        pid, namespace = self._source
        interfaces = read_or_none(parse_interfaces, self._files.text, f"/proc/{pid}/net/dev") or ()
        now = sum_counters(interfaces, {each.name for each in interfaces} - {"lo"})
        if now is None:
            return None
        return now.since(self._before.setdefault(namespace, now))


def _read_namespace(files: Files, process: str) -> int | None:
    try:
        return files.namespace(process)
    except OSError:
        return None

"""Readings of an instance's cumulative resource usage, from its control group and its processes.

A group's counters include processes that have ended. tare uses a group only if all processes in it, and in the groups
below it, belong to the instance. The instance's other processes, such as the shim of a container, are read one by one.
The kernel documents the formats in Documentation/admin-guide/cgroup-v2.rst, cgroup-v1/cpuacct.rst and
cgroup-v1/memory.rst.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from tare.hosts.cgroups import Layout, parse_group, parse_layout, processes_below
from tare.hosts.host import Host
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
    parse_resident_pages,
    read_or_none,
    sum_counters,
    whole_disks,
)

_T = TypeVar("_T")

_MAX_ATTEMPTS = 3  # a process that starts between two listings makes an attempt fail
_RESOURCES = ("cpu", "memory", "io")
_CPU_V2 = ("_usec", "cpu.stat", 1_000_000)
_DEVICE = re.compile(r"^(\d+:\d+) .*?\brios=(\d+) wios=(\d+)", re.MULTILINE)
Processes = Callable[[], Sequence[int]]


@dataclass(frozen=True)
class InstanceCgroup:
    """Folders of a control group with processes of one instance only.

    `memory` is "" if the instance's memory is not counted in a group of the same name.
    """

    version: int
    cpu: str
    memory: str


def find_instance_cgroup(
    processes: Callable[[], Sequence[int]], read: Callable[[str], str], host: Host | None = None
) -> InstanceCgroup | None:
    """Return the group of a host with the most processes of an instance and no other processes; None without one.

    `host` is this machine by default. The sampler finds no group over SSH, because its `read` has only the files of a
    sample there.
    """
    try:
        layout = parse_layout(read("/proc/self/mounts"))
    except (OSError, TareError):
        return None
    found = (_find_cgroup(layout, tuple(processes()), read, host or LocalHost()) for _ in range(_MAX_ATTEMPTS))
    return next((group for group in found if group), None)


def _find_cgroup(layout: Layout, pids: Sequence[int], read: Callable[[str], str], host: Host) -> InstanceCgroup | None:
    try:
        lists = [read(f"/proc/{pid}/cgroup") for pid in pids]
    except OSError:  # a process has ended meanwhile
        return None
    names = [parse_group(text, "cpuacct", layout.version) for text in lists]
    for name in sorted({*names} - {"", "/"}, key=lambda name: (-names.count(name), name)):
        cpu, memory = (f"{layout.mounts.get(controller, '')}{name}" for controller in ("cpuacct", "memory"))
        if _has_only(host, cpu, pids):
            counted = {parse_group(text, "memory", layout.version) for text in lists}
            counts_memory = name in counted and _has_only(host, memory, pids)
            return InstanceCgroup(layout.version, cpu, memory if counts_memory else "")
    return None


def _has_only(host: Host, folder: str, pids: Collection[int]) -> bool:
    within = processes_below(host, folder)
    return bool(within) and {*pids} >= {*within}


class CgroupReader:
    """Reader of a group's counters. A result is None if the group's version does not count it, or it cannot be read."""

    def __init__(self, files: Files, group: InstanceCgroup) -> None:
        self._files = files
        self._group = group
        self._devices = frozenset(read_or_none(device_numbers, files.text, "/proc/diskstats") or ())

    def members(self) -> frozenset[int]:
        """Return the PIDs in the group and in the groups below it."""
        return frozenset(processes_below(LocalHost(), self._group.cpu))

    def cpu_seconds(self) -> tuple[float, float] | None:
        """Return the seconds of CPU time in user mode and in the kernel since the group was created."""
        name, file, per_second = _CPU_V2 if self._group.version == 2 else ("", "cpuacct.stat", TICKS_PER_SECOND)
        times = self._read(lambda text: parse_counts(text, f"user{name}", f"system{name}"), file)
        return (times[0] / per_second, times[1] / per_second) if times else None

    def charged_bytes(self) -> tuple[int | None, int | None]:
        """Return the charged bytes of memory, with the page cache, and of swap."""
        if self._group.version == 2:
            return self._read_memory("memory.current"), self._read_memory("memory.swap.current")
        memory, both = self._read_memory("memory.usage_in_bytes"), self._read_memory("memory.memsw.usage_in_bytes")
        # The difference may be negative for an instant, as the two files are read one after the other.
        return memory, None if memory is None or both is None else max(0, both - memory)

    def pressures(self) -> Iterator[Pressure | None]:
        """Yield the pressures on CPU, memory and disks."""
        for resource in _RESOURCES:
            yield self._read(parse_pressure, f"{resource}.pressure") if self._group.version == 2 else None

    def transfers(self) -> tuple[int, int] | None:
        """Return the numbers of reads and writes that reached disks."""
        if self._group.version == 1:  # does not attribute delayed writes to groups
            return None
        return self._read(lambda text: parse_transfers(text, self._devices), "io.stat")

    def _read(self, parse: Callable[[str], _T], name: str) -> _T | None:
        return read_or_none(parse, self._files.short_text, f"{self._group.cpu}/{name}")

    def _read_memory(self, name: str) -> int | None:
        return read_or_none(int, self._files.short_text, f"{self._group.memory}/{name}") if self._group.memory else None


def parse_counts(text: str, *names: str) -> tuple[int, ...]:
    """Parse the counters of these names from lines with a name and a number; raises ValueError if one is missing."""
    counts = dict(line.split(" ", 1) for line in text.splitlines() if " " in line)
    missing = [name for name in names if name not in counts]
    if missing:
        raise ValueError(f"no {missing[0]} in {text[:60]!r}")
    return tuple(int(counts[name]) for name in names)


def parse_transfers(text: str, devices: Collection[str]) -> tuple[int, int]:
    """Parse the numbers of reads and writes of these devices (`MAJOR:MINOR`) from io.stat."""
    pairs = [(int(reads), int(writes)) for device, reads, writes in _DEVICE.findall(text) if device in devices]
    return sum(reads for reads, _ in pairs), sum(writes for _, writes in pairs)


def device_numbers(text: str) -> tuple[str, ...]:
    """Parse the numbers (`MAJOR:MINOR`) of whole disks from /proc/diskstats."""
    lines = [line.split(None, 3) for line in text.splitlines()]
    numbers = {words[2]: f"{words[0]}:{words[1]}" for words in lines if len(words) == 4}
    return tuple(numbers[name] for name in whole_disks(tuple(numbers)))


@dataclass(frozen=True)
class _ProcessReading:
    """Reading of one process. `transfer` is None without the permission to read it."""

    identity: Identity
    times: ProcessTimes
    resident_pages: int
    transfer: ByteCounters | None


class InstanceReader:
    """Reader of an instance's resource usage since the first reading, including processes that have ended.

    The CPU time is that of the instance's control group and of its processes outside of the group. Without a dedicated
    group, the CPU time is that of its processes.
    """

    def __init__(self, files: Files, processes: Processes) -> None:
        self._files = files
        group = find_instance_cgroup(processes, files.text)
        self._group = CgroupReader(files, group) if group else None
        self._group_began: tuple[float, float] | None = None
        # The uptime and the start of a process are both in hundredths of a second, rounded down, so that they can be
        # compared. If the uptime is unknown, no process counts as started later.
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
        """Whether the instance has a dedicated group, whose CPU time needs no list of processes."""
        return self._group is not None

    def read(self, pids: Sequence[int], whole: bool) -> UsageReading:
        """Return CPU time and traffic; if `whole`, also memory and transfers, for which each process has files.

        An instance without a group always gets a whole reading. All values are None if no process can be read.
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
            memory_bytes=self._files.page_bytes() * sum(each.resident_pages for each in processes),
            disk_read_bytes=read_bytes,
            disk_write_bytes=written_bytes,
            **network_fields(network),
            **(_cgroup_fields(self._group) if self._group else {}),
        )

    def _read_processes(self, pids: Sequence[int]) -> list[_ProcessReading]:
        # Read parents before their children. A child that ends meanwhile is then missing for one sample; in the other
        # order it would count twice, by itself and in its parent.
        ordered = sorted(dict.fromkeys(pids), key=lambda pid: self._starts.get(pid, math.inf))
        processes = [process for pid in ordered if (process := _read_process(self._files, pid)) is not None]
        self._starts = dict(each.identity for each in processes)
        return processes

    def _find_born(self, processes: Iterable[tuple[Identity, ProcessTimes]]) -> frozenset[Identity]:
        """Return the processes that started after the first reading."""
        if self._first:
            return frozenset()
        return frozenset(identity for identity, times in processes if times.started_seconds >= self._began_seconds)

    def _sum_cpu(self, processes: Sequence[tuple[int, ProcessTimes]]) -> Fields:
        """Return the CPU times of processes, with the children that they have waited for."""
        times = {(pid, each.started_seconds): each for pid, each in processes}
        born = self._find_born(times.items())
        return {
            "cpu_user": self._user.update({key: _user_count(each) for key, each in times.items()}, born),
            "cpu_system": self._system.update({key: _system_count(each) for key, each in times.items()}, born),
        }

    def _cpu_with_group(self, group: CgroupReader, outside: Sequence[tuple[int, ProcessTimes]]) -> Fields:
        """Return the CPU times of the group and of the processes outside, without their children.

        The group has counted the children already.
        """
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
            if each.transfer is None:  # a partial sum would look like the whole
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
    resident = read_or_none(parse_resident_pages, files.short_text, f"/proc/{pid}/statm")
    if times is None or resident is None:  # the process has ended
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
    """Counters of an instance's traffic since the first reading.

    They are those of the network namespace of the first process whose namespace is not tare's; over SSH, not that of
    the SSH server.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._tare_namespace = _read_namespace(files, "self")
        self._before: dict[int, ByteCounters] = {}
        self._source: tuple[int, int] | None = None  # the process and its namespace

    def find_and_read(self, pids: Sequence[int]) -> ByteCounters | None:
        """Find the instance's namespace among these processes, and read it; None if there is none."""
        self._source = None
        for pid in pids:
            namespace = _read_namespace(self._files, str(pid))
            if self._tare_namespace is not None and namespace is not None and namespace != self._tare_namespace:
                self._source = pid, namespace
                break
        return self.read_again()

    def read_again(self) -> ByteCounters | None:
        """Read the namespace of the last `find_and_read`; None if there is none."""
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

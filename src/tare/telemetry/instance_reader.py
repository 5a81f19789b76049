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

from tare.hosts.cgroups import Layout, group_of, parse_layout, processes_below
from tare.hosts.local import LocalHost
from tare.model.errors import TareError
from tare.telemetry.host_reader import Fields, Reading, network_fields, pressure_fields
from tare.telemetry.kernel_files import Files
from tare.telemetry.processes import Count, Identity, ResourceUsage
from tare.telemetry.procfs import (
    TICKS_PER_SECOND,
    Pressure,
    ProcessTimes,
    Transfer,
    parse_interfaces,
    parse_pressure,
    parse_process_times,
    parse_process_transfer,
    parse_resident_bytes,
    read_as,
    total,
    whole_disks,
)

_T = TypeVar("_T")

_LOOKS = 3  # a process may begin between two lists of them
_RESOURCES = ("cpu", "memory", "io")
_CPU_2 = ("_usec", "cpu.stat", 1_000_000)
_DEVICE = re.compile(r"^(\d+:\d+) .*?\brios=(\d+) wios=(\d+)", re.MULTILINE)
Processes = Callable[[], Sequence[int]]


@dataclass(frozen=True)
class Group:
    """A control group that an instance has alone: its folders. `memory` is empty where memory is counted elsewhere."""

    version: int
    cpu: str
    memory: str


def own_group(processes: Callable[[], Sequence[int]], read: Callable[[str], str]) -> Group | None:
    """Find the group of this machine that has most of an instance's processes, and none of others.

    Over SSH, where `read` has no other files than those of a sample, there is none.
    """
    try:
        layout = parse_layout(read("/proc/self/mounts"))
    except (OSError, TareError):
        return None
    found = (_own(layout, tuple(processes()), read) for _ in range(_LOOKS))
    return next((group for group in found if group), None)


def _own(layout: Layout, pids: Sequence[int], read: Callable[[str], str]) -> Group | None:
    try:
        lists = [read(f"/proc/{pid}/cgroup") for pid in pids]
    except OSError:  # one has ended meanwhile
        return None
    names = [group_of(text, "cpuacct", layout.version) for text in lists]
    for name in sorted({*names} - {"", "/"}, key=lambda name: (-names.count(name), name)):
        cpu, memory = (f"{layout.mounts.get(controller, '')}{name}" for controller in ("cpuacct", "memory"))
        if _is_alone(cpu, pids):
            counted = {group_of(text, "memory", layout.version) for text in lists}
            return Group(layout.version, cpu, memory if name in counted and _is_alone(memory, pids) else "")
    return None


def _is_alone(folder: str, pids: Collection[int]) -> bool:
    within = processes_below(LocalHost(), folder)
    return bool(within) and {*pids} >= {*within}


class GroupReader:
    """Reads what a group has counted; None for what its version does not count, or what cannot be read."""

    def __init__(self, files: Files, group: Group) -> None:
        self._files = files
        self._group = group
        self._devices = frozenset(read_as(device_numbers, files.text, "/proc/diskstats") or ())

    def members(self) -> frozenset[int]:
        """Return the numbers of its processes."""
        return frozenset(processes_below(LocalHost(), self._group.cpu))

    def cpu_seconds(self) -> tuple[float, float] | None:
        """Read what all have used, in user mode and in the kernel, since it was made."""
        name, file, per_second = _CPU_2 if self._group.version == 2 else ("", "cpuacct.stat", TICKS_PER_SECOND)
        times = self._read(lambda text: parse_counts(text, f"user{name}", f"system{name}"), file)
        return (times[0] / per_second, times[1] / per_second) if times else None

    def charged_bytes(self) -> tuple[int | None, int | None]:
        """Read what is charged to it: memory, with the page cache, and swap."""
        if self._group.version == 2:
            return self._memory("memory.current"), self._memory("memory.swap.current")
        memory, both = self._memory("memory.usage_in_bytes"), self._memory("memory.memsw.usage_in_bytes")
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
        return read_as(parse, self._files.short_text, f"{self._group.cpu}/{name}")

    def _memory(self, name: str) -> int | None:
        return read_as(int, self._files.short_text, f"{self._group.memory}/{name}") if self._group.memory else None


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
class _Process:
    """One process as it was read. `transfer` is None without the permission to read it."""

    identity: Identity
    times: ProcessTimes
    resident_bytes: int
    transfer: Transfer | None


class InstanceReader:
    """Reads what an instance has used since the first reading, also by processes that have ended.

    The CPU time is that of its control group, and of those of its processes that are not in it. Without a group of its
    own, it is that of its processes.
    """

    def __init__(self, files: Files, processes: Processes) -> None:
        self._files = files
        group = own_group(processes, files.text)
        self._group = GroupReader(files, group) if group else None
        self._group_began: tuple[float, float] | None = None
        # Like the start of a process, this is in hundredths, rounded down. If unknown, no process counts as born later.
        uptime = read_as(lambda text: float(text.partition(" ")[0]), files.text, "/proc/uptime")
        self._began_seconds = math.inf if uptime is None else uptime
        self._first = True
        self._starts: dict[int, float] = {}
        self._outside: tuple[int, ...] = ()
        self._user, self._system = ResourceUsage(), ResourceUsage()
        self._read, self._written = ResourceUsage(), ResourceUsage()
        self._network = _Network(files)

    @property
    def has_group(self) -> bool:
        """Whether it has a group of its own: then its CPU time is known without a list of its processes."""
        return self._group is not None

    def read(self, pids: Sequence[int], whole: bool) -> Reading:
        """Read the CPU time and the traffic; if it is to be whole, also what takes a file for each of these processes.

        Without a group, it is always whole. All values are None if none of the processes can be read.
        """
        if self._group is not None and not whole:
            outside = [
                (pid, read_as(parse_process_times, self._files.short_text, f"/proc/{pid}/stat"))
                for pid in self._outside
            ]
            cpu = self._cpu_with_group(self._group, [(pid, times) for pid, times in outside if times is not None])
            return Reading(**cpu, **network_fields(self._network.again()))
        processes = self._find(pids)
        if not processes:
            return Reading()
        if self._group is None:
            cpu = self._cpu_of([(each.identity[0], each.times) for each in processes])
        else:
            members = self._group.members()
            outsiders = [(each.identity[0], each.times) for each in processes if each.identity[0] not in members]
            self._outside = tuple(pid for pid, _ in outsiders)
            cpu = self._cpu_with_group(self._group, outsiders)
        read_bytes, written_bytes = self._transferred(processes)
        network = self._network.of([each.identity[0] for each in processes])
        self._first = False
        return Reading(
            **cpu,
            memory_bytes=sum(each.resident_bytes for each in processes),
            disk_read_bytes=read_bytes,
            disk_write_bytes=written_bytes,
            **network_fields(network),
            **(_of_group(self._group) if self._group else {}),
        )

    def _find(self, pids: Sequence[int]) -> list[_Process]:
        # Parents before their children: a child that ends meanwhile is then missed for a moment, but never seen twice.
        ordered = sorted(dict.fromkeys(pids), key=lambda pid: self._starts.get(pid, math.inf))
        processes = [process for pid in ordered if (process := _read_process(self._files, pid)) is not None]
        self._starts = dict(each.identity for each in processes)
        return processes

    def _born(self, processes: Iterable[tuple[Identity, ProcessTimes]]) -> frozenset[Identity]:
        """Return those that began after the first reading."""
        if self._first:
            return frozenset()
        return frozenset(identity for identity, times in processes if times.started_seconds >= self._began_seconds)

    def _cpu_of(self, processes: Sequence[tuple[int, ProcessTimes]]) -> Fields:
        """Add up processes, with the children that they have waited for."""
        times = {(pid, each.started_seconds): each for pid, each in processes}
        born = self._born(times.items())
        return {
            "cpu_user": self._user.look({key: _user(each) for key, each in times.items()}, born),
            "cpu_system": self._system.look({key: _system(each) for key, each in times.items()}, born),
        }

    def _cpu_with_group(self, group: GroupReader, outside: Sequence[tuple[int, ProcessTimes]]) -> Fields:
        """Add up the group, and processes outside without their children: those in the group have been counted."""
        now = group.cpu_seconds()
        if now is None:
            return {}
        before = self._group_began = self._group_began or now
        alone = [(pid, replace(each, reaped_user_seconds=0.0, reaped_system_seconds=0.0)) for pid, each in outside]
        others = self._cpu_of(alone)
        return {
            "cpu_user": now[0] - before[0] + others["cpu_user"],
            "cpu_system": now[1] - before[1] + others["cpu_system"],
        }

    def _transferred(self, processes: Sequence[_Process]) -> tuple[float, float] | tuple[None, None]:
        born = self._born((each.identity, each.times) for each in processes)
        read: dict[Identity, Count] = {}
        written: dict[Identity, Count] = {}
        for each in processes:
            if each.transfer is None:  # a sum over the others would look like the whole
                return None, None
            read[each.identity] = _moved(each, each.transfer.in_bytes)
            written[each.identity] = _moved(each, each.transfer.out_bytes)
        return self._read.look(read, born), self._written.look(written, born)


def _of_group(group: GroupReader) -> Fields:
    charged, swap = group.charged_bytes()
    reads, writes = group.transfers() or (None, None)
    counts = {"charged_bytes": charged, "swap_bytes": swap, "disk_reads": reads, "disk_writes": writes}
    return counts | pressure_fields(group.pressures())


def _read_process(files: Files, pid: int) -> _Process | None:
    times = read_as(parse_process_times, files.short_text, f"/proc/{pid}/stat")
    resident = read_as(parse_resident_bytes, files.short_text, f"/proc/{pid}/statm")
    if times is None or resident is None:  # it has vanished
        return None
    transfer = read_as(parse_process_transfer, files.short_text, f"/proc/{pid}/io")
    return _Process((pid, times.started_seconds), times, resident, transfer)


def _user(times: ProcessTimes) -> Count:
    return Count(times.parent, times.user_seconds + times.reaped_user_seconds, times.reaped_user_seconds)


def _system(times: ProcessTimes) -> Count:
    return Count(times.parent, times.system_seconds + times.reaped_system_seconds, times.reaped_system_seconds)


def _moved(process: _Process, moved_bytes: float) -> Count:
    return Count(process.times.parent, moved_bytes, moved_bytes)


class _Network:
    """Traffic since the first reading, in the network namespace of the first process whose namespace is not tare's.

    Over SSH, tare's namespace is that of the SSH server.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._ours = _namespace(files, "self")
        self._before: dict[int, Transfer] = {}
        self._found: tuple[int, int] | None = None  # the process, and its namespace

    def of(self, pids: Sequence[int]) -> Transfer | None:
        """Find the namespace among these processes, and read it."""
        self._found = None
        for pid in pids:
            namespace = _namespace(self._files, str(pid))
            if self._ours is not None and namespace is not None and namespace != self._ours:
                self._found = pid, namespace
                break
        return self.again()

    def again(self) -> Transfer | None:
        """Read the namespace that was found last."""
        if self._found is None:
            return None
        pid, namespace = self._found
        interfaces = read_as(parse_interfaces, self._files.text, f"/proc/{pid}/net/dev") or ()
        now = total(interfaces, {each.name for each in interfaces} - {"lo"})
        if now is None:
            return None
        return now.since(self._before.setdefault(namespace, now))


def _namespace(files: Files, process: str) -> int | None:
    try:
        return files.namespace(process)
    except OSError:
        return None

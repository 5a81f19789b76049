"""What the control group of an instance has counted: one file in place of many of /proc.

A group counts for all its processes, also for those that have ended. It stands for the instance only if every process
in it, and in the groups below it, is one of the instance's. The others of the instance, such as the shim of a
container, are read one by one (instances.py). Formats: the kernel's Documentation/admin-guide/cgroup-v2.rst,
cgroup-v1/cpuacct.rst and cgroup-v1/memory.rst.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tare.errors import TareError
from tare.hosts.control_groups import Layout, group_of, parse_layout, processes_below
from tare.hosts.local import LocalHost
from tare.telemetry.files import Files
from tare.telemetry.parsers import TICKS_PER_SECOND, Pressure, parse_pressure, read_as, whole_disks

_T = TypeVar("_T")

_LOOKS = 3  # a process may begin between two lists of them
_RESOURCES = ("cpu", "memory", "io")
_CPU_2 = ("_usec", "cpu.stat", 1_000_000)
_DEVICE = re.compile(r"^(\d+:\d+) .*?\brios=(\d+) wios=(\d+)", re.MULTILINE)


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

"""Parsers of the kernel's files about resource usage of a machine or a process: CPU time, memory, disks, network.

The parsers are pure, and raise ValueError for an unexpected text. proc(5) and the kernel's
Documentation/admin-guide/iostats.rst and Documentation/accounting/psi.rst describe the formats. The parsers of files of
control groups are in instance_reader.py.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import sub
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")  # 100 in Linux on all architectures that tare knows
_PAGE_KIBIBYTES = (4, 16, 64)  # arm64 has all three, x86-64 the first
SECTOR_BYTES = 512  # the unit of /proc/diskstats, independent of the disk's sector size

# Steal share above which a trial gets a caution, because a careful comparison resolves differences of 1 %.
STEAL_LIMIT = 0.01

_FREE = re.compile(r"^MemFree: +(\d+) kB$", re.MULTILINE)
_FREE_PAGES = re.compile(r"^nr_free_pages (\d+)$", re.MULTILINE)
_SWAPPED = re.compile(r"^pswpin (\d+)\npswpout (\d+)$", re.MULTILINE)
_PRESSURE = re.compile(r"^(some|full) .*total=(\d+)$", re.MULTILINE)
_MADE_OF_OTHERS = re.compile(r"(loop|ram|zram|dm-|md|sr|fd)\d+$")


class CpuTimes(NamedTuple):
    """CPU time since boot in seconds, of one CPU or the sum of all.

    `user_seconds` includes the time of guests, `system_seconds` the time of interrupts, including `softirq_seconds`.
    `idle_seconds` includes `niced_seconds`, the time of tasks with a raised nice level, such as the threads that keep
    CPUs awake (hosts/awake.py). turn_usage.py tells these from other tasks with such a level.
    """

    user_seconds: float
    system_seconds: float
    idle_seconds: float
    iowait_seconds: float
    steal_seconds: float
    softirq_seconds: float = 0.0
    niced_seconds: float = 0.0

    @property
    def used_seconds(self) -> float:
        """Time in which a task of normal priority or the kernel ran, in seconds."""
        return self.user_seconds + self.system_seconds

    @property
    def total_seconds(self) -> float:
        """Whole time in seconds, including idle and steal time."""
        return self.used_seconds + self.idle_seconds + self.iowait_seconds + self.steal_seconds

    @property
    def steal_share(self) -> float | None:
        """Steal time as a share of the time that tasks of any priority wanted, 0 to 1; None if they wanted none.

        Idle time does not count: steal time that slows every task by a tenth is a tenth on a mostly idle machine, too.
        """
        demanded_seconds = self.used_seconds + self.niced_seconds + self.steal_seconds
        return self.steal_seconds / demanded_seconds if demanded_seconds > 0 else None

    def since(self, earlier: CpuTimes) -> CpuTimes:
        """Return the difference from an earlier reading."""
        return CpuTimes(*map(sub, self, earlier))


@dataclass(frozen=True)
class ProcStat:
    """Content of /proc/stat: the sum of the CPUs, the ticks of each CPU by its number, and counters since boot.

    The ticks are user, nice, system, idle, iowait, interrupts, soft interrupts, steal. They stay as in the file to save
    CPU time, because the sampler reads the file ten times a second.
    """

    all_cpus: CpuTimes
    ticks_by_cpu: Mapping[int, tuple[int, ...]]
    context_switches: int
    interrupts: int


@dataclass(frozen=True)
class Pressure:
    """Seconds since boot in which some tasks, or all tasks that are not idle, waited for a resource."""

    some_seconds: float
    full_seconds: float


@dataclass(frozen=True)
class ProcessTimes:
    """CPU time of one process in seconds.

    The reaped times are those of descendants that have ended and been waited for. `started_seconds` is since boot, and
    distinguishes the process from a later process with the same PID.
    """

    parent: int
    user_seconds: float
    system_seconds: float
    reaped_user_seconds: float
    reaped_system_seconds: float
    started_seconds: float


class ByteCounters(NamedTuple):
    """Transfers of a named device or a process since it appeared.

    `in_bytes` were read or received, in `in_count` reads or packets; `out_bytes` were written or sent. The counts of a
    process are 0, as the kernel does not count them. A disk was busy for `busy_seconds`.
    """

    name: str
    in_bytes: float
    out_bytes: float
    in_count: float = 0
    out_count: float = 0
    busy_seconds: float = 0.0

    def since(self, earlier: ByteCounters) -> ByteCounters:
        """Return the difference from an earlier reading, without a name."""
        return ByteCounters("", *map(sub, self[1:], earlier[1:]))


def sum_counters(transfers: Sequence[ByteCounters] | None, names: Collection[str]) -> ByteCounters | None:
    """Return the sum of the counters of these devices; None if there are none."""
    selected = [counters for counters in transfers or () if counters.name in names]
    if len(selected) < 2:
        return selected[0] if selected else None
    return ByteCounters("", *map(sum, zip(*(counters[1:] for counters in selected), strict=True)))


def read_or_none(parse: Callable[[str], _T], read: Callable[[str], str], path: str) -> _T | None:
    """Read and parse a file; return None if either fails."""
    try:
        return parse(read(path))
    except (OSError, ValueError):
        return None


def parse_or_none(parse: Callable[[str], _T], text: str) -> _T | None:
    """Parse a text; return None if that fails."""
    return read_or_none(parse, str, text)


def parse_cpu_total(text: str) -> CpuTimes:
    """Parse the sum of all CPUs, which is the first line of /proc/stat."""
    first = text.split("\n", 1)[0].split()
    if first[:1] != ["cpu"]:
        raise ValueError(f"/proc/stat begins with {text[:40]!r}")
    return _cpu_times(first[1:])


def parse_cpu_each(text: str) -> dict[int, CpuTimes]:
    """Parse the lines of single CPUs of /proc/stat, by CPU number."""
    lines = (line.split() for line in text.splitlines() if re.match(r"cpu\d", line))
    return {int(words[0][3:]): _cpu_times(words[1:]) for words in lines}


def parse_stat(text: str) -> ProcStat:
    """Parse the parts of /proc/stat that the sampler records."""
    times, _, counts = text.partition("\nintr ")
    first, *others = times.split("\n")
    interrupts, _, rest = counts.partition(" ")
    switches = rest.partition("\nctxt ")[2].partition("\n")[0]
    if not switches:
        raise ValueError(f"no intr and ctxt in {text[:40]!r}")
    ticks_by_cpu = {}
    for line in others:
        name, *ticks = line.split(None, 9)
        ticks_by_cpu[int(name[3:])] = tuple(map(int, ticks[:8]))
    return ProcStat(parse_cpu_total(first), ticks_by_cpu, int(switches), int(interrupts))


def _cpu_times(ticks: Sequence[str]) -> CpuTimes:
    if len(ticks) < 8:  # kernels before 2.6.11 do not count steal time
        raise ValueError(f"/proc/stat has {len(ticks)} times of a CPU, not 8 or more")
    seconds = [int(tick) / TICKS_PER_SECOND for tick in ticks[:8]]
    user, nice, system, idle, iowait, interrupts, soft_interrupts, steal = seconds
    kernel = system + interrupts + soft_interrupts
    return CpuTimes(user, kernel, idle + nice, iowait, steal, soft_interrupts, nice)


def parse_process_times(text: str) -> ProcessTimes:
    """Parse /proc/PID/stat."""
    _, bracket, rest = text.rpartition(")")  # the last one: the command's name may contain blanks and parentheses
    words = rest.split()
    if not bracket or len(words) < 20:
        raise ValueError(f"not the stat of a process: {text[:60]!r}")
    user, system, reaped_user, reaped_system = (int(word) / TICKS_PER_SECOND for word in words[11:15])
    started = int(words[19]) / TICKS_PER_SECOND
    return ProcessTimes(int(words[1]), user, system, reaped_user, reaped_system, started)


def parse_resident_pages(text: str) -> int:
    """Parse the resident set size of a process in pages, with shared ones, from /proc/PID/statm.

    The number in /proc/PID/stat is less exact: newer kernels are off by megabytes there on machines with many CPUs.
    """
    words = text.split()
    if len(words) < 2:
        raise ValueError(f"not the statm of a process: {text[:60]!r}")
    return int(words[1])


def read_page_bytes(read: Callable[[str], str]) -> int:
    """Return the size of a machine's pages in bytes; that of this machine if it cannot be read.

    No file has it. The kernel prints one and the same counter of free memory in /proc/meminfo and in /proc/vmstat.
    """
    kibibytes = read_or_none(partial(_parse_number, _FREE), read, "/proc/meminfo")
    pages = read_or_none(partial(_parse_number, _FREE_PAGES), read, "/proc/vmstat")
    if not kibibytes or not pages:
        return os.sysconf("SC_PAGE_SIZE")
    return 1024 * min(_PAGE_KIBIBYTES, key=lambda size: abs(math.log(kibibytes / pages / size)))


def _parse_number(pattern: re.Pattern[str], text: str) -> int:
    if (match := pattern.search(text)) is None:
        raise ValueError(f"no number of {pattern.pattern}")
    return int(match[1])


def parse_process_transfer(text: str) -> ByteCounters:
    """Parse the bytes that disks have read and written for a process, without page cache hits, from /proc/PID/io."""
    counters = dict(re.findall(r"^(read_bytes|write_bytes): (\d+)$", text, re.MULTILINE))
    if len(counters) != 2:
        raise ValueError(f"not the io of a process: {text[:60]!r}")
    return ByteCounters("", int(counters["read_bytes"]), int(counters["write_bytes"]))


def parse_disks(text: str, devices: Collection[str] | None = None) -> tuple[ByteCounters, ...]:
    """Parse the lines of /proc/diskstats of these devices; None for all, including partitions."""
    lines = text.splitlines()
    return tuple(_disk(line) for line in lines if devices is None or "".join(line.split(None, 3)[2:3]) in devices)


def _disk(line: str) -> ByteCounters:
    words = line.split()
    if len(words) < 13:
        raise ValueError("a line of /proc/diskstats has fewer than 13 words")
    reads, _, read, _, writes, _, written, _, _, busy_milliseconds = map(int, words[3:13])
    return ByteCounters(words[2], read * SECTOR_BYTES, written * SECTOR_BYTES, reads, writes, busy_milliseconds / 1000)


def whole_disks(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of whole disks, without partitions and devices made of other devices.

    The counters of these would count bytes twice. The name of a partition is that of its disk and a number: `sda1`, or
    `nvme0n1p1` if the disk's name ends with a digit. A numbered device without its disk, such as `xvda1` in Xen guests,
    is a disk.
    """
    disks = {name for name in names if not _MADE_OF_OTHERS.match(name)}
    return tuple(name for name in names if name in disks and _disk_of(name) not in disks)


def _disk_of(name: str) -> str:
    match = re.fullmatch(r"(.*\d)p\d+|(.*[a-z])\d+", name)
    return (match[1] or match[2]) if match else ""


def parse_interfaces(text: str, names: Collection[str] | None = None) -> tuple[ByteCounters, ...]:
    """Parse the traffic of these network interfaces from /proc/net/dev; None for all, including the loopback."""
    interfaces = []
    for line in text.splitlines()[2:]:
        name, _, counters = line.rpartition(":")
        if names is not None and name.strip() not in names:
            continue
        words = counters.split()
        if not name or len(words) < 10:
            raise ValueError(f"not a line of /proc/net/dev: {line!r}")
        numbers = (int(words[0]), int(words[8]), int(words[1]), int(words[9]))
        interfaces.append(ByteCounters(name.strip(), *numbers))
    return tuple(interfaces)


def parse_swapped_pages(text: str) -> tuple[int, int]:
    """Parse the numbers of pages that were swapped in and swapped out since boot from /proc/vmstat."""
    match = _SWAPPED.search(text)
    if match is None:
        raise ValueError("no pswpin and pswpout in /proc/vmstat")
    return int(match[1]), int(match[2])


def parse_pressure(text: str) -> Pressure:
    """Parse a file of /proc/pressure or of a control group. `full_seconds` is 0 without a line `full`."""
    totals = {name: int(microseconds) / 1e6 for name, microseconds in _PRESSURE.findall(text)}
    if "some" not in totals:
        raise ValueError(f"not the pressure of a resource: {text[:60]!r}")
    return Pressure(totals["some"], totals.get("full", 0.0))  # Linux before 5.13 has no line `full` for the CPU

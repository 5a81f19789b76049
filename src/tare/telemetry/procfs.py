"""Parsers of the kernel's text files about use: CPU time, memory, disks, network, of a machine or of one process.

They are pure, and raise ValueError for an unexpected text. The formats are those of proc(5) and of the kernel's
Documentation/admin-guide/iostats.rst and Documentation/accounting/psi.rst. Those of control groups are in groups.py.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from operator import sub
from typing import NamedTuple, TypeVar

_T = TypeVar("_T")

# Those of this machine; over SSH, where it is always Linux on x86_64, they are the same.
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
SECTOR_BYTES = 512  # the unit of /proc/diskstats, whatever the disk's own sector is

# Share of the wanted CPU time above which steal is a caution: a careful comparison resolves differences of 1 %.
STEAL_LIMIT = 0.01

_SWAPPED = re.compile(r"^pswpin (\d+)\npswpout (\d+)$", re.MULTILINE)
_PRESSURE = re.compile(r"^(some|full) .*total=(\d+)$", re.MULTILINE)
_MADE_OF_OTHERS = re.compile(r"(loop|ram|zram|dm-|md|sr|fd)\d+$")


class CpuTimes(NamedTuple):
    """CPU time since boot in seconds, of one CPU or of all together.

    `user_seconds` includes niced and guests' time, `system_seconds` interrupts, also those that `softirq_seconds` has
    alone.
    """

    user_seconds: float
    system_seconds: float
    idle_seconds: float
    iowait_seconds: float
    steal_seconds: float
    softirq_seconds: float = 0.0

    @property
    def used_seconds(self) -> float:
        """Time in which something ran, in seconds."""
        return self.user_seconds + self.system_seconds

    @property
    def total_seconds(self) -> float:
        """All counted time in seconds, including idle and stolen time."""
        return self.used_seconds + self.idle_seconds + self.iowait_seconds + self.steal_seconds

    @property
    def steal_share(self) -> float | None:
        """Stolen time as a share of the time in which something ran or wanted to run, 0 to 1; None without such time.

        Idle time does not count, so that a steal that slows every task by a tenth is a tenth on an idle machine, too.
        """
        wanted_seconds = self.used_seconds + self.steal_seconds
        return self.steal_seconds / wanted_seconds if wanted_seconds > 0 else None

    def since(self, earlier: CpuTimes) -> CpuTimes:
        """Return the difference from an earlier reading."""
        return CpuTimes(*map(sub, self, earlier))


@dataclass(frozen=True)
class ProcStat:
    """/proc/stat: the CPUs together, the ticks of each by its number, and what the kernel has counted since boot.

    The ticks are as the kernel has them, because this is read ten times a second: user, nice, system, idle, iowait,
    interrupts, soft interrupts, steal.
    """

    all_cpus: CpuTimes
    ticks_by_cpu: Mapping[int, tuple[int, ...]]
    context_switches: int
    interrupts: int


@dataclass(frozen=True)
class Pressure:
    """Seconds in which a resource kept some tasks, or all that are not idle, waiting, since boot."""

    some_seconds: float
    full_seconds: float


@dataclass(frozen=True)
class ProcessTimes:
    """CPU time of one process in seconds.

    The reaped times are those of descendants that have ended and been waited for. `started_seconds`, since boot,
    distinguishes it from a later process with the same number.
    """

    parent: int
    user_seconds: float
    system_seconds: float
    reaped_user_seconds: float
    reaped_system_seconds: float
    started_seconds: float


class ByteCounters(NamedTuple):
    """Bytes that a named device, or a process, has transferred since it appeared.

    `in_bytes` were read or received, `out_bytes` written or sent, in so many reads and writes, or packets; the numbers
    of a process are not known. A disk was busy for `busy_seconds`.
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
    """Add up what these devices have transferred; None without any."""
    wanted = [each for each in transfers or () if each.name in names]
    if len(wanted) < 2:
        return wanted[0] if wanted else None
    return ByteCounters("", *map(sum, zip(*(each[1:] for each in wanted), strict=True)))


def read_or_none(parse: Callable[[str], _T], read: Callable[[str], str], path: str) -> _T | None:
    """Read and parse a file; None if either fails."""
    try:
        return parse(read(path))
    except (OSError, ValueError):
        return None


def parse_or_none(parse: Callable[[str], _T], text: str) -> _T | None:
    """Parse a text; None if that fails."""
    return read_or_none(parse, str, text)


def parse_cpu_total(text: str) -> CpuTimes:
    """Read the first line of /proc/stat: all CPUs together."""
    first = text.split("\n", 1)[0].split()
    if first[:1] != ["cpu"]:
        raise ValueError(f"/proc/stat begins with {text[:40]!r}")
    return _cpu_times(first[1:])


def parse_cpu_each(text: str) -> dict[int, CpuTimes]:
    """Read the lines of single CPUs of /proc/stat, by CPU number."""
    lines = (line.split() for line in text.splitlines() if re.match(r"cpu\d", line))
    return {int(words[0][3:]): _cpu_times(words[1:]) for words in lines}


def parse_stat(text: str) -> ProcStat:
    """Read all of /proc/stat that is sampled."""
    times, _, counts = text.partition("\nintr ")
    first, *others = times.split("\n")
    interrupts, _, rest = counts.partition(" ")
    switches = rest.partition("\nctxt ")[2].partition("\n")[0]
    if not switches:
        raise ValueError(f"no intr and ctxt in {text[:40]!r}")
    each = {}
    for line in others:
        name, *ticks = line.split(None, 9)
        each[int(name[3:])] = tuple(map(int, ticks[:8]))
    return ProcStat(parse_cpu_total(first), each, int(switches), int(interrupts))


def _cpu_times(ticks: Sequence[str]) -> CpuTimes:
    if len(ticks) < 8:  # kernels before 2.6.11 do not count stolen time
        raise ValueError(f"/proc/stat has {len(ticks)} times of a CPU, not 8 or more")
    seconds = [int(tick) / TICKS_PER_SECOND for tick in ticks[:8]]
    user, nice, system, idle, iowait, interrupts, soft_interrupts, steal = seconds
    return CpuTimes(user + nice, system + interrupts + soft_interrupts, idle, iowait, steal, soft_interrupts)


def parse_process_times(text: str) -> ProcessTimes:
    """Read /proc/PID/stat. The command's name may contain blanks and parentheses, so it ends at the last `)`."""
    _, bracket, rest = text.rpartition(")")
    words = rest.split()
    if not bracket or len(words) < 20:
        raise ValueError(f"not the stat of a process: {text[:60]!r}")
    user, system, reaped_user, reaped_system = (int(word) / TICKS_PER_SECOND for word in words[11:15])
    started = int(words[19]) / TICKS_PER_SECOND
    return ProcessTimes(int(words[1]), user, system, reaped_user, reaped_system, started)


def parse_resident_bytes(text: str) -> int:
    """Read the resident set size of a process in bytes, shared pages included, from /proc/PID/statm.

    The number in /proc/PID/stat is less exact: newer kernels err by megabytes on many CPUs.
    """
    words = text.split()
    if len(words) < 2:
        raise ValueError(f"not the statm of a process: {text[:60]!r}")
    return int(words[1]) * PAGE_BYTES


def parse_process_transfer(text: str) -> ByteCounters:
    """Read the bytes that a process made the disks read and write from /proc/PID/io, without hits of the page cache."""
    counters = dict(re.findall(r"^(read_bytes|write_bytes): (\d+)$", text, re.MULTILINE))
    if len(counters) != 2:
        raise ValueError(f"not the io of a process: {text[:60]!r}")
    return ByteCounters("", int(counters["read_bytes"]), int(counters["write_bytes"]))


def parse_disks(text: str, wanted: Collection[str] | None = None) -> tuple[ByteCounters, ...]:
    """Read the lines of /proc/diskstats of these devices, or all, including partitions."""
    lines = text.splitlines()
    return tuple(_disk(line) for line in lines if wanted is None or "".join(line.split(None, 3)[2:3]) in wanted)


def _disk(line: str) -> ByteCounters:
    words = line.split()
    if len(words) < 13:
        raise ValueError("a line of /proc/diskstats has fewer than 13 words")
    reads, _, read, _, writes, _, written, _, _, busy_milliseconds = map(int, words[3:13])
    return ByteCounters(words[2], read * SECTOR_BYTES, written * SECTOR_BYTES, reads, writes, busy_milliseconds / 1000)


def whole_disks(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of disks, without what would count bytes twice: partitions, and devices made of other devices.

    A partition has its disk's name and a number: `sda1`, or `nvme0n1p1` if the disk's name ends in one. A numbered
    device without its disk, such as `xvda1` in Xen guests, is a disk.
    """
    disks = {name for name in names if not _MADE_OF_OTHERS.match(name)}
    return tuple(name for name in names if name in disks and _disk_of(name) not in disks)


def _disk_of(name: str) -> str:
    match = re.fullmatch(r"(.*\d)p\d+|(.*[a-z])\d+", name)
    return (match[1] or match[2]) if match else ""


def parse_interfaces(text: str, wanted: Collection[str] | None = None) -> tuple[ByteCounters, ...]:
    """Read /proc/net/dev: what these network interfaces, or all with the loopback, have received and sent."""
    interfaces = []
    for line in text.splitlines()[2:]:
        name, _, counters = line.rpartition(":")
        if wanted is not None and name.strip() not in wanted:
            continue
        words = counters.split()
        if not name or len(words) < 10:
            raise ValueError(f"not a line of /proc/net/dev: {line!r}")
        numbers = (int(words[0]), int(words[8]), int(words[1]), int(words[9]))
        interfaces.append(ByteCounters(name.strip(), *numbers))
    return tuple(interfaces)


def parse_swapped_pages(text: str) -> tuple[int, int]:
    """Read from /proc/vmstat the numbers of pages that came back from swap, and went there, since boot."""
    match = _SWAPPED.search(text)
    if match is None:
        raise ValueError("no pswpin and pswpout in /proc/vmstat")
    return int(match[1]), int(match[2])


def parse_pressure(text: str) -> Pressure:
    """Read a file of /proc/pressure, or of a control group. Old kernels have no line `full` for the CPU."""
    totals = {name: int(microseconds) / 1e6 for name, microseconds in _PRESSURE.findall(text)}
    if "some" not in totals:
        raise ValueError(f"not the pressure of a resource: {text[:60]!r}")
    return Pressure(totals["some"], totals.get("full", 0.0))

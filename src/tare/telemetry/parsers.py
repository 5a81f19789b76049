"""Parsers of the kernel's text files about use: CPU time, memory, disks, network, of a machine or of one process.

They are pure, and raise ValueError for an unexpected text. The formats are those of proc(5) and of the kernel's
Documentation/admin-guide/iostats.rst.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

SECTOR_BYTES = 512  # the unit of /proc/diskstats, whatever the disk's own sector is

# Share of the wanted CPU time above which steal is a caution: a careful comparison resolves differences of 1 %.
STEAL_LIMIT = 0.01

_MEMORY = re.compile(r"^MemTotal: +(\d+) kB\nMemFree:.*\nMemAvailable: +(\d+) kB$", re.MULTILINE)
_MADE_OF_OTHERS = re.compile(r"(loop|ram|zram|dm-|md|sr|fd)\d+$")


@dataclass(frozen=True)
class CpuTimes:
    """CPU time since boot in seconds, of one CPU or of all together.

    `user_seconds` includes niced and guests' time, `system_seconds` interrupts.
    """

    user_seconds: float
    system_seconds: float
    idle_seconds: float
    iowait_seconds: float
    steal_seconds: float

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
        """Give the difference from an earlier reading."""
        return CpuTimes(
            self.user_seconds - earlier.user_seconds,
            self.system_seconds - earlier.system_seconds,
            self.idle_seconds - earlier.idle_seconds,
            self.iowait_seconds - earlier.iowait_seconds,
            self.steal_seconds - earlier.steal_seconds,
        )


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


@dataclass(frozen=True)
class Transfer:
    """Bytes that a named device, or a process, has transferred since it appeared.

    `in_bytes` were read or received, `out_bytes` written or sent.
    """

    name: str
    in_bytes: int
    out_bytes: int


def parse_cpu_total(text: str, ticks_per_second: int = 100) -> CpuTimes:
    """Read the first line of /proc/stat: all CPUs together."""
    first = text.split("\n", 1)[0].split()
    if first[:1] != ["cpu"]:
        raise ValueError(f"/proc/stat begins with {text[:40]!r}")
    return _cpu_times(first[1:], ticks_per_second)


def parse_cpu_each(text: str, ticks_per_second: int = 100) -> dict[int, CpuTimes]:
    """Read the lines of single CPUs of /proc/stat, by CPU number."""
    lines = (line.split() for line in text.splitlines() if re.match(r"cpu\d", line))
    return {int(words[0][3:]): _cpu_times(words[1:], ticks_per_second) for words in lines}


def _cpu_times(ticks: Sequence[str], ticks_per_second: int) -> CpuTimes:
    if len(ticks) < 8:  # kernels before 2.6.11 do not count stolen time
        raise ValueError(f"/proc/stat has {len(ticks)} times of a CPU, not 8 or more")
    seconds = [int(tick) / ticks_per_second for tick in ticks[:8]]
    user, nice, system, idle, iowait, interrupts, soft_interrupts, steal = seconds
    return CpuTimes(user + nice, system + interrupts + soft_interrupts, idle, iowait, steal)


def parse_process_times(text: str, ticks_per_second: int = 100) -> ProcessTimes:
    """Read /proc/PID/stat. The command's name may contain blanks and parentheses, so it ends at the last `)`."""
    _, bracket, rest = text.rpartition(")")
    words = rest.split()
    if not bracket or len(words) < 20:
        raise ValueError(f"not the stat of a process: {text[:60]!r}")
    user, system, reaped_user, reaped_system = (int(word) / ticks_per_second for word in words[11:15])
    started = int(words[19]) / ticks_per_second
    return ProcessTimes(int(words[1]), user, system, reaped_user, reaped_system, started)


def parse_resident_bytes(text: str, page_bytes: int = 4096) -> int:
    """Read the resident set size of a process in bytes, shared pages included, from /proc/PID/statm.

    The number in /proc/PID/stat is less exact: newer kernels err by megabytes on many CPUs.
    """
    words = text.split()
    if len(words) < 2:
        raise ValueError(f"not the statm of a process: {text[:60]!r}")
    return int(words[1]) * page_bytes


def parse_process_transfer(text: str) -> Transfer:
    """Read the bytes that a process made the disks read and write from /proc/PID/io, without hits of the page cache."""
    counters = dict(re.findall(r"^(read_bytes|write_bytes): (\d+)$", text, re.MULTILINE))
    if len(counters) != 2:
        raise ValueError(f"not the io of a process: {text[:60]!r}")
    return Transfer("", int(counters["read_bytes"]), int(counters["write_bytes"]))


def parse_used_memory_bytes(text: str) -> int:
    """Read from /proc/meminfo the memory in bytes that is not available without swapping."""
    match = _MEMORY.search(text)
    if match is None:
        raise ValueError("no MemTotal and MemAvailable in /proc/meminfo")
    return (int(match[1]) - int(match[2])) * 1024


def parse_available_bytes(text: str) -> int:
    """Read from /proc/meminfo how much memory can be had without swapping. Only the first lines are looked at."""
    found = _MEMORY.search(text)
    if found is None:
        raise ValueError("no MemAvailable in /proc/meminfo")
    return int(found[2]) * 1024


def parse_disks(text: str) -> tuple[Transfer, ...]:
    """Read all lines of /proc/diskstats, including partitions."""
    lines = [line.split() for line in text.splitlines()]
    if any(len(words) < 10 for words in lines):
        raise ValueError("a line of /proc/diskstats has fewer than 10 words")
    return tuple(Transfer(words[2], int(words[5]) * SECTOR_BYTES, int(words[9]) * SECTOR_BYTES) for words in lines)


def whole_disks(names: Sequence[str]) -> tuple[str, ...]:
    """Give the names of disks, without what would count bytes twice: partitions, and devices made of other devices.

    A partition has its disk's name and a number: `sda1`, or `nvme0n1p1` if the disk's name ends in one. A numbered
    device without its disk, such as `xvda1` in Xen guests, is a disk.
    """
    disks = {name for name in names if not _MADE_OF_OTHERS.match(name)}
    return tuple(name for name in names if name in disks and _disk_of(name) not in disks)


def _disk_of(name: str) -> str:
    match = re.fullmatch(r"(.*\d)p\d+|(.*[a-z])\d+", name)
    return (match[1] or match[2]) if match else ""


def parse_interfaces(text: str) -> tuple[Transfer, ...]:
    """Read /proc/net/dev: the bytes that each network interface, including the loopback, has received and sent."""
    interfaces = []
    for line in text.splitlines()[2:]:
        name, _, counters = line.rpartition(":")
        words = counters.split()
        if not name or len(words) < 9:
            raise ValueError(f"not a line of /proc/net/dev: {line!r}")
        interfaces.append(Transfer(name.strip(), int(words[0]), int(words[8])))
    return tuple(interfaces)


def parse_swapped_in_pages(text: str) -> int:
    """Read from /proc/vmstat the number of pages that came back from swap since boot."""
    match = re.search(r"^pswpin (\d+)$", text, re.MULTILINE)
    if match is None:
        raise ValueError("no pswpin in /proc/vmstat")
    return int(match[1])

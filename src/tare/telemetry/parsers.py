"""What the kernel's text files say about use: CPU time, memory, disks, network, and the same for one process.

Everything here is pure: text in, values out. A text that is not what was expected raises ValueError; the caller decides
what a missing reading means. Formats are those of proc(5) and of the kernel's Documentation/admin-guide/iostats.rst.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

SECTOR_BYTES = 512  # the unit of /proc/diskstats, whatever the disk's own sector is

# Share of the wanted CPU time that may be stolen. One per cent is what a careful comparison still wants to resolve.
STEAL_LIMIT = 0.01

_MEMORY = re.compile(r"^MemTotal: +(\d+) kB\nMemFree:.*\nMemAvailable: +(\d+) kB$", re.MULTILINE)
_MADE_OF_OTHERS = re.compile(r"(loop|ram|zram|dm-|md|sr|fd)\d+$")


@dataclass(frozen=True)
class CpuTimes:
    """CPU time since boot in seconds, of one CPU or of all of them together.

    `user_seconds` has the niced part and what guests used, as the kernel counts them; `system_seconds` has the kernel's
    interrupts.
    """

    user_seconds: float
    system_seconds: float
    idle_seconds: float
    iowait_seconds: float
    steal_seconds: float

    @property
    def used_seconds(self) -> float:
        """Time in which something ran."""
        return self.user_seconds + self.system_seconds

    @property
    def total_seconds(self) -> float:
        """All time that was counted, idle and stolen time too."""
        return self.used_seconds + self.idle_seconds + self.iowait_seconds + self.steal_seconds

    @property
    def steal_share(self) -> float | None:
        """Stolen time as a share of the time in which something ran or wanted to; None where nothing wanted to.

        Idle time is left out: a steal that slows every task by a tenth is a tenth on an idle machine as well.
        """
        wanted_seconds = self.used_seconds + self.steal_seconds
        return self.steal_seconds / wanted_seconds if wanted_seconds > 0 else None

    def since(self, earlier: CpuTimes) -> CpuTimes:
        """Give what was added since an earlier reading."""
        return CpuTimes(
            self.user_seconds - earlier.user_seconds,
            self.system_seconds - earlier.system_seconds,
            self.idle_seconds - earlier.idle_seconds,
            self.iowait_seconds - earlier.iowait_seconds,
            self.steal_seconds - earlier.steal_seconds,
        )


@dataclass(frozen=True)
class ProcessTimes:
    """CPU time of one process in seconds, and what tells it from another one that gets its number later.

    The reaped times are those of children that have ended and have been waited for, and of theirs.
    `started_seconds` is in seconds since boot.
    """

    parent: int
    user_seconds: float
    system_seconds: float
    reaped_user_seconds: float
    reaped_system_seconds: float
    started_seconds: float


@dataclass(frozen=True)
class Transfer:
    """Bytes that went through a named device since it appeared, or through a process since it began.

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
    """Read /proc/PID/stat. The name of the command may hold blanks and parentheses, so the last `)` is what counts."""
    _, bracket, rest = text.rpartition(")")
    words = rest.split()
    if not bracket or len(words) < 20:
        raise ValueError(f"not the stat of a process: {text[:60]!r}")
    user, system, reaped_user, reaped_system = (int(word) / ticks_per_second for word in words[11:15])
    started = int(words[19]) / ticks_per_second
    return ProcessTimes(int(words[1]), user, system, reaped_user, reaped_system, started)


def parse_resident_bytes(text: str, page_bytes: int = 4096) -> int:
    """Read what a process holds in memory, shared pages too, from /proc/PID/statm.

    /proc/PID/stat has the same number, but newer kernels round it for speed and err by megabytes on many CPUs.
    """
    words = text.split()
    if len(words) < 2:
        raise ValueError(f"not the statm of a process: {text[:60]!r}")
    return int(words[1]) * page_bytes


def parse_process_transfer(text: str) -> Transfer:
    """Read what a process made the disks read and write from /proc/PID/io; what the page cache answered is left out."""
    counters = dict(re.findall(r"^(read_bytes|write_bytes): (\d+)$", text, re.MULTILINE))
    if len(counters) != 2:
        raise ValueError(f"not the io of a process: {text[:60]!r}")
    return Transfer("", int(counters["read_bytes"]), int(counters["write_bytes"]))


def parse_proportional_bytes(text: str) -> int:
    """Read the proportional set size from /proc/PID/smaps_rollup: pages shared by n processes count one nth."""
    match = re.search(r"^Pss:\s+(\d+) kB$", text, re.MULTILINE)
    if match is None:
        raise ValueError(f"no Pss in {text[:60]!r}")
    return int(match[1]) * 1024


def parse_used_memory_bytes(text: str) -> int:
    """Read from /proc/meminfo how much memory cannot be had without swapping. Only the first lines are looked at."""
    match = _MEMORY.search(text)
    if match is None:
        raise ValueError("no MemTotal and MemAvailable in /proc/meminfo")
    return (int(match[1]) - int(match[2])) * 1024


def parse_disks(text: str) -> tuple[Transfer, ...]:
    """Read /proc/diskstats: every line, so partitions too."""
    lines = [line.split() for line in text.splitlines()]
    if any(len(words) < 10 for words in lines):
        raise ValueError("a line of /proc/diskstats has fewer than 10 words")
    return tuple(Transfer(words[2], int(words[5]) * SECTOR_BYTES, int(words[9]) * SECTOR_BYTES) for words in lines)


def whole_disks(names: Sequence[str]) -> tuple[str, ...]:
    """Leave out what would count the same bytes twice: partitions, and devices that are made of other devices.

    A partition is called as its disk is, with a number: `sda1`, or `nvme0n1p1` where the disk's own name ends in one.
    A numbered device without its disk, as Xen guests have `xvda1`, is a disk of its own.
    """
    disks = {name for name in names if not _MADE_OF_OTHERS.match(name)}
    return tuple(name for name in names if name in disks and _disk_of(name) not in disks)


def _disk_of(name: str) -> str:
    match = re.fullmatch(r"(.*\d)p\d+|(.*[a-z])\d+", name)
    return (match[1] or match[2]) if match else ""


def parse_interfaces(text: str) -> tuple[Transfer, ...]:
    """Read /proc/net/dev: bytes received and sent by every network interface, the loopback too."""
    interfaces = []
    for line in text.splitlines()[2:]:
        name, _, counters = line.rpartition(":")
        words = counters.split()
        if not name or len(words) < 9:
            raise ValueError(f"not a line of /proc/net/dev: {line!r}")
        interfaces.append(Transfer(name.strip(), int(words[0]), int(words[8])))
    return tuple(interfaces)


def parse_swapped_in_pages(text: str) -> int:
    """Read from /proc/vmstat how many pages came back from swap since boot."""
    match = re.search(r"^pswpin (\d+)$", text, re.MULTILINE)
    if match is None:
        raise ValueError("no pswpin in /proc/vmstat")
    return int(match[1])

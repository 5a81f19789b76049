"""The disks of a machine, and the caches of files that hosts keep in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tare.hosts.host import Host
from tare.model.machines import DiskBytes

# Only what is hardware to the machine has `device`: a partition, a mapped or a loop device would count twice.
_STATISTICS = 'for disk in /sys/block/*/device; do cat "${disk%device}stat" 2>/dev/null; done'
_SECTOR_BYTES = 512  # of these files, whatever the disk's own are
_SECONDS = 300.0


def disks_moved(host: Host) -> DiskBytes:
    """Read what the disks of a machine have moved; nothing for one without disks."""
    return parse_statistics(host.run("sh", "-c", _STATISTICS, timeout=30, check=False).text)


def parse_statistics(text: str) -> DiskBytes:
    """Add up the lines of /sys/block/DISK/stat (Documentation/block/stat.rst)."""
    lines = [line.split() for line in text.splitlines()]
    return DiskBytes(*(_SECTOR_BYTES * sum(int(line[field]) for line in lines) for field in (2, 6)))


def drop_caches(hosts: Iterable[Host]) -> None:
    """Write back and drop the caches of files on each of the hosts, the innermost first.

    A container cannot, and needs not: its machine is among them. Done also where an image was just written: the kernel
    keeps such files in smaller pieces than what it reads ahead, and a program then starts and reads some percent slower
    from one engine's store than from another's.
    """
    for host in hosts:
        host.run("sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches", timeout=_SECONDS, check=False)


@dataclass
class ColdStart:
    """A start on a machine with cold caches, and what its disks had read when it began."""

    host: Host
    before_bytes: int = 0

    def begin(self) -> None:
        """Drop the caches, and begin to count."""
        drop_caches([self.host])
        self.before_bytes = disks_moved(self.host).read

    def read_bytes(self) -> int:
        """Return what the disks have read since."""
        return disks_moved(self.host).read - self.before_bytes

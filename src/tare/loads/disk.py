"""What workloads of files share: where the files are, and the proof that no cache answers in place of the disk.

`place` is `root`, the file system that the instance has anyway, or `volume`, a data volume beside it, as people mount
one for a database. Caches are bypassed (O_DIRECT), or dropped on every machine of the stack before a measurement. What
the machine's disks have moved meanwhile shows whether that worked: gVisor, and a monitor's file, may have caches still.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

from tare.hosts.host import Host
from tare.model.machine import DiskBytes
from tare.plugins.workload import VOLUME, MeasurementContext, Workload

FileLocation = Literal["root", "volume"]
_ROOT = "/srv/tare-files"


@dataclass(frozen=True)
class FileWorkload(Workload):
    """A workload of files, which are on the root of the instance or on a data volume."""

    place: FileLocation = "root"

    @property
    @abstractmethod
    def needed_bytes(self) -> int:
        """How much its files take at most."""

    @property
    def folder(self) -> str:
        """The folder of its files."""
        return f"{VOLUME}/files" if self.place == "volume" else _ROOT

    @property
    def paths(self) -> tuple[str, ...]:
        """The folder of its files."""
        return (self.folder,)

    @property
    def disk_bytes(self) -> int:
        """How much must fit on the root, and in a nested stack, for a volume, on the disk of the machine around."""
        return self.needed_bytes

    @property
    def volume_bytes(self) -> int:
        """How much must fit on its volume; 0 if its files are on the root."""
        return self.needed_bytes if self.place == "volume" else 0

    def create_folder(self, setup: MeasurementContext) -> Host:
        """Make the folder, and return the inside; raises TrialFailed without one."""
        inside = setup.require_inside(self.name)
        inside.run("mkdir", "-p", self.folder, timeout=60)
        return inside


def disk_traffic_share(setup: MeasurementContext, before: DiskBytes, moved: DiskBytes) -> float:
    """Return the share of the bytes a workload has moved that the machine's disks have seen since `before`; at most 1.

    Of the shares of reads and writes it is the smaller one: what the disks have done besides makes up for nothing.
    """
    after = setup.read_disk_bytes()
    read, written = after.read - before.read, after.written - before.written
    shares = [seen / asked for seen, asked in ((read, moved.read), (written, moved.written)) if asked]
    return min([1.0, *shares])

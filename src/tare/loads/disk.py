"""Base of file workloads: the location of the files, and the proof that no cache answered in place of the disk.

`place` is `root`, the root file system of the instance, or `volume`, an additional data volume, as databases have.
Caches are bypassed (O_DIRECT), or dropped on every machine of the stack before a measurement. gVisor and the disk files
of a monitor may be cached nevertheless, so tare counts the bytes that the machine's disks have moved.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Literal

from tare.hosts.host import Host
from tare.model.machine import DiskBytes
from tare.plugins.instance import VOLUME
from tare.plugins.workload import MeasurementContext, Workload

FileLocation = Literal["root", "volume"]
_ROOT = "/srv/tare-files"


@dataclass(frozen=True)
class FileWorkload(Workload):
    """Workload of files on the root of the instance or on a data volume."""

    place: FileLocation = "root"

    @property
    @abstractmethod
    def needed_bytes(self) -> int:
        """Most bytes that the files take."""

    @property
    def folder(self) -> str:
        """Folder of the files in the instance."""
        return f"{VOLUME}/files" if self.place == "volume" else _ROOT

    @property
    def paths(self) -> tuple[str, ...]:
        """Paths that the workload uses: the folder of the files."""
        return (self.folder,)

    @property
    def disk_bytes(self) -> int:
        """Bytes that must fit on the root, and for a volume of a nested stack, on the disk of its outer machine."""
        return self.needed_bytes

    @property
    def volume_bytes(self) -> int:
        """Bytes that must fit on the volume; 0 if the files are on the root."""
        return self.needed_bytes if self.place == "volume" else 0

    def create_folder(self, setup: MeasurementContext) -> Host:
        """Create the folder, and return the inside; raises TrialFailed for an instance without an inside."""
        inside = setup.require_inside(self.name)
        inside.run("mkdir", "-p", self.folder, timeout=60)
        return inside


def disk_traffic_share(setup: MeasurementContext, before: DiskBytes, moved: DiskBytes) -> float:
    """Return the share of the bytes `moved` by a workload that the disks have moved since `before`; at most 1.

    The share is the smaller one of reads and writes, so that other writes of the machine do not hide cached reads.
    """
    after = setup.read_disk_bytes()
    read, written = after.read - before.read, after.written - before.written
    shares = [by_disk / expected for by_disk, expected in ((read, moved.read), (written, moved.written)) if expected]
    return min([1.0, *shares])

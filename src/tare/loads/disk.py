"""What workloads of files share: where the files are, and the proof that no cache answers in place of the disk.

`place` is `root`, the file system that the instance has anyway, or `volume`, a data volume beside it, as people mount
one for a database. Caches are bypassed (O_DIRECT), or dropped on every machine of the stack before each measurement.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

from tare.contracts import VOLUME, Host, Setup, Workload
from tare.errors import TrialFailed
from tare.model import Raw

Place = Literal["root", "volume"]
_ROOT = "/srv/tare-files"
_PROBE_MEBIBYTES = 64
_SECONDS = 300.0


@dataclass(frozen=True)
class OnDisk(Workload):
    """A workload of files, which are on the root of the instance or on a data volume."""

    place: Place = "root"

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
        """How much must fit on the root; 0 if its files are on a volume."""
        return self.needed_bytes + (_PROBE_MEBIBYTES << 20) if self.place == "root" else 0

    @property
    def volume_bytes(self) -> int:
        """How much must fit on its volume; 0 if its files are on the root."""
        return self.needed_bytes + (_PROBE_MEBIBYTES << 20) if self.place == "volume" else 0

    def inside(self, setup: Setup) -> Host:
        """Make the folder, and give the inside; raises TrialFailed without one."""
        if setup.instance.inside is None:
            what = f"{setup.instance.name}: {self.name} runs inside"
            raise TrialFailed(what, f"leave this stack out of {self.name}")
        setup.instance.inside.run("mkdir", "-p", self.folder, timeout=60)
        return setup.instance.inside

    def probe(self, setup: Setup, direct: bool) -> Raw:
        """Find out whether what is written and read past the caches is seen by the machine's disks.

        It writes a file of random bytes and reads it, with O_DIRECT if `direct`, or else with dropped caches. It takes
        a turn without a value; a share that the disks have not seen becomes a caution.
        """
        inside, size = self.inside(setup), _PROBE_MEBIBYTES << 20
        file = f"{self.folder}/probe"
        write = ("dd", "if=/dev/urandom", f"of={file}", "bs=1M", f"count={_PROBE_MEBIBYTES}", "conv=fsync")
        read = ("dd", f"if={file}", "of=/dev/null", "bs=1M", *(("iflag=direct",) if direct else ()))
        before = setup.disks_moved()
        inside.run(*write, timeout=_SECONDS)
        between = setup.disks_moved()
        if not direct:
            setup.drop_caches()
            between = replace(between, read=setup.disks_moved().read)
        output = inside.run(*read, timeout=_SECONDS)
        after = setup.disks_moved()
        inside.run("rm", file, timeout=_SECONDS)
        share = min(1.0, (between.written - before.written) / size, (after.read - between.read) / size)
        text = output.stderr.decode("utf-8", "replace")
        return Raw("caches", read, text, output.seconds, warm_up=True, disk_share=share)

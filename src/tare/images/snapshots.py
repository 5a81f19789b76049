"""A snapshot of the image's disk as a block device, for hypervisors that read no files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tare.contracts.technologies import LaunchRequest
from tare.hosts.host import Host

TOOLS: Mapping[str, str] = {"dmsetup": "dmsetup", "losetup": "mount", "mke2fs": "e2fsprogs"}
_SECONDS = 60.0
# The detached loop devices vanish with the snapshot, their only user. Chunks of 4 KiB. udev makes device nodes, but not
# every machine has it: `mknodes` makes missing ones and removes leftovers.
_MAKE = """
truncate -s "$(stat -c %s "$2")" "$3" && from=$(losetup -f --show -r "$2") && onto=$(losetup -f --show "$3") || exit 1
modprobe -q dm-snapshot
dmsetup create "$1" --table "0 $(blockdev --getsz "$from") snapshot $from $onto N 8" && dmsetup mknodes "$1"
made=$?
losetup -d "$from"
losetup -d "$onto"
exit $made
"""
_REMOVE = '! dmsetup info "$1" >/dev/null 2>&1 || dmsetup remove --retry "$1" && dmsetup mknodes "$1"'


@contextmanager
def snapshot(host: Host, launch: LaunchRequest) -> Iterator[str]:
    """Make a snapshot of the image's raw disk by the device mapper; yield its device; removes it after the block.

    The file `written` in the instance's folder holds what is written to it.
    """
    with launch.ledger.undone_by("sh", "-c", _REMOVE, "sh", launch.name):
        words = (launch.name, str(launch.image.disk), str(launch.folder / "written"))
        host.run("sh", "-c", _MAKE, "sh", *words, timeout=_SECONDS)
        yield f"/dev/mapper/{launch.name}"

"""A disk that keeps what is written over the image's, as a block device: for hypervisors that read no files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tare.contracts import Host
from tare.launch import Launch

TOOLS: Mapping[str, str] = {"dmsetup": "dmsetup", "losetup": "mount", "mke2fs": "e2fsprogs"}
_SECONDS = 60.0
# The loop devices go by themselves with the snapshot, which is their only user once they are detached. Chunks of 4 KiB.
# Device nodes are udev's business, but not every machine has it: `mknodes` mends what is missing or left.
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
def snapshot(host: Host, launch: Launch) -> Iterator[str]:
    """Make a snapshot of the image's raw disk by the device mapper; gives its device. Gone after the block.

    What is written to it is in the file `written` in the instance's folder.
    """
    with launch.ledger.undone_by("sh", "-c", _REMOVE, "sh", launch.name):
        words = (launch.name, str(launch.image.disk), str(launch.folder / "written"))
        host.run("sh", "-c", _MAKE, "sh", *words, timeout=_SECONDS)
        yield f"/dev/mapper/{launch.name}"

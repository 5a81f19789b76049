"""A directory as a host: the image's file system over the machine's own kernel, network and processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tare.contracts import Host
from tare.hosts.ledger import Ledger
from tare.model import Image

_SECONDS = 30.0
# One command, because it counts as part of the instance's start.
_FRESH = 'mkdir -p "$1/root" "$1/upper" "$1/work" && mount -t overlay overlay -o "$2" "$1/root"'


@contextlib.contextmanager
def fresh_root(ledger: Ledger, image: Image, folder: Path) -> Iterator[Path]:
    """Give the image as a writable directory: an overlay, whose upper layer is removed after the block.

    It makes `folder`, which must be on a file system that overlayfs takes for its upper layer.
    """
    options = f"lowerdir={image.root},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    with (
        ledger.undone_by("rm", "-rf", "--one-file-system", str(folder), lane="root"),
        ledger.undone_by("umount", "--lazy", str(folder / "root"), lane="root"),
    ):
        ledger.host.run("sh", "-c", _FRESH, "sh", str(folder), options, timeout=_SECONDS)
        yield folder / "root"


def make_enterable(host: Host, root: Path) -> None:
    """Mount in a fresh root what programs expect: /proc, /sys (read only), /dev. They are unmounted with the root."""
    targets = [str(root / name) for name in ("proc", "sys", "dev")]
    # One command, because it counts as part of the start of bare metal.
    script = 'mount -t proc proc "$1" && mount -t sysfs -o ro sysfs "$2" && mount --bind /dev "$3"'
    host.run("sh", "-c", script, "sh", *targets, timeout=_SECONDS)


def bytes_below(host: Host, folder: Path) -> int:
    """Give the bytes that the files below a folder take on the disk."""
    return int(host.run("du", "-s", "-B1", str(folder), timeout=_SECONDS).text.split()[0])

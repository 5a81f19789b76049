"""A directory as a host: the image's file system over the machine's own kernel, network and processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tare.hosts.local import LocalHost
from tare.ledger import Ledger
from tare.model import Image

_HOST = LocalHost()
_SECONDS = 30.0


@contextlib.contextmanager
def fresh_root(ledger: Ledger, image: Image, folder: Path) -> Iterator[Path]:
    """Give the image as a directory that may be written: an overlay, whose upper layer is gone after the block.

    `folder` is made, is tare's own, and is on a real file system.
    """
    with ledger.undone_by("rm", "-rf", "--one-file-system", str(folder)):
        for name in ("root", "upper", "work"):
            (folder / name).mkdir(parents=True)
        options = f"lowerdir={image.root},upperdir={folder / 'upper'},workdir={folder / 'work'}"
        with mounted(ledger, folder / "root", "-t", "overlay", "overlay", "-o", options):
            yield folder / "root"


@contextlib.contextmanager
def enterable(ledger: Ledger, root: Path) -> Iterator[Path]:
    """Give a root the file systems that programs expect: /proc, /sys (read only), /dev."""
    places = [str(root / name) for name in ("proc", "sys", "dev")]
    # In one go: it is part of how long bare metal takes to start.
    script = 'mount -t proc proc "$1" && mount -t sysfs -o ro sysfs "$2" && mount --bind /dev "$3"'
    with ledger.undone_by("umount", "--lazy", *places):
        _HOST.run("sh", "-c", script, "sh", *places, timeout=_SECONDS)
        yield root


@contextlib.contextmanager
def mounted(ledger: Ledger, place: Path, *arguments: str) -> Iterator[None]:
    """Mount something until the block ends."""
    with ledger.undone_by("umount", "--lazy", str(place)):
        _HOST.run("mount", *arguments, str(place), timeout=_SECONDS)
        yield


def bytes_below(folder: Path) -> int:
    """Bytes that the files below a folder take on the disk."""
    return int(_HOST.run("du", "-s", "-B1", str(folder), timeout=_SECONDS).text.split()[0])

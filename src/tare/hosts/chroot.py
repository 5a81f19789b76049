"""A directory as a host: the image's file system over the machine's own kernel, network and processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from tare.hosts.ledger import Ledger, Undo
from tare.model.trials import Image


@contextlib.contextmanager
def fresh_root(ledger: Ledger, image: Image, folder: Path) -> Iterator[Path]:
    """Yield the image as a writable directory: an overlay, whose upper layer is removed after the block.

    It makes `folder`, which must be on a file system that overlayfs takes for its upper layer.
    """
    options = f"lowerdir={image.lower},upperdir={folder / 'upper'},workdir={folder / 'work'}"
    root = str(folder / "root")
    steps = [("folder", str(each)) for each in (folder, root, folder / "upper", folder / "work")]
    with ledger.made(
        [*steps, ("mount", "overlay", "overlay", root, options)],
        Undo.of_folder(str(folder)),
        Undo(("unmount", root), ("umount", "--lazy", root)),
    ):
        yield folder / "root"


def make_enterable(ledger: Ledger, root: Path) -> None:
    """Mount in a fresh root what programs expect: /proc, /sys (read only), /dev. They are unmounted with the root.

    Terminals and shared memory are its own, as in containers: below the mount of the machine's /dev, /dev/pts has no
    terminals, and /dev/shm is a folder of root's alone.
    """
    ledger.maker.make(
        ("mount", "proc", "proc", str(root / "proc"), "-"),
        ("mount", "sysfs", "sysfs", str(root / "sys"), "ro"),
        ("mount", "-", "/dev", str(root / "dev"), "bind"),
        ("mount", "devpts", "devpts", str(root / "dev/pts"), "newinstance,ptmxmode=0666,mode=0620,gid=5"),
        ("mount", "tmpfs", "tmpfs", str(root / "dev/shm"), "mode=1777"),
    )

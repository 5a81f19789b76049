"""A directory as a host: the image's file system over the machine's own kernel, network and processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tare.hosts.ledger import Ledger, Undo
from tare.hosts.maker import Step
from tare.model.trials import Image

LOCKED = "nosuid,nodev,noexec"
SHARED_MEMORY = "65536k"  # Docker's default for /dev/shm


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


def make_enterable(ledger: Ledger, root: Path, groups: Sequence[tuple[str, str]] = ()) -> None:
    """Mount /proc, /sys and /dev in a fresh root, with the options and devices of Docker's containers.

    `groups` are the folders of a control group, each with its path inside. All are unmounted with the root. /proc/sys
    is read-only: it is the machine's.
    """
    proc = ("mount", "proc", "proc", str(root / "proc"), LOCKED)
    ledger.maker.make(proc, *system_steps(root, groups), ("protect", str(root)))


def system_steps(root: Path, groups: Sequence[tuple[str, str]]) -> tuple[Step, ...]:
    """Return the steps of the setup helper that make /sys and /dev below a root."""
    devices = root / "dev"
    bound: list[Step] = []
    if len(groups) > 1:
        bound.append(("mount", "tmpfs", "cgroup", f"{root}/sys/fs/cgroup", f"{LOCKED},mode=755"))
        bound += [("folder", f"{root}{target}") for _, target in groups]
    bound += [("mount", "-", source, f"{root}{target}", f"bind,ro,{LOCKED}") for source, target in groups]
    return (
        ("mount", "sysfs", "sysfs", str(root / "sys"), f"ro,{LOCKED}"),
        *bound,
        ("mount", "tmpfs", "tmpfs", str(devices), "nosuid,strictatime,mode=755,size=65536k"),
        ("devices", str(devices)),
        ("mount", "devpts", "devpts", str(devices / "pts"), "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5"),
        ("mount", "mqueue", "mqueue", str(devices / "mqueue"), LOCKED),
        ("mount", "tmpfs", "shm", str(devices / "shm"), f"{LOCKED},mode=1777,size={SHARED_MEMORY}"),
    )

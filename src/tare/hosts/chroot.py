"""Writable root of an image, for processes that run on the host's kernel, network and processes (chroot)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from tare.hosts.control_groups import Mount
from tare.hosts.ledger import Ledger, Undo
from tare.hosts.maker import Step
from tare.model.trials import Image

LOCKED = "nosuid,nodev,noexec"  # Docker's options for /proc, /sys, control groups, /dev/mqueue and /dev/shm
SHARED_MEMORY = "65536k"  # size of /dev/shm; Docker's default


@contextlib.contextmanager
def fresh_root(ledger: Ledger, image: Image, folder: Path) -> Iterator[Path]:
    """Context manager: yield a writable directory with the image's files, and remove what was written afterwards.

    The directory is an overlay mount in `folder`, which is created and removed. overlayfs must support the file system
    of `folder` for its upper layer.
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


def make_enterable(ledger: Ledger, root: Path, groups: Sequence[Mount] = ()) -> None:
    """Mount /proc, /sys and /dev in a fresh root, with the options and devices of Docker's containers.

    `groups` are the mounts of a control group. The unmounting of the root also unmounts all of these. /proc/sys is
    read-only, as writing there would change the host's settings.
    """
    proc = ("mount", "proc", "proc", str(root / "proc"), LOCKED)
    ledger.maker.make(proc, *system_steps(root, groups), ("protect", str(root)))


def system_steps(root: Path, groups: Sequence[Mount]) -> tuple[Step, ...]:
    """Return the setup helper's steps that mount /sys, the control groups and /dev below a root."""
    devices = root / "dev"
    group_steps: list[Step] = []
    for each in groups:
        if group_steps:  # in a file system in memory; /sys has the folder of the first one
            group_steps.append(("folder", f"{root}{each.target}"))
        kind = "-" if each.kind == "bind" else each.kind
        group_steps.append(("mount", kind, each.source, f"{root}{each.target}", ",".join(each.options)))
    return (
        ("mount", "sysfs", "sysfs", str(root / "sys"), f"ro,{LOCKED}"),
        *group_steps,
        ("mount", "tmpfs", "tmpfs", str(devices), "nosuid,strictatime,mode=755,size=65536k"),
        ("devices", str(devices)),
        ("mount", "devpts", "devpts", str(devices / "pts"), "nosuid,noexec,newinstance,ptmxmode=0666,mode=0620,gid=5"),
        ("mount", "mqueue", "mqueue", str(devices / "mqueue"), LOCKED),
        ("mount", "tmpfs", "shm", str(devices / "shm"), f"{LOCKED},mode=1777,size={SHARED_MEMORY}"),
    )

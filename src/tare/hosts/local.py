"""Host for the machine that tare runs on."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePosixPath

from tare.hosts import process
from tare.hosts.facts import read_facts
from tare.model.errors import TareError
from tare.model.files import read_text
from tare.model.machine import Facts
from tare.model.trial import Output

_CLONE_NEWNS = 0x20000
_MS_BIND, _MS_REC, _MS_SLAVE, _MS_SHARED = 0x1000, 0x4000, 0x80000, 0x100000
# System call numbers, equal on all architectures. The C library has wrappers for them since glibc 2.36 only.
_OPEN_TREE, _MOVE_MOUNT = 428, 429
_OPEN_TREE_CLONE, _AT_RECURSIVE, _MOVE_MOUNT_F_EMPTY_PATH, _AT_FDCWD = 1, 0x8000, 4, -100
_NAMESPACES = b"/run/netns"


class LocalHost:
    """Host for the machine that tare runs on."""

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        """Run a command; see `Host.run`."""
        return process.execute(argv, timeout, input, check)

    def spawn(self, *argv: str, die_with_parent: bool = False) -> AbstractContextManager[process.LocalProcess]:
        """Start a command; see `Host.spawn`."""
        return process.start_process(argv, die_with_parent)

    def command_line(self, *argv: str) -> tuple[str, ...]:
        """Return the command itself."""
        return argv

    def put(self, source: Path, target: PurePosixPath) -> None:
        """Copy a file; see `Host.put`."""
        shutil.copy(source, target)

    def get(self, source: PurePosixPath, target: Path) -> None:
        """Copy a file; see `Host.get`."""
        shutil.copyfile(source, target)

    def read(self, path: str) -> str:
        """Read a file; see `Host.read`."""
        return read_text(path)

    def write(self, path: str, text: str) -> None:
        """Write a file; see `Host.write`."""
        with open(path, "w", encoding="utf-8", opener=_open_private) as file:
            file.write(text)

    def read_matching(self, folder: str, name: str) -> str:
        """Read files; see `Host.read_matching`."""
        return "".join(
            (read_text(f"{folder}/{name}"), *(self.read_matching(path, name) for path in _list_folders(folder)))
        )

    def facts(self) -> Facts:
        """Return the facts of this machine."""
        return read_facts(read_text)

    def connection_error(self, last_output: str) -> None:
        """Return None, as there is no connection that could be lost; see `Host.connection_error`."""


def find_shipped_folder(name: str) -> Path:
    """Return the folder `name` of files that ship with tare: in the installed package, or at the top of a checkout."""
    package = Path(__file__).parents[1]
    folders = (package / name, package.parents[1] / name)
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file; raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _list_folders(folder: str) -> Sequence[str]:
    """Return the paths of the folders in a folder; () if the folder does not exist."""
    try:
        # Most file systems, such as cgroupfs, count a link for each subfolder. Listing takes five times as long.
        if os.stat(folder).st_nlink == 2:  # noqa: PTH116 - a path object would double the time
            return ()
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return ()


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def isolate_mounts(share_namespaces: bool = True) -> None:
    """Move this process to a private mount namespace, so that its mounts end with it, even if it is killed.

    New mounts of the machine still appear in the namespace. With `share_namespaces`, /run/netns stays shared with the
    machine in both directions, and becomes a mount point if it is none; without, nothing changes on the machine. Raises
    TareError if this process is not root.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    # Other programs would otherwise see only the empty file of each network namespace, and `ip netns` prints an error
    # for each such file.
    names = _open_shared_namespaces(libc) if share_namespaces else -1
    if libc.unshare(_CLONE_NEWNS) or libc.mount(b"none", b"/", None, _MS_REC | _MS_SLAVE, None):
        raise TareError(f"cannot make a mount namespace: {os.strerror(ctypes.get_errno())}", "run tare as root")
    if names >= 0:
        libc.syscall(_MOVE_MOUNT, names, b"", _AT_FDCWD, _NAMESPACES, _MOVE_MOUNT_F_EMPTY_PATH)
        os.close(names)
    # crun and Podman refuse to work on hybrid control groups because of the empty version 2 tree: hide that tree.
    unified = "/sys/fs/cgroup/unified"
    if f" {unified} cgroup2 " in read_text("/proc/self/mounts"):
        process.execute(("umount", unified), timeout=10)
        # crun and Podman still create folders there, now on this tmpfs, which ends with the namespace.
        process.execute(("mount", "-t", "tmpfs", "tare-hidden", unified), timeout=10)


def _open_shared_namespaces(libc: ctypes.CDLL) -> int:
    """Make /run/netns a shared mount, as `ip netns add` does; return a file descriptor of a copy of the mount.

    A mount in a shared mount appears in all of its copies. The descriptor is negative before Linux 5.2, which cannot
    open a copy.
    """
    Path(os.fsdecode(_NAMESPACES)).mkdir(parents=True, exist_ok=True)
    shared = (b"none", _NAMESPACES, None, _MS_REC | _MS_SHARED, None)
    if libc.mount(*shared):  # fails if the folder is not a mount point yet
        libc.mount(_NAMESPACES, _NAMESPACES, None, _MS_BIND | _MS_REC, None)
        libc.mount(*shared)
    copied: int = libc.syscall(_OPEN_TREE, _AT_FDCWD, _NAMESPACES, _OPEN_TREE_CLONE | _AT_RECURSIVE | os.O_CLOEXEC)
    return copied

"""Mounts, disks and page caches of a host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

from tare.hosts.exec import TOOLS
from tare.hosts.host import Host
from tare.model.errors import TareError
from tare.model.machine import DiskBytes, FileSystem

# Mount options that can change the cost of reading, writing or syncing a file; those with a value without `=…`.
_RELEVANT_OPTIONS = {
    *("ro", "noatime", "relatime", "nodiratime", "lazytime", "sync", "dirsync", "dax", "volatile"),
    *("fsync", "nobarrier", "barrier", "commit", "data", "discard", "compress", "size", "huge", "cache"),
}
_MARKER_FILE = "/usr/lib/tare/begun"  # a file of this age
# Programs write no files of theirs there, but in these folders below.
_EXCLUDED_FOLDERS = ("/proc", "/sys", "/usr", "/boot", "/etc", "/dev")
_INCLUDED_FOLDERS = ("/usr/local", "/dev/shm")  # noqa: S108 - it is only looked at
_LOOK_SECONDS = 30.0
_MAX_PATHS = 16
_NOT_FOUND = 127
_SCRIPT = 'readlink -m -- "$@" && cat /proc/self/mountinfo'  # links lead to other file systems
# Only what is hardware to the machine has `device`: a partition, a mapped or a loop device would count twice.
_STATISTICS = 'for disk in /sys/block/*/device; do cat "${disk%device}stat" 2>/dev/null; done'
_SECTOR_BYTES = 512  # of these files, whatever the disk's own are
_SECONDS = 300.0  # to write all that waits for the disks


def read_file_systems(host: Host, paths: Sequence[str]) -> tuple[FileSystem, ...]:
    """Read the file system under each path, which need not exist. A path that the host cannot resolve is left out."""
    if not paths:
        return ()
    output = host.run("sh", "-c", _SCRIPT, "sh", *paths, timeout=30, check=False)
    if output.exit_code:
        return ()
    resolved, mounts = output.text.split("\n", len(paths))[: len(paths)], output.text.split("\n", len(paths))[-1]
    pairs = ((path, find_mount(mounts, real)) for path, real in zip(paths, resolved, strict=True))
    return tuple(FileSystem(path, *mounted) for path, mounted in pairs if mounted)


def begin_write_tracking(host: Host) -> None:
    """Record the moment from which `read_used_file_systems` looks for written files."""
    with suppress(TareError):  # a place where nothing can be written
        host.write(_MARKER_FILE, "")


def read_used_file_systems(host: Host, start: Sequence[str] = ()) -> tuple[FileSystem, ...]:
    """Read the file systems under what was written since `begin_write_tracking`, and under the working directory.

    `start` is what starts a command in an image that others have built. Empty where they cannot be read.
    """
    with suppress(TareError):
        folder = _run_tool(host, *start, *(("--only", TOOLS) if start else ()), "pwd").strip()
        written = select_outermost(_run_tool(host, *_find_command("/", *_INCLUDED_FOLDERS, folder or "/")).splitlines())
        mounts = host.read("/proc/self/mountinfo")
        used = dict.fromkeys(written, True) | ({} if folder in written else {folder: False})
        found = ((path, find_mount(mounts, path), is_written) for path, is_written in used.items())
        return tuple(FileSystem(path, *mounted, written=is_written) for path, mounted, is_written in found if mounted)
    return ()


def select_outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Return the outermost of paths that were written, 16 at most.

    Each folder directly below the root counts by itself: it may be a file system of its own. The root does not: what is
    written into it is found below it, and gVisor marks it where it copies a folder into its overlay.
    """
    found = {path for path in paths if path.startswith("/") and path != "/"}
    kept = (path for path in found if (parent := str(PurePosixPath(path).parent)) == "/" or parent not in found)
    return tuple(sorted(kept, key=lambda path: (path.count("/"), path))[:_MAX_PATHS])


def _find_command(*places: str) -> tuple[str, ...]:
    """Return the command that finds files and folders which are newer than the noted moment."""
    left_out = [word for path in _EXCLUDED_FOLDERS for word in ("-o", "-path", path)][1:]
    newer = ("(", "-type", "d", "-o", "-type", "f", ")", "-newer", _MARKER_FILE, "-print")
    return ("find", *dict.fromkeys(places), "(", *left_out, ")", "-prune", "-o", *newer)


def _run_tool(host: Host, *argv: str) -> str:
    """Return what a tool prints: the host's own, or tare's where the host has none."""
    output = host.run(*argv, timeout=_LOOK_SECONDS, check=False)
    if output.exit_code == _NOT_FOUND:
        output = host.run(TOOLS, *argv, timeout=_LOOK_SECONDS, check=False)
    return output.text


def find_mount(mount_info: str, path: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the type and the relevant options of the mount that a path is on, from the text of /proc/PID/mountinfo.

    The format is proc_pid_mountinfo(5). Of several mounts on one mount point, the last one hides the others.
    """
    deepest: tuple[int, str, tuple[str, ...]] | None = None
    for line in mount_info.splitlines():
        fields, _, rest = line.partition(" - ")
        folder = PurePosixPath(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields.split()[4]))
        if PurePosixPath(path).is_relative_to(folder) and (deepest is None or len(folder.parts) >= deepest[0]):
            kind, _, options = rest.split(maxsplit=2)
            both = {*fields.split()[5].split(","), *options.split(",")}
            telling = tuple(sorted(option for option in both if option.partition("=")[0] in _RELEVANT_OPTIONS))
            deepest = len(folder.parts), kind, telling
    return deepest[1:] if deepest else None


def read_disk_bytes(host: Host) -> DiskBytes:
    """Read what the disks of a machine have moved; nothing for one without disks."""
    return parse_statistics(host.run("sh", "-c", _STATISTICS, timeout=30, check=False).text)


def parse_statistics(text: str) -> DiskBytes:
    """Add up the lines of /sys/block/DISK/stat (Documentation/block/stat.rst)."""
    lines = [line.split() for line in text.splitlines()]
    return DiskBytes(*(_SECTOR_BYTES * sum(int(line[field]) for line in lines) for field in (2, 6)))


def drop_caches(hosts: Iterable[Host]) -> None:
    """Write back and drop the caches of files on each of the hosts, the innermost first.

    A container cannot, and needs not: its machine is among them. Done also where an image was just written: the kernel
    keeps such files in smaller pieces than what it reads ahead, and a program then starts and reads some percent slower
    from one engine's store than from another's.
    """
    for host in hosts:
        host.run("sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches", timeout=_SECONDS, check=False)


@dataclass
class ColdStart:
    """A start on a machine with cold caches, and what its disks had read when it began."""

    host: Host
    before_bytes: int = 0

    def begin(self) -> None:
        """Drop the caches, and begin to count."""
        drop_caches([self.host])
        self.before_bytes = read_disk_bytes(self.host).read

    def read_bytes(self) -> int:
        """Return what the disks have read since."""
        return read_disk_bytes(self.host).read - self.before_bytes

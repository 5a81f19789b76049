"""Mounts, disks and page caches of a host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import PurePosixPath

from tare.hosts.exec import TOOLS
from tare.hosts.host import Host
from tare.hosts.mounts import deepest_mount
from tare.model.errors import TareError
from tare.model.machine import DiskBytes, FileSystem

# Mount options that can change the cost of reading, writing or syncing a file; those with a value without `=…`.
_RELEVANT_OPTIONS = {
    *("ro", "noatime", "relatime", "nodiratime", "lazytime", "sync", "dirsync", "dax", "volatile"),
    *("fsync", "nobarrier", "barrier", "commit", "data", "discard", "compress", "size", "huge", "cache"),
}
_MARKER_FILE = "/usr/lib/tare/begun"  # its age tells newer files apart
# Workloads do not write files below the excluded folders, except in the included ones.
_EXCLUDED_FOLDERS = ("/proc", "/sys", "/usr", "/boot", "/etc", "/dev")
_INCLUDED_FOLDERS = ("/usr/local", "/dev/shm")  # noqa: S108 - tare only searches it
_LOOK_SECONDS = 30.0
_MAX_PATHS = 16
_NOT_FOUND = 127
_SCRIPT = 'readlink -m -- "$@" && cat /proc/self/mountinfo'  # a symbolic link may lead to another file system
# Only disks have `device`. A mapped or a loop device passes its requests on to a disk, and would count twice.
_STATISTICS = 'for disk in /sys/block/*/device; do cat "${disk%device}stat" 2>/dev/null; done'
_SECTOR_BYTES = 512  # the unit of these files, independent of the disk's sector size
_SECONDS = 300.0  # for `sync` to write all dirty pages


def read_file_systems(host: Host, paths: Sequence[str]) -> tuple[FileSystem, ...]:
    """Return the file system of each path, which need not exist; () if the host cannot resolve the paths."""
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
    with suppress(TareError):  # the instance may be read-only
        host.write(_MARKER_FILE, "")


def read_used_file_systems(host: Host, start: Sequence[str] = ()) -> tuple[FileSystem, ...]:
    """Return the file systems of the files written since `begin_write_tracking`, and of the working directory.

    `start` is the command prefix that starts a program in a foreign image. Return () if a command fails.
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
    """Return the written paths whose parent was not written, at most 16.

    A folder directly below the root always counts, because it may be a separate file system.
    """
    # Leave out the root: gVisor changes its time when it copies a folder into its overlay.
    written = {path for path in paths if path.startswith("/") and path != "/"}
    outer = (path for path in written if (parent := str(PurePosixPath(path).parent)) == "/" or parent not in written)
    return tuple(sorted(outer, key=lambda path: (path.count("/"), path))[:_MAX_PATHS])


def _find_command(*paths: str) -> tuple[str, ...]:
    """Return the command that finds files and folders that are newer than the marker file."""
    left_out = [word for path in _EXCLUDED_FOLDERS for word in ("-o", "-path", path)][1:]
    newer = ("(", "-type", "d", "-o", "-type", "f", ")", "-newer", _MARKER_FILE, "-print")
    return ("find", *dict.fromkeys(paths), "(", *left_out, ")", "-prune", "-o", *newer)


def _run_tool(host: Host, *argv: str) -> str:
    """Run a tool of the host, or tare's busybox if the host lacks the tool; return its output."""
    output = host.run(*argv, timeout=_LOOK_SECONDS, check=False)
    if output.exit_code == _NOT_FOUND:
        output = host.run(TOOLS, *argv, timeout=_LOOK_SECONDS, check=False)
    return output.text


def find_mount(mount_info: str, path: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the type and the relevant options of the mount that a path is on, from the text of /proc/PID/mountinfo.

    Return None if there is none, or the text has no mount of /proc, where it is: sandlock makes up such a text.
    """
    mount, source = deepest_mount(mount_info, path), deepest_mount(mount_info, "/proc")
    if mount is None or source is None or source[0] == PurePosixPath("/"):
        return None
    relevant = tuple(sorted(option for option in mount[2] if option.partition("=")[0] in _RELEVANT_OPTIONS))
    return mount[1], relevant


def read_disk_bytes(host: Host) -> DiskBytes:
    """Return the bytes that the disks of a machine have read and written since its boot; 0 without disks."""
    return parse_statistics(host.run("sh", "-c", _STATISTICS, timeout=30, check=False).text)


def parse_statistics(text: str) -> DiskBytes:
    """Return the sums of the lines of /sys/block/DISK/stat (Documentation/block/stat.rst), in bytes."""
    lines = [line.split() for line in text.splitlines()]
    return DiskBytes(*(_SECTOR_BYTES * sum(int(line[field]) for line in lines) for field in (2, 6)))


def drop_caches(hosts: Iterable[Host]) -> None:
    """Write back and drop the page caches of hosts, in the given order: the innermost first.

    A container cannot drop caches; its machine must be among the hosts. tare also drops the caches after it has written
    an image, because the kernel caches written files in smaller pieces than files that it reads ahead. A program then
    starts and reads some percent slower from one engine's store than from another's.
    """
    for host in hosts:
        host.run("sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches", timeout=_SECONDS, check=False)


@dataclass
class ColdStart:
    """Start of an instance on a machine with cold caches, with the bytes that its disks read."""

    host: Host
    before_bytes: int = 0

    def begin(self) -> None:
        """Drop the caches and start counting."""
        drop_caches([self.host])
        self.before_bytes = read_disk_bytes(self.host).read

    def read_bytes(self) -> int:
        """Return the bytes that the disks have read since `begin`."""
        return read_disk_bytes(self.host).read - self.before_bytes

"""The file systems under paths of a host: which kind each one is, and how it is mounted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from tare.contracts import Host
from tare.machines import FileSystem

# Mount options that can change the cost of reading, writing or syncing a file; those with a value without `=…`.
_TELLING = {
    *("ro", "noatime", "relatime", "nodiratime", "lazytime", "sync", "dirsync", "dax", "volatile"),
    *("fsync", "nobarrier", "barrier", "commit", "data", "discard", "compress", "size", "huge", "cache"),
}
_SCRIPT = 'readlink -m -- "$@" && cat /proc/self/mountinfo'  # links lead to other file systems


def file_systems_under(host: Host, paths: Sequence[str]) -> tuple[FileSystem, ...]:
    """Read the file system under each path, which need not exist. A path that the host cannot resolve is left out."""
    if not paths:
        return ()
    output = host.run("sh", "-c", _SCRIPT, "sh", *paths, timeout=30, check=False)
    if output.exit_code:
        return ()
    resolved, mounts = output.text.split("\n", len(paths))[: len(paths)], output.text.split("\n", len(paths))[-1]
    pairs = ((path, mounted_under(mounts, real)) for path, real in zip(paths, resolved, strict=True))
    return tuple(FileSystem(path, *mounted) for path, mounted in pairs if mounted)


def mounted_under(mount_info: str, path: str) -> tuple[str, tuple[str, ...]] | None:
    """Give the type and the relevant options of the mount that a path is on, from the text of /proc/PID/mountinfo.

    The format is proc_pid_mountinfo(5). Of several mounts on one mount point, the last one hides the others.
    """
    deepest: tuple[int, str, tuple[str, ...]] | None = None
    for line in mount_info.splitlines():
        fields, _, rest = line.partition(" - ")
        folder = PurePosixPath(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields.split()[4]))
        if PurePosixPath(path).is_relative_to(folder) and (deepest is None or len(folder.parts) >= deepest[0]):
            kind, _, options = rest.split(maxsplit=2)
            both = {*fields.split()[5].split(","), *options.split(",")}
            telling = tuple(sorted(option for option in both if option.partition("=")[0] in _TELLING))
            deepest = len(folder.parts), kind, telling
    return deepest[1:] if deepest else None

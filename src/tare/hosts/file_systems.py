"""The file systems under paths of a host: which kind each one is, and how it is mounted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath

from tare.contracts import Host
from tare.model import FileSystem

# Options that can change what reading, writing or syncing a file costs; those with a value are named up to the `=`.
_TELLING = {
    *("ro", "noatime", "relatime", "nodiratime", "lazytime", "sync", "dirsync", "dax", "volatile"),
    *("nobarrier", "barrier", "commit", "data", "discard", "compress", "size", "huge", "cache"),
}
_SCRIPT = 'readlink -m -- "$@" && cat /proc/self/mountinfo'  # links lead to other file systems


def file_systems_under(host: Host, paths: Sequence[str]) -> tuple[FileSystem, ...]:
    """Read which file system is under each path, whether or not it is there; leaves out what the host does not tell."""
    if not paths:
        return ()
    output = host.run("sh", "-c", _SCRIPT, "sh", *paths, timeout=30, check=False)
    if output.exit_code:
        return ()
    resolved, mounts = output.text.split("\n", len(paths))[: len(paths)], output.text.split("\n", len(paths))[-1]
    found = ((path, mounted_under(mounts, real)) for path, real in zip(paths, resolved, strict=True))
    return tuple(FileSystem(path, *mounted) for path, mounted in found if mounted)


def mounted_under(mount_info: str, path: str) -> tuple[str, tuple[str, ...]] | None:
    """Give the type and the telling options of the mount that a path is on; from the text of /proc/PID/mountinfo.

    The format is that of proc_pid_mountinfo(5). Of several mounts on one place, the last one hides the others.
    """
    found: tuple[int, str, tuple[str, ...]] | None = None
    for line in mount_info.splitlines():
        fields, _, rest = line.partition(" - ")
        place = PurePosixPath(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields.split()[4]))
        if PurePosixPath(path).is_relative_to(place) and (found is None or len(place.parts) >= found[0]):
            kind, _, options = rest.split(maxsplit=2)
            both = {*fields.split()[5].split(","), *options.split(",")}
            telling = tuple(sorted(option for option in both if option.partition("=")[0] in _TELLING))
            found = len(place.parts), kind, telling
    return found[1:] if found else None

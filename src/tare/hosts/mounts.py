"""Mounts of a host, parsed from the text of /proc/PID/mountinfo, whose format is proc_pid_mountinfo(5)."""

from __future__ import annotations

import os
import re
from pathlib import PurePosixPath

from tare.model.trial import Problem


def noexec_problem(mount_info: str, path: str, variable: str) -> Problem | None:
    """Return the problem that no program starts from a path, with its mount point; None if programs can start.

    `variable` names the environment variable that can name another folder.
    """
    mount = deepest_mount(mount_info, os.path.realpath(path))
    if mount is None or "noexec" not in mount[2]:
        return None
    what = f"{path}: {mount[0]} is mounted with noexec, and tare starts programs there"
    return Problem(what, f"let {variable} name a folder on another file system, or: mount -o remount,exec {mount[0]}")


def deepest_mount(mount_info: str, path: str) -> tuple[PurePosixPath, str, set[str]] | None:
    """Return the mount point, type and options of the mount that a path is on; None if there is none.

    Of several mounts on one mount point, the last one hides the others.
    """
    deepest: tuple[PurePosixPath, str, set[str]] | None = None
    for line in mount_info.splitlines():
        fields, _, rest = line.partition(" - ")
        folder = PurePosixPath(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields.split()[4]))
        if PurePosixPath(path).is_relative_to(folder) and (
            deepest is None or len(folder.parts) >= len(deepest[0].parts)
        ):
            kind, _, options = rest.split(maxsplit=2)
            deepest = folder, kind, {*fields.split()[5].split(","), *options.split(",")}
    return deepest

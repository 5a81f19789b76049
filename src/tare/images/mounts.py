"""Files and folders over an image's tree, as a container engine mounts them.

A mount hides what the image has at its place, keeps numeric owners and permissions, and follows the links of the image
inside the image's root. Neither the image nor the mounted folder is trusted: nothing is written outside of the tree.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from tare.hosts.local import LocalHost
from tare.images.tree import ensure_folder, resolve_path, walk_source
from tare.model.errors import TareError, format_os_error
from tare.model.image import FOLDER_KINDS

_HOST = LocalHost()
_COPY_SECONDS = 900.0
_FOLDER_MODES = {"empty": 0o755, "tmpfs": 0o1777, "volume": 0o755}  # as engines make them
# Stacks mount file systems on the first ones, and tare's programs are in the last one.
_RESERVED = ("dev", "proc", "sys", "usr/lib/tare")


def put_mounts(root: Path, mounts: Sequence[tuple[str, str]]) -> None:
    """Put files and folders over an image's tree; `mounts` are those of `ImageSpec`. Raises TareError.

    Outer mounts come first, so that a mount below another one is visible. A volume has the image's files also if an
    outer mount hides them, as that of `node_modules` in a folder with sources.
    """
    # Paths are resolved before anything is put: engines follow the links of the image, not those of a mounted folder.
    places = [(_resolve_target(root, target), source) for target, source in mounts]
    places.sort(key=lambda place: (len(place[0].parts), place[0]))
    hidden = [at for at, source in places if source != "volume"]
    with TemporaryDirectory(dir=root.parent) as folder:
        saved = {
            at: _save(root, at, Path(folder, str(number)))
            for number, (at, source) in enumerate(places)
            if source == "volume" and any(at.is_relative_to(outer) for outer in hidden)
        }
        for at, source in places:
            try:
                if source == "volume" and at not in saved:
                    ensure_folder(root, str(at).strip("/"))
                else:
                    _put_mount(root, at, saved.get(at) or source)
            except OSError as error:
                what = f"{source} cannot be mounted at {at}: {format_os_error(error)}"
                raise TareError(what, "mount another file or folder, or at another path") from error


def _resolve_target(root: Path, target: str) -> PurePosixPath:
    """Return where a mount lands in the tree; raises TareError for a place that tare needs, and for too many links."""
    at = resolve_path([root], target)
    if at is None:
        raise TareError(f"{target}: too many links in the image lead there", "mount at another path")
    needed = [PurePosixPath("/", name) for name in _RESERVED]
    if any(at.is_relative_to(each) or each.is_relative_to(at) for each in needed):
        led = f", to which {target} leads" if str(at) != target else ""
        raise TareError(f"nothing can be mounted at {at}{led}", "mount at another path, such as /srv/app")
    return at


def _save(root: Path, at: PurePosixPath, copy: Path) -> Path | None:
    """Copy the folder that the image has at the place of a volume to `copy`; return None if it has none."""
    inside = root.joinpath(*at.parts[1:])
    if not inside.is_dir():
        return None
    _HOST.run("cp", "-a", str(inside), str(copy), timeout=_COPY_SECONDS)
    return copy


def _put_mount(root: Path, at: PurePosixPath, source: str | Path) -> None:
    """Replace what is at a place by a file or folder of this machine, or by an empty folder."""
    target = root.joinpath(*at.parts[1:])
    ensure_folder(root, str(at.parent).strip("/"))
    if target.is_dir() and not target.is_symlink():
        shutil.rmtree(target)
    else:
        target.unlink(missing_ok=True)
    if isinstance(source, str) and source in FOLDER_KINDS:
        target.mkdir()
        target.chmod(_FOLDER_MODES[source])
        return
    for path, below in walk_source(Path(source)):
        _copy_with_owner(path, target / below if below else target)


def _copy_with_owner(source: Path, target: Path) -> None:
    """Copy a file, a link or an empty folder with its numeric owner and its permissions; the parent is a new folder."""
    status = source.lstat()
    if stat.S_ISLNK(status.st_mode):
        target.symlink_to(source.readlink())
    elif stat.S_ISDIR(status.st_mode):
        target.mkdir()
    elif stat.S_ISREG(status.st_mode):
        shutil.copyfile(source, target, follow_symlinks=False)
    else:
        raise TareError(f"{source}: neither a file nor a folder", "leave it out of what is mounted")
    os.chown(target, status.st_uid, status.st_gid, follow_symlinks=False)
    if not stat.S_ISLNK(status.st_mode):
        target.chmod(stat.S_IMODE(status.st_mode))  # after the change of the owner, which drops set-user-ID

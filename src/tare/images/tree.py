"""Files and folders in the tree of an image, which may be untrusted: no link in it leads tare out of it."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from tare.model.errors import TareError, UsageError, format_os_error
from tare.model.files import exists

# 2026-01-01, in seconds since 1970: the time of what tare puts into an image, so that the same content has the same
# bytes. Not 1970-01-01, which gzip refuses.
TIME_OF_FILES = 1_767_225_600
CLOCK_SECONDS = 1.0  # by which the file system's clock may be behind
_MAX_BYTES = 16 << 20
_HOSTS = b"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"


def ensure_folder(root: Path, name: str) -> Path:
    """Make a folder in an image's tree, unless it is there; raises TareError if a link or a file is in its place."""
    path = root
    for part in PurePosixPath(name).parts:
        path /= part
        if not os.path.lexists(path):
            path.mkdir(mode=0o755)
            path.chmod(0o1777 if part == "tmp" else 0o755)
        elif not stat.S_ISDIR(path.lstat().st_mode):
            what = (
                f"the image has no folder at /{path.relative_to(root)} but a {_file_kind(path)}: tare needs one there"
            )
            raise TareError(what, "build the image with a folder there")
    return path


def _file_kind(path: Path) -> str:
    return "symbolic link" if path.is_symlink() else "file"


def read_text_in(root: Path, name: str) -> str:
    """Return the text of a file in an image's tree; empty if it is not there, or is reached through a link."""
    path = root / name
    try:
        if any(each.is_symlink() for each in (path, *path.parents) if root in each.parents):
            return ""
        if not stat.S_ISREG(path.lstat().st_mode):
            return ""
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def write_in(root: Path, name: str, content: bytes) -> Path:
    """Write a file in an image's tree, in place of what is there."""
    path = ensure_folder(root, str(PurePosixPath(name).parent)) / PurePosixPath(name).name
    path.unlink(missing_ok=True)
    path.write_bytes(content)
    path.chmod(0o644)
    return path


def put_name_files(root: Path) -> None:
    """Give an image's tree `localhost` and no name server, unless it has its own; a link in place of /etc stays."""
    if (root / "etc").is_symlink():
        return
    for name, content in (("hosts", _HOSTS), ("resolv.conf", b"")):
        if not os.path.lexists(ensure_folder(root, "etc") / name):
            write_in(root, f"etc/{name}", content)


def put_files(root: Path, files: Sequence[tuple[str, str]]) -> None:
    """Copy files and folders into an image's tree: pairs of a path there and one of this machine.

    Raises TareError if one of them cannot be read or put there.
    """
    for target, source in files:
        name = target.strip("/")
        if ".." in PurePosixPath(name).parts or (not name and not Path(source).is_dir()):
            raise TareError(f"{target}: no path in an image", "write it from the root, such as /srv/app")
        ensure_folder(root, str(PurePosixPath(name).parent))
        try:
            for path, below in _walk(Path(source)):
                _put_file(root, f"{name}/{below}".strip("/") if below else name, path)
        except OSError as error:
            what = f"{source}: cannot be put into the image: {format_os_error(error)}"
            raise TareError(what, "[image] files has the path in the image, and the path on this machine") from error


def normalize_times(root: Path, since: float, tare_folder: str = "") -> None:
    """Set the time of what has changed in an image's tree `since` then, and of all below its folder `tare_folder`."""
    for folder, folders, files in os.walk(root):
        for path in (folder, *(f"{folder}/{name}" for name in (*folders, *files))):
            if os.lstat(path).st_mtime >= since or (tare_folder and Path(path).is_relative_to(root / tare_folder)):
                os.utime(path, (TIME_OF_FILES, TIME_OF_FILES), follow_symlinks=False)


def hash_files(files: Sequence[tuple[str, str]]) -> str:
    """Return a hash of what would be copied, with names and permissions; empty without files. Raises TareError."""
    digest = hashlib.sha256()
    for target, source in files:
        if not exists(source):
            raise UsageError(
                f"{source}: there is no such file", "[image] files has the path in the image, and this one"
            )
        digest.update(repr(target).encode())
        for path, below in _walk(Path(source)):
            digest.update(f"{below!r} {path.lstat().st_mode:o} ".encode())
            if path.is_symlink():
                digest.update(str(path.readlink()).encode())
            elif path.is_file():
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest() if files else ""


def _walk(source: Path) -> Iterator[tuple[Path, str]]:
    """Yield a file, or a folder and all in it, each with its path from there."""
    yield source, ""
    if source.is_dir():
        for path in sorted(source.rglob("*")):
            yield path, str(path.relative_to(source))


def _put_file(root: Path, name: str, source: Path) -> None:
    target = root / name
    if source.is_symlink() and os.path.lexists(target):
        target.unlink()
    if source.is_symlink():
        target.symlink_to(source.readlink())
    elif source.is_dir():
        ensure_folder(root, name).chmod(source.stat().st_mode & 0o7777)
    else:
        target.unlink(missing_ok=True)
        shutil.copyfile(source, target)
        target.chmod(source.stat().st_mode & 0o7777)

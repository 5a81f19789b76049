"""Files and folders in the tree of an image. The image may be untrusted: no link in the tree leads tare out of it."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from tare.model.errors import TareError, UsageError, format_os_error
from tare.model.files import exists
from tare.model.image import FOLDER_KINDS

# 2026-01-01 in seconds since 1970: the time of all files that tare puts into an image, so that equal content gives
# equal bytes. Not 1970-01-01, which gzip refuses.
TIME_OF_FILES = 1_767_225_600
CLOCK_SECONDS = 1.0  # the file system's clock may be behind by a tick
_MAX_BYTES = 16 << 20
_MAX_LINKS = 40  # the kernel's limit for one path
_HOSTS = b"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"


def ensure_folder(root: Path, name: str) -> Path:
    """Create a folder in an image's tree unless it exists; return its path.

    Raises TareError if a link or a file is in its place.
    """
    path = root
    for part in PurePosixPath(name).parts:
        path /= part
        if not os.path.lexists(path):
            path.mkdir(mode=0o755)
            path.chmod(0o1777 if part == "tmp" else 0o755)  # whatever the umask
        elif not stat.S_ISDIR(path.lstat().st_mode):
            found = "symbolic link" if path.is_symlink() else "file"
            what = f"the image has no folder at /{path.relative_to(root)} but a {found}: tare needs one there"
            raise TareError(what, "build the image with a folder there")
    return path


def read_text_in(root: Path, name: str) -> str:
    """Return up to 16 MiB of a text file in an image's tree; "" if it is missing or behind a link."""
    path = root / name
    try:
        if any(part.is_symlink() for part in (path, *path.parents) if root in part.parents):
            return ""
        if not stat.S_ISREG(path.lstat().st_mode):
            return ""
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""


def resolve_inside(trees: Sequence[Path], path: str) -> list[Path]:
    """Return the existing paths to which a path leads in the trees, the upper first; [] if there is none.

    See `resolve_path`.
    """
    at = resolve_path(trees, path)
    return [] if at is None else _existing_paths(trees, at)


def resolve_path(trees: Sequence[Path], path: str) -> PurePosixPath | None:
    """Resolve a path as a process in the image would: absolute links start at the root of the trees.

    Return the path without links, of which the last parts may not exist; None after more than 40 links.
    """
    left = list(reversed(PurePosixPath("/", path).parts[1:]))
    at, links = PurePosixPath("/"), 0
    while left:
        part = left.pop()
        if part == "..":
            at = at.parent
            continue
        # Not Path.resolve(): an absolute link of the image would lead to this machine's files.
        here = next(iter(_existing_paths(trees, at / part)), trees[0])
        if not os.path.islink(here):  # noqa: PTH114 - Path.is_symlink raises for a name that is too long
            at = at / part
            continue
        links += 1
        if links > _MAX_LINKS:
            return None
        target = PurePosixPath(here.readlink())
        at = PurePosixPath("/") if target.is_absolute() else at
        left += reversed([name for name in target.parts if name != "/"])
    return at


def _existing_paths(trees: Sequence[Path], at: PurePosixPath) -> list[Path]:
    return [path for tree in trees if os.path.lexists(path := tree.joinpath(*at.parts[1:]))]


def write_in(root: Path, name: str, content: bytes) -> Path:
    """Write a file in an image's tree, in place of an existing file or link; return its path. Raises TareError."""
    path = ensure_folder(root, str(PurePosixPath(name).parent)) / PurePosixPath(name).name
    path.unlink(missing_ok=True)  # an existing link could lead to a file of this machine
    path.write_bytes(content)
    path.chmod(0o644)
    return path


def put_name_files(root: Path) -> None:
    """Write /etc/hosts with `localhost` and an empty /etc/resolv.conf, unless they exist or /etc is a link."""
    if (root / "etc").is_symlink():
        return
    for name, content in (("hosts", _HOSTS), ("resolv.conf", b"")):
        if not os.path.lexists(ensure_folder(root, "etc") / name):
            write_in(root, f"etc/{name}", content)


def put_files(root: Path, files: Sequence[tuple[str, str]]) -> None:
    """Copy files and folders into an image's tree; `files` are pairs of a path there and a path on this machine.

    Raises TareError if a file cannot be read or written.
    """
    for target, source in files:
        name = target.strip("/")
        if ".." in PurePosixPath(name).parts or (not name and not Path(source).is_dir()):
            raise TareError(f"{target}: no path in an image", "write it from the root, such as /srv/app")
        ensure_folder(root, str(PurePosixPath(name).parent))
        try:
            for path, below in walk_source(Path(source)):
                _put_file(root, f"{name}/{below}".strip("/") if below else name, path)
        except OSError as error:
            what = f"{source}: cannot be put into the image: {format_os_error(error)}"
            raise TareError(what, "[image] files has the path in the image, and the path on this machine") from error


def normalize_times(root: Path, since: float, tare_folder: str = "") -> None:
    """Set the time of the files that were changed after `since`, and of all files below `tare_folder`."""
    for folder, folders, files in os.walk(root):
        for path in (folder, *(f"{folder}/{name}" for name in (*folders, *files))):
            if os.lstat(path).st_mtime >= since or (tare_folder and Path(path).is_relative_to(root / tare_folder)):
                os.utime(path, (TIME_OF_FILES, TIME_OF_FILES), follow_symlinks=False)


def hash_files(files: Sequence[tuple[str, str]], mounts: Sequence[tuple[str, str]] = ()) -> str:
    """Return a hash of the files to copy, with names and permissions, and with owners for `mounts`; "" without any.

    Raises TareError.
    """
    digest = hashlib.sha256()
    for number, (target, source) in enumerate((*files, *mounts)):
        is_mount = number >= len(files)
        if is_mount and source in FOLDER_KINDS:
            digest.update(repr((target, source)).encode())
            continue
        if not exists(source):
            raise UsageError(
                f"{source}: there is no such file", "[image] files has the path in the image, and this one"
            )
        digest.update(repr(("mount", target) if is_mount else target).encode())
        for path, below in walk_source(Path(source)):
            status = path.lstat()
            owner = f"{status.st_uid}:{status.st_gid} " if is_mount else ""
            digest.update(f"{below!r} {status.st_mode:o} {owner}".encode())
            if path.is_symlink():
                digest.update(str(path.readlink()).encode())
            elif path.is_file():
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest() if files or mounts else ""


def walk_source(source: Path) -> Iterator[tuple[Path, str]]:
    """Yield a file, or a folder and all files below it, with their paths relative to `source`.

    A link is yielded as it is, except `source`: in an image's tree, a link in place of a folder would lead its files
    out of the tree.
    """
    source = source.resolve()
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

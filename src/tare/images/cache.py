"""Image cache: integrity seals, last use and eviction.

A process that uses an image updates the folder's time and holds a shared lock on the folder until the process ends, so
that no other tare removes the image, whatever its `TARE_HOME`.

The seal of an image has, for each of its forms, a hash of the metadata of all files: names, permissions, owners, sizes
and times of change. A write to a file changes the metadata. Reading every byte instead would take many seconds at the
beginning of each run.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.model.errors import TareError
from tare.model.image import image_tag
from tare.plugins import registry
from tare.plugins.technology import Technology

MAX_UNUSED_SECONDS = 14 * 86400.0
MAX_CACHE_BYTES = 20 << 30
REMOVAL_PREFIX = "tare-removing-"
_HOST = LocalHost()
_DIGEST_LENGTH = 64  # of an image's hash, which is the name of its folder
_COUNT_SECONDS = 300.0
_CLUSTER = 1 << 16  # bytes of a qcow2 cluster; the first has the header with the name of the backing file
_SEAL = "seal.json"
# Path, permissions, owner, group, bytes, and the times of the last change of content and of metadata.
_FIND = ("-mindepth", "1", "-printf", r"%P %M %U %G %s %T@ %C@\0")
_SECONDS = 60.0


@dataclass(frozen=True)
class CachedImage:
    """Folder of an image, or disk of a nested stack, with its size and the time of its last use."""

    path: Path
    size_bytes: int
    used_seconds: float


def hold_in_cache(path: Path) -> bool:
    """Record the use of an image or a disk, and protect it until this process ends; return False if it is missing."""
    try:
        descriptor = os.open(path, os.O_RDONLY)  # never closed, as the lock must last until the process ends
    except FileNotFoundError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    # Another tare may have removed the path between `open` and `flock`.
    if not path.exists() or not os.path.samestat(os.fstat(descriptor), path.stat()):
        os.close(descriptor)
        return False
    os.utime(path)
    return True


def create_link(link: Path, home: Path) -> None:
    """Create a symbolic link to an image, in place of an earlier link, and protect the image; see `hold_in_cache`."""
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(Path("..") / home.name)
    hold_in_cache(home)


def select_for_eviction(
    stored: Iterable[CachedImage], now_seconds: float, max_bytes: int = MAX_CACHE_BYTES
) -> tuple[CachedImage, ...]:
    """Return the entries that were not used for 14 days, and the least recently used ones in excess of `max_bytes`."""
    evicted, total_bytes = [], 0
    for entry in sorted(stored, key=lambda entry: entry.used_seconds, reverse=True):
        total_bytes += entry.size_bytes
        if total_bytes > max_bytes or now_seconds - entry.used_seconds > MAX_UNUSED_SECONDS:
            evicted.append(entry)
    return tuple(evicted)


def make_room(images: Path, needed_bytes: int, say: Callable[[str], None]) -> None:
    """Evict images that no process uses, with the engines' copies, and report the freed disk space.

    More images are evicted if the disk has less than `needed_bytes` free.
    """
    if not (stored := _list_cached(images)):
        return
    short_bytes = needed_bytes - shutil.disk_usage(images).free
    max_bytes = min(MAX_CACHE_BYTES, sum(entry.size_bytes for entry in stored) - short_bytes)
    for entry in select_for_eviction(stored, time.time(), max_bytes):
        _move_aside(entry.path)
    evicted = [entry for entry in stored if not entry.path.exists()]
    if not evicted:
        return
    _remove_moved(images)
    for link in (link for folder in ("recipes", "roots", "adopted", "layered") for link in images.glob(f"{folder}/*")):
        if not link.exists():
            link.unlink(missing_ok=True)
    digests = [entry.path.name for entry in evicted if _is_image(entry.path)]
    failures = [failure for digest in digests for failure in remove_engine_copies(_HOST, digest)]
    room = sum(entry.size_bytes for entry in evicted) / (1 << 30)
    say(f"images: removed {len(evicted)} that were not used lately: {room:.1f} GiB of disk are free again")
    for failure in dict.fromkeys(failures):
        say(f"images: a copy may be left: {failure}")


def discard(image: Path) -> None:
    """Remove a modified image, with the engines' copies. Raises TareError if a process uses the image."""
    if not _try_discard(image):
        what = f"{image}: was modified after the build, and another process uses it"
        raise TareError(what, "end that process, and run again")


def discard_oldest(homes: Iterable[Path], max_count: int) -> None:
    """Remove all but the last used `max_count` images, with the engines' copies; images in use stay."""
    for image in sorted(homes, key=lambda home: home.stat().st_mtime, reverse=True)[max_count:]:
        _try_discard(image)


def _try_discard(image: Path) -> bool:
    """Remove an image with the engines' copies, unless a process uses the image; return whether it is removed."""
    _move_aside(image)
    if image.exists():
        return False
    _remove_moved(image.parent)
    remove_engine_copies(_HOST, image.name)
    return True


def remove_engine_copies(host: Host, digest: str = "") -> list[str]:
    """Remove the copies of an image, or of all images if `digest` is "", from the engines; return the failures."""
    failures = []
    for name in registry.names("technologies"):
        try:
            technology = registry.find("technologies", name)()
            if type(technology).remove_images is not Technology.remove_images and technology.version(host):
                technology.remove_images(host, image_tag(digest))
        except TareError as error:
            failures.append(str(error))
    return failures


def _list_cached(images: Path) -> tuple[CachedImage, ...]:
    """Return all images and disks of a folder with their sizes."""
    paths = [path for path in images.glob("*") if _is_image(path) or path.name.startswith("nested-")]
    if not paths:
        return ()
    # Without a check: `du` fails if a file vanishes meanwhile, but prints the sizes of the others.
    counted = _HOST.run("du", "-s", "-B1", *map(str, paths), timeout=_COUNT_SECONDS, check=False).text
    sizes = {Path(path): int(size) for size, path in (line.split("\t", 1) for line in counted.splitlines())}
    return tuple(
        CachedImage(path, sizes[path], path.stat().st_mtime) for path in paths if path in sizes and path.exists()
    )


def _is_image(path: Path) -> bool:
    return len(path.name) == _DIGEST_LENGTH


def _move_aside(path: Path) -> None:
    """Move an image or a disk to a folder for removal, unless a process uses it.

    A move is atomic, whereas another tare could find a half-removed image.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:  # already moved, with its image or by another tare
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        going = Path(tempfile.mkdtemp(prefix=REMOVAL_PREFIX, dir=path.parent))
        # Nested disks have only the blocks that differ from the image's disk. Built again, the image has the same hash,
        # but other blocks on its disk. So the nested disks must go first.
        disks = [disk for disk in path.parent.glob("nested-*") if _is_image(path) and _is_based_on(disk, path.name)]
        for file in (*disks, path):
            file.rename(going / file.name)
    except (BlockingIOError, FileNotFoundError):
        return
    finally:
        os.close(descriptor)


def _remove_moved(images: Path) -> None:
    """Remove the images and disks that `_move_aside` has moved."""
    for folder in images.glob(f"{REMOVAL_PREFIX}*"):
        shutil.rmtree(folder, ignore_errors=True)  # another tare may remove it, too


def _is_based_on(disk: Path, digest: str) -> bool:
    """Return whether this image is the backing file of a qcow2 disk."""
    with disk.open("rb") as file:
        return digest.encode() in file.read(_CLUSTER)


def write_seal(home: Path) -> None:
    """Write the seal for the current state of an image's forms."""
    fresh = home / f"new-{_SEAL}"
    fresh.write_text(json.dumps(_hash_forms(home)), encoding="utf-8")
    fresh.rename(home / _SEAL)


def find_modified(home: Path) -> str:
    """Return the name of a form that was modified since the seal, or of a missing seal; "" if all forms match.

    Files that were added later, such as a compressed archive, do not count. Raises TareError if `find` is not GNU's.
    """
    try:
        seals = dict(json.loads((home / _SEAL).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return _SEAL
    now = _hash_forms(home)
    return next((name for name, state in seals.items() if now.get(name) != state), "")


def _hash_forms(home: Path) -> dict[str, str]:
    """Return the hash of the metadata of all files of each form, by the form's name."""
    hashes: defaultdict[str, Any] = defaultdict(hashlib.sha256)
    for line in sorted(_HOST.run("find", str(home), *_FIND, timeout=_SECONDS).stdout.split(b"\0")[:-1]):
        form = line.partition(b" ")[0].partition(b"/")[0].decode()
        hashes[form].update(line + b"\0")
    return {name: digest.hexdigest() for name, digest in hashes.items() if not name.endswith(_SEAL)}

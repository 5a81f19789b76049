"""The image cache: integrity seals, last use and eviction.

A process that uses an image notes the time of use and holds a shared lock on it until it ends, so that no other tare
removes it, whatever `TARE_HOME` that has.

The seal of an image has, for each of its forms, a hash of what the kernel says of all its files: names, permissions,
owners, sizes and times of change. Whoever writes to one, by mistake or not, changes these. To read every byte instead
would take many seconds at the beginning of each run.
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
_CLUSTER = 1 << 16
_SEAL = "seal.json"
# A path, permissions, owner, group, bytes, and the times when the content and the rest were last changed.
_FIND = ("-mindepth", "1", "-printf", r"%P %M %U %G %s %T@ %C@\0")
_SECONDS = 60.0


@dataclass(frozen=True)
class CachedImage:
    """An image's folder, or the disk of a nested stack, with its size and the time of its last use."""

    path: Path
    size_bytes: int
    used_seconds: float


def hold_in_cache(path: Path) -> bool:
    """Note that an image or a disk is used now, and keep it until this process ends; False if it is not there."""
    try:
        descriptor = os.open(path, os.O_RDONLY)  # stays open: the lock ends with the process, even when that is killed
    except FileNotFoundError:
        return False
    fcntl.flock(descriptor, fcntl.LOCK_SH)
    if not path.exists() or not os.path.samestat(os.fstat(descriptor), path.stat()):  # removed before the lock was ours
        os.close(descriptor)
        return False
    os.utime(path)
    return True


def create_link(link: Path, home: Path) -> None:
    """Let a link in a folder of them lead to an image, and use that: no other tare removes it while this one runs."""
    link.parent.mkdir(exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(Path("..") / home.name)
    hold_in_cache(home)


def select_for_eviction(
    stored: Iterable[CachedImage], now_seconds: float, max_bytes: int = MAX_CACHE_BYTES
) -> tuple[CachedImage, ...]:
    """Choose what was not used for 14 days, and what was used least lately of more than so many bytes."""
    gone, total_bytes = [], 0
    for each in sorted(stored, key=lambda each: each.used_seconds, reverse=True):
        total_bytes += each.size_bytes
        if total_bytes > max_bytes or now_seconds - each.used_seconds > MAX_UNUSED_SECONDS:
            gone.append(each)
    return tuple(gone)


def make_room(images: Path, needed_bytes: int, say: Callable[[str], None]) -> None:
    """Remove superfluous images that no process uses, with the engines' copies; report how much disk that freed.

    On a disk that has less than `needed_bytes` free, more of them are superfluous.
    """
    if not (stored := _list_cached(images)):
        return
    short_bytes = needed_bytes - shutil.disk_usage(images).free
    most_bytes = min(MAX_CACHE_BYTES, sum(each.size_bytes for each in stored) - short_bytes)
    for each in select_for_eviction(stored, time.time(), most_bytes):
        _move_aside(each.path)
    gone = [each for each in stored if not each.path.exists()]
    if not gone:
        return
    _remove_moved(images)
    for link in (link for folder in ("recipes", "roots", "adopted", "layered") for link in images.glob(f"{folder}/*")):
        if not link.exists():
            link.unlink(missing_ok=True)
    troubles = [
        trouble for each in gone if _is_image(each.path) for trouble in remove_engine_copies(_HOST, each.path.name)
    ]
    room = sum(each.size_bytes for each in gone) / (1 << 30)
    say(f"images: removed {len(gone)} that were not used lately: {room:.1f} GiB of disk are free again")
    for trouble in dict.fromkeys(troubles):
        say(f"images: a copy may be left: {trouble}")


def discard(image: Path) -> None:
    """Remove an image that is not as it was built, with the engines' copies. Raises TareError if it is in use."""
    if not _try_discard(image):
        raise TareError(f"{image}: is not as it was built, and another process uses it", "end that, and run again")


def discard_oldest(homes: Iterable[Path], max_count: int) -> None:
    """Remove images but for the last used `max_count`, and for those that a process uses, with the engines' copies."""
    for image in sorted(homes, key=lambda each: each.stat().st_mtime, reverse=True)[max_count:]:
        _try_discard(image)


def _try_discard(image: Path) -> bool:
    """Remove an image with the engines' copies, unless a process uses it; return whether it is gone."""
    _move_aside(image)
    if image.exists():
        return False
    _remove_moved(image.parent)
    remove_engine_copies(_HOST, image.name)
    return True


def remove_engine_copies(host: Host, digest: str = "") -> list[str]:
    """Remove an image's copies from the engines, or those of all images; return the reasons for failures."""
    troubles = []
    for name in registry.names("technologies"):
        try:
            technology = registry.find("technologies", name)()
            if type(technology).remove_images is not Technology.remove_images and technology.version(host):
                technology.remove_images(host, image_tag(digest))
        except TareError as error:
            troubles.append(str(error))
    return troubles


def _list_cached(images: Path) -> tuple[CachedImage, ...]:
    """Measure all images and disks of a folder."""
    paths = [path for path in images.glob("*") if _is_image(path) or path.name.startswith("nested-")]
    if not paths:
        return ()
    # A file may vanish while it is counted; what is there is counted all the same.
    counted = _HOST.run("du", "-s", "-B1", *map(str, paths), timeout=_COUNT_SECONDS, check=False).text
    sizes = {Path(path): int(size) for size, path in (line.split("\t", 1) for line in counted.splitlines())}
    return tuple(
        CachedImage(path, sizes[path], path.stat().st_mtime) for path in paths if path in sizes and path.exists()
    )


def _is_image(path: Path) -> bool:
    return len(path.name) == _DIGEST_LENGTH


def _move_aside(path: Path) -> None:
    """Move an image or a disk out of the way, at once, unless a process uses it.

    The disks that were made on an image go before it: built again, it has the same hash, but its disk other blocks.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:  # with its image, or by another tare
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        going = Path(tempfile.mkdtemp(prefix=REMOVAL_PREFIX, dir=path.parent))
        disks = [disk for disk in path.parent.glob("nested-*") if _is_image(path) and _is_based_on(disk, path.name)]
        for each in (*disks, path):
            each.rename(going / each.name)
    except (BlockingIOError, FileNotFoundError):
        return
    finally:
        os.close(descriptor)


def _remove_moved(images: Path) -> None:
    """Remove what was moved out of the way."""
    for folder in images.glob(f"{REMOVAL_PREFIX}*"):
        shutil.rmtree(folder, ignore_errors=True)  # another tare may remove it, too


def _is_based_on(disk: Path, digest: str) -> bool:
    """Return whether a qcow2 disk names this image as what it was made on, which its first cluster does."""
    with disk.open("rb") as file:
        return digest.encode() in file.read(_CLUSTER)


def write_seal(home: Path) -> None:
    """Note how the forms of an image are now."""
    made = home / f"new-{_SEAL}"
    made.write_text(json.dumps(_hash_forms(home)), encoding="utf-8")
    made.rename(home / _SEAL)


def find_modified(home: Path) -> str:
    """Return the name of a form that is not as it was sealed, or that of the seal without one; empty if all are.

    What was made of a form later, such as a compressed archive, is none. Raises TareError if `find` is not GNU's.
    """
    try:
        seals = dict(json.loads((home / _SEAL).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return _SEAL
    now = _hash_forms(home)
    return next((name for name, state in seals.items() if now.get(name) != state), "")


def _hash_forms(home: Path) -> dict[str, str]:
    """Return a hash of what the kernel says of all files of each form."""
    found: defaultdict[str, Any] = defaultdict(hashlib.sha256)
    for line in sorted(_HOST.run("find", str(home), *_FIND, timeout=_SECONDS).stdout.split(b"\0")[:-1]):
        form = line.partition(b" ")[0].partition(b"/")[0].decode()
        found[form].update(line + b"\0")
    return {name: each.hexdigest() for name, each in found.items() if not name.endswith(_SEAL)}

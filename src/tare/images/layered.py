"""Layer of a suite's files over an image, made in 0.1 s instead of the minute of another build.

The layer is a directory that overlayfs mounts over the image's root, so the image stays unchanged. Container engines
need an archive of both, and virtual machines need a disk. tare makes archive and disk when they are first requested.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path, PurePosixPath

from tare.hosts.ledger import state_folder
from tare.hosts.local import LocalHost, sha256_of
from tare.images.build_environment import create_build_folder
from tare.images.cache import create_link, discard_oldest, find_modified, hold_in_cache
from tare.images.image import BASE, make_images_folder, store_built, with_layer
from tare.images.mounts import put_mounts
from tare.images.skopeo import pack_folder
from tare.images.tree import (
    CLOCK_SECONDS,
    TIME_OF_FILES,
    hash_files,
    normalize_times,
    put_files,
    read_text_in,
    write_in,
)
from tare.model.files import exists
from tare.model.image import Image

LAYERED = "layered"  # folder of symbolic links, named by a hash of image and files, to the images with these files
_LAYERS_PER_IMAGE = 2  # cached, for users who switch between two versions of their files
_HOST = LocalHost()
_MOUNT_SECONDS = 30.0


def with_files(
    base: Image,
    files: Sequence[tuple[str, str]],
    customize: Callable[[Path], None] | None = None,
    mounts: Sequence[tuple[str, str]] = (),
) -> Image:
    """Return the image with a layer of these files and mounts; make the layer unless it is cached. Raises TareError.

    `files` and `mounts` are those of `ImageSpec`. `customize` makes other changes in the image's tree after the files
    are copied. These changes must depend only on `base`, `files` and `mounts`, because the cache does not distinguish
    them.
    """
    if not (files or mounts):
        return base
    images = make_images_folder()
    key = hashlib.sha256(repr((base.digest, hash_files(files, mounts), TIME_OF_FILES)).encode()).hexdigest()
    link = images / LAYERED / key
    home = link.resolve()
    if not link.exists() or find_modified(home) or not hold_in_cache(home):
        with create_build_folder(images) as scratch:
            home = images / _make_layer(base, files, mounts, customize, scratch)
            store_built(scratch, home, drops_caches=False)
        create_link(link, home)
    return with_layer(base, home)


def discard_old_layers() -> None:
    """Remove all layers except the last two of each image, with the engines' copies; takes seconds."""
    links = list((state_folder() / "images" / LAYERED).glob("*"))
    by_base = defaultdict[str, set[Path]](set)
    for link in filter(Path.exists, links):
        by_base[(link / BASE).resolve().name].add(link.resolve())
    for homes in by_base.values():
        discard_oldest(homes, _LAYERS_PER_IMAGE)
    for link in links:
        if not link.exists():
            link.unlink(missing_ok=True)


def _copy_name_files(root: Path, files: Sequence[tuple[str, str]]) -> None:
    """Copy the suite's /etc/hosts and /etc/resolv.conf to /usr/lib/tare/given, if `files` has them.

    Engines mount files over those in /etc; programs/conditions.h reads the copies and restores them.
    """
    for name in ("hosts", "resolv.conf"):
        in_etc = [Path(source) / name for target, source in files if PurePosixPath(target) == PurePosixPath("/etc")]
        targets = [PurePosixPath(target) for target, _ in files]
        if PurePosixPath("/etc", name) in targets or any(map(exists, in_etc)):
            write_in(root, f"usr/lib/tare/given/{name}", read_text_in(root, f"etc/{name}").encode())


def _make_layer(
    base: Image,
    files: Sequence[tuple[str, str]],
    mounts: Sequence[tuple[str, str]],
    customize: Callable[[Path], None] | None,
    scratch: Path,
) -> str:
    """Make the layer and its archive in `scratch`; return a hash of the image's and the layer's content."""
    layer, work, root = scratch / "layer", scratch / "work", scratch / "root"
    for folder in (layer, work, root):
        folder.mkdir()
    shutil.copystat(base.root, layer)  # the layer's folder becomes the root of the mounted tree
    os.chown(layer, base.root.stat().st_uid, base.root.stat().st_gid)
    began = time.time() - CLOCK_SECONDS  # the file system's clock may be behind
    options = f"lowerdir={base.lowerdir},upperdir={layer},workdir={work}"
    _HOST.run("mount", "-t", "overlay", "-o", options, "tare-layer", str(root), timeout=_MOUNT_SECONDS)
    try:
        put_files(root, files)
        put_mounts(root, mounts)
        _copy_name_files(root, (*files, *mounts))
        if customize:
            customize(root)
    finally:
        _HOST.run("umount", str(root), timeout=_MOUNT_SECONDS)
    normalize_times(layer, began)  # so that equal files give an equal hash
    root.rmdir()
    shutil.rmtree(work)
    pack_folder(layer, scratch / "layer.tar")
    (scratch / BASE).symlink_to(Path("..") / base.digest)
    return hashlib.sha256(f"{base.digest} {sha256_of(scratch / 'layer.tar')}".encode()).hexdigest()

"""Files of a suite as a layer over an image, which is made in a fraction of a second.

The layer is a directory that overlayfs puts over the image's root; nothing is copied, and nothing can be written to the
image. The archive and the disk that engines and machines need are made of both when the first of these asks for them.
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
from tare.hosts.local import LocalHost, exists, sha256_of
from tare.images.building import building
from tare.images.copying import pack
from tare.images.image import BASE, folder_of_images, keep_built, over
from tare.images.inside import CLOCK_SECONDS, TIME_OF_FILES, hash_of_files, put_files, settle_times, text_in, write_in
from tare.images.intact import changed
from tare.images.kept import discard_oldest, in_use
from tare.model.trials import Image

LAYERED = "layered"  # folder of links: from an image and its files, to the image with them
_KEPT = 2  # layers over one image: what somebody switches between
_HOST = LocalHost()
_SECONDS = 30.0


def with_files(base: Image, files: Sequence[tuple[str, str]], then: Callable[[Path], None] | None = None) -> Image:
    """Return the image with these files over it; make its layer unless it is cached. Raises TareError.

    `then` changes more in the tree that they were put into.
    """
    if not files:
        return base
    images = folder_of_images()
    key = hashlib.sha256(repr((base.digest, hash_of_files(files), TIME_OF_FILES)).encode()).hexdigest()
    link = images / LAYERED / key
    home = link.resolve()
    if not link.exists() or changed(home) or not in_use(home):
        link.parent.mkdir(exist_ok=True)
        with building(images) as scratch:
            home = images / _make(base, files, then, scratch)
            keep_built(scratch, home, cold=False)
        link.unlink(missing_ok=True)
        link.symlink_to(Path("..") / home.name)
        in_use(home)
    return over(base, home)


def discard_old_layers() -> None:
    """Remove all but the last used layers over each image, with the engines' copies, which takes seconds."""
    links = list((state_folder() / "images" / LAYERED).glob("*"))
    by_base = defaultdict[str, set[Path]](set)
    for link in filter(Path.exists, links):
        by_base[(link / BASE).resolve().name].add(link.resolve())
    for homes in by_base.values():
        discard_oldest(homes, _KEPT)
    for link in links:
        if not link.exists():
            link.unlink(missing_ok=True)


def _note_names(root: Path, files: Sequence[tuple[str, str]]) -> None:
    """Copy the suite's hosts and resolv.conf for programs/conditions.h, as an engine covers those in /etc."""
    for name in ("hosts", "resolv.conf"):
        below_etc = [Path(source) / name for target, source in files if PurePosixPath(target) == PurePosixPath("/etc")]
        named = [PurePosixPath(target) for target, _ in files]
        if PurePosixPath("/etc", name) in named or any(map(exists, below_etc)):
            write_in(root, f"usr/lib/tare/given/{name}", text_in(root, f"etc/{name}").encode())


def _make(base: Image, files: Sequence[tuple[str, str]], then: Callable[[Path], None] | None, scratch: Path) -> str:
    """Make the layer and its archive; return the hash that identifies the bytes of the image with it."""
    layer, work, root = scratch / "layer", scratch / "work", scratch / "root"
    for folder in (layer, work, root):
        folder.mkdir()
    shutil.copystat(base.root, layer)  # it becomes the root of the tree
    os.chown(layer, base.root.stat().st_uid, base.root.stat().st_gid)
    began = time.time() - CLOCK_SECONDS
    options = f"lowerdir={base.lower},upperdir={layer},workdir={work}"
    _HOST.run("mount", "-t", "overlay", "-o", options, "tare-layer", str(root), timeout=_SECONDS)
    try:
        put_files(root, files)
        _note_names(root, files)
        if then:
            then(root)
    finally:
        _HOST.run("umount", str(root), timeout=_SECONDS)
    settle_times(layer, began)
    root.rmdir()
    shutil.rmtree(work)
    pack(layer, scratch / "layer.tar")
    (scratch / BASE).symlink_to(Path("..") / base.digest)
    return hashlib.sha256(f"{base.digest} {sha256_of(scratch / 'layer.tar')}".encode()).hexdigest()

"""The root of Debian in which images are built, made of any image of Debian, where this machine lacks the tools."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tare.errors import TareError, TrialFailed
from tare.hosts.facts import os_release
from tare.hosts.local import LocalHost
from tare.images import copying
from tare.images.builder import PACKAGES, build_root, provide
from tare.images.building import building
from tare.images.image import folder_of_images, refuse_missing
from tare.images.inside import text_in
from tare.model.sources import Source

_HOST = LocalHost()
_UNPACK_SECONDS = 900.0
_EXPORT = "docker export $(docker create debian:12) >debian.tar && tare image --from debian.tar"


def make_build_root(source: Source, say: Callable[[str], None]) -> None:
    """Make the root in which images are built from now on; an earlier one goes. Raises TareError."""
    if source.transport:
        refuse_missing(copying.TOOLS, f"; or without them: {_EXPORT}")
    with building(folder_of_images()) as scratch:
        say(f"image: copying {source}")
        root = _unpacked(source, scratch)
        if os_release(text_in(root, "usr/lib/os-release")).get("ID") != "debian":
            raise TareError(f"{source}: this is no image of Debian", "tare image --from docker://debian:12")
        say("image: installing what builds images into it")
        try:
            provide(PACKAGES, root)
        except TrialFailed as error:
            what = f"{source}: cannot install what builds images: {error}"
            raise TareError(what, "check that this machine reaches the mirror in the image's /etc/apt") from error
        if build_root().exists():
            shutil.rmtree(build_root())
        root.rename(build_root())


def _unpacked(source: Source, scratch: Path) -> Path:
    """Unpack an image of an engine or a registry, or copy a root file system; return its folder."""
    root = scratch / "root"
    if source.transport:
        place, digest = copying.located(source, scratch)
        layout = copying.copied(place, digest, scratch)
        copying.check_layers(place, layout, copying.manifest_in(layout))
        copying.unpacked(place, layout, root)
        return root
    root.mkdir()
    if source.is_absent:
        raise TareError(f"{source}: there is no such file", "give the path of a directory or a tar file")
    copy = ("cp", "-a", f"{source}/.", str(root))
    unpack = ("tar", "-C", str(root), "--numeric-owner", "-xf", str(source))
    _HOST.run(*(copy if Path(source.name).is_dir() else unpack), timeout=_UNPACK_SECONDS)
    return root

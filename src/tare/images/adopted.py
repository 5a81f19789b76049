"""Images that others have built, made ready for every stack: their very bytes, with tare's own files beside them.

What tare needs in an instance is static and lies in /usr/lib/tare: `init`, which every instance runs, and what starts
commands. Machines boot the kernel and the modules of an image of tare's own. So an image needs no shell, no C library
and no kernel. It is kept under the hash of its content, as all images are.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from tare.contracts.workloads import VOLUME, Workload
from tare.errors import Fault, SuiteError, TareError, UsageError
from tare.hosts.exec import START, TOOLS
from tare.hosts.ledger import state_folder
from tare.hosts.local import sha256_of
from tare.images import copying
from tare.images.builder import has_build_root, program_folder
from tare.images.building import building, remove_abandoned
from tare.images.image import (
    built_image,
    cached_image,
    compile_program,
    folder_of_images,
    image_of,
    is_intact,
    keep_built,
    make_disk,
    refuse_missing,
)
from tare.images.inside import folder_in, hash_of_files, put_files, text_in, write_in
from tare.images.kept import in_use, make_room
from tare.images.oci import Configuration, changed, read_configuration, refuse_other_platform, written
from tare.images.programs import missing_programs
from tare.images.recipes import GUEST, Recipe, beside_recipe, client_recipe, guest_recipe
from tare.model.sources import Source
from tare.model.trials import Image, ImageWanted

_CLOCK_SECONDS = 1.0  # by which the file system's clock may be behind
ADOPTED = "adopted"  # folder of links: from what was asked for, to the image
_OWN = "usr/lib/tare"
_BASE = Recipe(packages=tuple(sorted((*GUEST, "busybox-static"))))
# Where file systems are mounted in some stack, or tare puts something.
_PLACES = ("dev", "proc", "run", "sys", "tmp", PurePosixPath(VOLUME).parts[1], _OWN)
_HOSTS = b"127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n"
_PACKAGE = re.compile(r"^Package: (\S+)$(?:.|\n(?!\n))*?^Version: (\S+)$", re.MULTILINE)


def wanted_image(
    wanted: ImageWanted,
    workloads: Iterable[Workload] | None,
    say: Callable[[str], None],
    again: str = "",
    archives: Path | None = None,
) -> Image:
    """Return the image that a suite asks for, for these workloads; build it if it is not cached.

    Raises TareError, and UsageError where the file of an image does not exist, also of one for a service beside.
    `again` is the origin that an earlier image of it had: from a registry, the very same one is taken. For `archives`,
    see `built_image`.
    """
    workloads = None if workloads is None else tuple(workloads)
    beside = [each.image for workload in workloads or () for each in workload.beside]
    refuse_absent([wanted, *beside])
    remove_abandoned()
    recipe = guest_recipe(workloads, wanted.release, wanted.packages, wanted.files)
    if wanted.source is None:
        return built_image(say, recipe, archives)
    refuse_missing(copying.TOOLS | ({} if has_build_root() else {"cc": "gcc libc6-dev"}))
    base = built_image(say, _BASE, archives)
    images = folder_of_images()
    with building(images) as scratch:
        adoption = Adoption(wanted.source.again(again), wanted.files, base, recipe.room_bytes, scratch)
        return adoption.image(images, say)


def missing_archives(wanted: ImageWanted, workloads: Iterable[Workload] | None) -> tuple[str, ...]:
    """Return the archives (see `built_image`) of the images for these workloads that are not cached here."""
    workloads = None if workloads is None else tuple(workloads)
    own = guest_recipe(workloads, wanted.release, wanted.packages, wanted.files) if wanted.source is None else _BASE
    beside = [each.image for workload in workloads or () for each in workload.beside]
    recipes = [own, client_recipe(workloads or (), wanted.release)]
    recipes += [beside_recipe(each) if each.source is None else _BASE for each in beside]
    return tuple(dict.fromkeys(each.archive for each in recipes if cached_image(each) is None))


def images_beside(
    workloads: Iterable[Workload],
    say: Callable[[str], None],
    again: Mapping[str, str],
    archives: Path | None = None,
) -> dict[ImageWanted, Image]:
    """Return the images of what runs beside the servers of these workloads; build those that are not cached.

    `again` has the origins that an earlier run had, by the services' names; see `wanted_image`. Raises TareError, and
    SuiteError where one lacks the program to run.
    """
    images: dict[ImageWanted, Image] = {}
    faults: list[Fault] = []
    for each in (beside for workload in workloads for beside in workload.beside):
        if each.image not in images and each.image.source is None:
            images[each.image] = built_image(say, beside_recipe(each.image), archives)
        elif each.image not in images:
            images[each.image] = wanted_image(each.image, (), say, again.get(each.name, ""), archives)
        missing = lacking(images[each.image], each.program)
        faults += [Fault(f"{each.name}: {fault.what}", fault.hint) for fault in missing]
    if faults:
        raise SuiteError(faults)
    return images


def lacking(image: Image, programs: Sequence[str]) -> list[Fault]:
    """Return a fault for each program that the image does not have; its entry point comes before those of others."""
    if not (image.start and programs):
        return missing_programs(image.root, programs)
    own = configuration_of(image)
    hint = f"give one of the image's: {image.origin.partition('@')[0]} is taken as it is"
    return missing_programs(image.root, own.entry_point[:1] or programs, own.environment, hint)


def configuration_of(image: Image) -> Configuration:
    """Read how the program of an adopted image is started."""
    home = state_folder() / "images" / image.digest
    text = (home / "configuration.json").read_text(encoding="utf-8")
    return read_configuration(text, *(text_in(home / "root", f"etc/{name}") for name in ("passwd", "group")))


@dataclass(frozen=True)
class Adoption:
    """One image to take over, in the folder `scratch`.

    `base` is the image of ours that has what is put beside it; `tools` is its busybox, linked statically.
    """

    source: Source
    files: tuple[tuple[str, str], ...]
    base: Image
    room_bytes: int
    scratch: Path
    tools: Path | None = None

    def image(self, images: Path, say: Callable[[str], None]) -> Image:
        """Return the image, which is made unless it is cached. Raises TareError, with the image's name."""
        try:
            return self._image(images, say)
        except TareError as error:
            if str(error).startswith(str(self.source)):
                raise
            raise TareError(f"{self.source}: {error}", error.hint) from error

    def _image(self, images: Path, say: Callable[[str], None]) -> Image:
        say(f"image: looking at {self.source}")
        source, digest = copying.located(self.source, self.scratch)
        if source != self.source:
            say(f"image: it is {source}")
        return replace(self, source=source).of_digest(digest, images, say)

    def of_digest(self, digest: str, images: Path, say: Callable[[str], None]) -> Image:
        """Return the image of this digest, which is made unless it is cached."""
        link = images / ADOPTED / self._key(digest)
        if not (is_intact(link, say) and in_use(link.resolve())):
            say(f"image: copying {self.source}")
            home = self._made(digest, images, say)
            link.parent.mkdir(exist_ok=True)
            link.unlink(missing_ok=True)
            link.symlink_to(Path("..") / home.name)
            in_use(home)
        made = image_of(link.resolve().name)
        own, origin = configuration_of(made), self.source.pinned(digest)
        return replace(made, origin=origin, start=(START,), ports=own.tcp_ports, ends_by=own.stop_signal)

    def _key(self, digest: str) -> str:
        """Hash of all that the image is made of."""
        laid = (self.base.digest, hash_of_files(self.files), _starter().read_bytes())
        parts = (digest, self.source.started, self.room_bytes, *laid)
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def _made(self, digest: str, images: Path, say: Callable[[str], None]) -> Path:
        """Copy, check and unpack the image, and make its forms; return its folder."""
        layout, root = copying.copied(self.source, digest, self.scratch), self.scratch / "root"
        manifest = copying.manifest_in(layout)
        text = copying.blob(layout, manifest.configuration).read_text(encoding="utf-8", errors="replace")
        refuse_other_platform(text, copying.this_architecture())
        text = changed(text, self.source.started)
        size = copying.check_layers(self.source, layout, manifest)
        make_room(images, 3 * size.content_bytes, say)
        say(f"image: unpacking {size.files} files, {size.content_bytes >> 20} MiB")
        began = time.time() - _CLOCK_SECONDS
        copying.unpacked(self.source, layout, root)
        shutil.rmtree(layout)
        self._lay(root, text)
        _settle(root, began)
        (self.scratch / "configuration.json").write_text(text, encoding="utf-8")
        (self.scratch / "packages.txt").write_text(packages_of(text_in(root, "var/lib/dpkg/status")), encoding="utf-8")
        return self._forms(images)

    def _lay(self, root: Path, text: str) -> None:
        """Put tare's files beside the image's."""
        if (root / "manifest.json").exists() or (root / "oci-layout").exists():
            hint = f"write docker-archive:{self.source} or oci-archive:{self.source}"
            raise TareError("this is an archive of images, not of a root file system", hint)
        put_files(root, self.files)
        for name in _PLACES:
            folder_in(root, name)
        ours = root / _OWN
        shutil.rmtree(ours)
        shutil.copytree(self.base.root / _OWN, ours, symlinks=True)
        shutil.copy2(self.tools or self.base.root / "bin/busybox", root / TOOLS[1:])
        compile_program(_starter(), root / START[1:])
        accounts = (text_in(root, f"etc/{name}") for name in ("passwd", "group"))
        write_in(root, f"{_OWN}/start.words", written(read_configuration(text, *accounts)))
        if not (root / "etc").is_symlink():
            for name, content in (("hosts", _HOSTS), ("resolv.conf", b"")):
                if not os.path.lexists(folder_in(root, "etc") / name):
                    write_in(root, f"etc/{name}", content)

    def _forms(self, images: Path) -> Path:
        """Make the archive and the disk, and keep them with the kernel of ours; return the image's folder."""
        copying.pack(self.scratch / "root", self.scratch / "root.tar")
        for name in ("kernel", "initrd"):
            shutil.copy(getattr(self.base, name), self.scratch / name)
        make_disk(replace(_BASE, room_bytes=self.room_bytes), self.scratch)
        home = images / sha256_of(self.scratch / "root.tar")
        keep_built(self.scratch, home)
        return home


def _settle(root: Path, since: float) -> None:
    """Set a fixed time on all that tare has made, so that the same image always has the same bytes."""
    ours = root / _OWN
    for folder, folders, files in os.walk(root):
        for path in (folder, *(f"{folder}/{name}" for name in (*folders, *files))):
            if os.lstat(path).st_mtime >= since or Path(path).is_relative_to(ours):
                os.utime(path, (0, 0), follow_symlinks=False)


def packages_of(status: str) -> str:
    """Return the packages of a Debian or a relative of it, from the text of dpkg's status: `name version` lines."""
    return "".join(f"{name} {version}\n" for name, version in _PACKAGE.findall(status))


def _starter() -> Path:
    return program_folder() / "image/start.c"


def refuse_absent(wanted: Iterable[ImageWanted]) -> None:
    """Raise UsageError where the file of an image does not exist."""
    for source in (each.source for each in wanted):
        if source is not None and source.is_absent:
            hint = "give the path of an image; a path in a suite is relative to the suite's folder"
            raise UsageError(f"{source}: there is no such file", hint)

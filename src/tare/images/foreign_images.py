"""Prepare foreign images: resolve, check their programs and add tare's files.

What tare needs in an instance is static and lies in /usr/lib/tare: `init`, which every instance runs, and what starts
commands. Machines boot the kernel and the modules of an image of tare's own. So an image needs no shell, no C library
and no kernel. It is kept under the hash of its content, as all images are.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

from tare.hosts.exec import START, TOOLS
from tare.hosts.facts import os_release
from tare.hosts.local import LocalHost, sha256_of
from tare.images import skopeo
from tare.images.build_environment import (
    PACKAGES,
    build_root,
    building,
    has_build_root,
    program_folder,
    provide,
    remove_abandoned,
)
from tare.images.cache import in_use, link_to, make_room
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
from tare.images.layered import with_files
from tare.images.oci import Configuration, changed, read_configuration, refuse_other_platform, written
from tare.images.recipes import GUEST, Recipe, beside_recipe, client_recipe, guest_recipe
from tare.images.tree import (
    CLOCK_SECONDS,
    TIME_OF_FILES,
    folder_in,
    hash_of_files,
    put_names,
    settle_times,
    text_in,
    write_in,
)
from tare.model.errors import Fault, SuiteError, TareError, TrialFailed, UsageError, did_you_mean
from tare.model.files import exists
from tare.model.image import Image, ImageWanted, Release, Source
from tare.plugins.technology import ENVIRONMENT
from tare.plugins.workload import VOLUME, Workload

_MOST_LINKS = 40  # as the kernel follows
_PACKAGE = 'give the Debian package that has it: --package P, or packages = ["…"] in a suite'
ADOPTED = "adopted"  # folder of links: from what was asked for, to the image
_OWN = "usr/lib/tare"
_WORDS = f"{_OWN}/start.words"
_BASE = Recipe(packages=tuple(sorted((*GUEST, "busybox-static"))))
# Where file systems are mounted in some stack, or tare puts something.
_PLACES = ("dev", "proc", "run", "sys", "tmp", PurePosixPath(VOLUME).parts[1], _OWN)
_ADOPTED_PACKAGE = re.compile(r"^Package: (\S+)$(?:.|\n(?!\n))*?^Version: (\S+)$", re.MULTILINE)
_HOST = LocalHost()
_UNPACK_SECONDS = 900.0
_EXPORT = "docker export $(docker create debian:12) >debian.tar && tare image --from debian.tar"


def missing_programs(
    trees: Sequence[Path], programs: Sequence[str], environment: Sequence[str] = ENVIRONMENT, hint: str = _PACKAGE
) -> list[Fault]:
    """Return a fault for each program that the file system of these trees, the upper first, does not have.

    `environment` has the PATH. `hint` is how to add one to an image.
    """
    path = dict(each.split("=", 1) for each in environment)["PATH"].split(":")
    return [_fault(trees, program, path, hint) for program in dict.fromkeys(programs) if not _has(trees, program, path)]


def _fault(trees: Sequence[Path], program: str, path: Sequence[str], otherwise: str) -> Fault:
    if " " in program:
        hint = f"it is one word with spaces: leave out its quotes, or write sh -c '{program}'"
        return Fault(f"{program}: the image has no such program", hint)
    parent = program.rpartition("/")[0]
    known = {name for folder in path for name in _names(trees, folder)}
    if "/" in program:
        known = {f"{parent}/{name}" for name in _names(trees, parent)}
    meant = did_you_mean(program, known, "")
    return Fault(f"{program}: the image has no such program", f"{meant} or {otherwise}" if meant else otherwise)


def _has(trees: Sequence[Path], program: str, path: Sequence[str]) -> bool:
    """Return whether an engine would find the program: by its path, or in the folders of PATH."""
    places = [program] if "/" in program else [f"{folder}/{program}" for folder in path]
    return any(_is_program(found) for place in places for found in _inside(trees, place)[:1])


def _is_program(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(mode & 0o111)


def _names(trees: Sequence[Path], folder: str) -> set[str]:
    found = [each for each in _inside(trees, folder) if exists(each) and each.is_dir()]
    return {each.name for folder in found for each in folder.iterdir()}


def _inside(trees: Sequence[Path], place: str) -> list[Path]:
    """Follow a path as a process in there would: links that begin with / begin at the root of the trees.

    Return what is there in the trees, the upper first; nothing for a path of too many links.
    """
    left = list(reversed(PurePosixPath("/", place).parts[1:]))
    at, links = PurePosixPath("/"), 0
    while left:
        part = left.pop()
        if part == "..":
            at = at.parent
            continue
        here = next(iter(_there(trees, at / part)), trees[0])
        if not os.path.islink(here):  # noqa: PTH114 - Path's raises for a name that is too long
            at = at / part
            continue
        links += 1
        if links > _MOST_LINKS:
            return []
        target = PurePosixPath(here.readlink())
        at = PurePosixPath("/") if target.is_absolute() else at
        left += reversed([each for each in target.parts if each != "/"])
    return _there(trees, at)


def _there(trees: Sequence[Path], at: PurePosixPath) -> list[Path]:
    return [path for tree in trees if os.path.lexists(path := tree.joinpath(*at.parts[1:]))]


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
    hash_of_files(wanted.files)  # raises now for one that does not exist
    recipe = guest_recipe(workloads, wanted.release, wanted.packages)
    if wanted.source is None:
        return with_files(built_image(say, recipe, archives), wanted.files)
    refuse_missing(skopeo.TOOLS | ({} if has_build_root() else {"cc": "gcc libc6-dev"}))
    base = built_image(say, _BASE, archives)
    images = folder_of_images()
    with building(images) as scratch:
        image = Adoption(wanted.source.again(again), base, recipe.room_bytes, scratch).image(images, say)
    return with_files(image, wanted.files, partial(name_user, image))


def client_root(
    workloads: Iterable[Workload], release: Release, say: Callable[[str], None], archives: Path | None = None
) -> Image:
    """Return the client root for these workloads, with their files; build it if it is not cached. Raises TareError."""
    workloads = tuple(workloads)
    files = tuple(sorted({file for each in workloads for file in each.client_files}))
    hash_of_files(files)
    return with_files(built_image(say, client_recipe(workloads, release), archives), files)


def missing_archives(wanted: ImageWanted, workloads: Iterable[Workload] | None) -> tuple[str, ...]:
    """Return the archives (see `built_image`) of the images for these workloads that are not cached here."""
    workloads = None if workloads is None else tuple(workloads)
    own = guest_recipe(workloads, wanted.release, wanted.packages) if wanted.source is None else _BASE
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
            hash_of_files(each.image.files)
            images[each.image] = with_files(built_image(say, beside_recipe(each.image), archives), each.image.files)
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
        return missing_programs(image.trees, programs)
    own = configuration_of(image)
    hint = f"give one of the image's: {image.origin.partition('@')[0]} is taken as it is"
    return missing_programs(image.trees, own.entry_point[:1] or programs, own.environment, hint)


def configuration_of(image: Image) -> Configuration:
    """Read how the program of an adopted image is started."""
    return _configuration(image, image.trees)


def _configuration(image: Image, trees: Sequence[Path]) -> Configuration:
    """Read that, with the accounts of these trees, of which the first one that has a file counts."""
    text = (image.root.parent / "configuration.json").read_text(encoding="utf-8")
    texts = ([text_in(tree, f"etc/{name}") for tree in trees] for name in ("passwd", "group"))
    return read_configuration(text, *(next(filter(None, found), "") for found in texts))


def name_user(image: Image, root: Path) -> None:
    """Let an adopted image, in whose tree `root` files have been put, start with the accounts that it has now."""
    words = written(_configuration(image, [root]))
    if words != (root / _WORDS).read_bytes():
        write_in(root, _WORDS, words)


@dataclass
class Adoption:
    """One image to take over, in the folder `scratch`; its `source` becomes the place that has it.

    `base` is the image of ours that has what is put beside it; `tools` is its busybox, linked statically.
    """

    source: Source
    base: Image
    room_bytes: int
    scratch: Path
    tools: Path | None = None

    def image(self, images: Path, say: Callable[[str], None]) -> Image:
        """Return the image, which is made unless it is cached. Raises TareError, with the image's name."""
        asked = self.source
        say(f"image: looking at {asked}")
        try:
            self.source, digest = skopeo.located(asked, self.scratch)
            if self.source != asked:
                say(f"image: it is {self.source}")
            return self._of_digest(digest, images, say)
        except TareError as error:
            if str(error).startswith(str(asked)):
                raise
            raise TareError(f"{asked}: {error}", error.hint) from error

    def _of_digest(self, digest: str, images: Path, say: Callable[[str], None]) -> Image:
        """Return the image of this digest, which is made unless it is cached."""
        link = images / ADOPTED / self._key(digest)
        if not (is_intact(link, say) and in_use(link.resolve())):
            say(f"image: copying {self.source}")
            home = self._made(digest, images, say)
            link_to(link, home)
        made = image_of(link.resolve().name)
        own, origin = configuration_of(made), self.source.pinned(digest)
        return replace(made, origin=origin, start=(START,), ports=own.tcp_ports, ends_by=own.stop_signal)

    def _key(self, digest: str) -> str:
        """Hash of all that the image is made of."""
        laid = (self.base.digest, _starter().read_bytes(), TIME_OF_FILES)
        parts = (digest, self.source.started, self.room_bytes, *laid)
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def _made(self, digest: str, images: Path, say: Callable[[str], None]) -> Path:
        """Copy, check and unpack the image, and make its forms; return its folder."""
        layout, root = skopeo.copied(self.source, digest, self.scratch), self.scratch / "root"
        manifest = skopeo.manifest_in(layout)
        text = skopeo.blob(layout, manifest.configuration).read_text(encoding="utf-8", errors="replace")
        refuse_other_platform(text, skopeo.this_architecture())
        text = changed(text, self.source.started)
        size = skopeo.check_layers(self.source, layout, manifest)
        make_room(images, 3 * size.content_bytes, say)
        say(f"image: unpacking {size.files} files, {size.content_bytes >> 20} MiB")
        began = time.time() - CLOCK_SECONDS
        skopeo.unpacked(self.source, layout, root)
        shutil.rmtree(layout)
        self._lay(root, text)
        settle_times(root, began, _OWN)
        (self.scratch / "configuration.json").write_text(text, encoding="utf-8")
        (self.scratch / "packages.txt").write_text(packages_of(text_in(root, "var/lib/dpkg/status")), encoding="utf-8")
        return self._forms(images)

    def _lay(self, root: Path, text: str) -> None:
        """Put tare's files beside the image's."""
        if (root / "manifest.json").exists() or (root / "oci-layout").exists():
            hint = f"write docker-archive:{self.source} or oci-archive:{self.source}"
            raise TareError("this is an archive of images, not of a root file system", hint)
        for name in _PLACES:
            folder_in(root, name)
        ours = root / _OWN
        shutil.rmtree(ours)
        shutil.copytree(self.base.root / _OWN, ours, symlinks=True)
        shutil.copy2(self.tools or self.base.root / "bin/busybox", root / TOOLS[1:])
        compile_program(_starter(), root / START[1:])
        accounts = (text_in(root, f"etc/{name}") for name in ("passwd", "group"))
        write_in(root, _WORDS, written(read_configuration(text, *accounts)))
        put_names(root)

    def _forms(self, images: Path) -> Path:
        """Make the archive and the disk, and keep them with the kernel of ours; return the image's folder."""
        skopeo.pack(self.scratch / "root", self.scratch / "root.tar")
        for name in ("kernel", "initrd"):
            shutil.copy(getattr(self.base, name), self.scratch / name)
        make_disk(Recipe(packages=_BASE.packages, room_bytes=self.room_bytes), self.scratch)
        home = images / sha256_of(self.scratch / "root.tar")
        keep_built(self.scratch, home)
        return home


def packages_of(status: str) -> str:
    """Return the packages of a Debian or a relative of it, from the text of dpkg's status: `name version` lines."""
    return "".join(f"{name} {version}\n" for name, version in _ADOPTED_PACKAGE.findall(status))


def _starter() -> Path:
    return program_folder() / "image/start.c"


def refuse_absent(wanted: Iterable[ImageWanted]) -> None:
    """Raise UsageError where the file of an image does not exist."""
    for source in (each.source for each in wanted):
        if source is not None and source.is_absent:
            hint = "give the path of an image; a path in a suite is relative to the suite's folder"
            raise UsageError(f"{source}: there is no such file", hint)


def make_build_root(source: Source, say: Callable[[str], None]) -> None:
    """Make the root in which images are built from now on; an earlier one goes. Raises TareError."""
    if source.transport:
        refuse_missing(skopeo.TOOLS, f"; or without them: {_EXPORT}")
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
        place, digest = skopeo.located(source, scratch)
        layout = skopeo.copied(place, digest, scratch)
        skopeo.check_layers(place, layout, skopeo.manifest_in(layout))
        skopeo.unpacked(place, layout, root)
        return root
    root.mkdir()
    if source.is_absent:
        raise TareError(f"{source}: there is no such file", "give the path of a directory or a tar file")
    copy = ("cp", "-a", f"{source}/.", str(root))
    unpack = ("tar", "-C", str(root), "--numeric-owner", "-xf", str(source))
    _HOST.run(*(copy if Path(source.name).is_dir() else unpack), timeout=_UNPACK_SECONDS)
    return root

"""Foreign images: user-supplied images, which tare resolves, checks, converts and completes with its files.

tare puts static programs into /usr/lib/tare: `init`, which every instance runs, and programs that start commands.
Machines boot the kernel and the modules of an image that tare has built. So a foreign image needs no shell, no C
library and no kernel. It is cached under the hash of its content, like all images.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath

from tare.hosts.exec import ENTRYPOINT, TOOLS
from tare.hosts.facts import parse_os_release_fields
from tare.hosts.local import LocalHost, sha256_of
from tare.images import skopeo
from tare.images.build_environment import (
    PACKAGES,
    build_root,
    c_compiler,
    create_build_folder,
    has_build_root,
    install_packages,
    program_folder,
    remove_abandoned_builds,
)
from tare.images.cache import create_link, hold_in_cache, make_room
from tare.images.image import (
    compile_program,
    ensure_image,
    find_cached_image,
    is_intact,
    load_image,
    make_disk,
    make_images_folder,
    require_tools,
    store_built,
)
from tare.images.kernel_modules import CARRIED_MODULES, DRIVERS, copy_drivers
from tare.images.layered import with_files
from tare.images.oci import (
    Configuration,
    override_configuration,
    read_configuration,
    refuse_other_platform,
    serialize_configuration,
)
from tare.images.recipes import GUEST_PACKAGES, Recipe, client_recipe, guest_recipe, sidecar_recipe
from tare.images.tree import (
    CLOCK_SECONDS,
    TIME_OF_FILES,
    ensure_folder,
    hash_files,
    normalize_times,
    put_name_files,
    read_text_in,
    resolve_inside,
    write_in,
)
from tare.model.architecture import Architecture, this_architecture
from tare.model.errors import Fault, SuiteError, TareError, TrialFailed, UsageError, did_you_mean
from tare.model.files import exists
from tare.model.image import Image, ImageReference, ImageSpec, Release
from tare.plugins.instance import VOLUME
from tare.plugins.technology import ENVIRONMENT
from tare.plugins.workload import Workload

_PACKAGE_HINT = 'give the Debian package that has it: --package P, or packages = ["…"] in a suite'
ADOPTED = "adopted"  # folder of symbolic links, named by a hash of digest and settings, to the converted images
_TARE_FOLDER = "usr/lib/tare"
_ENTRYPOINT_FILE = f"{_TARE_FOLDER}/entrypoint.conf"
_BASE = Recipe(packages=tuple(sorted((*GUEST_PACKAGES, "busybox-static"))))
# Some stack mounts a file system on each of these folders, or tare puts files there.
_REQUIRED_FOLDERS = ("dev", "proc", "run", "sys", "tmp", PurePosixPath(VOLUME).parts[1], _TARE_FOLDER)
_DPKG_PACKAGE = re.compile(r"^Package: (\S+)$(?:.|\n(?!\n))*?^Version: (\S+)$", re.MULTILINE)
_HOST = LocalHost()
_UNPACK_SECONDS = 900.0
_EXPORT = "docker export $(docker create debian:12) >debian.tar && tare image --from debian.tar"


def find_missing_in_trees(
    trees: Sequence[Path], programs: Sequence[str], environment: Sequence[str] = ENVIRONMENT, hint: str = _PACKAGE_HINT
) -> list[Fault]:
    """Return a fault for each program that is missing in a file system of these trees, the upper first.

    `environment` has the PATH. `hint` tells how to add a program to the image.
    """
    path = dict(variable.split("=", 1) for variable in environment)["PATH"].split(":")
    return [
        _missing_program_fault(trees, program, path, hint)
        for program in dict.fromkeys(programs)
        if not _has_program(trees, program, path)
    ]


def _missing_program_fault(trees: Sequence[Path], program: str, path: Sequence[str], otherwise: str) -> Fault:
    if " " in program:
        hint = f"it is one word with spaces: leave out its quotes, or write sh -c '{program}'"
        return Fault(f"{program}: the image has no such program", hint)
    parent = program.rpartition("/")[0]
    known = {name for folder in path for name in _list_names(trees, folder)}
    if "/" in program:
        known = {f"{parent}/{name}" for name in _list_names(trees, parent)}
    meant = did_you_mean(program, known, "")
    return Fault(f"{program}: the image has no such program", f"{meant} or {otherwise}" if meant else otherwise)


def _has_program(trees: Sequence[Path], program: str, path: Sequence[str]) -> bool:
    """Return whether an engine would find the program: by its path, or in the folders of PATH."""
    candidates = [program] if "/" in program else [f"{folder}/{program}" for folder in path]
    return any(_is_program(file) for candidate in candidates for file in resolve_inside(trees, candidate)[:1])


def _is_program(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(mode & 0o111)


def _list_names(trees: Sequence[Path], folder: str) -> set[str]:
    folders = [path for path in resolve_inside(trees, folder) if exists(path) and path.is_dir()]
    return {entry.name for found in folders for entry in found.iterdir()}


def resolve_image(
    spec: ImageSpec,
    workloads: Iterable[Workload] | None,
    say: Callable[[str], None],
    earlier_origin: str = "",
    archives: Path | None = None,
) -> Image:
    """Return the image of a suite for these workloads; build it if it is not cached.

    `earlier_origin` is the origin that an earlier run recorded, "" for none: a registry's image is then taken by the
    recorded digest. For `archives`, see `ensure_image`. Raises TareError, and UsageError if a file of the image or of a
    sidecar service's image does not exist.
    """
    workloads = None if workloads is None else tuple(workloads)
    sidecar_specs = [sidecar.image for workload in workloads or () for sidecar in workload.sidecars]
    require_source_files([spec, *sidecar_specs])
    remove_abandoned_builds()
    hash_files(spec.files, spec.mounts)  # raises for a missing file before the build, which takes a minute
    recipe = replace(guest_recipe(workloads, spec.release, spec.packages), architecture=spec.architecture)
    if spec.source is None:
        return with_files(ensure_image(say, recipe, archives), spec.files)
    require_tools(skopeo.TOOLS | ({} if has_build_root() else dict([c_compiler(spec.architecture)])))
    base = ensure_image(say, replace(_BASE, architecture=spec.architecture), archives)
    images = make_images_folder()
    with create_build_folder(images) as scratch:
        image = ForeignImageBuild(spec.source.with_origin(earlier_origin), base, recipe.room_bytes, scratch).build(
            images, say
        )
    return with_files(image, spec.files, partial(update_accounts, image), spec.mounts)


def resolve_client_root(
    workloads: Iterable[Workload],
    release: Release,
    say: Callable[[str], None],
    archives: Path | None = None,
    architecture: Architecture | None = None,
) -> Image:
    """Return the client root for these workloads, with their files; build it if it is not cached. Raises TareError."""
    workloads = tuple(workloads)
    files = tuple(sorted({file for workload in workloads for file in workload.client_files}))
    hash_files(files)
    recipe = replace(client_recipe(workloads, release), architecture=architecture or this_architecture())
    return with_files(ensure_image(say, recipe, archives), files)


def find_missing_archives(
    spec: ImageSpec, workloads: Iterable[Workload] | None, client: Architecture
) -> tuple[str, ...]:
    """Return the names of the archives (see `ensure_image`) of the images for these workloads that are not cached.

    `client` is the architecture of the client's machine.
    """
    workloads = None if workloads is None else tuple(workloads)
    guest = guest_recipe(workloads, spec.release, spec.packages) if spec.source is None else _BASE
    sidecar_specs = [sidecar.image for workload in workloads or () for sidecar in workload.sidecars]
    sidecars = [sidecar_recipe(sidecar) if sidecar.source is None else _BASE for sidecar in sidecar_specs]
    recipes = [replace(each, architecture=spec.architecture) for each in (guest, *sidecars)]
    recipes.append(replace(client_recipe(workloads or (), spec.release), architecture=client))
    return tuple(dict.fromkeys(recipe.archive_name for recipe in recipes if find_cached_image(recipe) is None))


def resolve_sidecar_images(
    workloads: Iterable[Workload],
    say: Callable[[str], None],
    earlier_origins: Mapping[str, str],
    archives: Path | None = None,
    architecture: Architecture | None = None,
) -> dict[ImageSpec, Image]:
    """Return the images of these workloads' sidecar services; build those that are not cached.

    `earlier_origins` maps names of services to the origins that an earlier run recorded; see `resolve_image`. Raises
    TareError, and SuiteError if an image lacks its service's program.
    """
    images: dict[ImageSpec, Image] = {}
    faults: list[Fault] = []
    architecture = architecture or this_architecture()
    for sidecar in (sidecar for workload in workloads for sidecar in workload.sidecars):
        spec = sidecar.image
        if spec not in images and spec.source is None:
            hash_files(spec.files)
            recipe = replace(sidecar_recipe(spec), architecture=architecture)
            images[spec] = with_files(ensure_image(say, recipe, archives), spec.files)
        elif spec not in images:
            origin = earlier_origins.get(sidecar.name, "")
            images[spec] = resolve_image(replace(spec, architecture=architecture), (), say, origin, archives)
        missing = find_missing_programs(images[spec], sidecar.program)
        faults += [Fault(f"{sidecar.name}: {fault.message}", fault.hint) for fault in missing]
    if faults:
        raise SuiteError(faults)
    return images


def find_missing_programs(image: Image, programs: Sequence[str]) -> list[Fault]:
    """Return a fault for each program that the image lacks; for a foreign image, its entry point's program counts."""
    if not (image.start_command and programs):
        return find_missing_in_trees(image.layer_roots, programs)
    configuration = load_configuration(image)
    hint = f"name a program of the image: {image.origin.partition('@')[0]} is used unchanged"
    first = configuration.entry_point[:1] or programs  # an entry point gets the programs as its arguments
    return find_missing_in_trees(image.layer_roots, first, configuration.environment, hint)


def load_configuration(image: Image) -> Configuration:
    """Return the configuration that starts the program of a foreign image; raises TareError."""
    return _load_configuration(image, image.layer_roots)


def _load_configuration(image: Image, trees: Sequence[Path]) -> Configuration:
    """Return the configuration, with the accounts of the first of these trees that has each file."""
    text = (image.root.parent / "configuration.json").read_text(encoding="utf-8")
    texts = ([read_text_in(tree, f"etc/{name}") for tree in trees] for name in ("passwd", "group"))
    return read_configuration(text, *(next(filter(None, in_trees), "") for in_trees in texts))


def update_accounts(image: Image, root: Path) -> None:
    """Update the start file of a foreign image after files have been put into its tree `root`.

    The files may have changed the image's /etc/passwd and /etc/group, which determine the user.
    """
    words = serialize_configuration(_load_configuration(image, [root]))
    if words != (root / _ENTRYPOINT_FILE).read_bytes():
        write_in(root, _ENTRYPOINT_FILE, words)


@dataclass
class ForeignImageBuild:
    """Conversion of one foreign image in the folder `scratch`; `source` becomes the first store that has the image.

    `base` is the image built by tare that provides kernel, programs and busybox. `busybox` overrides the last.
    """

    source: ImageReference
    base: Image
    room_bytes: int
    scratch: Path
    busybox: Path | None = None

    def build(self, images: Path, say: Callable[[str], None]) -> Image:
        """Return the image; convert it unless it is cached. Raises TareError, with the image's name."""
        requested = self.source
        say(f"image: looking at {requested}")
        try:
            self.source, digest = skopeo.find_image(requested, self.scratch, self.base.architecture)
            if self.source != requested:
                say(f"image: it is {self.source}")
            return self._ensure_converted(digest, images, say)
        except TareError as error:
            if str(error).startswith(str(requested)):
                raise
            raise TareError(f"{requested}: {error}", error.hint) from error

    def _ensure_converted(self, digest: str, images: Path, say: Callable[[str], None]) -> Image:
        link = images / ADOPTED / self._cache_key(digest)
        if not (is_intact(link, say) and hold_in_cache(link.resolve())):
            say(f"image: copying {self.source}")
            home = self._convert(digest, images, say)
            create_link(link, home)
        image = load_image(link.resolve().name)
        start, origin = load_configuration(image), self.source.name_with_digest(digest)
        ports, stop_signal = start.tcp_ports, start.stop_signal
        return replace(image, origin=origin, start_command=(ENTRYPOINT,), ports=ports, stop_signal=stop_signal)

    def _cache_key(self, digest: str) -> str:
        """Return the hash of all inputs of the conversion."""
        added = (self.base.digest, _entrypoint_source().read_bytes(), TIME_OF_FILES, DRIVERS)
        parts = (digest, self.source.started, self.room_bytes, *added)
        return hashlib.sha256(repr(parts).encode()).hexdigest()

    def _convert(self, digest: str, images: Path, say: Callable[[str], None]) -> Path:
        """Copy, check and unpack the image, then make its forms; return its folder."""
        layout, root = (
            skopeo.copy_to_layout(self.source, digest, self.scratch, self.base.architecture),
            self.scratch / "root",
        )
        manifest = skopeo.read_layout_manifest(layout)
        text = skopeo.blob_path(layout, manifest.configuration).read_text(encoding="utf-8", errors="replace")
        # An image without an index states its platform only here.
        refuse_other_platform(text, self.base.architecture)
        text = override_configuration(text, self.source.started)
        size = skopeo.check_layers(self.source, layout, manifest)
        make_room(images, 3 * size.content_bytes, say)  # directory, archive and disk
        say(f"image: unpacking {size.files} files, {size.content_bytes >> 20} MiB")
        began = time.time() - CLOCK_SECONDS
        skopeo.unpack_layout(self.source, layout, root)
        shutil.rmtree(layout)
        self._add_tare_files(root, text)
        normalize_times(root, began, _TARE_FOLDER)  # so that equal content gives an equal hash
        (self.scratch / "configuration.json").write_text(text, encoding="utf-8")
        (self.scratch / "packages.txt").write_text(
            parse_packages(read_text_in(root, "var/lib/dpkg/status")), encoding="utf-8"
        )
        return self._make_forms(images)

    def _add_tare_files(self, root: Path, text: str) -> None:
        """Put tare's files into the image's tree; raises TareError for an archive of images."""
        if (root / "manifest.json").exists() or (root / "oci-layout").exists():
            hint = f"write docker-archive:{self.source} or oci-archive:{self.source}"
            raise TareError("this is an archive of images, not of a root file system", hint)
        for name in _REQUIRED_FOLDERS:
            ensure_folder(root, name)
        target = root / _TARE_FOLDER
        shutil.rmtree(target)  # the image may have other files there
        shutil.copytree(self.base.root / _TARE_FOLDER, target, symlinks=True)
        copy_drivers(self.base.root, root / CARRIED_MODULES)
        shutil.copy2(self.busybox or self.base.root / "bin/busybox", root / TOOLS[1:])
        compile_program(_entrypoint_source(), root / ENTRYPOINT[1:], self.base.architecture)
        accounts = (read_text_in(root, f"etc/{name}") for name in ("passwd", "group"))
        write_in(root, _ENTRYPOINT_FILE, serialize_configuration(read_configuration(text, *accounts)))
        put_name_files(root)

    def _make_forms(self, images: Path) -> Path:
        """Make archive and disk, and store them with the kernel of `base`; return the image's folder."""
        skopeo.pack_folder(self.scratch / "root", self.scratch / "root.tar")
        for name in ("kernel", "initrd"):
            shutil.copy(getattr(self.base, name), self.scratch / name)
        make_disk(Recipe(packages=_BASE.packages, room_bytes=self.room_bytes), self.scratch)
        home = images / sha256_of(self.scratch / "root.tar")
        store_built(self.scratch, home)
        return home


def parse_packages(status: str) -> str:
    """Return lines of `name version` from the text of dpkg's status file; "" for other package managers."""
    return "".join(f"{name} {version}\n" for name, version in _DPKG_PACKAGE.findall(status))


def _entrypoint_source() -> Path:
    return program_folder() / "image/entrypoint.c"


def require_source_files(specs: Iterable[ImageSpec]) -> None:
    """Raise UsageError if the file of an image does not exist."""
    for source in (each.source for each in specs):
        if source is not None and source.is_absent:
            hint = "give the path of an image; a path in a suite is relative to the suite's folder"
            raise UsageError(f"{source}: there is no such file", hint)


def make_build_root(source: ImageReference, say: Callable[[str], None]) -> None:
    """Make the build root from a Debian image, in place of an earlier one. Raises TareError."""
    if source.transport:
        require_tools(skopeo.TOOLS, f"; or without them: {_EXPORT}")
    with create_build_folder(make_images_folder()) as scratch:
        say(f"image: copying {source}")
        root = _unpack(source, scratch)
        # Not /etc/os-release, which is a symbolic link: `read_text_in` follows no links.
        if parse_os_release_fields(read_text_in(root, "usr/lib/os-release")).get("ID") != "debian":
            raise TareError(f"{source}: this is no image of Debian", "tare image --from docker://debian:12")
        say("image: installing the build tools into it")
        try:
            install_packages(PACKAGES, root)
        except TrialFailed as error:
            what = f"{source}: cannot install the build tools: {error}"
            raise TareError(what, "check that this machine reaches the mirror in the image's /etc/apt") from error
        if build_root().exists():
            shutil.rmtree(build_root())
        root.rename(build_root())


def _unpack(source: ImageReference, scratch: Path) -> Path:
    """Unpack an image of an engine or a registry, or copy a root file system; return the folder."""
    root = scratch / "root"
    if source.transport:
        found_source, digest = skopeo.find_image(source, scratch)
        layout = skopeo.copy_to_layout(found_source, digest, scratch)
        skopeo.check_layers(found_source, layout, skopeo.read_layout_manifest(layout))
        skopeo.unpack_layout(found_source, layout, root)
        return root
    root.mkdir()
    if source.is_absent:
        raise TareError(f"{source}: there is no such file", "give the path of a directory or a tar file")
    copy = ("cp", "-a", f"{source}/.", str(root))
    unpack = ("tar", "-C", str(root), "--numeric-owner", "-xf", str(source))
    _HOST.run(*(copy if Path(source.name).is_dir() else unpack), timeout=_UNPACK_SECONDS)
    return root

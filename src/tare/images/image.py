"""Images: guest file systems, each built once from a recipe. All stacks of a suite run the same bytes.

mmdebstrap builds an image from Debian packages, tare's programs and tare's server, which are linked statically. The
image is cached under the hash of its content in three forms: a directory, a tar archive that container engines import,
and an ext4 disk with the kernel that boots it.
"""

from __future__ import annotations

import math
import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from tare.hosts.distributions import combine_fixes, localize_problems
from tare.hosts.facts import architecture_of
from tare.hosts.filesystems import drop_caches
from tare.hosts.host import Host
from tare.hosts.ledger import create_state_folder, state_folder
from tare.hosts.local import LocalHost, sha256_of
from tare.hosts.mounts import noexec_problem
from tare.hosts.process import DIE_WITH_PARENT_PREFIX
from tare.images.build_environment import (
    NO_SPACE_HINT,
    build_host,
    c_compiler,
    create_build_folder,
    find_missing_build_tools,
    has_build_root,
    install_packages,
)
from tare.images.cache import create_link, discard, find_modified, hold_in_cache, make_room, write_seal
from tare.images.emulation import emulate_programs, emulation_problems
from tare.images.micro import linux_build
from tare.images.recipes import DROPPED, MAKE_DISK, MAKE_INITRD, Recipe, guest_recipe, program_sources
from tare.images.skopeo import ensure_archive
from tare.images.tree import TIME_OF_FILES, put_name_files
from tare.model.architecture import Architecture, read_elf_architecture, this_architecture
from tare.model.errors import TareError, format_os_error
from tare.model.image import Image
from tare.model.trial import Problem, combined_fix
from tare.plugins.technology import INIT

_HOST = LocalHost()
_BUILD_SECONDS = 900.0
_EMULATED_BUILD_SECONDS = 4 * _BUILD_SECONDS  # qemu-user unpacks and configures the packages
_REMOTE_IMAGES = Path("/var/lib/tare/images")  # on another host
_DISK = "root.ext4"
_DYNAMIC_PROGRAMS = ("krun_boot",)  # they load a library of the machine under test
BASE = "base"  # symbolic link in the folder of an image with a layer, to the image below the layer
_GIB, _SMALL = 1 << 30, 16 << 20
_ARCHIVE_SUFFIX, _PACKAGES_SUFFIX = ".tar.gz", ".txt"  # of an archive for other machines, and of its list of packages
_FROM_HINT = "build it in an image of Debian: tare image --from docker://debian:12"
_NO_SPACE_HINT = "remove files there, or let TMPDIR name a folder on a larger disk"


def find_cached_image(recipe: Recipe | None = None) -> Image | None:
    """Return the cached image of a recipe, None if there is none; no other tare evicts it while this process runs."""
    return _open_cached(_link_path(recipe or guest_recipe()))


def _open_cached(link: Path) -> Image | None:
    home = link.resolve()
    return load_image(home.name) if os.access(link, os.R_OK) and hold_in_cache(home) else None  # only root may read it


def ensure_image(say: Callable[[str], None], recipe: Recipe | None = None, archives: Path | None = None) -> Image:
    """Return the image of a recipe; build it if it is not cached, which takes about a minute. Raises TareError.

    Before a build, images that were not used lately are evicted. The folder `archives` may have the image from another
    machine, which is then unpacked instead; otherwise the image is stored there for other machines.
    """
    recipe = recipe or guest_recipe()
    image = _ensure_built(say, recipe, archives)
    if archives is not None:
        _store_archive(image, archives, recipe)
    return image


def _ensure_built(say: Callable[[str], None], recipe: Recipe, archives: Path | None) -> Image:
    link = _link_path(recipe)
    if is_intact(link, say) and (cached := _open_cached(link)) is not None:
        return cached
    make_room(state_folder() / "images", recipe.build_bytes, say)
    archive = _find_archive(archives, recipe)
    # All problems at once, so that the user installs packages once.
    _raise_problems([*([] if archive else build_problems(recipe)), *_unpack_problems(recipe)])
    images = make_images_folder()
    with create_build_folder(images) as scratch:
        if archive:
            say(f"image: taking it from {archive}")
            _unpack_archive(archive, scratch)
        else:
            _build(recipe, scratch, say)
        say("image: making the directory and the disk" if recipe.kernel else "image: making the directory")
        _convert(recipe, scratch)
        home = images / sha256_of(scratch / "root.tar")
        store_built(scratch, home)
    create_link(link, home)
    return load_image(home.name)


def make_images_folder() -> Path:
    """Create the folder of this machine's images if it is missing; return its path. Raises TareError."""
    images = create_state_folder() / "images"
    images.mkdir(mode=0o700, exist_ok=True)
    return images


def _find_archive(archives: Path | None, recipe: Recipe) -> Path | None:
    """Return the path of another machine's archive of an image; None if there is none."""
    path = archives / f"{recipe.archive_name}{_ARCHIVE_SUFFIX}" if archives else None
    return path if path and path.exists() else None


def _build(recipe: Recipe, scratch: Path, say: Callable[[str], None]) -> None:
    say("image: compiling the programs")
    _compile(scratch / "overlay", recipe.architecture)
    put_name_files(scratch / "overlay")  # mmdebstrap would copy those of the build machine
    if recipe.server:
        shutil.copy(linux_build(recipe.architecture).ensure_built(say) / "micro", scratch / "overlay/usr/lib/tare")
    say(f"image: installing Debian {recipe.release}")
    _bootstrap(recipe, scratch)


def _unpack_archive(archive: Path, scratch: Path) -> None:
    """Unpack another machine's `root.tar`, and its list of packages."""
    script = 'gzip -dc -- "$1" > "$2"'
    _HOST.run("sh", "-c", script, "sh", str(archive), str(scratch / "root.tar"), timeout=_BUILD_SECONDS)
    shutil.copyfile(
        archive.with_name(archive.name.removesuffix(_ARCHIVE_SUFFIX) + _PACKAGES_SUFFIX), scratch / "packages.txt"
    )


def _store_archive(image: Image, archives: Path, recipe: Recipe) -> None:
    """Store an image's archive for other machines, unless it is there; raises TareError if it cannot be written."""
    packed, listed = (archives / f"{recipe.archive_name}{ending}" for ending in (_ARCHIVE_SUFFIX, _PACKAGES_SUFFIX))
    if packed.exists():
        return
    try:
        archives.mkdir(parents=True, exist_ok=True)
        listed.write_text(image.packages, encoding="utf-8")
        made = shutil.copyfile(_compress(image.archive), archives / f"new-{packed.name}")
        made.rename(packed)  # atomic: another machine may look at the same time
    except OSError as error:
        raise TareError(f"{archives}: cannot be written: {format_os_error(error)}", "choose another folder") from error


def is_intact(link: Path, say: Callable[[str], None]) -> bool:
    """Return whether a link leads to an unmodified image; report and remove a modified image.

    Raises TareError if a process uses the modified image.
    """
    if not link.exists():
        return False
    if modified := find_modified(link.resolve()):
        say(f"image: {modified} was modified after the build: building the image again")
        discard(link.resolve())
    return not modified


def store_built(scratch: Path, home: Path, drops_caches: bool = True) -> None:
    """Move a built image from `scratch` to `home`, or only its disk if `home` has the same image with a smaller disk.

    If `drops_caches`, the page cache is dropped after the move.
    """
    if home.exists() and find_modified(home):
        discard(home)
    if not home.exists():
        scratch.rename(home)
        scratch.mkdir()  # `create_build_folder` removes this folder
        if drops_caches:
            drop_caches([_HOST])
    elif _disk_bytes(scratch) > _disk_bytes(home):
        (scratch / _DISK).rename(home / _DISK)
    else:
        return
    write_seal(home)


def _link_path(recipe: Recipe) -> Path:
    """Return the path of the symbolic link to a recipe's image; images without a kernel have a separate folder."""
    return state_folder() / "images" / ("recipes" if recipe.kernel else "roots") / recipe.key


def load_image(digest: str) -> Image:
    """Return the cached image with this hash of its content."""
    home = state_folder() / "images" / digest
    if (home / BASE).is_symlink():
        return with_layer(load_image((home / BASE).resolve().name), home)
    return Image(
        digest=digest,
        root=home / "root",
        archive=home / "root.tar",
        disk=home / _DISK,
        kernel=home / "kernel",
        initrd=home / "initrd",
        packages=(home / "packages.txt").read_text(encoding="utf-8"),
        disk_bytes=_disk_bytes(home),
        architecture=read_elf_architecture(home / "root" / INIT[1:]) or this_architecture(),
    )


def with_layer(base: Image, home: Path) -> Image:
    """Return `base` with the layer in `home` over it (layered.py). Its archive and disk may not exist yet."""
    more_bytes = (home / "layer.tar").stat().st_size  # up to 16 MiB fit on any disk
    room_bytes = math.ceil(1.1 * more_bytes / _GIB) * _GIB if base.disk_bytes and more_bytes > _SMALL else 0
    archive, disk, layer = home / "root.tar", home / _DISK, home / "layer"
    disk_bytes = base.disk_bytes + room_bytes
    return replace(base, digest=home.name, archive=archive, disk=disk, disk_bytes=disk_bytes, layer=layer)


def _disk_bytes(home: Path) -> int:
    """Return the bytes of an image's disk; 0 without one."""
    return (home / _DISK).stat().st_size if (home / _DISK).exists() else 0


def find_image_on(host: Host) -> Image | None:
    """Return the newest cached image of a host; None if there is none."""
    recipes = state_folder() / "images" / "recipes"
    links = [link for link in recipes.glob("*") if link.exists()]
    architecture = architecture_of(host)
    for link in sorted(links, key=lambda each: each.lstat().st_mtime_ns, reverse=True):
        image = load_image(link.resolve().name)
        if image.architecture is not architecture:
            continue
        if isinstance(host, LocalHost):
            return image
        target = with_remote_paths(image)
        if not host.run("test", "-e", str(target.root), timeout=30, check=False).exit_code:
            return target
    return None


def copy_to_host(host: Host, image: Image) -> Image:
    """Copy an image to another host, unless the host has it, and return it with its paths there; about 120 MB.

    The host keeps the image under its hash.
    """
    target = with_remote_paths(image)
    if host.run("test", "-e", str(target.root), timeout=30, check=False).exit_code:
        ours, home = load_image(image.digest), target.root.parent  # `image` may have the paths of an outer machine
        ensure_archive(_HOST, ours)
        host.run("mkdir", "-p", str(home), timeout=30)
        # tar and the engines also read a compressed archive, which saves minutes over SSH to an emulated machine.
        host.put(_compress(ours.archive), PurePosixPath(target.archive))
        for name in ("kernel", "initrd"):
            if getattr(ours, name).exists():
                host.put(getattr(ours, name), PurePosixPath(getattr(target, name)))
        # Renamed when complete, as `test -e` above takes the folder for a complete image.
        unpack = 'tar -C "$1.new" --numeric-owner --xattrs --xattrs-include="*" -xf "$2"'
        script = f'mkdir "$1.new" && {unpack} && mv "$1.new" "$1"'
        host.run("sh", "-c", f'rm -rf "$1.new"; {script}', "sh", str(target.root), str(target.archive), timeout=900)
        drop_caches([host])
    return target


def _compress(archive: Path) -> Path:
    """Compress an archive unless that is done; return the path of the compressed file."""
    packed = archive.with_name(f"{archive.name}.gz")
    if not packed.exists():
        script = 'gzip -1 -c "$1" > "$2.new" && mv "$2.new" "$2"'
        _HOST.run("sh", "-c", script, "sh", str(archive), str(packed), timeout=_BUILD_SECONDS)
    return packed


def with_remote_paths(image: Image) -> Image:
    """Return an image with its paths on another host to which it was copied."""
    home = _REMOTE_IMAGES / image.digest
    names = ("root", "archive", "disk", "kernel", "initrd")
    return replace(image, layer=None, **{name: home / getattr(image, name).name for name in names})


def require_tools(tools: Mapping[str, str], alternative: str = "") -> None:
    """Raise TareError if this machine lacks tools to convert a foreign image.

    `tools` maps programs to their Debian packages. The hint ends with `alternative`.
    """
    if missing := localize_problems(_HOST, find_missing_build_tools(tools)):
        what = "; ".join(problem.what for problem in missing)
        raise TareError(f"cannot take over an image: {what}", f"{combine_fixes(missing)}{alternative}")


def build_problems(recipe: Recipe | None = None) -> list[Problem]:
    """Return a problem for each tool that this machine lacks to build an image, and for folders mounted with noexec.

    A build root has the tools, except for what starts programs of another architecture.
    """
    mounts = _HOST.read("/proc/self/mountinfo")
    folders = {"TARE_HOME": str(state_folder()), "TMPDIR": tempfile.gettempdir()}  # builds start programs in both
    problems = [problem for name, each in folders.items() if (problem := noexec_problem(mounts, each, name))]
    recipe = recipe or guest_recipe()
    problems += emulation_problems(recipe.architecture)
    if has_build_root():
        return problems
    tools = dict([("mmdebstrap", "mmdebstrap"), c_compiler(recipe.architecture)])
    missing = find_missing_build_tools(tools)
    return [*problems, *missing, *(linux_build(recipe.architecture).problems() if recipe.server else ())]


def build_fix(missing: Iterable[Problem]) -> str:
    """Return the fix of the result of `build_problems`: packages to install, or a build root from a Debian image."""
    missing = tuple(missing)
    problems = localize_problems(_HOST, missing)
    command = combined_fix(problems)
    if any("mmdebstrap" in problem.packages for problem in missing):  # Fedora and others have no mmdebstrap
        return f"{command}; or {_FROM_HINT}" if command else _FROM_HINT
    return combine_fixes(problems)


def _unpack_problems(recipe: Recipe) -> list[Problem]:
    missing = find_missing_build_tools({"mke2fs": "e2fsprogs"} if recipe.kernel else {})
    if os.geteuid():
        missing.append(Problem("only root can build the image", "run tare as root"))
    return missing or _disk_space_problems(recipe)


def _disk_space_problems(recipe: Recipe) -> list[Problem]:
    """Return problems if disk space is too small for the image, or for mmdebstrap's root in the temporary folder."""
    need = recipe.build_bytes
    rooms = [(create_state_folder(), need, NO_SPACE_HINT), (Path(tempfile.gettempdir()), need // 3, _NO_SPACE_HINT)]
    return [
        Problem(f"{folder}: {free >> 20} MiB of disk are free, and it needs {needed >> 20}", hint)
        for folder, needed, hint in rooms
        if (free := shutil.disk_usage(folder).free) < needed
    ]


def _raise_problems(missing: list[Problem]) -> None:
    if missing:
        what = "; ".join(dict.fromkeys(problem.what for problem in missing))
        raise TareError(f"cannot build the image: {what}", build_fix(missing))


def _compile(overlay: Path, architecture: Architecture) -> None:
    """Compile tare's C programs into `overlay`/usr/lib/tare."""
    target = overlay / "usr/lib/tare"
    target.mkdir(parents=True)
    for source in program_sources():
        if source.suffix == ".c":
            compile_program(source, target / source.stem, architecture)


def compile_program(source: Path, binary: Path, architecture: Architecture | None = None) -> None:
    """Compile a C program of tare's, by default for this machine; raises TrialFailed.

    It is linked statically, unless it loads a library of the machine that runs it.
    """
    compiler, packages = c_compiler(architecture or this_architecture())
    install_packages(tuple(packages.split()))
    linked = () if source.stem in _DYNAMIC_PROGRAMS else ("-static",)
    flags = ("-std=gnu11", "-O2", *linked, "-Wall", "-Wextra", "-Wpedantic", "-Werror")
    build_host().run(compiler, *flags, "-o", str(binary), str(source), "-lm", timeout=120)


def _bootstrap(recipe: Recipe, scratch: Path) -> None:
    """Build `root.tar` with tare's programs, and `packages.txt` with the versions of its packages."""
    query = "dpkg-query --admindir=\"$1/var/lib/dpkg\" -W -f '${Package} ${Version}\\n'"
    modules = ",".join(recipe.modules)
    boot = f'chroot "$1" sh -c {shlex.quote(MAKE_INITRD)} sh {modules}'
    dropped = " ".join(f'"$1"/{pattern}' for pattern in DROPPED)
    hooks = (
        f"sync-in {scratch / 'overlay'} /",
        *((boot,) if recipe.kernel else ()),
        f"{query} > {scratch / 'packages.txt'}",
        f"rm -rf {dropped}",
    )
    packages = map(recipe.architecture.localize, filter(None, (*recipe.packages, recipe.kernel)))
    # mmdebstrap would look for a registration of qemu-user with another name than ours.
    kind = (f"--architectures={recipe.architecture.debian}", "--skip=check/qemu")
    include = f"--include={','.join(packages)}"
    options = ("--quiet", "--variant=minbase", *kind, include, *(f"--customize-hook={hook}" for hook in hooks))
    # Not in the state folder: apt downloads as the user `_apt`, who may not enter it.
    downloads = create_build_folder(Path(tempfile.gettempdir()))
    with downloads as download_folder, emulate_programs(recipe.architecture):
        command = (
            *DIE_WITH_PARENT_PREFIX,
            "env",
            f"SOURCE_DATE_EPOCH={TIME_OF_FILES}",
            f"TMPDIR={download_folder}",
            "mmdebstrap",
            *options,
        )
        emulated = recipe.architecture is not this_architecture()
        timeout = _EMULATED_BUILD_SECONDS if emulated else _BUILD_SECONDS
        build_host().run(*command, recipe.release, str(scratch / "root.tar"), timeout=timeout)
    shutil.rmtree(scratch / "overlay")


def _convert(recipe: Recipe, scratch: Path) -> None:
    root = scratch / "root"
    root.mkdir()
    build_host().run(
        "tar", "-C", str(root), "--numeric-owner", "-xf", str(scratch / "root.tar"), timeout=_BUILD_SECONDS
    )
    if not recipe.kernel:
        return
    shutil.copy(next((root / "boot").glob("vmlinuz-*")), scratch / "kernel")
    shutil.copy(root / "boot/initrd", scratch / "initrd")
    make_disk(recipe, scratch)


def make_disk(recipe: Recipe, scratch: Path) -> None:
    """Make an ext4 disk with the files of `scratch`/root and the recipe's free space. This needs no mount."""
    root = scratch / "root"
    installed = build_host().run("du", "-s", "--block-size=1", str(root), timeout=_BUILD_SECONDS).text.split()[0]
    size_bytes = recipe.disk_bytes(int(installed))
    build_host().run(*MAKE_DISK, str(root), str(scratch / _DISK), f"{size_bytes >> 20}M", timeout=_BUILD_SECONDS)

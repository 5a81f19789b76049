"""Copies of foreign images in OCI layouts, made by skopeo from registries, engines, archives and plain roots.

tare checks the declared size of an image before it copies the image, and the content before it unpacks the image.
"""

from __future__ import annotations

import bz2
import gzip
import hashlib
import json
import lzma
import os
import re
import shlex
import shutil
import stat
import zlib
from collections.abc import Callable
from io import BufferedIOBase, BufferedReader
from pathlib import Path

from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.hosts.process import DIE_WITH_PARENT_PREFIX
from tare.images.build_environment import build_host
from tare.images.layers import UnpackedSize, check_unpacked_size, too_large_error
from tare.images.oci import Manifest, choose_platform, read_manifest
from tare.model.architecture import Architecture, this_architecture
from tare.model.errors import TareError, UsageError
from tare.model.files import exists, is_file
from tare.model.image import Image, ImageReference
from tare.model.trial import Output

_HOST = LocalHost()
_INSPECT_SECONDS = 300.0
TOOLS = {"skopeo": "skopeo", "umoci": "umoci"}  # with their Debian packages
_COPY_SECONDS = 3600.0
_TAG = "image"  # any name would do: a layout needs one
_MESSAGE = re.compile(r'level=fatal msg="((?:[^"\\]|\\.)*)"')
# Options of tar with which equal content gives equal bytes. Attributes that overlayfs sets for itself are left out.
_TAR_OPTIONS = (
    *("--one-file-system", "--sort=name", "--numeric-owner", "--format=posix"),
    *("--xattrs", "--xattrs-include=*", "--xattrs-exclude=trusted.overlay.*"),
    "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime",
)
# Openers of compressed archives, by the beginning of the file. "BZh" alone could be the name of a tar archive's first
# file.
_OPENERS: dict[bytes, Callable[[BufferedReader], BufferedIOBase]] = {
    rb"\x1f\x8b": lambda file: gzip.GzipFile(fileobj=file),
    rb"\xfd7zXZ\0": lzma.LZMAFile,
    rb"BZh[1-9]1AY&SY": bz2.BZ2File,
}
_WITHOUT_OPENER = {b"\x28\xb5\x2f\xfd": "zstd", b"\x04\x22\x4d\x18": "lz4"}  # Python 3.11 reads neither
_MAGIC_BYTES = 10
_FORM_COUNT = 4  # copies of the unpacked content that need disk space: layers, directory, archive and disk
# Patterns of skopeo's messages, each with its meaning and a hint. The first match counts.
_KNOWN_ERRORS = (
    (
        r"unauthorized|authentication required|access to the resource is denied|Forbidden|\bdenied\b",
        "the registry refuses",
        '`skopeo login REGISTRY` writes credentials, or name your file of them: credentials = "…" in [image]',
    ),
    (
        "manifest unknown|name unknown|repository name not known|Not Found",
        "the registry has no such image",
        "check its name and its tag",
    ),
    (
        "dial tcp|i/o timeout|no such host|TLS handshake|x509|server gave HTTP response",
        "the registry does not answer",
        "check its name, and that this machine reaches it",
    ),
    ("Cannot connect to the Docker daemon", "Docker's daemon does not answer", "systemctl start docker"),
    (
        "no image found in (?:manifest list|image index)|no matching manifest",
        "the image is not for the architecture of the machine under test",
        "build it for this architecture, too",
    ),
    (
        (
            "no descriptor found|does not resolve to an image|No such image|identifier is not an image"
            "|reference does not exist|not found in archive|Tag .* not found|more than one image"
        ),
        "there is no image of this name",
        "check its name and its tag",
    ),
    ("no such file or directory", "there is no such file", "give the path of the image"),
    (
        (
            r"\bEOF\b|invalid tar header|gzip: invalid|[Dd]igest did not match|does not match"
            "|unexpected end of JSON|invalid character|manifest.json not found|not a directory"
        ),
        "this is no whole image",
        "get or build it again",
    ),
    ("no space left on device", "no disk is left", "remove files, or let TARE_HOME name a folder on a larger disk"),
)


class ImageUnavailable(TareError):
    """skopeo cannot get an image from the engine or registry where tare looked."""


class ImageFileUnavailable(ImageUnavailable):
    """skopeo cannot read a file or folder that the user has named."""

    exit_code = 2


def find_image(
    source: ImageReference, scratch: Path, architecture: Architecture | None = None
) -> tuple[ImageReference, str]:
    """Return the first source (an engine's store or a registry) that has the image, and its digest there.

    The image is for `architecture`, by default this machine's. Raises TareError if no source has the image, with the
    reason of each.
    """
    candidates = source.candidate_sources()
    refusals = []
    for candidate in candidates:
        try:
            return candidate, resolve_digest(candidate, scratch, architecture)
        except ImageUnavailable as error:
            refusals.append(error)
    if len(refusals) == 1:
        raise refusals[0]
    what = f"{source}: it is in none of {len(candidates)} places: {'; '.join(map(str, refusals))}"
    raise TareError(what, "build it as root, podman build or docker build: a user's Podman has a separate store")


def resolve_digest(source: ImageReference, scratch: Path, architecture: Architecture | None = None) -> str:
    """Return the digest of an image's manifest, or of the tar file of a root file system.

    A directory is first packed into a tar file. Raises TareError if the image does not exist or is too large.
    """
    if not source.transport:
        return f"sha256:{_pack_root(source, scratch)}"
    output = _run_skopeo(
        source,
        "inspect",
        "--raw",
        *_access_options(source, "--authfile", "--daemon-host"),
        str(source),
        seconds=_INSPECT_SECONDS,
    )
    raw = output.stdout  # unchanged bytes, as their hash is the digest
    if not choose_platform(raw, architecture or this_architecture()) and b'"layers"' in raw:
        _check_declared_size(source, read_manifest(raw), scratch)
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def copy_to_layout(
    source: ImageReference, digest: str, scratch: Path, architecture: Architecture | None = None
) -> Path:
    """Copy an image into an OCI layout in `scratch`; return the layout's folder. Raises TareError."""
    layout = scratch / "layout"
    if not source.transport:
        _wrap_in_layout(scratch, layout, architecture or this_architecture())
        return layout
    origin = source.name_with_digest(digest) if source.transport == "docker://" else str(source)
    # umoci of Debian 12 unpacks no zstd, and takes uncompressed layers of `docker save` for gzip. skopeo compresses
    # these layers by gzip, and keeps the others.
    options = (
        "--quiet",
        "--dest-compress-format=gzip",
        *_access_options(source, "--src-authfile", "--src-daemon-host"),
    )
    platform = f"--override-arch={(architecture or this_architecture()).debian}"
    _run_skopeo(source, platform, "copy", *options, origin, f"oci:{layout}:{_TAG}", seconds=_COPY_SECONDS)
    return layout


def read_layout_manifest(layout: Path) -> Manifest:
    """Return the manifest of the image in a layout; raises TareError."""
    entries = json.loads((layout / "index.json").read_bytes())["manifests"]
    return read_manifest(blob_path(layout, str(entries[0]["digest"])).read_bytes())


def blob_path(layout: Path, digest: str) -> Path:
    """Return the path of the part with this digest in a layout."""
    return layout / "blobs/sha256" / digest.removeprefix("sha256:")


def check_layers(source: ImageReference, layout: Path, manifest: Manifest) -> UnpackedSize:
    """Return the unpacked size of the image in a layout; raises TareError if it exceeds the limit or the disk."""
    _check_declared_size(source, manifest, layout)
    size = check_unpacked_size((blob_path(layout, layer.digest) for layer in manifest.layers), source.most_bytes)
    _check_free_space(source, _FORM_COUNT * size.content_bytes, layout)
    return size


def unpack_layout(source: ImageReference, layout: Path, root: Path) -> None:
    """Unpack an image by umoci, which resolves all paths and links within `root`. Raises TareError."""
    around = root.with_name("unpacking")  # limits the damage if a whiteout ever leads out of the root
    around.mkdir()
    argv = ("umoci", "raw", "unpack", "--image", f"{layout}:{_TAG}", str(around / "root"))
    output = _HOST.run(*argv, timeout=_COPY_SECONDS, check=False)
    if output.exit_code:
        message = output.stderr.decode("utf-8", "replace").strip().rpartition("\u2a2f")[2].strip()
        raise TareError(f"{source}: cannot be unpacked: {message[-300:]}", "get or build the image again")
    (around / "root").rename(root)
    around.rmdir()


# --- skopeo --------------------------------------------------------------------------------------------------------


def _run_skopeo(source: ImageReference, *arguments: str, seconds: float) -> Output:
    output = _HOST.run("skopeo", *arguments, timeout=seconds, check=False)
    if output.exit_code:
        raise translate_error(source, output.stderr.decode("utf-8", "replace"))
    return output


def translate_error(source: ImageReference, printed: str) -> ImageUnavailable:
    """Return the error for skopeo's output, with a meaning and a hint if the message is known."""
    messages = _MESSAGE.findall(printed)
    message = (messages[-1] if messages else printed.strip()).replace('\\"', '"')
    last = message.removeprefix(f'Error parsing image name "{source}": ')
    kind = ImageFileUnavailable if source.path else ImageUnavailable
    if source.path:  # the error begins with the path already
        last = last.replace(f"{source.path}/", "").rpartition(str(source.path))[2].lstrip('": ')
    for pattern, what, hint in _KNOWN_ERRORS:
        if re.search(pattern, message):
            return kind(f"{source}: {what}: {last[-300:]}", hint)
    return kind(f"{source}: skopeo cannot copy it: {last[-300:]}", f"try by hand: skopeo inspect {source}")


def _access_options(source: ImageReference, credentials: str, daemon: str) -> tuple[str, ...]:
    """Return skopeo's options for the user's credentials, or for the Docker daemon of DOCKER_HOST."""
    if source.credentials and source.transport == "docker://":
        return (f"{credentials}={source.credentials}",)
    host = os.environ.get("DOCKER_HOST", "")
    return (f"{daemon}={host}",) if host and source.transport == "docker-daemon:" else ()


# --- a root file system without a configuration --------------------------------------------------------------------


def _pack_root(source: ImageReference, scratch: Path) -> str:
    """Write an uncompressed tar archive of a root file system to `scratch`; return its SHA-256.

    Raises UsageError if the source is missing or damaged, and TareError if it is too large.
    """
    path, target = Path(source.name), scratch / "layer.tar"
    if is_directory := exists(path) and path.is_dir():
        _check_folder_size(source, path, scratch)
        pack_folder(path, target)
    elif not is_file(path):
        raise UsageError(f"{source}: there is no such file", "give the path of a directory or a tar file")
    try:
        with (target if is_directory else path).open("rb") as file:
            stream = _decompress(file, source)  # compressed or not, a root has the same digest
            return _hash_stream(stream, None if is_directory else target, source.most_bytes)
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # bz2 raises OSError without a number
            raise
        raise UsageError(f"{source}: this is no whole tar file: {error}", "get or build it again") from error


def _decompress(file: BufferedReader, source: ImageReference) -> BufferedIOBase:
    """Return a file, or a stream of its decompressed bytes; raises UsageError for a compression that tare lacks."""
    magic = file.read(_MAGIC_BYTES)
    file.seek(0)
    if program := _WITHOUT_OPENER.get(magic[:4]):
        what = f"{source}: is compressed by {program}, and tare reads gzip, xz and bzip2"
        raise UsageError(what, f"unpack it first: {program} -d {source}")
    openers = (opener for pattern, opener in _OPENERS.items() if re.match(pattern, magic, re.DOTALL))
    return next(openers, lambda plain: plain)(file)


def _check_folder_size(source: ImageReference, root: Path, scratch: Path) -> None:
    """Raise TareError if the files of a directory exceed the limit or the disk; holes count, as tar writes zeros."""
    content_bytes, device, linked = 0, root.stat().st_dev, set[int]()
    for folder, folders, files in os.walk(root):
        for name in files:
            state = os.lstat(f"{folder}/{name}")
            if not stat.S_ISREG(state.st_mode) or state.st_ino in linked:
                continue
            if state.st_nlink > 1:  # tar writes the content of the first link only
                linked.add(state.st_ino)
            content_bytes += state.st_size
            if content_bytes > source.most_bytes:
                raise too_large_error(source.most_bytes)
        # tar enters no other file system.
        folders[:] = [name for name in folders if os.lstat(f"{folder}/{name}").st_dev == device]
    _check_free_space(source, content_bytes, scratch)


def _hash_stream(stream: BufferedIOBase, target: Path | None, max_bytes: int) -> str:
    digest, length = hashlib.sha256(), 0
    with (target or Path(os.devnull)).open("wb") as file:
        while chunk := stream.read(1 << 20):
            length += len(chunk)
            if length > 2 * max_bytes + (1 << 20):  # the headers of many small files may be as long as their content
                raise too_large_error(max_bytes)
            digest.update(chunk)
            file.write(chunk)
    return digest.hexdigest()


def pack_folder(root: Path, archive: Path) -> None:
    """Write a directory as a tar archive, with equal bytes for equal content."""
    build_host().run("tar", "-C", str(root), *_TAR_OPTIONS, "-cf", str(archive), ".", timeout=_COPY_SECONDS)


def ensure_archive(host: Host, image: Image) -> None:
    """Make the archive of an image on its host, unless it exists."""
    if image.layer:  # the archive of any other image is made with the image
        archive = str(image.archive)
        make = f'[ -e "$1" ] || {{ tar -C "$2" {shlex.join(_TAR_OPTIONS)} -cf "$1.new" . && mv "$1.new" "$1"; }}'
        prefix, root = merged_root(image)
        host.run(*prefix, "sh", "-c", make, "sh", archive, root, timeout=_COPY_SECONDS)


def merged_root(image: Image) -> tuple[tuple[str, ...], str]:
    """Return a directory with the whole tree of an image, and the command prefix with which the directory exists.

    For an image with a layer, the prefix mounts image and layer in a private namespace. The prefix is the first result.
    """
    if not image.layer:
        return (), str(image.root)
    root = str(image.layer.with_name("whole"))
    script = 'mkdir -p "$2" && mount -t overlay -o "lowerdir=$1" tare-layer "$2" && shift 2 && exec "$@"'
    # Without the variable, recent versions of mount reject options of more than 256 characters.
    words = ("env", "LIBMOUNT_FORCE_MOUNT2=always", "sh", "-c", script, "sh", image.lowerdir, root)
    return (*DIE_WITH_PARENT_PREFIX, *words), root


def _wrap_in_layout(scratch: Path, layout: Path, architecture: Architecture) -> None:
    """Make a layout of the one layer in `scratch`, with a configuration that names only the platform."""
    layer, image = scratch / "layer.tar", f"{layout}:{_TAG}"
    platform = ("--os", "linux", "--architecture", architecture.debian)
    steps = (
        ("init", "--layout", str(layout)),
        ("new", "--image", image),
        ("config", "--image", image, "--no-history", *platform),
    )
    for words in steps:
        _HOST.run("umoci", *words, timeout=_INSPECT_SECONDS)
    _HOST.run("umoci", "raw", "add-layer", "--image", image, str(layer), timeout=_COPY_SECONDS)
    layer.unlink()


def _check_declared_size(source: ImageReference, manifest: Manifest, folder: Path) -> None:
    """Raise TareError if the declared size of an image exceeds the limit or the disk."""
    if manifest.size_bytes > source.most_bytes:
        raise too_large_error(source.most_bytes)
    _check_free_space(source, manifest.size_bytes, folder)


def _check_free_space(source: ImageReference, needed_bytes: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if needed_bytes > free:
        what = f"{source}: {free >> 20} MiB of disk are free, and it needs {needed_bytes >> 20}"
        raise TareError(what, "remove files, or let TARE_HOME name a folder on a larger disk")

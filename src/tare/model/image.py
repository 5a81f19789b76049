"""Guest images: their file formats, the image that a suite requests, and references to foreign images."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from tare.model.architecture import Architecture, this_architecture

Release = Literal["bookworm", "trixie"]  # Debian releases that tare builds images from
_REGISTRY = "docker://"
_ENGINES = ("containers-storage:", "docker-daemon:")
# Folders that engines make: an empty one of root's, an empty one in which everybody may write, and one with the image's
# files, which is made only if the image lacks it.
FOLDER_KINDS = ("empty", "tmpfs", "volume")
_ENGINE_PREFIX = "localhost/"  # Podman puts it before the name of every image that it has built


@dataclass(frozen=True)
class ImageCommand:
    """Overrides of an image's start configuration; None keeps the setting of the image.

    `user` is `USER` or `USER:GROUP`, both as names or numbers; `stop_signal` is the name or number of a signal.
    `capabilities` are those of Docker's default that the program keeps, such as `CHOWN`.
    """

    entry_point: tuple[str, ...] | None = None
    user: str | None = None
    folder: str | None = None
    stop_signal: str | None = None
    capabilities: tuple[str, ...] | None = None


@dataclass(frozen=True)
class ImageReference:
    """Reference to an image that others have built, as a suite names it.

    `transport` is a transport of skopeo, such as `docker://`, or "" for the path of a root file system. `credentials`
    is a file for the registry; "" uses the credentials that skopeo finds. `most_bytes` bounds the unpacked size, as a
    small archive can unpack to a full disk. The settings in `started` replace those of the image.
    """

    transport: str
    name: str
    credentials: str = ""
    most_bytes: int = 8 << 30
    started: ImageCommand = ImageCommand()

    def __str__(self) -> str:
        """Return the reference as a suite writes it."""
        return f"{self.transport}{self.name}"

    @property
    def is_absent(self) -> bool:
        """Whether the reference names a file or folder of this machine that does not exist."""
        return self.path is not None and not self.path.exists()

    @property
    def path(self) -> Path | None:
        """File or folder of this machine, without a tag; None for an image in a registry or an engine."""
        if self.transport in (_REGISTRY, *_ENGINES):
            return None
        path = Path(self.name)
        # `oci:FOLDER:TAG` has a tag after the path, but a path may itself have a colon: the existing one wins.
        return Path(self.name.partition(":")[0]) if self.transport and not path.exists() else path

    def with_name(self, transport: str, name: str) -> ImageReference:
        """Return the reference to another image, with the same settings."""
        return ImageReference(transport, name, self.credentials, self.most_bytes, self.started)

    def candidate_sources(self) -> tuple[ImageReference, ...]:
        """Return the references to try, in order.

        An image that an engine has built on this machine (`localhost/…`) is looked up in the stores of Podman and
        Docker before a registry on this machine.
        """
        if self.transport != _REGISTRY or not self.name.startswith(_ENGINE_PREFIX):
            return (self,)
        tagged = "@" in self.name or ":" in self.name
        name = self.name if tagged else f"{self.name}:latest"  # the daemon of Docker assumes no tag
        stores = (self.with_name(store, name) for store in _ENGINES)
        return (*stores, self)

    def name_with_digest(self, digest: str) -> str:
        """Return the name of exactly the image that was used.

        A registry's image gets the digest in place of its tag, because a tag may point to another image later. The
        digest of any other image follows its name.
        """
        if self.transport != _REGISTRY:
            return f"{self}@{digest}"
        folder, slash, last = self.name.partition("@")[0].rpartition("/")
        return f"{self.transport}{folder}{slash}{last.partition(':')[0]}@{digest}"

    def with_origin(self, origin: str) -> ImageReference:
        """Return the reference to the registry image of an earlier run, by digest; this one if `origin` is no such."""
        return self.with_name(_REGISTRY, origin.removeprefix(_REGISTRY)) if origin.startswith(_REGISTRY) else self


# --- image, limits, network ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Image:
    """Guest file system in the formats that technologies start.

    - `root` is the unpacked directory, `archive` a tar file that container engines import, and `disk` an ext4 file
      system in a raw file of `disk_bytes`, 0 without one. Virtual machines boot `kernel` and `initrd`.
    - `packages` has a line `name version` for each package.
    - A foreign image has an `origin`, its name with its digest. `start_command` is a prefix that runs a command under
      the image's configuration, `ports` are the exposed TCP ports, `stop_signal` ends the command.
    - `architecture` is that of its programs and of its kernel.
    - `layer` is a directory with the files of a suite, which overlayfs puts over `root`; None without files. With a
      layer, archive and disk are built when the first technology needs them.
    """

    digest: str
    root: Path
    archive: Path
    disk: Path
    kernel: Path
    initrd: Path
    packages: str
    disk_bytes: int = 0
    origin: str = ""
    start_command: tuple[str, ...] = ()
    ports: tuple[int, ...] = ()
    stop_signal: str = ""
    layer: Path | None = None
    architecture: Architecture = field(default_factory=this_architecture)

    @property
    def layer_roots(self) -> tuple[Path, ...]:
        """Directories that make up the file system, the upper one first."""
        return (self.layer, self.root) if self.layer else (self.root,)

    @property
    def without_layer(self) -> Image:
        """The image without its layer. Its files are in the folder that is named after its hash."""
        home = self.root.parent
        return replace(self, digest=home.name, layer=None, archive=home / "root.tar", disk=home / "root.ext4")

    @property
    def lowerdir(self) -> str:
        """Value of overlayfs's mount option `lowerdir`."""
        return ":".join(map(str, self.layer_roots))

    @property
    def tag(self) -> str:
        """Name of the image in container engines."""
        return image_tag(self.digest)


@dataclass(frozen=True)
class ImageSpec:
    """Image that a suite requests: a Debian release with additional packages, or a foreign image as `source`.

    `files` are pairs of an absolute path in the image and the path of a file or folder of this machine, which are added
    to the image. `mounts` are such pairs, too, but they hide what the image has there, as an engine's mounts do. In
    place of a path of this machine, they may have one of `FOLDER_KINDS`. The `architecture` is that of the machine on
    which the instances run.
    """

    release: Release = "bookworm"
    packages: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    source: ImageReference | None = None
    mounts: tuple[tuple[str, str], ...] = ()
    architecture: Architecture = field(default_factory=this_architecture)

    def find_program(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """Return the program that a command line starts in the image, as a tuple of at most one word.

        A user-supplied entry point comes before the command line.
        """
        entry_point = self.source.started.entry_point if self.source else None
        return (entry_point or argv)[:1]


def image_tag(digest: str = "") -> str:
    """Return the name of an image in container engines; without a digest, the common prefix of these names."""
    return f"tare-image:{digest[:16]}"

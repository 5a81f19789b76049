"""Guest images: their forms, what a suite asks for, and those that others have built with their programs' settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

Release = Literal["bookworm", "trixie"]  # of Debian, which the image is made of
_REGISTRY = "docker://"
_ENGINES = ("containers-storage:", "docker-daemon:")
_ENGINE_PREFIX = "localhost/"  # so engines name what they have built; Podman even writes it itself


@dataclass(frozen=True)
class ImageCommand:
    """How the program of an image is started; None where the image's own setting holds.

    `user` is `USER` or `USER:GROUP`, each a name or a number; `stop_signal` is a signal's.
    """

    entry_point: tuple[str, ...] | None = None
    user: str | None = None
    folder: str | None = None
    stop_signal: str | None = None


@dataclass(frozen=True)
class ImageReference:
    """An image that others have built, as a suite names it.

    `transport` is one of skopeo's, such as `docker://`, or empty for the path of a root file system. A registry is
    asked with the `credentials` of this file, or with those that skopeo finds. It may unpack to `most_bytes`. The
    settings in `started` replace those of the image.
    """

    transport: str
    name: str
    credentials: str = ""
    most_bytes: int = 8 << 30
    started: ImageCommand = ImageCommand()

    def __str__(self) -> str:
        """Write it as a suite does."""
        return f"{self.transport}{self.name}"

    @property
    def is_absent(self) -> bool:
        """Whether it is a file or folder of this machine, and does not exist."""
        return self.path is not None and not self.path.exists()

    @property
    def path(self) -> Path | None:
        """The file or folder of this machine that it is, without a tag; None for what a registry or an engine has."""
        if self.transport in (_REGISTRY, *_ENGINES):
            return None
        path = Path(self.name)
        return Path(self.name.partition(":")[0]) if self.transport and not path.exists() else path

    def with_name(self, transport: str, name: str) -> ImageReference:
        """Return the source of another image, with the same settings."""
        return ImageReference(transport, name, self.credentials, self.most_bytes, self.started)

    def candidate_sources(self) -> tuple[ImageReference, ...]:
        """Return the places where the image may be, in their order.

        What engines have built on this machine is in Podman's store or Docker's; only then is a registry asked.
        """
        if self.transport != _REGISTRY or not self.name.startswith(_ENGINE_PREFIX):
            return (self,)
        tagged = "@" in self.name or ":" in self.name
        name = self.name if tagged else f"{self.name}:latest"  # Docker's daemon has no default
        stores = (self.with_name(store, name) for store in _ENGINES)
        return (*stores, self)

    def name_with_digest(self, digest: str) -> str:
        """Name the very image that was used: a registry's by its digest in place of a tag, others with their digest."""
        if self.transport != _REGISTRY:
            return f"{self}@{digest}"
        folder, slash, last = self.name.partition("@")[0].rpartition("/")
        return f"{self.transport}{folder}{slash}{last.partition(':')[0]}@{digest}"

    def with_origin(self, origin: str) -> ImageReference:
        """Name what an earlier run had: from a registry, the very same image. `origin` is empty without such a run."""
        return self.with_name(_REGISTRY, origin.removeprefix(_REGISTRY)) if origin.startswith(_REGISTRY) else self


# --- image, limits, network ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Image:
    """One guest file system in the forms that technologies start.

    `root` is the unpacked directory, `archive` a tar file that container engines import, `disk` an ext4 file system in
    a raw file of `disk_bytes`, 0 without one. Virtual machines boot `kernel` and `initrd`. `packages` has a line
    `name version` for each package. One that others have built has an `origin`, its name with its digest;
    `start_command` runs a command as its own configuration says, which exposes the TCP `ports`, and ends it with the
    signal `stop_signal`. Overlayfs puts the directory `layer`, if there is one, with files of a suite over `root`; then
    the archive and the disk are made when the first technology needs them.
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

    @property
    def layer_roots(self) -> tuple[Path, ...]:
        """The directories that make up its file system, the upper first."""
        return (self.layer, self.root) if self.layer else (self.root,)

    @property
    def without_layer(self) -> Image:
        """The image without its layer, which is in the folder of its hash."""
        home = self.root.parent
        return replace(self, digest=home.name, layer=None, archive=home / "root.tar", disk=home / "root.ext4")

    @property
    def lowerdir(self) -> str:
        """These directories as overlayfs's `lowerdir`."""
        return ":".join(map(str, self.layer_roots))

    @property
    def tag(self) -> str:
        """Its name in container engines."""
        return image_tag(self.digest)


@dataclass(frozen=True)
class ImageSpec:
    """The image of a suite: a Debian release with further packages, or a `source`.

    `files` are pairs of an absolute path in the image, and the path of a file or folder of this machine.
    """

    release: Release = "bookworm"
    packages: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    source: ImageReference | None = None

    def find_program(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        """Return the program that a command line starts in it, alone; an entry point of the user's comes first."""
        own = self.source.started.entry_point if self.source else None
        return (own or argv)[:1]


def image_tag(digest: str = "") -> str:
    """Return the name of an image in container engines; without a digest, what all such names begin with."""
    return f"tare-image:{digest[:16]}"

"""Images that others have built, as a user names them, and the settings of their programs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

_REGISTRY = "docker://"
_ENGINES = ("containers-storage:", "docker-daemon:")
_OF_ENGINES = "localhost/"  # so engines name what they have built; Podman even writes it itself


@dataclass(frozen=True)
class Started:
    """How the program of an image is started; None where the image's own setting holds.

    `user` is `USER` or `USER:GROUP`, each a name or a number; `stop_signal` is a signal's.
    """

    entry_point: tuple[str, ...] | None = None
    user: str | None = None
    folder: str | None = None
    stop_signal: str | None = None


@dataclass(frozen=True)
class Source:
    """An image that others have built, as a suite names it.

    `transport` is one of skopeo's, such as `docker://`, or empty for the path of a root file system. A registry is
    asked with the `credentials` of this file, or with those that skopeo finds. It may unpack to `most_bytes`. The
    settings in `started` replace those of the image.
    """

    transport: str
    name: str
    credentials: str = ""
    most_bytes: int = 8 << 30
    started: Started = Started()

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

    def places(self) -> tuple[Source, ...]:
        """Return the places where the image may be, in their order.

        What engines have built on this machine is in Podman's store or Docker's; only then is a registry asked.
        """
        if self.transport != _REGISTRY or not self.name.startswith(_OF_ENGINES):
            return (self,)
        tagged = "@" in self.name or ":" in self.name
        name = self.name if tagged else f"{self.name}:latest"  # Docker's daemon has no default
        stores = (replace(self, transport=store, name=name) for store in _ENGINES)
        return (*stores, self)

    def pinned(self, digest: str) -> str:
        """Name the very image that was used: a registry's by its digest in place of a tag, others with their digest."""
        if self.transport != _REGISTRY:
            return f"{self}@{digest}"
        folder, slash, last = self.name.partition("@")[0].rpartition("/")
        return f"{self.transport}{folder}{slash}{last.partition(':')[0]}@{digest}"

    def again(self, origin: str) -> Source:
        """Name what an earlier run had: from a registry, the very same image. `origin` is empty without such a run."""
        return replace(self, name=origin.removeprefix(_REGISTRY)) if origin.startswith(_REGISTRY) else self

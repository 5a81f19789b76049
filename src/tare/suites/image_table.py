"""Parse the `[image]` table and references to foreign images."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from tare.model.errors import UsageError, did_you_mean
from tare.model.image import ImageWanted, Release, Source
from tare.model.units import PackageName, Size
from tare.suites.document import Document

FILES = ("docker-archive:", "oci:", "oci-archive:")
STORES = ("containers-storage:", "docker-daemon:", "docker://")
EXAMPLE = "docker-archive:app.tar"
_HINT = f"write {', '.join((*FILES, *STORES))} and its name there, or the path of a directory or a tar file"
_SPACES = re.compile(r"[\s\0]")


def read_source(text: str, folder: Path | None = None) -> Source:
    """Read the name of an image; paths, which are relative to the folder or else to the current one, become absolute.

    Raises UsageError for one that cannot be.
    """
    transport = next((each for each in (*FILES, *STORES) if text.startswith(each)), "")
    name = text[len(transport) :]
    if not name or _SPACES.search(text):
        raise UsageError(f'"{text}" names no image', _HINT)
    if not transport and ":" in name and not name.startswith(("/", ".")):
        known = (*FILES, *STORES)
        meant = f"{name.partition(':')[0]}:"
        raise UsageError(f'"{text}": "{meant}" is no kind of image', did_you_mean(meant, known, _HINT))
    if transport in STORES:
        return Source(transport, name)
    return Source(transport, str(((folder or Path()) / name).absolute()))


_KEY = ("image",)


def as_place(path: str) -> str:
    """Return a path in an image; raises ValueError for what cannot be one."""
    if not path.startswith("/") or ".." in path.split("/") or "\0" in path:
        raise ValueError('write a path from the root of the image, for example "/srv/app"')
    return path


@dataclass(frozen=True)
class ImageTable:
    """The table `[image]`: what every instance runs. `from` is a word of Python, and is read separately."""

    release: Release = "bookworm"
    packages: tuple[PackageName, ...] = ()
    files: dict[Annotated[str, AfterValidator(as_place)], str] = field(default_factory=dict)
    credentials: str = ""
    limit: Annotated[Size, Field(gt=0)] = Source.most_bytes


def read_image(document: Document) -> ImageWanted:
    """Read what the image is made of. Its paths become absolute."""
    table: ImageTable = document.build(_KEY, ImageTable, ("from",)) or ImageTable()
    written = document.table(_KEY)
    folder = document.folder.absolute()
    files = tuple((target, str(folder / source)) for target, source in sorted(table.files.items()))
    if "from" not in written:
        for name in ("credentials", "limit"):
            if name in written:
                document.fault((*_KEY, name), "there is no image to get", f'write from = "{EXAMPLE}"')
        return ImageWanted(table.release, table.packages, files)
    for name in ("release", "packages"):
        if name in written:
            document.fault((*_KEY, name), "an image that others have built is taken as it is", f"leave {name} out")
    text = document.required(_KEY, "from", EXAMPLE)
    try:
        source = read_source(EXAMPLE if text is None else text, document.folder)
    except UsageError as error:
        document.fault((*_KEY, "from"), str(error), error.hint)
        return ImageWanted()
    credentials = str(folder / table.credentials) if table.credentials else ""
    return ImageWanted(source=Source(source.transport, source.name, credentials, table.limit), files=files)

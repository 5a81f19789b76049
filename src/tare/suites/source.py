"""`from`: how a suite names an image that others have built."""

from __future__ import annotations

import re
from pathlib import Path

from tare.errors import UsageError, did_you_mean
from tare.model.sources import Source

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

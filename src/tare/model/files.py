"""Files of the user: small ones, read whole, and those that a command writes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tare.model.errors import UsageError, describe_unreadable, format_os_error

_MAX_BYTES = 1 << 20


def read_small(file: Path, kind: str) -> str:
    """Return a file's text, of which messages say what `kind` of file it should be; raises UsageError."""
    try:
        return read_bounded(file, _MAX_BYTES).decode("utf-8-sig")
    except FileTooLarge:
        raise UsageError(f"{file}: more than 1 MiB", f"give a {kind} of at most 1 MiB") from None
    except (OSError, UnicodeDecodeError) as error:
        fault = describe_unreadable(file, error, f"give the path of a {kind} that you may read")
        raise UsageError(fault.message, fault.hint) from None


@contextmanager
def convert_write_errors(path: Path | None, hint: str = "") -> Iterator[None]:
    """Raise UsageError, with this hint, where the block cannot write; `path` is named where the error names no file."""
    try:
        yield
    except OSError as error:
        what = (
            "already exists" if isinstance(error, FileExistsError) else f"cannot be written: {format_os_error(error)}"
        )
        raise UsageError(f"{error.filename or path}: {what}", hint) from error


def exists(path: str | Path) -> bool:
    """Return whether a file or folder is there: none has a name that is too long."""
    return os.path.exists(path)  # noqa: PTH110 - which Path says by raising OSError


def is_file(path: str | Path) -> bool:
    """Return whether a file is there; see `exists`."""
    return os.path.isfile(path)  # noqa: PTH113


class FileTooLarge(OSError):
    """A file has more bytes than are read of its kind."""


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """Return the bytes of a file; raises OSError, and TooLarge for more than so many, as those of an endless device."""
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise FileTooLarge(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return data


def read_text(path: str) -> str:
    """Return the text of a file, or an empty text where it cannot be read."""
    try:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - likewise: the sampler reads many a second
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


@cache
def set_umask() -> int:
    """Set the umask 022, once, and return the user's: bytes and rights of images must not depend on that.

    With 077, no user but root could enter the root folder of an instance.
    """
    return os.umask(0o022)

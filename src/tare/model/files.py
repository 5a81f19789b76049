"""Files of the user: bounded reads, errors of files that a command writes, and writes into untrusted folders."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path, PurePath

from tare.model.errors import UsageError, describe_unreadable, format_os_error

_MAX_BYTES = 1 << 20


def read_small(file: Path, kind: str) -> str:
    """Return the text of a file of at most 1 MiB; raises UsageError, whose hint names the expected `kind` of file."""
    try:
        return read_bounded(file, _MAX_BYTES).decode("utf-8-sig")  # editors on Windows begin a file with a BOM
    except FileTooLarge:
        raise UsageError(f"{file}: more than 1 MiB", f"give a {kind} of at most 1 MiB") from None
    except (OSError, UnicodeDecodeError) as error:
        fault = describe_unreadable(file, error, f"give the path of a {kind} that you may read")
        raise UsageError(fault.message, fault.hint) from None


@contextmanager
def convert_write_errors(path: Path | None, hint: str = "") -> Iterator[None]:
    """Context manager: convert an OSError of the block into a UsageError with this hint.

    The message names `path` if the error names no file.
    """
    try:
        yield
    except OSError as error:
        what = (
            "already exists" if isinstance(error, FileExistsError) else f"cannot be written: {format_os_error(error)}"
        )
        raise UsageError(f"{error.filename or path}: {what}", hint) from error


def exists(path: str | Path) -> bool:
    """Return whether a file or folder exists; False for a name that is too long for the file system."""
    return os.path.exists(path)  # noqa: PTH110 - Path.exists raises OSError for a name that is too long


def is_file(path: str | Path) -> bool:
    """Return whether a regular file exists; False for a name that is too long for the file system."""
    return os.path.isfile(path)  # noqa: PTH113 - Path.is_file raises OSError for a name that is too long


def is_below(folder: Path, name: str) -> bool:
    """Return whether a path relative to a folder leads to the folder or below it, with all links followed."""
    try:
        # Not Path.resolve, which raises RuntimeError for links in a circle.
        return Path(os.path.realpath(folder / name)).is_relative_to(os.path.realpath(folder))
    except ValueError:  # a null byte
        return False


class FileTooLarge(OSError):
    """File with more bytes than tare reads of its kind."""


def read_bounded(path: Path, max_bytes: int) -> bytes:
    """Return the bytes of a file; raises OSError, which is FileTooLarge if there are more than `max_bytes`.

    The size is not asked beforehand, because a device such as `/dev/zero` has none and never ends.
    """
    with path.open("rb") as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise FileTooLarge(errno.EFBIG, os.strerror(errno.EFBIG), str(path))
    return data


def read_text(path: str) -> str:
    """Return the text of a file; "" if it cannot be read."""
    try:
        # The sampler reads hundreds of small files a second: an unbuffered open is cheaper than Path.read_text.
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - see above
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


@cache
def set_umask() -> int:
    """Set the umask to 022, once, and return the user's umask.

    Content and permissions of images must not depend on the user's umask: with 077, only root could enter the root
    folder of an instance.
    """
    return os.umask(0o022)


def write_within(folder: Path, name: str, content: bytes) -> Path:
    """Write a file atomically below a folder that may be untrusted; return its path.

    The new file replaces any file or link of its name. Raises UsageError if a folder on the path is a symbolic link, so
    that nothing is written outside.
    """
    path = folder / name
    for parent in reversed(PurePath(name).parents[:-1]):
        make_within(folder, str(parent))
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    with fresh.open("xb") as file:  # "x" follows no link that somebody puts there after the unlink
        file.write(content)
    fresh.replace(path)
    return path


def make_within(folder: Path, name: str) -> None:
    """Create a folder below another that may be untrusted, unless it exists; raises UsageError for a symbolic link."""
    path = folder / name
    if path.is_symlink():
        raise UsageError(f"{path}: is a symbolic link, and tare writes through none in a run folder", f"rm {path}")
    path.mkdir(exist_ok=True)

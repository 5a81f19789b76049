"""Files of the user: small ones, read whole, and those that a command writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tare.errors import UsageError, unreadable, why_of
from tare.hosts.local import TooLarge, contents

_MOST_BYTES = 1 << 20


def read_small(file: Path, kind: str) -> str:
    """Return a file's text, of which messages say what `kind` of file it should be; raises UsageError."""
    try:
        return contents(file, _MOST_BYTES).decode("utf-8-sig")
    except TooLarge:
        raise UsageError(f"{file}: more than 1 MiB", f"give a {kind} of at most 1 MiB") from None
    except (OSError, UnicodeDecodeError) as error:
        fault = unreadable(file, error, f"give the path of a {kind} that you may read")
        raise UsageError(fault.what, fault.hint) from None


@contextmanager
def writing(path: Path | None, hint: str = "") -> Iterator[None]:
    """Raise UsageError, with this hint, where the block cannot write; `path` is named where the error names no file."""
    try:
        yield
    except OSError as error:
        what = "already exists" if isinstance(error, FileExistsError) else f"cannot be written: {why_of(error)}"
        raise UsageError(f"{error.filename or path}: {what}", hint) from error

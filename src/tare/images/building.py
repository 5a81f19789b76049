"""Folders to build in. What a build that was killed has left in its folder goes with the next run, or `tare clean`."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tare.errors import TareError
from tare.hosts.ledger import state_folder

NO_DISK = "`tare clean --images` removes all built images; or let TARE_HOME name a folder on a larger disk"
_NAME = "tare-building-"


@contextmanager
def building(parent: Path) -> Iterator[Path]:
    """Yield a folder to build in, which is gone after the block; a full disk becomes a TareError."""
    folder = Path(tempfile.mkdtemp(prefix=_NAME, dir=parent))
    folder.chmod(0o755)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH)  # until this process ends, even when it is killed
        yield folder
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        raise TareError(f"cannot build the image: {parent}: no disk is left", NO_DISK) from error
    finally:
        shutil.rmtree(folder)
        os.close(descriptor)


def remove_abandoned() -> None:
    """Remove the folders of builds that were killed, wherever tare builds; those that a process builds in stay."""
    state = state_folder()
    for parent in (state / "images", state / "unikernels", Path(tempfile.gettempdir())):
        for folder in parent.glob(f"{_NAME}*"):
            with suppress(BlockingIOError, FileNotFoundError, NotADirectoryError):
                _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder; raises BlockingIOError while a process builds in it."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_uid == os.geteuid():  # any user may make one in /tmp
            shutil.rmtree(folder)
    finally:
        os.close(descriptor)

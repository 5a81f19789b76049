"""One run at a time on a machine: two would measure each other."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from tare.errors import TareError
from tare.hosts.ledger import private_state_folder


@contextmanager
def only_one() -> Iterator[None]:
    """Hold the machine's lock; raises TareError with the process number of who holds it."""
    with (private_state_folder() / "lock").open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            raise TareError(
                f"another tare runs on this machine (process {file.read().strip()})", "wait until it has ended"
            ) from error
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield

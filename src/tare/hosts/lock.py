"""One run at a time on a machine: two would measure each other."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from tare.contracts import Host
from tare.errors import TareError
from tare.hosts.ledger import private_state_folder
from tare.hosts.local import read_text

_ELSEWHERE = "/var/lib/tare/lock"
_SECONDS = 30.0
# Held by the shell, and then by what waits for the end of its input: that is the end of us, or of the connection.
_HOLD = """
mkdir -p -m 700 "${1%/*}" && exec 9>>"$1" || exit 1
flock -n 9 || { echo "taken by $(cat "$1")"; exit; }
echo "$2" > "$1" && echo held && exec cat
"""


@contextmanager
def only_one() -> Iterator[None]:
    """Hold the machine's lock; raises TareError with the process number of who holds it."""
    with (private_state_folder() / "lock").open("a+", encoding="ascii") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            raise TareError(
                f"another tare runs on this machine (process {_process(file.read())})", "wait until it has ended"
            ) from error
        file.truncate(0)
        file.write(_owner())
        file.flush()
        yield


@contextmanager
def only_one_on(host: Host, name: str, path: str = _ELSEWHERE) -> Iterator[None]:
    """Hold the lock of a machine over SSH, the one that a tare on it would hold; raises TareError where it is taken.

    It is given back when this process ends, however it does, and when the connection is lost.
    """
    with host.spawn("sh", "-c", _HOLD, "sh", path, _owner(), life_line=True) as holder:
        said = holder.read_line(_SECONDS).text.removeprefix("taken by ")
        if said not in ("held", _owner()):  # it may be ours by another name, or this machine
            what = f"another tare runs on {name} (process {_process(said)} of its controller)"
            raise TareError(what, "wait until it has ended")
        yield


def _owner() -> str:
    """Tell this process from those of other machines."""
    return f"{os.getpid()} {read_text('/proc/sys/kernel/random/boot_id').strip()}"


def _process(owner: str) -> str:
    return owner.partition(" ")[0].strip()

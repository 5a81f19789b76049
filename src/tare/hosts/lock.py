"""The lock of a machine: two runs at once would disturb each other."""

from __future__ import annotations

import fcntl
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tare.errors import TareError
from tare.hosts.host import BOOT_ID, Host
from tare.hosts.ledger import private_state_folder
from tare.hosts.local import read_text

_ELSEWHERE = "/var/lib/tare/lock"
_SECONDS = 30.0
_LOOK_SECONDS = 0.5
_LONGEST = 100  # characters of a command line
# `cat` inherits the lock and holds it until its input ends: when this process or the connection does.
_HOLD = """
mkdir -p -m 700 "${1%/*}" && exec 9>>"$1" || exit 1
flock -n 9 || { echo "taken by $(cat "$1")"; exit; }
echo "$2" > "$1" && echo held && exec cat
"""


class Taken(TareError):
    """Another tare holds this machine's lock."""


def until_free(say: Callable[[str], None]) -> None:
    """Wait until no other tare runs on this machine; `say` is told for which it waits."""
    told = ""
    while True:
        try:
            with only_one():
                return
        except Taken as error:
            if told != str(error):
                told = str(error)
                say(f"waiting: {told}")
        time.sleep(_LOOK_SECONDS)


@contextmanager
def only_one() -> Iterator[None]:
    """Hold this machine's lock; raises Taken with the command and process number of the tare that holds it."""

    def taken(owner: str) -> TareError:
        what = f"another tare runs on this machine: {_command(owner)} (process {_process(owner)})"
        return Taken(what, "wait until it has ended; tare run --wait does")

    with held(private_state_folder() / "lock", _owner(), taken):
        yield


@contextmanager
def held(path: Path, owner: str, taken: Callable[[str], TareError]) -> Iterator[None]:
    """Hold the lock of a file, in which `owner` stands meanwhile; raises what `taken` makes of another one's."""
    with path.open("a+", encoding="utf-8", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.seek(0)
            raise taken(file.read()) from error
        file.truncate(0)
        file.write(owner)
        file.flush()
        yield


@contextmanager
def only_one_on(host: Host, name: str, path: str = _ELSEWHERE) -> Iterator[bool]:
    """Hold the lock of a machine over SSH, which a tare on it would also hold; raises TareError if it is taken.

    Yield False where this process holds it already, under another name of the machine. The lock is released when this
    process ends, even when it is killed, and when the connection is lost.
    """
    with host.spawn("sh", "-c", _HOLD, "sh", path, _owner(), life_line=True) as holder:
        answer = holder.read_line(_SECONDS).text.removeprefix("taken by ")
        if answer not in ("held", _owner()):  # another name of this machine, or of one that this process has locked
            what = f"another tare runs on {name} (process {_process(answer)} of its controller)"
            raise TareError(what, "wait until it has ended")
        yield answer == "held"


def _owner() -> str:
    """Identify this process among those of all machines, and say what it does."""
    words = " ".join(("tare", *sys.argv[1:]))
    command = "".join(letter if letter.isprintable() else "?" for letter in words)[:_LONGEST]
    return f"{os.getpid()} {read_text(BOOT_ID).strip()} {command}"


def _process(owner: str) -> str:
    return owner.partition(" ")[0].strip()


def _command(owner: str) -> str:
    return owner.partition(" ")[2].partition(" ")[2].strip() or "tare"

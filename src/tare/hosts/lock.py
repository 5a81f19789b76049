"""The lock of a machine: two runs at once would disturb each other, whatever `TARE_HOME` each has."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from tare.errors import TareError, why_of
from tare.hosts.host import BOOT_ID, Host
from tare.hosts.ledger import LEDGERS, state_folder
from tare.hosts.local import read_text

# In a folder of root's alone: any user may make files in /run/lock itself.
MACHINE_LOCK = Path("/run/lock/tare/lock")
_SECONDS = 30.0
_LOOK_SECONDS = 0.5
_PROBE_SECONDS = 0.1  # for which a process that only looks may hold the lock
_LONGEST = 100  # characters of a command line
# `cat` inherits the lock and holds it until its input ends: when this process or the connection does.
_HOLD = """
mkdir -p -m 700 "${1%/*}" || exit 1
[ ! -L "${1%/*}" ] && [ -O "${1%/*}" ] && [ ! -L "$1" ] || { echo foreign; exit; }
exec 9>>"$1" || exit 1
flock -n 9 || { echo "taken by $(cat "$1")"; exit; }
printf '%s\\n' "$2" > "$1" && echo held && exec cat
"""


class Taken(TareError):
    """Another tare holds this machine's lock."""


@dataclass(frozen=True)
class LockHolder:
    """The process that holds a machine's lock, which may run on another machine: its number, boot, home and command."""

    pid: int
    boot_id: str
    home: str
    command: str

    @classmethod
    def this_process(cls) -> LockHolder:
        """Return what identifies this process among those of all machines."""
        words = " ".join(("tare", *sys.argv[1:]))
        command = "".join(letter if letter.isprintable() else "?" for letter in words)[:_LONGEST]
        return cls(os.getpid(), read_text(BOOT_ID).strip(), str(state_folder()), command)

    @classmethod
    def parse(cls, line: str) -> LockHolder | None:
        """Read the line of a lock's file; None if no tare wrote it."""
        try:
            return cls(**json.loads(line))
        except (ValueError, TypeError):
            return None

    @property
    def line(self) -> str:
        """The holder as one line of JSON."""
        return json.dumps(asdict(self))

    @property
    def is_here(self) -> bool:
        """Whether the process runs, or ran, on this machine since its last boot."""
        return self.boot_id == read_text(BOOT_ID).strip()

    def runs(self) -> frozenset[str]:
        """Return the beginnings of the names of what this process has made here; empty if they are not known."""
        if not self.is_here:
            return frozenset()
        files = (Path(self.home) / LEDGERS).glob("tare-*.jsonl")
        return frozenset({f"tare-{self.pid:x}", *(file.stem.removesuffix("-sockets") for file in files)})

    def __str__(self) -> str:
        """Return the command with the process number, and with its home if that is not ours."""
        home = f", TARE_HOME={self.home}" if self.home != str(state_folder()) or not self.is_here else ""
        return f"{self.command} (process {self.pid}{home})"


def machine_lock() -> Path:
    """Return the file of this machine's lock; `TARE_LOCK` names another one, which lets tares run at the same time."""
    return Path(os.environ.get("TARE_LOCK") or MACHINE_LOCK).absolute()


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
    """Hold this machine's lock; raises Taken with the command, process number and home of the tare that holds it."""

    def taken(line: str) -> TareError:
        what = f"another tare runs on this machine: {LockHolder.parse(line) or 'its lock has no name in it'}"
        return Taken(what, "wait until it has ended; tare run --wait does")

    path = machine_lock()
    _check_folder(path.parent)
    with held(path, LockHolder.this_process().line, taken):
        yield


def lock_holder() -> tuple[LockHolder | None, bool]:
    """Return who held this machine's lock last, None if unknown or if it ended well, and whether it is still held."""
    path = machine_lock()
    if not path.exists():
        return None, False
    _check_folder(path.parent)
    with path.open(encoding="utf-8", errors="replace") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return LockHolder.parse(file.read()), True
        return LockHolder.parse(file.read()), False


@contextmanager
def held(path: Path, owner: str, taken: Callable[[str], TareError]) -> Iterator[None]:
    """Hold the lock of a file, in which `owner` stands meanwhile; raises what `taken` makes of another one's."""
    with path.open("a+", encoding="utf-8", errors="replace") as file:
        deadline = time.monotonic() + _PROBE_SECONDS
        while not _locked(file):
            if time.monotonic() > deadline:
                file.seek(0)
                raise taken(file.read())
            time.sleep(_PROBE_SECONDS / 10)
        file.truncate(0)
        file.write(owner)
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _locked(file: IO[str]) -> bool:
    """Lock a file; return whether no other process has locked it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def only_one_on(host: Host, name: str, path: str = str(MACHINE_LOCK)) -> Iterator[bool]:
    """Hold the lock of a machine over SSH, which a tare on it would also hold; raises TareError if it is taken.

    Yield False where this process holds it already, under another name of the machine. The lock is released when this
    process ends, even when it is killed, and when the connection is lost.
    """
    ours = LockHolder.this_process().line
    with host.spawn("sh", "-c", _HOLD, "sh", path, ours, life_line=True) as holder:
        answer = holder.read_line(_SECONDS).text.removeprefix("taken by ")
        if answer == "foreign":
            what = f"{name}: other users could replace its lock {path}"
            raise TareError(what, "remove the folder of the lock there, as root")
        if answer not in ("held", ours):  # another name of this machine, or of one that this process has locked
            other = LockHolder.parse(answer)
            what = f"another tare runs on {name} (process {other.pid if other else 'unknown'} of its controller)"
            raise TareError(what, "wait until it has ended")
        yield answer == "held"


def _check_folder(folder: Path) -> None:
    """Make the folder of a lock, unless it is there; raises TareError if other users could replace what is in it."""
    hint = f"remove {folder} as root, or let TARE_LOCK name a file in a folder that only root can change"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise TareError(f"{folder}: the folder of the machine's lock cannot be made: {why_of(error)}", hint) from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in {0, os.geteuid()} or status.st_mode & 0o022:
        raise TareError(f"{folder}: other users could replace the machine's lock, which is in it", hint)

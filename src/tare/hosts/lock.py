"""Machine lock: lets only one tare run at a time, as two runs would disturb each other's measurements.

The lock is an flock(2) of a file, into which the holder writes its identity. The kernel releases the lock when the
holder dies. All values of `TARE_HOME` share the lock.
"""

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

from tare.hosts.host import BOOT_ID, Host
from tare.hosts.ledger import LEDGERS, state_folder
from tare.model.errors import TareError, format_os_error
from tare.model.files import read_text

# In a folder that only root can change: any user may create files in /run/lock itself.
MACHINE_LOCK = Path("/run/lock/tare/lock")
_REPLY_SECONDS = 30.0  # for a machine over SSH to lock its file
_POLL_SECONDS = 0.5  # between two attempts of a waiting tare
_RETRY_SECONDS = 0.1  # before an attempt fails: `read_lock_holder` and a waiting tare hold the lock for an instant
_COMMAND_CHARACTERS = 100  # of a command line in the lock file
# Arguments: the lock file, and the line that identifies the holder. Prints `held`, `taken by LINE` (of another
# holder) or `foreign` (another user could replace the file). It holds the lock until its standard input ends, which
# happens when this process or the connection ends. It waits for a second, as `read_lock_holder` holds the lock for an
# instant.
_LOCK_SCRIPT = """
mkdir -p -m 700 "${1%/*}" || exit 1
[ ! -L "${1%/*}" ] && [ -O "${1%/*}" ] && [ ! -L "$1" ] && [ -z "$(find "${1%/*}" -maxdepth 0 -perm /022)" ] ||
    { echo foreign; exit; }
exec 9>>"$1" || exit 1
flock -w 1 9 || { echo "taken by $(cat "$1")"; exit; }
printf '%s\\n' "$2" > "$1" && echo held && cat
: > "$1"
"""


class LockHeld(TareError):
    """Another tare holds this machine's lock."""


@dataclass(frozen=True)
class LockHolder:
    """Process that holds a machine's lock; over SSH, it runs on another machine.

    `boot_id` identifies its machine since that booted, `home` is its state folder (`TARE_HOME`).
    """

    pid: int
    boot_id: str
    home: str
    command: str

    @classmethod
    def this_process(cls) -> LockHolder:
        """Return this process as a lock holder."""
        words = " ".join(("tare", *sys.argv[1:]))
        command = "".join(letter if letter.isprintable() else "?" for letter in words)[:_COMMAND_CHARACTERS]
        return cls(os.getpid(), read_text(BOOT_ID).strip(), str(state_folder()), command)

    @classmethod
    def parse(cls, line: str) -> LockHolder | None:
        """Parse the line of a lock file; None if it is empty or not written by tare."""
        try:
            return cls(**json.loads(line))
        except (ValueError, TypeError):
            return None

    @property
    def line(self) -> str:
        """The holder as one line of JSON, the content of the lock file."""
        return json.dumps(asdict(self))

    @property
    def is_here(self) -> bool:
        """Whether the process runs, or ran, on this machine since its last boot."""
        return self.boot_id == read_text(BOOT_ID).strip()

    def resource_prefixes(self) -> frozenset[str]:
        """Return the name prefixes of the resources that the holder made on this machine; empty if it runs elsewhere.

        They are `tare-PID` (hexadecimal) and the names of the ledgers in its home.
        """
        if not self.is_here:
            return frozenset()
        files = (Path(self.home) / LEDGERS).glob("tare-*.jsonl")
        return frozenset({f"tare-{self.pid:x}", *(file.stem.removesuffix("-sockets") for file in files)})

    def __str__(self) -> str:
        """Return the command with the PID, and with the home if that is not this process's."""
        home = f", TARE_HOME={self.home}" if self.home != str(state_folder()) or not self.is_here else ""
        return f"{self.command} (process {self.pid}{home})"


def machine_lock_path() -> Path:
    """Return the path of this machine's lock file; `TARE_LOCK` overrides it, so that several tares can run at once."""
    return Path(os.environ.get("TARE_LOCK") or MACHINE_LOCK).absolute()


def wait_for_lock(say: Callable[[str], None]) -> None:
    """Wait until no other tare runs on this machine; call `say` with each tare that tare waits for.

    The lock is free on return, not held.
    """
    last_holder = ""
    while True:
        try:
            with lock_this_machine():
                return
        except LockHeld as error:
            if last_holder != str(error):
                last_holder = str(error)
                say(f"waiting: {last_holder}")
        time.sleep(_POLL_SECONDS)


@contextmanager
def lock_this_machine() -> Iterator[None]:
    """Context manager: hold this machine's lock. Raises LockHeld, with the command, PID and home of another holder."""

    def lock_error(line: str) -> TareError:
        what = f"another tare runs on this machine: {LockHolder.parse(line) or 'its lock has no name in it'}"
        return LockHeld(what, "wait until it has ended; tare run has --wait for that")

    path = machine_lock_path()
    _check_folder(path.parent)
    with hold_lock(path, LockHolder.this_process().line, lock_error):
        yield


def read_lock_holder() -> tuple[LockHolder | None, bool]:
    """Return the last holder of this machine's lock, and whether the lock is still held.

    The holder is None if the lock file is missing, or is empty because the last holder on this machine ended regularly.
    """
    path = machine_lock_path()
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
def hold_lock(path: Path, owner: str, held_error: Callable[[str], TareError]) -> Iterator[None]:
    """Context manager: hold the lock of a file, whose text is `owner` during the block and is empty afterwards.

    If another process holds the lock, raises the error that `held_error` returns for the file's text.
    """
    with path.open("a+", encoding="utf-8", errors="replace") as file:
        deadline = time.monotonic() + _RETRY_SECONDS
        while not _try_lock(file):
            if time.monotonic() > deadline:
                file.seek(0)
                raise held_error(file.read())
            time.sleep(_RETRY_SECONDS / 10)
        file.truncate(0)  # the file is opened for appending, as opening it must not empty the holder's text
        file.write(owner)
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _try_lock(file: IO[str]) -> bool:
    """Try to lock a file; return False if another process holds its lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@contextmanager
def lock_remote_machine(host: Host, name: str, path: str = str(MACHINE_LOCK)) -> Iterator[bool]:
    """Context manager: hold the lock of a machine over SSH, the same as a tare on that machine holds.

    Yield False if this process holds that lock already, as two names can be of one machine. Raises TareError if another
    tare holds it. The lock is released when this process ends, even when it is killed, or when the connection is lost.
    """
    ours = LockHolder.this_process().line
    with host.spawn("sh", "-c", _LOCK_SCRIPT, "sh", path, ours, die_with_parent=True) as holder:
        answer = holder.read_line(_REPLY_SECONDS).text.removeprefix("taken by ")
        if answer == "foreign":
            what = f"{name}: other users could replace its lock {path}"
            raise TareError(what, "remove the folder of the lock there, as root")
        # `ours`: this machine, or a machine that is locked already under another name.
        if answer not in ("held", ours):
            other = LockHolder.parse(answer)
            what = f"another tare runs on {name} (process {other.pid if other else 'unknown'} of its controller)"
            raise TareError(what, "wait until it has ended")
        yield answer == "held"


def _check_folder(folder: Path) -> None:
    """Create the folder of a lock file if it is missing. Raises TareError if other users could replace the file."""
    hint = f"remove {folder} as root, or let TARE_LOCK name a file in a folder that only root can change"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise TareError(
            f"{folder}: the folder of the machine's lock cannot be made: {format_os_error(error)}", hint
        ) from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in {0, os.geteuid()} or status.st_mode & 0o022:
        raise TareError(f"{folder}: other users could replace the machine's lock, which is in it", hint)

"""The ledger: what tare has made on the machine, written down before it is made, so that `tare clean` can undo it.

An entry is a command that undoes one thing. It names something of tare's, and no path that is not tare's, or it is
refused.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tare.contracts import Host
from tare.errors import TareError, Unreachable
from tare.hosts.local import LocalHost
from tare.hosts.undoing import trouble_of
from tare.model import Machine

_STATE = Path("/var/lib/tare")
# Places of others in which an undo may name something that does not bear tare's name.
_OTHERS = ("/sys/fs/cgroup/", "/run/systemd/nspawn/locks/inode-")


def state_folder() -> Path:
    """Folder in which tare keeps images, instances and ledgers: `TARE_HOME`, or /var/lib/tare."""
    return Path(os.environ.get("TARE_HOME") or _STATE).absolute()


def private_state_folder() -> Path:
    """Give that folder, made, and for its owner alone: in it are setuid programs of images, and keys of guests.

    One that `TARE_HOME` names and that was there before stays as it is: it may be more than tare's.
    """
    folder = state_folder()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    except OSError as error:
        what = f"{folder}: tare's own folder cannot be made: {(error.strerror or str(error)).lower()}"
        raise TareError(what, "let TARE_HOME name another folder, or be unset for /var/lib/tare") from error
    for own in (*([folder] if folder == _STATE else []), folder / "images", folder / "instances"):
        if own.is_dir() and os.access(own, os.W_OK):
            own.chmod(0o700)
    return folder


class Ledger:
    """The ledger of one run on one host, a file of JSON lines; of a `machine` over SSH, it begins with that."""

    def __init__(self, path: Path, host: Host | None = None, machine: Machine | None = None) -> None:
        self.path = path
        self.host = host or LocalHost()
        self._machine = machine
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._entries: list[tuple[str, ...]] = []
        self._overdue: list[tuple[str, ...]] = []

    @contextlib.contextmanager
    def undone_by(self, *argv: str) -> Iterator[None]:
        """Promise that a command is run after the block, by us or by `tare clean`."""
        if not _undoes_ours(argv):
            raise TareError(f"refused to keep an undo that names nothing of tare's: {' '.join(argv)}")
        self._entries.append(argv)
        self._write()
        try:
            yield
        finally:
            # What a machine that is gone still has to undo stays written, for when it is back, or for `tare clean`.
            self._overdue.append(argv)
            self.catch_up()

    def catch_up(self) -> None:
        """Undo what should have been undone while the host did not answer. What cannot be undone stays written."""
        while self._overdue:
            argv = self._overdue.pop(0)
            try:
                trouble = trouble_of(self.host, argv)
            except Unreachable:
                self._overdue.insert(0, argv)
                break
            if not trouble and argv in self._entries:
                self._entries.remove(argv)
        self._write_less()

    def sweep(self) -> None:
        """Undo what is still to be undone: an interrupt at a bad moment may have come between a thing and its block.

        What cannot be undone stays written, for `tare clean`, and the rest is undone.
        """
        with contextlib.suppress(Unreachable):
            for index in reversed(range(len(self._entries))):
                if not trouble_of(self.host, self._entries[index]):
                    del self._entries[index]
        self._write_less()

    def _write_less(self) -> None:
        with contextlib.suppress(OSError):  # a full disk: what is written and already undone can be undone again
            self._write()

    def _write(self) -> None:
        _write(self.path, self._machine, self._entries)


class DoomedLedger(Ledger):
    """The ledger of an instance's inside: what is made there vanishes with the instance, so nothing is undone."""

    def __init__(self, host: Host) -> None:
        self.host = host

    def catch_up(self) -> None:
        """Do nothing: nothing is ever overdue."""

    @contextlib.contextmanager
    def undone_by(self, *argv: str) -> Iterator[None]:  # noqa: ARG002 - the instance's end undoes everything
        """Promise nothing."""
        yield


@dataclass(frozen=True)
class Leftovers:
    """What a killed run left on a machine, None for this one: what has to be undone, the last thing made first."""

    machine: Machine | None
    entries: tuple[tuple[str, ...], ...]


def keep(path: Path, left: Leftovers) -> None:
    """Write a ledger anew with what is still to be undone; without anything, remove it."""
    _write(path, left.machine, left.entries[::-1])


def leftovers(folder: Path) -> dict[Path, Leftovers]:
    """Read all ledgers in a folder.

    Raises TareError for an entry that is not an undo of tare's: the file has been tampered with, and nothing is run.
    """
    found = {}
    for path in sorted(folder.glob("*.jsonl")):
        try:
            found[path] = _parse(path.read_text(encoding="utf-8"))
        except (ValueError, TypeError) as error:
            raise TareError(f"{path}: not a ledger of tare's", "look at the file, then remove it by hand") from error
    return found


def _write(path: Path, machine: Machine | None, entries: Sequence[tuple[str, ...]]) -> None:
    if not entries:
        path.unlink(missing_ok=True)
        return
    fresh = path.with_suffix(".new")
    head = [json.dumps(asdict(machine))] if machine else []
    lines = [*head, *(json.dumps(entry) for entry in entries)]
    fresh.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    fresh.replace(path)


def _parse(text: str) -> Leftovers:
    """Read a ledger; raises ValueError or TypeError for anything else."""
    lines = [json.loads(line) for line in text.splitlines()]
    machine = Machine(**lines.pop(0)) if lines and isinstance(lines[0], dict) else None
    entries = [tuple(line) for line in lines]
    words = [word for entry in entries for word in entry]
    words += [machine.ssh, machine.ssh_config, machine.address] if machine else []
    if not all(isinstance(word, str) for word in words) or not all(_undoes_ours(entry) for entry in entries):
        raise ValueError("an entry that tare did not write")
    return Leftovers(machine, tuple(reversed(entries)))


def _undoes_ours(argv: tuple[str, ...]) -> bool:
    """Tell whether a command names something that starts with `tare-`, and no path of somebody else."""
    paths = [word for word in argv[1:] if word.startswith("/")]
    return any("tare-" in word for word in argv[1:]) and all(
        ".." not in path and ("tare-" in path or path.startswith(_OTHERS)) for path in paths
    )

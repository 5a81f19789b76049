"""Settings of this machine changed and put back. What was there is on the disk before the first of them is changed.

The record names the boot that it is of: when the machine starts again, the kernel's settings are back by themselves. A
change keeps the first value that a file had and all that tare has written to it, so that applying twice, or a kill
between any two steps, loses nothing; a value that is none of these is somebody else's, and stays.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter

from tare.errors import TareError, why_of
from tare.hosts.host import BOOT_ID
from tare.hosts.ledger import state_folder
from tare.hosts.local import read_text
from tare.hosts.tuning import SETTINGS, is_ours, value

_FORMAT = 1

Result = Literal["set", "put back", "refused", "gone", "somebody else's"]


@dataclass(frozen=True)
class Done:
    """What became of a file: its value before and now, and the kernel's reason if it was refused."""

    path: str
    result: Result
    before: str
    now: str
    reason: str = ""


@dataclass(frozen=True)
class _Change:
    """The first value of a file, and what tare has written to it since."""

    path: str
    before: str
    written: tuple[str, ...]


@dataclass(frozen=True)
class _Record:
    format: int
    boot: str
    changes: tuple[_Change, ...]


_RECORD = TypeAdapter(_Record)


class Tuned:
    """The settings of a machine, whose files are below `root`, and the record of their first values."""

    def __init__(self, root: Path = Path("/"), record: Path | None = None) -> None:
        self._root = root
        self.record = record or state_folder() / "tuned.json"

    def read(self, path: str) -> str:
        """Return the text of one of the machine's files; empty if it cannot be read."""
        return read_text(str(self._below(path)))

    def changed(self) -> tuple[str, ...]:
        """Name the files that were changed since the machine started and not put back; raises TareError."""
        return tuple(self._changes())

    def outlived(self) -> bool:
        """Return whether the record is from before the machine started again."""
        return self.record.exists() and not self._changes()

    def apply(self) -> Iterator[Done]:
        """Change what differs from what is wanted, one file for each that is asked for; raises TareError.

        All changes are on the disk before the first is made.
        """
        changes = self._changes()
        todo = {path: wanted for each in SETTINGS for path, wanted in each.to_change(self.read).items()}
        first = {path: value(self.read(path)) for path in todo}
        if not todo:
            return
        for path, wanted in todo.items():
            known = changes.get(path, _Change(path, first[path], ()))
            written = tuple(dict.fromkeys((*known.written, wanted)))
            changes[path] = _Change(path, known.before, written)
        self._keep(changes)
        for path, wanted in todo.items():
            yield self._set(path, first[path], wanted)

    def restore(self) -> Iterator[Done]:
        """Put back the first values, the last change first; raises TareError.

        The record stays while the kernel refuses one of them.
        """
        refused = False
        for change in reversed(self._changes().values()):
            now = value(self.read(change.path))
            if now == change.before:
                continue
            if not now:
                yield Done(change.path, "gone", change.before, "")
            elif now not in change.written:
                yield Done(change.path, "somebody else's", change.before, now)
            else:
                done = self._set(change.path, now, change.before)
                refused |= done.result == "refused"
                yield done if done.result == "refused" else Done(change.path, "put back", now, change.before)
        if not refused:
            self.record.unlink(missing_ok=True)

    def _set(self, path: str, before: str, wanted: str) -> Done:
        """Write a value; where the kernel makes another one of it, the earlier value again."""
        try:
            self._write(path, wanted)
            now = value(self.read(path))
            if now == wanted:
                return Done(path, "set", before, now)
            self._write(path, before)
        except OSError as error:
            return Done(path, "refused", before, value(self.read(path)), why_of(error))
        return Done(path, "refused", before, value(self.read(path)), f"it becomes {now}")

    def _write(self, path: str, text: str) -> None:
        with open(self._below(path), "wb", buffering=0, opener=_existing) as file:
            file.write(f"{text}\n".encode())

    def _below(self, path: str) -> Path:
        return self._root / path.lstrip("/")

    def _boot(self) -> str:
        if boot := self.read(BOOT_ID).strip():
            return boot
        raise TareError(f"{BOOT_ID} cannot be read: nothing would tell when settings are back by themselves")

    def _changes(self) -> dict[str, _Change]:
        """Read the record; it is empty if it is of another boot."""
        try:
            text = self.record.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except (OSError, UnicodeDecodeError) as error:
            raise self._damaged() from error
        try:
            record = _RECORD.validate_json(text, strict=True)
        except ValueError as error:
            raise self._damaged() from error
        if record.format != _FORMAT or not all(is_ours(change.path) for change in record.changes):
            raise self._damaged()
        return {change.path: change for change in record.changes} if record.boot == self._boot() else {}

    def _damaged(self) -> TareError:
        hint = "it has the values to put back: look at it, then remove it by hand"
        return TareError(f"{self.record}: not a record that this tare wrote", hint)

    def _keep(self, changes: Mapping[str, _Change]) -> None:
        """Write the record, whole or not at all, to the disk itself; raises TareError."""
        record = _Record(_FORMAT, self._boot(), tuple(changes.values()))
        fresh = self.record.with_suffix(".new")
        try:
            self.record.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with open(fresh, "w", encoding="utf-8", opener=_private) as file:
                file.write(json.dumps(asdict(record), indent=1) + "\n")
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self.record)
            folder = os.open(self.record.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        except OSError as error:
            what = f"{self.record}: what was set cannot be written down: {why_of(error)}"
            raise TareError(what, "nothing was changed; make room there") from error


def _existing(path: str, flags: int) -> int:  # noqa: ARG001 - a setting is changed, never made
    return os.open(path, os.O_WRONLY | os.O_TRUNC)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

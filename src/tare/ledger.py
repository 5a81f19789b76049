"""The ledger: what tare has made on the machine, written down before it is made, so that `tare clean` can undo it.

An entry is a command that undoes one thing. It names something of tare's, and no path that is not tare's, or it is
refused.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

from tare.hosts.local import LocalHost
from tare.model import TareError

_UNDO_SECONDS = 60.0
# Places of others in which an undo may name something that does not bear tare's name.
_OTHERS = ("/sys/fs/cgroup/", "/run/systemd/nspawn/locks/inode-")


def state_folder() -> Path:
    """Folder in which tare keeps images, instances and ledgers: `TARE_HOME`, or /var/lib/tare."""
    return Path(os.environ.get("TARE_HOME", "/var/lib/tare"))


class Ledger:
    """The ledger of one run, a file of JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._entries: list[tuple[str, ...]] = []

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
            LocalHost().run(*argv, timeout=_UNDO_SECONDS, check=False)
            if argv in self._entries:
                self._entries.remove(argv)
            self._write()

    def sweep(self) -> None:
        """Undo what is still to be undone: an interrupt at a bad moment may have come between a thing and its block."""
        while self._entries:
            LocalHost().run(*self._entries.pop(), timeout=_UNDO_SECONDS, check=False)
        self._write()

    def _write(self) -> None:
        if not self._entries:
            self.path.unlink(missing_ok=True)
            return
        fresh = self.path.with_suffix(".new")
        fresh.write_text("".join(json.dumps(entry) + "\n" for entry in self._entries), encoding="utf-8")
        fresh.replace(self.path)


def leftovers(folder: Path) -> dict[Path, tuple[tuple[str, ...], ...]]:
    """Read all ledgers in a folder: for each file what has to be undone, the last thing made first.

    Raises TareError for an entry that is not an undo of tare's: the file has been tampered with, and nothing is run.
    """
    found = {}
    for path in sorted(folder.glob("*.jsonl")):
        try:
            entries = [tuple(json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
            good = all(isinstance(word, str) for entry in entries for word in entry)
        except (ValueError, TypeError):
            good, entries = False, []
        if not good or not all(_undoes_ours(entry) for entry in entries):
            raise TareError(f"{path}: not a ledger of tare's", "look at the file, then remove it by hand")
        found[path] = tuple(reversed(entries))
    return found


def _undoes_ours(argv: tuple[str, ...]) -> bool:
    """Tell whether a command names something that starts with `tare-`, and no path of somebody else."""
    paths = [word for word in argv[1:] if word.startswith("/")]
    return any("tare-" in word for word in argv[1:]) and all(
        ".." not in path and ("tare-" in path or path.startswith(_OTHERS)) for path in paths
    )

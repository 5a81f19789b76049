"""Snapshots of instances: their folder on the host, and the check that a snapshot fits to what restores it.

A snapshot holds the memory of programs and the state of the technology. Another version of the technology may read it
wrongly, and files of another image are not those that the programs have open: tare refuses both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from tare.hosts.host import Host
from tare.hosts.ledger import Ledger, UndoStep
from tare.model.errors import TrialFailed

_FILE = "tare-snapshot.json"
_HINT = "take a new snapshot"


@dataclass(frozen=True)
class SnapshotIdentity:
    """Identity of a snapshot: what it can only be restored with."""

    technology: str
    version: str
    image: str

    def write(self, host: Host, folder: str) -> None:
        """Store the identity in the snapshot's folder."""
        host.write(f"{folder}/{_FILE}", json.dumps(asdict(self)))

    def require_equal(self, host: Host, folder: str) -> None:
        """Raise TrialFailed unless the snapshot in a folder was taken with the same technology and image."""
        try:
            stored = SnapshotIdentity(**json.loads(host.read(f"{folder}/{_FILE}")))
        except (ValueError, TypeError) as error:
            raise TrialFailed(f"{folder}: not a whole snapshot", _HINT) from error
        for name, theirs, ours in zip(asdict(self), asdict(stored).values(), asdict(self).values(), strict=True):
            if theirs != ours:
                raise TrialFailed(f"the snapshot is of {name} {theirs}, which {ours} cannot restore", _HINT)


@contextmanager
def create_snapshot_folder(ledger: Ledger, folder: Path) -> Iterator[str]:
    """Context manager: make the folder of a snapshot, and remove it with all that is in it after the block."""
    with ledger.create([("folder", str(folder))], UndoStep.for_folder(str(folder))):
        yield str(folder)

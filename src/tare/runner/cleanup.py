"""Cleanup of what killed runs left on this machine and on others, by their ledgers.

Callers hold this machine's lock.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tare.errors import TareError
from tare.hosts.host import Host
from tare.hosts.ledger import Leftovers, keep, ledgers, leftovers, state_folder
from tare.hosts.local import LocalHost
from tare.hosts.ssh import machine
from tare.hosts.undoing import in_short, trouble_of
from tare.images.building import remove_abandoned
from tare.images.kept import GOING
from tare.model.machines import Machine

_UNDO_SECONDS = 60.0
_SOCKETS, _SOCKET = "/run", "tare-clean-"  # to other machines: their folder, and the begin of their names


def clean_up(say: Callable[[str], None]) -> list[str]:
    """Undo all that killed runs have left, and keep what cannot be undone; return the reasons, with the machine's name.

    `say` is told of each thing.
    """
    for half_written in ledgers().glob("*.new"):  # its new entries were not made yet
        half_written.unlink()
    remove_abandoned()
    _remove_sockets()
    for half in (state_folder() / "images").glob(f"{GOING}*"):
        shutil.rmtree(half)
    troubles = [trouble for path, left in leftovers(ledgers()).items() for trouble in _undo(path, left, say)]
    instances = state_folder() / "instances"
    if not troubles and instances.exists():  # what is not undone may be mounted there
        LocalHost().run("rm", "-rf", "--one-file-system", str(instances), timeout=_UNDO_SECONDS, check=False)
    return list(dict.fromkeys(troubles))


def _undo(path: Path, left: Leftovers, say: Callable[[str], None]) -> list[str]:
    """Undo the entries of a ledger and keep those that fail; return the reasons, with the machine's name."""
    name = left.machine.ssh if left.machine else "this machine"
    kept = list(left.entries)
    troubles = []
    try:
        with _machine(left.machine) as host:
            for argv in left.entries:
                trouble = trouble_of(host, argv, _UNDO_SECONDS)
                if trouble:
                    troubles.append(f"on {name}: {trouble}")
                else:
                    kept.remove(argv)
                say(f"{'not undone' if trouble else 'undone'}: {in_short(argv)}")
    except TareError as error:  # it cannot be reached, or not any more
        troubles.append(f"on {name}: {error}")
        say(f"not undone: {len(kept)} things on {name}")
    finally:
        keep(path, replace(left, entries=tuple(kept)))
    return troubles


@contextmanager
def _machine(target: Machine | None) -> Iterator[Host]:
    if target is None:
        yield LocalHost()
    else:
        with machine(LocalHost(), target, f"{_SOCKETS}/{_SOCKET}{os.getpid():x}.ssh", None) as host:
            yield host


def _remove_sockets() -> None:
    """Remove the sockets to other machines of a `tare clean` that was killed."""
    for path in Path(_SOCKETS).glob(f"{_SOCKET}*.ssh"):
        number = path.stem.removeprefix(_SOCKET)
        if re.fullmatch("[0-9a-f]{1,8}", number) and not Path(f"/proc/{int(number, 16)}").exists():
            path.unlink(missing_ok=True)

"""`tare clean`: remove what a killed run left behind."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tare.cli.console import Console
from tare.errors import TareError, UsageError
from tare.hosts.host import Host
from tare.hosts.ledger import Leftovers, keep, leftovers, state_folder
from tare.hosts.local import LocalHost
from tare.hosts.lock import only_one
from tare.hosts.ssh import machine
from tare.hosts.undoing import trouble_of
from tare.images.building import remove_abandoned
from tare.images.kept import GOING, forgotten
from tare.model.machines import Machine

_UNDO_SECONDS = 60.0
_SOCKETS, _SOCKET = "/run", "tare-clean-"  # to other machines: their folder, and the begin of their names


def clean(
    images: Annotated[
        bool, typer.Option("--images", help="Also remove the images, which take minutes to build.")
    ] = False,
) -> None:
    """Remove what a killed run left behind on this machine."""
    if os.geteuid():
        raise UsageError("only root can remove what root has made", "sudo tare clean")
    console = Console(stderr=True)
    with only_one():
        for half_written in _ledgers().glob("*.new"):  # its new entries were not made yet
            half_written.unlink()
        remove_abandoned()
        _remove_sockets()
        for half in (state_folder() / "images").glob(f"{GOING}*"):
            shutil.rmtree(half)
        troubles = [trouble for path, left in leftovers(_ledgers()).items() for trouble in _undo(path, left, console)]
        if not troubles:  # what is not undone may be mounted there
            shutil.rmtree(state_folder() / "instances", ignore_errors=True)
        if images:
            shutil.rmtree(state_folder() / "images", ignore_errors=True)
            troubles += [f"on this machine: {trouble}" for trouble in forgotten(LocalHost())]
    if troubles:
        hint = f"fix this, then `tare clean` again; what is left to undo is in {_ledgers()}"
        raise TareError(f"not everything could be undone: {'; '.join(dict.fromkeys(troubles))}", hint)
    console.print("clean")


def _ledgers() -> Path:
    return state_folder() / "ledger"


def _undo(path: Path, left: Leftovers, console: Console) -> list[str]:
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
                line = f"{'not undone' if trouble else 'undone'}: {' '.join(argv)}"
                console.print(line[: console.width])
    except TareError as error:  # it cannot be reached, or not any more
        troubles.append(f"on {name}: {error}")
        console.print(f"not undone: {len(kept)} things on {name}")
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

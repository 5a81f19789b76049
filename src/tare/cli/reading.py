"""Runs that a command reads: with the rights of their owner, as they may be untrusted.

A report needs no root. Where root asks for one, this process becomes the owner of the run's folder for good. So nothing
in the folder can lead to what its owner may not read or write, and what is written there is the owner's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.progress import Progress

from tare.cli.console import Console
from tare.errors import UsageError
from tare.journal import Run, load


def read_run(folder: Path) -> Run:
    """Load a run as its owner; raises UsageError."""
    become_owner(folder)
    return load(folder)


@contextmanager
def reading(runs: Sequence[Path]) -> Iterator[Callable[[int], None]]:
    """Become the owner of runs, and show on a terminal how many of them are read, which the block tells."""
    for run in runs:
        become_owner(run)
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("reading the runs", total=len(runs))
        yield lambda number: bar.update(task, completed=number)


def become_owner(folder: Path) -> None:
    """Give up root's rights for those of a folder's owner, unless that is root or the folder is not there.

    Raises UsageError where the owner may not read it, or what this process loads later: tare, its libraries, Python's.
    """
    if os.geteuid():
        return
    try:
        owner = folder.stat()
    except OSError:  # who reads it says what is wrong
        return
    if owner.st_uid == 0:
        return
    os.setgroups([])
    os.setresgid(owner.st_gid, owner.st_gid, owner.st_gid)
    os.setresuid(owner.st_uid, owner.st_uid, owner.st_uid)
    for place in (folder, Path(__file__), Path(np.__file__), Path(os.__file__)):
        if not os.access(place, os.R_OK):
            what = f"{folder} belongs to user {owner.st_uid}, who may not read {place}"
            raise UsageError(what, "move it to where this user may read it, or make it root's: chown -R root")

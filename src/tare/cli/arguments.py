"""Read the runs and verdicts that commands take as arguments, with the owner's rights.

A report needs no root. Where root asks for one, this process becomes the owner of the run's folder for good. So nothing
in the folder can lead to what its owner may not read or write, and what is written there is the owner's.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from tare.model.errors import UsageError, did_you_mean
from tare.model.journal import Run, load_run

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
ChartsFile = Annotated[
    Path | None, typer.Option("--html", help="Write a page with charts to this file, too.", show_default=False)
]
Verdict = TypeVar("Verdict", bound=str)


def read_run(folder: Path) -> Run:
    """Load a run as its owner; raises UsageError."""
    become_owner(folder)
    return load_run(folder)


@contextmanager
def reading_progress(runs: Sequence[Path]) -> Iterator[Callable[[int], None]]:
    """Become the owner of runs, and show on a terminal how many of them are read, which the block tells."""
    from rich.progress import Progress  # noqa: PLC0415 - `tare technologies` needs none of these libraries

    from tare.cli.console import Console  # noqa: PLC0415

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
    numpy = find_spec("numpy")
    libraries = Path(numpy.origin) if numpy and numpy.origin else Path(typer.__file__)
    for place in (folder, Path(__file__), libraries, Path(os.__file__)):
        if not os.access(place, os.R_OK):
            what = f"{folder} belongs to user {owner.st_uid}, who may not read {place}"
            raise UsageError(what, "move it to where this user may read it, or make it root's: chown -R root")


def parse_verdicts(
    texts: Sequence[str] | None, known: Collection[Verdict], noun: str, example: str
) -> tuple[Verdict, ...]:
    """Return the known verdicts that the option names, in their order; it may be repeated. Raises UsageError."""
    names = [name.strip() for text in texts or () for name in text.split(",") if name.strip()]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, f"there are {', '.join(known)}")
            raise UsageError(f"--fail-on {name}: there is no such {noun} to fail on", hint)
    if texts and not names:
        raise UsageError(f"--fail-on: no {noun} is named", f"for example --fail-on {example}")
    return tuple(verdict for verdict in known if verdict in names)

"""Arguments of several commands: run folders, read with the rights of their owner, and verdicts.

Reports need no root. When root reads a run, this process becomes the owner of the run's folder for the rest of its
life. A symbolic link in the folder then cannot make root read or write another user's file, and the report belongs to
the owner of the run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from tare.model.errors import UsageError, did_you_mean
from tare.model.run_folder import Run, load_run

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
ChartsFile = Annotated[
    Path | None,
    typer.Option(
        "--html", help="Also write an HTML page with charts to this file.", metavar="FILE", show_default=False
    ),
]
Verdict = TypeVar("Verdict", bound=str)


def read_run(folder: Path) -> Run:
    """Load a run as its owner; raises UsageError."""
    become_owner(folder)
    return load_run(folder)


@contextmanager
def reading_progress(runs: Sequence[Path]) -> Iterator[Callable[[int], None]]:
    """Context manager: become the owner of runs, and yield a function that shows the number of runs read so far."""
    from rich.progress import Progress  # noqa: PLC0415 - `tare technologies` needs none of these libraries

    from tare.cli.console import Console  # noqa: PLC0415

    for run in runs:
        become_owner(run)
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("reading the runs", total=len(runs))
        yield lambda number: bar.update(task, completed=number)


def become_owner(folder: Path) -> None:
    """Drop root's rights and become the owner of a folder; do nothing if root owns the folder or it does not exist.

    Raises UsageError if the owner may not read the folder, or modules that are imported later (tare's, libraries').
    """
    if os.geteuid():
        return
    try:
        owner = folder.stat()
    except OSError:  # the caller reads the folder next, and reports the reason
        return
    if owner.st_uid == 0:
        return
    os.setgroups([])
    os.setresgid(owner.st_gid, owner.st_gid, owner.st_gid)
    os.setresuid(owner.st_uid, owner.st_uid, owner.st_uid)
    numpy = find_spec("numpy")
    libraries = Path(numpy.origin) if numpy and numpy.origin else Path(typer.__file__)
    # Modules that are imported later are read with the owner's rights too, and tare may be installed below /root.
    for path in (folder, Path(__file__), libraries, Path(os.__file__)):
        if not os.access(path, os.R_OK):
            what = f"{folder}: belongs to user {owner.st_uid}, who may not read {path}"
            raise UsageError(what, f"move {path}, or give the run to root: chown -R root {folder}")


def split_names(text: str) -> list[str]:
    """Return the names of a list that is separated by commas, without empty ones."""
    return [name.strip() for name in text.split(",") if name.strip()]


def refuse_options(options: Mapping[str, object], why: str, hint: str) -> None:
    """Raise UsageError, which begins with the option and `why`, for the first of these options that was given."""
    if given := next((option for option, value in options.items() if value), None):
        raise UsageError(f"{given}{why}", hint)


def parse_verdicts(
    texts: Sequence[str] | None, known: Collection[Verdict], noun: str, example: str
) -> tuple[Verdict, ...]:
    """Return the verdicts that --fail-on names, in the order of `known`.

    Each text is a list separated by commas. Raises UsageError for an unknown verdict, and if an option names none.
    """
    names = [name for text in texts or () for name in split_names(text)]
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known, f"choose from {', '.join(known)}")
            raise UsageError(f"--fail-on {name}: no such {noun}", hint)
    if texts and not names:
        raise UsageError(f"--fail-on: no {noun} is named", f"for example --fail-on {example}")
    return tuple(verdict for verdict in known if verdict in names)

"""What `tare compare` prints and `tare report` writes where their arguments are fleets."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.progress import Progress

from tare.answers.comparing import Asked
from tare.answers.fleet import Fleet, fleet, fleets, members
from tare.cli.console import Console, output
from tare.cli.files import writing
from tare.cli.reading import become_owner
from tare.errors import TareError
from tare.report.fleet import conclusions, document, legend, remarks, table
from tare.report.numbers import clean

_LOG = 160


def compare_fleets(before: Path, after: Path | None, asked: Asked, page: Path | None, *, as_json: bool) -> Fleet:
    """Compare the stacks of a fleet, or two fleets, and print what is found."""
    found = _read(before, after, asked)
    if page is not None:
        _write(page, found)
    if as_json:
        print(document(found))
    else:
        _print(found)
    return found


def report_fleet(folder: Path, out: Path | None) -> tuple[Path, ...]:
    """Write the report of a fleet: a page, and JSON; return their paths."""
    found, place = _read(folder, None, Asked()), out or folder / "report"
    place.mkdir(parents=True, exist_ok=True)
    page, data = place / "index.html", place / "report.json"
    _write(page, found)
    data.write_text(document(found) + "\n", encoding="utf-8")
    return page, data


def _read(before: Path, after: Path | None, asked: Asked) -> Fleet:
    folders = [each for each in (before, after) if each is not None]
    runs = [run for folder in folders for run in members(folder)]
    for run in runs:
        become_owner(run)
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("reading the runs", total=len(runs))

        def progress(number: int) -> None:
            bar.update(task, completed=number)

        return fleet(before, asked, progress) if after is None else fleets(before, after, asked, progress)


def cannot_tell() -> TareError:
    """Return the error of a gate that can neither pass nor fail."""
    return TareError("the gate cannot tell: no comparison has an interval", "measure more machines")


def _print(found: Fleet) -> None:
    # A log has no width: do not break its lines.
    console = output(_LOG)
    console.print(table(found, console.width))
    for line in (legend(found), *remarks(found)):
        console.print(clean(line), style="dim", soft_wrap=True)
    for line in conclusions(found):
        console.print(clean(line), style="bold", soft_wrap=True)


def _write(page: Path, found: Fleet) -> None:
    from tare.report.html import of_fleet  # noqa: PLC0415 - drawing charts takes a second to load

    with writing(page, "choose another file with --html"):
        page.write_bytes(of_fleet(found))

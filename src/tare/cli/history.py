"""`tare history`: the same suite over time, with the changes that hold however often one looks."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import Progress

from tare.answers.history import DIRECTIONS, AskedHistory, History, cannot_tell
from tare.answers.history import history as follow
from tare.cli.console import Console, output
from tare.cli.files import writing
from tare.cli.reading import become_owner
from tare.cli.verdicts import verdicts_named
from tare.errors import UsageError
from tare.report.history import conclusions, document, legend, remarks, table
from tare.report.numbers import clean
from tare.units import margin_option

_LOG = 180


def history(  # noqa: PLR0913 - each is an option of the command line
    runs: Annotated[list[Path], typer.Argument(help="Run folders, in any order.", metavar="RUN...")],
    *,
    baseline: Annotated[str | None, typer.Option(help="The stack to compare with (default: the last run's).")] = None,
    stack: Annotated[list[str] | None, typer.Option(help="Only this stack; may be given again.")] = None,
    margin: Annotated[
        str | None, typer.Option(help="Smaller changes count as none, such as 3% (default: the last run's).")
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Exit with 1 on a change that became firm with the last run: {', '.join(DIRECTIONS)}.",
            metavar="VERDICT",
        ),
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            help="Of --fail-on: a change that became firm with a run of this day or a later one.",
            formats=["%Y-%m-%d"],
            metavar="DAY",
        ),
    ] = None,
    across_machines: Annotated[
        bool, typer.Option("--across-machines", help="Also follow runs of unlike machines.")
    ] = False,
    page: Annotated[
        Path | None, typer.Option("--html", help="Write a page with charts to this file, too.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")] = False,
) -> None:
    """Follow the stacks of a suite through its runs: where their level changed, and what else changed there."""
    named = verdicts_named(fail_on, DIRECTIONS, "verdict", "worse")
    directions = tuple(each for each in DIRECTIONS if each in named)
    if since is not None and not directions:
        raise UsageError("--since is of a gate, and there is none", "name what it fails on: --fail-on worse")
    day = "" if since is None else since.date().isoformat()
    stacks = tuple(dict.fromkeys(stack or ()))
    asked = AskedHistory(baseline, stacks, margin_option(margin), directions, day, across_machines)
    for run in runs:
        become_owner(run)
    with Progress(console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()) as bar:
        reading = bar.add_task("reading the runs", total=len(runs))
        found = follow(runs, asked, lambda number: bar.update(reading, completed=number))
    if page is not None:
        _write(page, found)
    if as_json:
        print(document(found))
    else:
        _print(found)
    if found.gate.answer == "cannot tell":
        raise cannot_tell(found)
    if found.gate.answer == "failed":
        raise typer.Exit(1)


def _print(found: History) -> None:
    # A log has no width: do not break its lines.
    console = output(_LOG)
    console.print(table(found, console.width))
    for line in (legend(found), *remarks(found)):
        console.print(clean(line), style="dim", soft_wrap=True)
    for line in conclusions(found):
        console.print(clean(line), style="bold", soft_wrap=True)


def _write(page: Path, found: History) -> None:
    from tare.report.html import followed  # noqa: PLC0415 - drawing charts takes a second to load

    with writing(page, "choose another file with --html"):
        page.write_bytes(followed(found))

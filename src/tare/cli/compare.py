"""`tare compare`: one run's stacks against a baseline, or two runs; with a gate for continuous integration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from tare.answers.comparing import (
    KINDS,
    PASSED_UNDECIDED,
    TO_DECIDE,
    Answer,
    Asked,
    Gate,
    cannot_tell,
    compare_runs,
    compare_stacks,
)
from tare.answers.fleet import is_fleet
from tare.cli.console import output, printable, say
from tare.cli.files import writing
from tare.cli.fleet_table import cannot_tell as fleet_cannot_tell
from tare.cli.fleet_table import compare_fleets
from tare.cli.reading import read_run
from tare.cli.verdicts import verdicts_named
from tare.errors import TareError, UsageError
from tare.report.comparison import conclusions, document, legend, markdown, remarks, table
from tare.report.numbers import clean
from tare.units import margin_option

_LOG = 160


def compare(  # noqa: PLR0913 - each is an option of the command line
    run: Annotated[Path, typer.Argument(help="A run folder, or a fleet: a folder with runs.", metavar="RUN")],
    after: Annotated[
        Path | None, typer.Argument(help="A later run, to compare RUN with.", metavar="AFTER", show_default=False)
    ] = None,
    *,
    baseline: Annotated[str | None, typer.Option(help="The stack to compare with (default: the run's).")] = None,
    stack: Annotated[list[str] | None, typer.Option(help="Only this stack; may be given again.")] = None,
    margin: Annotated[
        str | None, typer.Option(help="Smaller differences count as none, such as 3% (default: the run's).")
    ] = None,
    fail_on: Annotated[
        list[str] | None, typer.Option(help=f"Exit with 1 on any of: {', '.join(KINDS)}.", metavar="VERDICT")
    ] = None,
    across_machines: Annotated[
        bool, typer.Option("--across-machines", help="Also compare runs of unlike machines.")
    ] = False,
    page: Annotated[
        Path | None, typer.Option("--html", help="Write a page with charts to this file, too.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown for a pull request.")] = False,
) -> None:
    """Compare the stacks of a run or a fleet with a baseline, or show what changed from one to another."""
    if as_json and as_markdown:
        raise UsageError("--json and --markdown exclude each other", "call `tare compare` once for each")
    stacks = tuple(dict.fromkeys(stack or ()))
    named = verdicts_named(fail_on, KINDS, "verdict", "worse")
    kinds = tuple(kind for kind in KINDS if kind in named)
    asked = Asked(baseline, stacks, margin_option(margin), kinds, across_machines)
    if is_fleet(run) or (after is not None and is_fleet(after)):
        if as_markdown:
            raise UsageError("--markdown is for runs, and not for fleets", "use --json, or --html FILE")
        found = compare_fleets(run, after, asked, page, as_json=as_json)
        _end(found.gate, fleet_cannot_tell)
        return
    before = read_run(run)
    answer = compare_stacks(before, asked) if after is None else compare_runs(before, read_run(after), asked)
    if page is not None:
        _write(page, answer)
    if as_json:
        print(document(answer))
    elif as_markdown:
        print(printable(markdown(answer)), end="")
    else:
        _print(answer)
    _end(answer.gate, lambda: cannot_tell(answer))


def _end(gate: Gate, error: Callable[[], TareError]) -> None:
    """Exit with the code of the gate's answer, and warn of a gate that passes with nothing decided."""
    if gate.answer == "cannot tell":
        raise error()
    if gate.answer == "failed":
        raise typer.Exit(1)
    if gate.is_undecided:
        say(f"the gate {PASSED_UNDECIDED}", f"hint: {TO_DECIDE}")


def _print(answer: Answer) -> None:
    # A log has no width: do not break its lines.
    console = output(_LOG)
    console.print(table(answer, console.width))
    for line in (legend(answer), *remarks(answer)):
        console.print(clean(line), style="dim", soft_wrap=True)
    for line in conclusions(answer):
        console.print(clean(line), style="bold", soft_wrap=True)


def _write(page: Path, answer: Answer) -> None:
    from tare.report.html import compared  # noqa: PLC0415 - drawing charts takes a second to load

    with writing(page, "choose another file with --html"):
        page.write_bytes(compared(answer))

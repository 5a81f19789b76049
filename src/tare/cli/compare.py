"""`tare compare`: one run's stacks against a baseline, or two runs; with a gate for continuous integration."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tare.answers.comparing import KINDS, Comparison, Question, compare_runs, compare_stacks
from tare.answers.fleet import is_fleet
from tare.cli.answer import give
from tare.cli.fleet_table import read_fleets, render_fleet
from tare.cli.reading import read_run
from tare.cli.verdicts import AsJson, ChartsFile, verdicts_named
from tare.errors import UsageError
from tare.report import comparison, fleet
from tare.units import margin_option


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
    page: ChartsFile = None,
    as_json: AsJson = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown for a pull request.")] = False,
) -> None:
    """Compare the stacks of a run or a fleet with a baseline, or show what changed from one to another."""
    if as_json and as_markdown:
        raise UsageError("--json and --markdown exclude each other", "call `tare compare` once for each")
    stacks = tuple(dict.fromkeys(stack or ()))
    kinds = verdicts_named(fail_on, KINDS, "verdict", "worse")
    question = Question(baseline, stacks, margin_option(margin), kinds, across_machines)
    if is_fleet(run) or (after is not None and is_fleet(after)):
        fleets = read_fleets(run, after, question)
        answer, render = fleet.answer(fleets), partial(render_fleet, fleets)
    else:
        before = read_run(run)
        found = compare_stacks(before, question) if after is None else compare_runs(before, read_run(after), question)
        answer, render = comparison.answer(found), partial(_render, found)
    give(answer, page, render, as_json=as_json, as_markdown=as_markdown)


def _render(found: Comparison) -> bytes:
    from tare.report.html.compared import render  # noqa: PLC0415 - drawing charts takes a second to load

    return render(found)

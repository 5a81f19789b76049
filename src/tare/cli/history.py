"""`tare history`: the same suite over time, with the changes that hold however often one looks."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tare.answers.comparing import Question
from tare.answers.history import DIRECTIONS, History
from tare.answers.history import history as follow
from tare.cli.answer import give
from tare.cli.reading import reading
from tare.cli.verdicts import AsJson, ChartsFile, verdicts_named
from tare.errors import UsageError
from tare.report.history import answer
from tare.units import margin_option


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
    page: ChartsFile = None,
    as_json: AsJson = False,
) -> None:
    """Follow the stacks of a suite through its runs: where their level changed, and what else changed there."""
    directions = verdicts_named(fail_on, DIRECTIONS, "verdict", "worse")
    if since is not None and not directions:
        raise UsageError("--since is of a gate, and there is none", "name what it fails on: --fail-on worse")
    day = "" if since is None else since.date().isoformat()
    stacks = tuple(dict.fromkeys(stack or ()))
    question = Question(baseline, stacks, margin_option(margin), directions, across_machines, day)
    with reading(runs) as progress:
        found = follow(runs, question, progress)
    give(answer(found), page, partial(_render, found), as_json=as_json)


def _render(found: History) -> bytes:
    from tare.report.html.history import render  # noqa: PLC0415 - drawing charts takes a second to load

    return render(found)

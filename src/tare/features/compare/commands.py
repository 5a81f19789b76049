"""Commands `tare compare` and `tare history`."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tare.cli.answer import print_and_exit
from tare.cli.arguments import AsJson, ChartsFile, parse_verdicts, read_run, reading_progress
from tare.features.compare import compare_text
from tare.features.compare.history import HISTORY_CONDITIONS, History, follow_runs
from tare.features.compare.history_text import answer
from tare.features.compare.run_comparison import (
    GATE_CONDITIONS,
    CompareOptions,
    ComparisonResult,
    compare_runs,
    compare_stacks,
)
from tare.model.errors import UsageError
from tare.model.units import parse_margin_option

BaselineOption = Annotated[
    str | None, typer.Option("--baseline", help="The stack to compare with [default: the run's].", metavar="STACK")
]
StackOption = Annotated[
    list[str] | None, typer.Option("--stack", help="Compare only this stack; repeatable.", metavar="STACK")
]
MarginOption = Annotated[
    str | None,
    typer.Option(
        "--margin", help="Smaller differences count as none, such as 3% [default: the run's].", metavar="PERCENT"
    ),
]
FailOnOption = Annotated[
    list[str] | None,
    typer.Option("--fail-on", help=f"Exit with 1 on any of: {', '.join(GATE_CONDITIONS)}.", metavar="VERDICT"),
]
AcrossMachinesOption = Annotated[
    bool, typer.Option("--across-machines", help="Also compare runs of different machines.")
]
AsMarkdown = Annotated[bool, typer.Option("--markdown", help="Print Markdown for a pull request.")]


def compare(  # noqa: PLR0913 - each is an option of the command line
    run: Annotated[Path, typer.Argument(help="A run folder.", metavar="RUN")],
    after: Annotated[
        Path | None, typer.Argument(help="A later run to compare with RUN.", metavar="AFTER", show_default=False)
    ] = None,
    *,
    baseline: BaselineOption = None,
    stack: StackOption = None,
    margin: MarginOption = None,
    fail_on: FailOnOption = None,
    across_machines: AcrossMachinesOption = False,
    page: ChartsFile = None,
    as_json: AsJson = False,
    as_markdown: AsMarkdown = False,
) -> None:
    """Compare the stacks of a run, or two runs with each other."""
    options = parse_compare_options(baseline, stack, margin, fail_on, across_machines=across_machines)
    before = read_run(run)
    result = compare_stacks(before, options) if after is None else compare_runs(before, read_run(after), options)
    render = partial(_render, result)
    print_and_exit(compare_text.answer(result), page, render, as_json=as_json, as_markdown=as_markdown)


def parse_compare_options(
    baseline: str | None,
    stack: list[str] | None,
    margin: str | None,
    fail_on: list[str] | None,
    *,
    across_machines: bool,
) -> CompareOptions:
    """Parse the command-line options of a comparison; raises UsageError."""
    stacks = tuple(dict.fromkeys(stack or ()))
    conditions = parse_verdicts(fail_on, GATE_CONDITIONS, "verdict", "worse")
    return CompareOptions(baseline, stacks, parse_margin_option(margin), conditions, across_machines)


def _render(result: ComparisonResult) -> bytes:
    from tare.features.compare.compare_page import render  # noqa: PLC0415 - drawing charts takes a second to load

    return render(result)


def history(  # noqa: PLR0913 - each is an option of the command line
    runs: Annotated[list[Path], typer.Argument(help="Run folders, in any order.", metavar="RUN...")],
    *,
    baseline: Annotated[
        str | None, typer.Option(help="The stack to compare with [default: the last run's].", metavar="STACK")
    ] = None,
    stack: StackOption = None,
    margin: Annotated[
        str | None,
        typer.Option(help="Smaller changes count as none, such as 3% [default: the last run's].", metavar="PERCENT"),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Exit with 1 if the last run confirmed a change: {', '.join(HISTORY_CONDITIONS)}.",
            metavar="VERDICT",
        ),
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            help="With --fail-on: also count changes that runs since this day confirmed.",
            formats=["%Y-%m-%d"],
            metavar="DAY",
        ),
    ] = None,
    across_machines: Annotated[
        bool, typer.Option("--across-machines", help="Also compare runs of different machines.")
    ] = False,
    page: ChartsFile = None,
    as_json: AsJson = False,
) -> None:
    """Find changes in a series of runs, and what else changed."""
    conditions = parse_verdicts(fail_on, HISTORY_CONDITIONS, "verdict", "worse")
    if since is not None and not conditions:
        raise UsageError("--since requires --fail-on", "add --fail-on worse")
    day = "" if since is None else since.date().isoformat()
    stacks = tuple(dict.fromkeys(stack or ()))
    options = CompareOptions(baseline, stacks, parse_margin_option(margin), conditions, across_machines, day)
    with reading_progress(runs) as progress:
        result = follow_runs(runs, options, progress)
    print_and_exit(answer(result), page, partial(_render_history, result), as_json=as_json)


def _render_history(result: History) -> bytes:
    from tare.features.compare.history_page import render  # noqa: PLC0415 - drawing charts takes a second to load

    return render(result)

"""`tare compare`: one run's stacks against a baseline, or two runs; with a gate for continuous integration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tare.answers.comparing import KINDS, Answer, Asked, Kind, cannot_tell, compare_runs, compare_stacks
from tare.cli.console import Console, printable
from tare.errors import UsageError, did_you_mean
from tare.journal import load
from tare.report.comparison import conclusions, document, legend, markdown, remarks, table
from tare.report.numbers import clean
from tare.units import margin_option

_LOG = 160


def compare(  # noqa: PLR0913 - each is an option of the command line
    run: Annotated[Path, typer.Argument(help="A run folder.", metavar="RUN")],
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
    """Compare the stacks of a run with a baseline, or show what changed from one run to another."""
    if as_json and as_markdown:
        raise UsageError("--json and --markdown exclude each other", "call `tare compare` once for each")
    stacks, kinds = tuple(dict.fromkeys(stack or ())), _kinds(fail_on or [])
    asked = Asked(baseline, stacks, margin_option(margin), kinds, across_machines)
    before = load(run)
    answer = compare_stacks(before, asked) if after is None else compare_runs(before, load(after), asked)
    if page is not None:
        _write(page, answer)
    if as_json:
        print(document(answer))
    elif as_markdown:
        print(printable(markdown(answer)), end="")
    else:
        _print(answer)
    if answer.gate.answer == "cannot tell":
        raise cannot_tell(answer)
    if answer.gate.answer == "failed":
        raise typer.Exit(1)


def _print(answer: Answer) -> None:
    # A log has no width: do not break its lines.
    console = Console(file=sys.stdout, highlight=False, markup=False, width=None if sys.stdout.isatty() else _LOG)
    console.print(table(answer, console.width))
    for line in (legend(answer), *remarks(answer)):
        console.print(clean(line), style="dim", soft_wrap=True)
    for line in conclusions(answer):
        console.print(clean(line), style="bold", soft_wrap=True)


def _write(page: Path, answer: Answer) -> None:
    from tare.report.html import compared  # noqa: PLC0415 - drawing charts takes a second to load

    try:
        page.write_bytes(compared(answer))
    except OSError as error:
        raise UsageError(f"{page}: cannot be written: {(error.strerror or str(error)).lower()}") from error


def _kinds(texts: list[str]) -> tuple[Kind, ...]:
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    for name in names:
        if name not in KINDS:
            hint = did_you_mean(name, KINDS, f"there are {', '.join(KINDS)}")
            raise UsageError(f"--fail-on {name}: there is no such verdict to fail on", hint)
    if texts and not names:
        raise UsageError("--fail-on: no verdict is named", "for example --fail-on worse")
    return tuple(kind for kind in KINDS if kind in names)

"""`tare claims`: published statements, put to the test by a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tare.answers.claim_file import read_together
from tare.answers.judging import JUDGEMENTS, Judgement, Judgements, is_judged, judge, nothing_judged
from tare.cli.console import output
from tare.cli.reading import read_run
from tare.cli.verdicts import verdicts_named
from tare.report.claims import differences, document, legend, remarks, sentence, table
from tare.report.numbers import clean

ClaimFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--claims", help="A file of claims, or `published` for those of the papers (default).", metavar="FILE"
    ),
]
_LOG = 180
_KINDS: dict[str, Judgement] = {name.replace(" ", "-"): name for name in JUDGEMENTS}


def claims(
    run: Annotated[Path, typer.Argument(help="A run folder.", metavar="RUN")],
    *,
    files: ClaimFiles = None,
    fail_on: Annotated[
        list[str] | None, typer.Option(help=f"Exit with 1 on any of: {', '.join(_KINDS)}.", metavar="JUDGEMENT")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show also what was not tested, why, and what would.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")] = False,
) -> None:
    """Put published statements to the test of a run: reproduced, contradicted, undecided, or not tested."""
    kinds = [_KINDS[name] for name in verdicts_named(fail_on, _KINDS, "judgement", "contradicted")]
    judgements = judge(read_run(run), read_together(files or []))
    if as_json:
        print(document(judgements))
    else:
        _print(judgements, every=every)
    if not any(is_judged(judged) for judged in judgements.all):
        raise nothing_judged(judgements)
    if any(judged.judgement in kinds for judged in judgements.all):
        raise typer.Exit(1)


def _print(judgements: Judgements, *, every: bool) -> None:
    console = output(_LOG)
    if every or any(judged.findings for judged in judgements.all):
        console.print(table(judgements, console.width, every=every))
        console.print(clean(legend(judgements)), style="dim", soft_wrap=True)
    if not judgements.fit:  # which the error says
        return
    for line in (*differences(judgements), *remarks(judgements)):
        console.print(clean(line), style="dim", soft_wrap=True)
    console.print(clean(sentence(judgements)), style="bold", soft_wrap=True)

"""`tare claims`: published statements, put to the test by a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from tare.answers.claim_file import published, read_claims
from tare.answers.claims import Claims
from tare.answers.judging import JUDGEMENTS, Judgement, Judgements, is_judged, judge, nothing_judged
from tare.cli.console import Console
from tare.errors import UsageError, did_you_mean
from tare.journal import load
from tare.report.claims import differences, document, legend, remarks, sentence, table
from tare.report.numbers import clean

_LOG = 160
_PUBLISHED = "published"
_KINDS: dict[str, Judgement] = {name.replace(" ", "-"): name for name in JUDGEMENTS}


def claims(
    run: Annotated[Path, typer.Argument(help="A run folder.", metavar="RUN")],
    *,
    files: Annotated[
        list[str] | None,
        typer.Option(
            "--claims", help="A file of claims, or `published` for those of the papers (default).", metavar="FILE"
        ),
    ] = None,
    fail_on: Annotated[
        list[str] | None, typer.Option(help=f"Exit with 1 on any of: {', '.join(_KINDS)}.", metavar="JUDGEMENT")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show also what was not tested, why, and what would.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")] = False,
) -> None:
    """Put published statements to the test of a run: reproduced, contradicted, undecided, or not tested."""
    kinds = _kinds(fail_on or [])
    judgements = judge(load(run), _read(files or [_PUBLISHED]))
    if as_json:
        print(document(judgements))
    else:
        _print(judgements, every=every)
    if not any(is_judged(judged) for judged in judgements.all):
        raise nothing_judged(judgements)
    if any(judged.judgement in kinds for judged in judgements.all):
        raise typer.Exit(1)


def _read(files: list[str]) -> Claims:
    """Read all files as one; raises UsageError where two have a claim or a source of the same name."""
    read = [read_claims(published() if name == _PUBLISHED else Path(name)) for name in dict.fromkeys(files)]
    for what, names in (
        ("claim", [claim.id for each in read for claim in each.claims]),
        ("source", [name for each in read for name in each.origins]),
    ):
        if twice := next((name for name in names if names.count(name) > 1), ""):
            raise UsageError(f'two files have a {what} named "{twice}"', "give one of them another name")
    origins = {name: origin for each in read for name, origin in each.origins.items()}
    return Claims(origins, tuple(claim for each in read for claim in each.claims))


def _print(judgements: Judgements, *, every: bool) -> None:
    console = Console(file=sys.stdout, highlight=False, markup=False, width=None if sys.stdout.isatty() else _LOG)
    if every or any(judged.findings for judged in judgements.all):
        console.print(table(judgements, console.width, every=every))
        console.print(clean(legend(judgements)), style="dim", soft_wrap=True)
    for line in (*differences(judgements), *remarks(judgements)):
        console.print(clean(line), style="dim", soft_wrap=True)
    console.print(clean(sentence(judgements)), style="bold", soft_wrap=True)


def _kinds(texts: list[str]) -> tuple[Judgement, ...]:
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    for name in names:
        if name not in _KINDS:
            hint = did_you_mean(name, _KINDS, f"there are {', '.join(_KINDS)}")
            raise UsageError(f"--fail-on {name}: there is no such judgement to fail on", hint)
    if texts and not names:
        raise UsageError("--fail-on: no judgement is named", "for example --fail-on contradicted")
    return tuple(_KINDS[name] for name in dict.fromkeys(names))

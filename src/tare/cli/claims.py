"""`tare claims`: published statements, put to the test by a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tare.answers.claim_file import read_together
from tare.answers.judging import JUDGEMENTS, Judgement, judge
from tare.cli.answer import give
from tare.cli.reading import read_run
from tare.cli.verdicts import AsJson, verdicts_named
from tare.report.claims import answer

ClaimFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--claims", help="A file of claims, or `published` for those of the papers (default).", metavar="FILE"
    ),
]
_KINDS: dict[str, Judgement] = {name.replace(" ", "-"): name for name in JUDGEMENTS}


def claims(
    run: Annotated[Path, typer.Argument(help="A run folder.", metavar="RUN")],
    *,
    files: ClaimFiles = None,
    fail_on: Annotated[
        list[str] | None, typer.Option(help=f"Exit with 1 on any of: {', '.join(_KINDS)}.", metavar="JUDGEMENT")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show also what was not tested, why, and what would.")] = False,
    as_json: AsJson = False,
) -> None:
    """Put published statements to the test of a run: reproduced, contradicted, undecided, or not tested."""
    kinds = [_KINDS[name] for name in verdicts_named(fail_on, _KINDS, "judgement", "contradicted")]
    judgements = judge(read_run(run), read_together(files or []))
    give(answer(judgements, kinds, every=every), as_json=as_json)

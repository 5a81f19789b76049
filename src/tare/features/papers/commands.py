"""`tare claims`: published statements put to the test of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tare.cli.answer import give
from tare.cli.arguments import AsJson, read_run, verdicts_named
from tare.features.papers.claim_file import read_together
from tare.features.papers.claims_text import answer
from tare.features.papers.judging import JUDGEMENTS, Judgement, judge
from tare.model.files import writing
from tare.report.writer import write_report

ClaimFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--claims", help="A file of claims, or `published` for those of the papers (default).", metavar="FILE"
    ),
]
_KINDS: dict[str, Judgement] = {name.replace(" ", "-"): name for name in JUDGEMENTS}


def claims(  # noqa: PLR0913 - each is an option of the command line
    run: Annotated[Path, typer.Argument(help="A run folder.", metavar="RUN")],
    *,
    files: ClaimFiles = None,
    fail_on: Annotated[
        list[str] | None, typer.Option(help=f"Exit with 1 on any of: {', '.join(_KINDS)}.", metavar="JUDGEMENT")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Show also what was not tested, why, and what would.")] = False,
    out: Annotated[
        Path | None, typer.Option("--report", help="Write the run's page with these claims to this folder, too.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Put published statements to the test of a run: reproduced, contradicted, undecided, or not tested."""
    kinds = [_KINDS[name] for name in verdicts_named(fail_on, _KINDS, "judgement", "contradicted")]
    read = read_run(run)
    judgements = judge(read, read_together(files or []))
    if out is not None:
        with writing(out, "choose another folder with --report"):
            write_report([read], ("html",), out, files or ())
    give(answer(judgements, kinds, every=every), as_json=as_json)

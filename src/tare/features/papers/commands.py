"""Command `tare claims`: test published statements by a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tare.cli.answer import print_and_exit
from tare.cli.arguments import AsJson, parse_verdicts, read_run
from tare.features.papers.claim_file import read_claim_files
from tare.features.papers.claims_text import answer
from tare.features.papers.judging import JUDGEMENTS, Judgement, judge
from tare.model.files import convert_write_errors
from tare.report.writer import write_report

ClaimFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--claims",
        help="A file of claims, `published` for those of the papers [default], or `sandboxes`.",
        metavar="FILE",
    ),
]
_JUDGEMENT_OPTIONS: dict[str, Judgement] = {name.replace(" ", "-"): name for name in JUDGEMENTS}


def claims(  # noqa: PLR0913 - each is an option of the command line
    run: Annotated[Path, typer.Argument(help="A run folder.", metavar="RUN")],
    *,
    files: ClaimFiles = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(help=f"Exit with 1 on any of: {', '.join(_JUDGEMENT_OPTIONS)}.", metavar="JUDGEMENT"),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Also show untested claims, the reasons, and what would test them.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--report", help="Also write the run's page with these claims to this folder.", metavar="FOLDER"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Test published claims against a run.

    A claim is reproduced, contradicted, undecided, not tested or not comparable.
    """
    kinds = [
        _JUDGEMENT_OPTIONS[name] for name in parse_verdicts(fail_on, _JUDGEMENT_OPTIONS, "judgement", "contradicted")
    ]
    read = read_run(run)
    judgements = judge(read, read_claim_files(files or []))
    if out is not None:
        with convert_write_errors(out, "choose another folder with --report"):
            write_report([read], ("html",), out, files or ())
    print_and_exit(answer(judgements, kinds, every=every), as_json=as_json)

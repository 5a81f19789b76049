"""`tare report`: write the report of a run again, in any format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tare.cli.arguments import read_run
from tare.cli.console import say
from tare.features.compare.two_runs import Question
from tare.features.fleet.comparison import is_fleet
from tare.features.fleet.fleet_text import read_fleets, report_fleet
from tare.features.papers.claim_file import read_together
from tare.features.papers.commands import ClaimFiles
from tare.model.errors import UsageError
from tare.model.files import writing
from tare.model.journal import without_collection
from tare.report.writer import DEFAULT_FORMATS, write_report


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or a fleet: a folder with runs.", metavar="RUN...")],
    formats: Annotated[
        str,
        typer.Option("--format", help="Formats, with commas between: html, csv, json, yaml, markdown, latex, pdf, …"),
    ] = ",".join(DEFAULT_FORMATS),
    out: Annotated[Path | None, typer.Option(help="Folder to write to [default: RUN/report].")] = None,
    claims: ClaimFiles = None,
) -> None:
    """Write the report of one or more runs, and print the paths of its files."""
    wanted = [name.strip() for name in formats.split(",") if name.strip()]
    if not wanted:
        raise UsageError("no report format is named", f"for example --format {','.join(DEFAULT_FORMATS)}")
    if claims:
        if "html" not in wanted:
            raise UsageError("--claims: only the format html judges claims", "add it to --format, or see tare claims")
        read_together(claims)  # wrong ones are refused before anything is written
    if any(map(is_fleet, runs)):
        if len(runs) > 1 or claims or formats != ",".join(DEFAULT_FORMATS):
            what = "a fleet has a report of its own: a page, and JSON"
            raise UsageError(what, f"tare report {next(filter(is_fleet, runs))}")
        with writing(out, "choose another folder with --out"):
            for path in report_fleet(read_fleets(runs[0], None, Question()), out):
                print(path)
        return
    with writing(out, "choose another folder with --out"), without_collection():
        read = [read_run(folder) for folder in runs]
        paths = write_report(read, wanted, out, claims or ())
    for path in paths:
        print(path)
    if not paths:
        say("no file: there is nothing that these formats show")

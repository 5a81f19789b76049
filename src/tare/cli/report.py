"""Command `tare report`: the report of runs, written again in any format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tare.cli.arguments import read_run, split_names
from tare.cli.console import print_status
from tare.model.errors import UsageError
from tare.model.files import convert_write_errors
from tare.model.run_folder import pause_garbage_collection
from tare.report.writer import default_formats, write_report


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.", metavar="RUN...")],
    formats: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Formats, separated by commas: html, csv, json, yaml, markdown, latex, pdf, …",
            metavar="FORMATS",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to [default: RUN/report].", metavar="FOLDER")
    ] = None,
) -> None:
    """Write the report of runs again, in any format.

    The paths of the files are printed.
    """
    names = default_formats() if formats is None else split_names(formats)
    if not names:
        raise UsageError("no report format is named", f"for example --format {','.join(default_formats())}")
    with convert_write_errors(out, "choose another folder with --out"), pause_garbage_collection():
        read = [read_run(folder) for folder in runs]
        paths = write_report(read, names, out)
    for path in paths:
        print(path)
    if not paths:
        print_status("no file written: the runs have nothing that these formats show")

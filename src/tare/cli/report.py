"""`tare report`: write the report of a run again, in the formats that are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tare.journal import load
from tare.report import DEFAULT_FORMATS, write_report


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.", metavar="RUN...")],
    formats: Annotated[str, typer.Option("--format", help="Formats, with commas between.")] = ",".join(DEFAULT_FORMATS),
    out: Annotated[Path | None, typer.Option(help="Folder to write to [default: RUN/report].")] = None,
) -> None:
    """Write the report of one or more runs, and print the paths of its files."""
    wanted = [name.strip() for name in formats.split(",") if name.strip()]
    for path in write_report([load(folder) for folder in runs], wanted, out):
        print(path)

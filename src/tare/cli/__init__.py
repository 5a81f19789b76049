"""The commands, one file each: parse, call, print. Data goes to standard output, all else to standard error."""

from __future__ import annotations

from typing import Annotated

import typer

from tare import __version__
from tare.cli.catalogue import technologies, workloads
from tare.cli.clean import clean
from tare.cli.compare import compare
from tare.cli.doctor import doctor
from tare.cli.image import image
from tare.cli.plan import plan
from tare.cli.reparse import reparse
from tare.cli.report import report
from tare.cli.run import run
from tare.cli.shell import shell
from tare.cli.show import show

app = typer.Typer(
    name="tare",
    help="What a virtualization technology weighs, compared with bare metal on this machine.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
for command in (doctor, plan, run, report, compare, show, reparse, shell, technologies, workloads, image, clean):
    app.command()(command)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"tare {__version__}")
        raise typer.Exit


@app.callback()
def tare(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    """Measure what a virtualization technology weighs, compared with bare metal on this machine."""

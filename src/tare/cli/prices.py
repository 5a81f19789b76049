"""`tare prices`: what one unit of each kind of work costs in each stack."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tare.cli.run import asked_or_usable, run_and_show
from tare.runner.job import new_job, require_root
from tare.suites.priced import price_suite
from tare.suites.tried import parse_options

_BUDGET = "15m"  # for ten stacks

_On = Annotated[
    str | None,
    typer.Option(help="Stacks, with commas [default: bare metal, and all that is usable].", metavar="STACKS"),
]
_Budget = Annotated[str, typer.Option(help="Time to spend; ends at a block's end.", metavar="TIME")]
_Out = Annotated[Path | None, typer.Option(help="Folder to make for the run [default: runs/TIME-prices].")]


def prices(on: _On = None, budget: _Budget = _BUDGET, out: _Out = None) -> None:
    """Measure what each kind of work costs in each stack: the price list for `tare advise`.

    It measures system calls, page faults, programs started, messages and more, each alone, on bare metal and in every
    stack, and writes a run folder like every other.
    """
    require_root("tare prices")
    suite = parse_options(price_suite(asked_or_usable(on), budget), "tare prices")
    run_and_show(new_job(suite, out), "prices")

"""Command `tare try`: comparison of one command on bare metal and other stacks, without a suite."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from tare.cli.console import print_status
from tare.cli.run import run_suite, select_stacks_to_run
from tare.model.errors import UsageError
from tare.model.files import convert_write_errors
from tare.model.units import parse_duration
from tare.runner.job import new_job, require_root
from tare.suites.adhoc import AdhocSuite, parse_adhoc_suite
from tare.suites.tables import read_source
from tare.suites.user_files import collect_files

_BUDGET = "2m"
# A block runs the command twice on three stacks or more: a run of over a sixth of the budget leaves no block.
_RUNS, _MIN_TIMEOUT, _MAX_TIMEOUT = 6, 5.0, 3600.0
_EXAMPLE = "for example: tare try --package sysbench -- sysbench cpu --time=1 run"


_Command = Annotated[list[str] | None, typer.Argument(help="The command and its arguments.", show_default=False)]
_On = Annotated[
    str | None,
    typer.Option(
        help="Stacks, separated by commas [default: bare metal and all usable stacks that start quickly].",
        metavar="STACKS",
    ),
]
_Package = Annotated[
    list[str] | None, typer.Option(help="A Debian package to install into the image; repeatable.", metavar="NAME")
]
_From = Annotated[
    str,
    typer.Option(
        "--from",
        help="An existing image to use, such as docker-archive:app.tar: see docs/suites.md.",
        metavar="IMAGE",
    ),
]
_File = Annotated[
    list[str] | None,
    typer.Option(
        "--file",
        help="A file or folder of this machine to copy into the image, below /srv; repeatable. The command's program "
        "is copied without this option if it is a path such as ./bench.sh.",
        metavar="PATH",
    ),
]
_Metric = Annotated[
    list[str] | None,
    typer.Option(
        help="A number of the output: a regular expression with {number}, such as 'total: {number} s', or a JSON "
        "pointer; then ' -> NAME UNIT lower' or part of it. Repeatable; more is better unless lower is given.",
        metavar="PATTERN",
    ),
]
_Prepare = Annotated[str, typer.Option(help="A command to run before each run, not measured.", metavar="COMMAND")]
_WarmUp = Annotated[
    int | None, typer.Option(help="Warm-up runs in each instance, not measured [default: 1].", metavar="N")
]
_Timeout = Annotated[
    str, typer.Option(help="Time limit of a run [default: a sixth of the budget, at least 5 s].", metavar="TIME")
]
_Budget = Annotated[str, typer.Option(help="Time limit of the measurement, which ends with a block.", metavar="TIME")]
_Margin = Annotated[str, typer.Option(help="The smallest difference that matters [default: 3%].", metavar="PERCENT")]
_Save = Annotated[
    Path | None, typer.Option(help="Write the equivalent suite to this file, and start nothing.", metavar="FILE")
]
_Out = Annotated[
    Path | None, typer.Option(help="Run folder to create [default: runs/TIME-try-NAME].", metavar="FOLDER")
]


def try_command(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    command: _Command = None,
    on: _On = None,
    package: _Package = None,
    source: _From = "",
    file: _File = None,
    metric: _Metric = None,
    prepare: _Prepare = "",
    warm_up: _WarmUp = None,
    timeout: _Timeout = "",
    budget: _Budget = _BUDGET,
    margin: _Margin = "",
    save: _Save = None,
    out: _Out = None,
) -> None:
    """Compare the cost of one command on bare metal and other stacks.

    The command runs in a Debian image with the packages of --package, as root, without a terminal and with an empty
    standard input. With --from, it runs in that image, as the image's configuration says. A program of this machine,
    such as ./bench.sh, is copied into the image. The result is a run folder, as of `tare run`.
    """
    if not command:
        raise UsageError("no command to try", _EXAMPLE)
    if source and package:
        raise UsageError("--package and --from exclude each other", "leave out one of them")
    collected = collect_files(command, file or (), is_foreign_image=bool(source))
    if on is None:
        require_root("tare try …")
    adhoc = AdhocSuite(
        command=collected.command,
        stacks=select_stacks_to_run(on, quickly=True),
        packages=tuple(package or ()),
        source=_make_absolute(source),
        files=collected.files,
        metrics=tuple(metric or ()),
        prepare=prepare,
        warm_up=warm_up,
        timeout=timeout or _timeout_for_budget(budget),
        budget=budget,
        margin=margin,
    )
    text = adhoc.suite_text()
    suite = parse_adhoc_suite(text, "tare try")
    for place, path in collected.files:
        print_status(f"copying into the image: {path}, as {place}", style="dim")
    _warn_about_stdin()
    if save is None:
        run_suite(new_job(suite, out), "try")
    else:
        _save_suite(save, text)


def _make_absolute(source: str) -> str:
    """Return the name of an image with an absolute path; unchanged if it is invalid, as the suite reports the fault."""
    try:
        return str(read_source(source)) if source else ""
    except UsageError:
        return source


def _timeout_for_budget(budget: str) -> str:
    """Return the time limit of a run within a budget; "" for an invalid budget, which the suite reports."""
    try:
        seconds = parse_duration(budget)
    except ValueError:
        return ""
    return f"{round(min(max(seconds / _RUNS, _MIN_TIMEOUT), _MAX_TIMEOUT))}s"


def _warn_about_stdin() -> None:
    """Warn if standard input is a file, as in `tare try -- gzip < FILE`."""
    with suppress(OSError):  # standard input may be closed
        status = os.fstat(0)
        if stat.S_ISREG(status.st_mode) and status.st_size:
            how = "put the file into the image, as in --file FILE -- sh -c 'gzip < /srv/FILE'"
            print_status(f"the command gets an empty standard input, not your file: {how}", style="yellow")


def _save_suite(path: Path, text: str) -> None:
    with convert_write_errors(path, "choose another name"), path.open("x", encoding="utf-8") as file:
        file.write(text)
    print_status(f"{path} written; run it with: tare run {path}")

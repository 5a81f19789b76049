"""Command `tare try`: one command on bare metal and in the usable stacks, without a suite."""

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
# A block runs the command twice on three stacks or more. A run of more than a sixth of the budget leaves no block.
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
    list[str] | None, typer.Option(help="A Debian package to install into the image; repeatable.", metavar="P")
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
    ),
]
_Prepare = Annotated[str, typer.Option(help="A command to run before each run, not measured.")]
_WarmUp = Annotated[
    int | None, typer.Option(help="Warm-up runs in each instance, not measured [default: 1].", metavar="N")
]
_Timeout = Annotated[
    str, typer.Option(help="Time limit of a run [default: a sixth of the budget, at least 5 s].", metavar="TIME")
]
_Budget = Annotated[str, typer.Option(help="Time limit of the measurement, which ends with a block.", metavar="TIME")]
_Margin = Annotated[str, typer.Option(help="The smallest difference that matters [default: 3%].", metavar="P")]
_Save = Annotated[
    Path | None, typer.Option(help="Write the equivalent suite to this file, and start nothing.", metavar="FILE")
]
_Out = Annotated[Path | None, typer.Option(help="Run folder to create [default: runs/TIME-try-NAME].")]


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
    """Run one command on bare metal and on other stacks, and compare its cost.

    The command runs in a Debian image with the packages of --package, as root, without a terminal and with an empty
    standard input. With --from, it runs in that image, as the image's configuration says. A program of this machine,
    such as ./bench.sh, is copied into the image. The result is a run folder, as of `tare run`.
    """
    if not command:
        raise UsageError("no command to try", _EXAMPLE)
    if source and package:
        raise UsageError("--package is for an image of Debian's packages, and --from names another", "leave one out")
    taken = collect_files(command, file or (), is_foreign_image=bool(source))
    if on is None:
        require_root("tare try …")
    tried = AdhocSuite(
        command=taken.command,
        stacks=select_stacks_to_run(on, quickly=True),
        packages=tuple(package or ()),
        source=_make_absolute(source),
        files=taken.files,
        metrics=tuple(metric or ()),
        prepare=prepare,
        warm_up=warm_up,
        timeout=timeout or _timeout_for_budget(budget),
        budget=budget,
        margin=margin,
    )
    text = tried.suite_text()
    suite = parse_adhoc_suite(text, "tare try")
    for place, path in taken.files:
        print_status(f"to be copied into the image: {path}, as {place}", style="dim")
    _warn_about_stdin()
    if save is None:
        run_suite(new_job(suite, out), "try")
    else:
        _save_suite(save, text)


def _make_absolute(source: str) -> str:
    """Return an image's name with an absolute path; unchanged if it is none, as the suite then says why."""
    try:
        return str(read_source(source)) if source else ""
    except UsageError:
        return source


def _timeout_for_budget(budget: str) -> str:
    """Return how long a run may take within a budget; empty for a budget that the suite will refuse."""
    try:
        seconds = parse_duration(budget)
    except ValueError:
        return ""
    return f"{round(min(max(seconds / _RUNS, _MIN_TIMEOUT), _MAX_TIMEOUT))}s"


def _warn_about_stdin() -> None:
    """Warn where the shell gives tare a file as standard input, as in `tare try -- gzip < FILE`."""
    with suppress(OSError):  # it may be closed
        given = os.fstat(0)
        if stat.S_ISREG(given.st_mode) and given.st_size:
            how = "put the file into the image, as in --file FILE -- sh -c 'gzip < /srv/FILE'"
            print_status(f"the command has an empty standard input, not the file that tare has: {how}", style="yellow")


def _save_suite(path: Path, text: str) -> None:
    with convert_write_errors(path, "choose another name"), path.open("x", encoding="utf-8") as file:
        file.write(text)
    print_status(f"{path} is the suite; run it with: tare run {path}")

"""`tare run`: run a suite; write a run folder with its report."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tare.cli.console import Console, say
from tare.cli.display import shown
from tare.cli.ending import leave, show_end
from tare.cli.stopping import stoppable
from tare.doctor.usable import runnable
from tare.errors import TareError, UsageError
from tare.hosts.facts import parse_cpu_list
from tare.hosts.local import LocalHost, isolate_mounts
from tare.hosts.lock import Taken, only_one, until_free
from tare.images.layered import discard_old_layers
from tare.runner.events import fan_out
from tare.runner.job import Job, execute, new_job, require_root, restrict_to_blocks, resumed_job
from tare.suites.suite import read_suite
from tare.units import parse_duration

if TYPE_CHECKING:
    from tare.report.server import ServedReport

_NUMBERS = re.compile(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*", re.ASCII)


def run(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    suite: Annotated[Path | None, typer.Argument(help="The suite to run, a TOML file.", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option(help="Folder to make for the run [default: runs/TIME-SUITE].")] = None,
    budget: Annotated[str | None, typer.Option(help="Time to spend, such as 30m; ends at a block's end.")] = None,
    blocks: Annotated[
        str | None, typer.Option(help="Measure all of these blocks, and no others, such as 1-4,9.", metavar="NUMBERS")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on with a run that was stopped.", metavar="RUN")] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Show the report in a browser while it grows.")] = False,
    port: Annotated[
        int | None, typer.Option(help="The port of --serve [default: a free one].", min=1, max=65535, metavar="PORT")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait while another tare runs on this machine.")] = False,
) -> None:
    """Run a suite: every stack, every workload, in randomized blocks, and write the report."""
    seconds, numbers, at = _seconds(budget), _numbers(blocks), (port or 0) if serve or port else None

    def asked() -> Job:
        job = _job(suite, out, seconds, resume)
        return restrict_to_blocks(job, numbers) if numbers else job

    job = asked()
    while wait:
        until_free(partial(say, style="dim"))
        try:
            run_and_show(asked(), "run", at)  # a run to go on with may have grown
        except Taken:  # by another one that waited
            continue
        return
    run_and_show(job, "run", at)


def asked_or_usable(on: str | None, *, quickly: bool = False) -> tuple[str, ...]:
    """Return the stacks that were asked for, with commas between them, or bare metal and all that is usable here.

    `quickly`: of these, only those that start quickly. Raises TareError where that is bare metal alone.
    """
    if on is not None:
        return tuple(name.strip() for name in on.split(",") if name.strip())
    isolate_mounts()
    with Console(stderr=True).status("looking at this machine"):
        found = runnable(LocalHost(), quickly=quickly)
    if len(found) < 2:
        what = "nothing here starts quickly but bare metal" if quickly else "nothing can be used here but bare metal"
        raise TareError(what, "`tare doctor` says what may be installed")
    return found


def run_and_show(job: Job, command: str, port: int | None = None) -> None:
    """Run a suite, print its table and write its report; raises typer.Exit after Ctrl-C, and TareError.

    Meanwhile the report is served on a port of the loopback address, if one is given; 0 is a free one.
    """
    require_root(f"tare {command} …")
    console = Console(stderr=True)
    dim = partial(say, style="dim")
    with nullcontext() if port is None else _served(port, dim) as served:
        with stoppable(), shown(console) as terminal:
            stop = execute(job, fan_out(terminal, served) if served else terminal)
        show_end(job.journal.run, console, stop)
        if served:
            served.end()
    with suppress(Taken), only_one():  # after the answer, and in nobody's measurement
        discard_old_layers()
    leave(job.journal.run, stop)


def _served(port: int, say: Callable[[str], None]) -> AbstractContextManager[ServedReport]:
    from tare.report.server import serve_report  # noqa: PLC0415 - its libraries load only with --serve

    return serve_report(port, say)


def _job(suite: Path | None, out: Path | None, budget_seconds: float | None, resume: Path | None) -> Job:
    if resume is not None and suite is None:
        return resumed_job(resume, budget_seconds)
    if suite is None or resume is not None:
        raise UsageError("give a suite to run, or --resume with a run", "tare run examples/quick.toml")
    return new_job(read_suite(suite), out, budget_seconds)


def _seconds(budget: str | None) -> float | None:
    try:
        seconds = None if budget is None else parse_duration(budget)
    except ValueError as error:
        raise UsageError(f"--budget {budget}: {error}", "for example --budget 5m") from error
    if seconds == 0:
        raise UsageError(f"--budget {budget}: a budget is more than 0", "for example --budget 5m")
    return seconds


def _numbers(blocks: str | None) -> frozenset[int]:
    """Read numbers of blocks, which count from 1 for users, `1-4,9`; none for all."""
    if blocks is None:
        return frozenset()
    numbers = parse_cpu_list(blocks) if _NUMBERS.fullmatch(blocks) else ()
    if not numbers or 0 in numbers:
        raise UsageError(f"--blocks {blocks}: these are no numbers of blocks", "for example --blocks 1-4,9")
    return frozenset(number - 1 for number in numbers)

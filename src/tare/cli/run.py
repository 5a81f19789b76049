"""`tare run`: run a suite and write its report."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tare.cli.console import Console, output, say
from tare.cli.progress import shown
from tare.cli.signals import stoppable
from tare.hosts.facts import parse_cpu_list
from tare.hosts.local import LocalHost, isolate_mounts
from tare.hosts.lock import Taken, only_one, until_free
from tare.images.layered import discard_old_layers
from tare.model.errors import TareError, UsageError, why_of
from tare.model.journal import Run
from tare.model.trial import Stop, StopReason
from tare.model.units import format_duration, parse_duration
from tare.plugins.feature import call_hooks
from tare.report.findings import findings
from tare.report.numbers import clean
from tare.report.terminal import matrix, usual_values, what_was_found
from tare.report.writer import write_report
from tare.runner.availability import runnable
from tare.runner.events import fan_out
from tare.runner.job import Job, execute, new_job, require_root, restrict_to_blocks, resumed_job
from tare.statistics.summarize import summarize
from tare.statistics.summary import Summary
from tare.suites.suite import read_suite

if TYPE_CHECKING:
    from tare.report.server import ServedReport

INTERRUPTED = 130
WHY = {
    StopReason.PLAN: "all blocks are done",
    StopReason.DECIDED: "all is decided",
    StopReason.BUDGET: "the budget is used up",
    StopReason.INTERRUPT: "stopped",
    StopReason.FAILING: "nothing works",
    StopReason.ERROR: "stopped",
}
_NUMBERS = re.compile(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*", re.ASCII)


def show_end(run: Run, console: Console, stop: Stop) -> None:
    """Print the table and write the report, whatever ended the run."""
    ok = sum(trial.status == "ok" for trial in run.trials)
    failed = [trial for trial in run.trials if trial.status == "failed"]
    if ok:
        summary = summarize(run)
        out = output()
        out.print(matrix(summary, console.width, final=True))
        if table := usual_values(summary):
            out.print(table)
        out.print(what_was_found(findings(summary, run.record.measured_on)))
        _report(run, summary, console)
    for trial in failed[: 0 if stop.reason == StopReason.FAILING else 5]:  # for one reason, which `leave` has
        console.print(f"failed: {trial.trial}: {clean(trial.reason)}", style="red")
        if trial.hint:
            console.print(f"  hint: {clean(trial.hint)}")
    console.print(f"{WHY[stop.reason]}: {ok} trials ok, {len(failed)} failed")


def leave(run: Run, stop: Stop) -> None:
    """Raise what the command ends with, if that is not success."""
    if stop.reason == StopReason.INTERRUPT:
        say(f"go on with: tare run --resume {run.folder}")
        raise typer.Exit(INTERRUPTED)
    if stop.reason == StopReason.FAILING:
        raise _nothing_works(run)
    if stop.reason == StopReason.ERROR:
        raise TareError(stop.detail, f"fix this, then run tare clean, and tare run --resume {run.folder}")
    if all(trial.status != "ok" for trial in run.trials):
        raise TareError("nothing could be measured", f"`tare show {run.folder}` lists the trials with their reasons")


def _nothing_works(run: Run) -> TareError:
    """Return the error of a run that has stopped because all trials failed for one reason."""
    last = {trial.workload: trial for trial in run.trials if trial.status == "failed"}
    reasons = [
        clean(trial.reason) if len(last) == 1 else f"{name}: {clean(trial.reason)}" for name, trial in last.items()
    ]
    hints = [clean(trial.hint) for trial in last.values() if trial.hint]
    stacks = {trial.stack for trial in run.trials if trial.status == "failed"}
    whose = "every stack fails for one reason" if len(stacks) > 1 else f"on {stacks.pop()}, which all are compared with"
    what = f"nothing could be measured: {whose}: {'; '.join(reasons)}"
    return TareError(what, "; ".join([*dict.fromkeys(hints)] or [f"`tare show {run.folder}` lists the trials"]))


def _report(run: Run, summary: Summary, console: Console) -> None:
    began = time.monotonic()
    try:
        pages = write_report([run], summaries=[summary])
        call_hooks("after_run", run)
    except OSError as error:
        console.print(f"no report: {why_of(error)}; later: tare report {run.folder}", style="red")
        return
    seconds = format_duration(round(time.monotonic() - began, 1))
    console.print(f"report: {pages[0]} (written in {seconds})")


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

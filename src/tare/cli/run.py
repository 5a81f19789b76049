"""Command `tare run`: run a suite and write its report."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tare.cli.console import Console, create_console, print_status
from tare.cli.progress import show_progress
from tare.cli.signals import interruptible
from tare.hosts.facts import parse_cpu_list
from tare.hosts.local import LocalHost, isolate_mounts
from tare.hosts.lock import LockHeld, lock_this_machine, wait_for_lock
from tare.images.layered import discard_old_layers
from tare.model.errors import TareError, UsageError, format_os_error
from tare.model.journal import Run
from tare.model.trial import Stop, StopReason
from tare.model.units import format_duration, parse_duration
from tare.plugins.feature import call_hooks
from tare.report.numbers import strip_control_characters
from tare.report.terminal import describe_conclusion, headline_table, usual_value_table
from tare.report.writer import write_report
from tare.runner.availability import list_usable
from tare.runner.events import fan_out
from tare.runner.job import Job, execute, new_job, require_root, restrict_to_blocks, resume_job
from tare.statistics.summarize import summarize
from tare.statistics.summary import Summary
from tare.suites.suite import read_suite

if TYPE_CHECKING:
    from tare.report.server import ServedReport

INTERRUPTED = 130
STOP_TEXTS = {
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
        out = create_console()
        out.print(headline_table(summary, console.width, final=True))
        if table := usual_value_table(summary):
            out.print(table)
        out.print()
        out.print(describe_conclusion(summary, run))
        _write_report(run, summary, console)
    # The conclusion names the failures of a run with values, and the error of `exit_with_status` a single reason.
    for trial in failed[: 0 if ok or stop.reason == StopReason.FAILING else 5]:
        console.print(f"failed: {trial.trial}: {strip_control_characters(trial.reason)}", style="red")
        if trial.hint:
            console.print(f"  hint: {strip_control_characters(trial.hint)}")
    console.print(f"{STOP_TEXTS[stop.reason]}: {ok} trials ok, {len(failed)} failed")


def exit_with_status(run: Run, stop: Stop) -> None:
    """Raise the error or exit code with which the command ends; do nothing after success."""
    if stop.reason == StopReason.INTERRUPT:
        print_status(f"go on with: tare run --resume {run.folder}")
        raise typer.Exit(INTERRUPTED)
    if stop.reason == StopReason.FAILING:
        raise _all_failed_error(run)
    if stop.reason == StopReason.ERROR:
        raise TareError(stop.detail, f"fix this, then run tare clean, and tare run --resume {run.folder}")
    if all(trial.status != "ok" for trial in run.trials):
        raise TareError("nothing could be measured", f"`tare show {run.folder}` lists the trials with their reasons")


def _all_failed_error(run: Run) -> TareError:
    """Return the error of a run that has stopped because all trials failed for one reason."""
    last = {trial.workload: trial for trial in run.trials if trial.status == "failed"}
    reasons = [
        strip_control_characters(trial.reason)
        if len(last) == 1
        else f"{name}: {strip_control_characters(trial.reason)}"
        for name, trial in last.items()
    ]
    hints = [strip_control_characters(trial.hint) for trial in last.values() if trial.hint]
    stacks = {trial.stack for trial in run.trials if trial.status == "failed"}
    whose = "every stack fails for one reason" if len(stacks) > 1 else f"on {stacks.pop()}, which all are compared with"
    what = f"nothing could be measured: {whose}: {'; '.join(reasons)}"
    return TareError(what, "; ".join([*dict.fromkeys(hints)] or [f"`tare show {run.folder}` lists the trials"]))


def _write_report(run: Run, summary: Summary, console: Console) -> None:
    began = time.monotonic()
    try:
        pages = write_report([run], summaries=[summary])
        call_hooks("after_run", run)
    except OSError as error:
        console.print(f"no report: {format_os_error(error)}; later: tare report {run.folder}", style="red")
        return
    seconds = format_duration(round(time.monotonic() - began, 1))
    console.print(f"report: {pages[0]} (written in {seconds})")


def run(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    suite: Annotated[Path | None, typer.Argument(help="The suite to run (TOML file).", show_default=False)] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder to create [default: runs/TIME-SUITE].")] = None,
    budget: Annotated[
        str | None, typer.Option(help="Time limit of the measurement, such as 30m, which ends with a block.")
    ] = None,
    blocks: Annotated[
        str | None, typer.Option(help="Measure exactly these blocks, such as 1-4,9.", metavar="NUMBERS")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue an interrupted run.", metavar="RUN")] = None,
    serve: Annotated[bool, typer.Option("--serve", help="Serve the growing report to a browser.")] = False,
    port: Annotated[
        int | None, typer.Option(help="Port for --serve [default: a free port].", min=1, max=65535, metavar="PORT")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until no other tare runs on this machine.")] = False,
) -> None:
    """Run every workload of a suite in every stack, in randomized blocks, and write the report."""
    seconds, numbers, at = _parse_budget(budget), _parse_block_numbers(blocks), (port or 0) if serve or port else None

    def create_job() -> Job:
        job = _create_job(suite, out, seconds, resume)
        return restrict_to_blocks(job, numbers) if numbers else job

    job = create_job()
    while wait:
        wait_for_lock(partial(print_status, style="dim"))
        try:
            run_suite(create_job(), "run", at)  # a run to go on with may have grown
        except LockHeld:  # by another one that waited
            continue
        return
    run_suite(job, "run", at)


def select_stacks_to_run(on: str | None, *, quickly: bool = False) -> tuple[str, ...]:
    """Return the stacks of `--on`, separated by commas, or by default bare metal and all usable stacks.

    `quickly` restricts the default to stacks that start quickly. Raises TareError if only bare metal is left.
    """
    if on is not None:
        return tuple(name.strip() for name in on.split(",") if name.strip())
    isolate_mounts()
    with Console(stderr=True).status("looking at this machine"):
        found = list_usable(LocalHost(), quick_only=quickly)
    if len(found) < 2:
        what = "nothing here starts quickly but bare metal" if quickly else "nothing can be used here but bare metal"
        raise TareError(what, "`tare doctor` says what may be installed")
    return found


def run_suite(job: Job, command: str, port: int | None = None) -> None:
    """Run a suite, print its table and write its report; raises typer.Exit after Ctrl-C, and TareError.

    If a port is given, the report is served on the loopback address meanwhile; 0 chooses a free port.
    """
    require_root(f"tare {command} …")
    console = Console(stderr=True)
    dim = partial(print_status, style="dim")
    with nullcontext() if port is None else _serve_report(port, dim) as served:
        with interruptible(), show_progress(console) as terminal:
            stop = execute(job, fan_out(terminal, served) if served else terminal)
        show_end(job.journal.run, console, stop)
        if served:
            served.end()
    with suppress(LockHeld), lock_this_machine():  # after the answer, and in nobody's measurement
        discard_old_layers()
    exit_with_status(job.journal.run, stop)


def _serve_report(port: int, say: Callable[[str], None]) -> AbstractContextManager[ServedReport]:
    from tare.report.server import serve_report  # noqa: PLC0415 - its libraries load only with --serve

    return serve_report(port, say)


def _create_job(suite: Path | None, out: Path | None, budget_seconds: float | None, resume: Path | None) -> Job:
    if resume is not None and suite is None:
        return resume_job(resume, budget_seconds)
    if suite is None or resume is not None:
        raise UsageError("give a suite to run, or --resume with a run", "tare run examples/quick.toml")
    return new_job(read_suite(suite), out, budget_seconds)


def _parse_budget(budget: str | None) -> float | None:
    try:
        seconds = None if budget is None else parse_duration(budget)
    except ValueError as error:
        raise UsageError(f"--budget {budget}: {error}", "for example --budget 5m") from error
    if seconds == 0:
        raise UsageError(f"--budget {budget}: a budget is more than 0", "for example --budget 5m")
    return seconds


def _parse_block_numbers(blocks: str | None) -> frozenset[int]:
    """Read numbers of blocks, which count from 1 for users, `1-4,9`; none for all."""
    if blocks is None:
        return frozenset()
    numbers = parse_cpu_list(blocks) if _NUMBERS.fullmatch(blocks) else ()
    if not numbers or 0 in numbers:
        raise UsageError(f"--blocks {blocks}: these are no numbers of blocks", "for example --blocks 1-4,9")
    return frozenset(number - 1 for number in numbers)

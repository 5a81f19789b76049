"""Command `tare run`: the measurement of a suite and its report."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tare.cli.arguments import AsJson, split_names
from tare.cli.console import Console, create_console, print_status
from tare.cli.progress import show_progress
from tare.cli.signals import INTERRUPTED, interruptible
from tare.hosts.facts import parse_cpu_list
from tare.hosts.local import LocalHost, isolate_mounts
from tare.hosts.lock import LockHeld, lock_this_machine, wait_for_lock
from tare.images.layered import discard_old_layers
from tare.model.errors import TareError, UsageError, format_os_error
from tare.model.run_folder import Run
from tare.model.trial import Stop, StopReason
from tare.model.units import format_duration, parse_duration, parse_option
from tare.plugins.feature import call_hooks
from tare.report.data_files import create_document
from tare.report.numbers import strip_control_characters
from tare.report.terminal import cpu_cost_table, describe_conclusion, headline_table, usual_value_table
from tare.report.trial_facts import complete_hint
from tare.report.writer import write_report
from tare.runner.availability import list_usable
from tare.runner.events import fan_out
from tare.runner.job import Job, execute, new_job, require_root, restrict_to_blocks, resume_job
from tare.statistics.summarize import summarize
from tare.statistics.summary import Summary
from tare.suites.suite import read_suite

if TYPE_CHECKING:
    from tare.report.server import ServedReport

Results = Literal["tables", "json", "none"]  # what a run prints at its end; the document of report.json is `json`
STOP_TEXTS = {
    StopReason.PLAN: "all blocks are done",
    StopReason.DECIDED: "all comparisons are decided",
    StopReason.BUDGET: "the budget is used up",
    StopReason.INTERRUPT: "stopped",
    StopReason.FAILING: "all trials fail",
    StopReason.ERROR: "stopped",
}
_NUMBERS = re.compile(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*", re.ASCII)


def show_end(run: Run, console: Console, stop: Stop, results: Results = "tables") -> None:
    """Print the results, and write the report of a run, for whatever reason it ended."""
    ok = sum(trial.status == "ok" for trial in run.trials)
    failed = [trial for trial in run.trials if trial.status == "failed"]
    if ok:
        summary = summarize(run)
        if results == "json":
            print(json.dumps(create_document(summary, run), indent=1, allow_nan=False))
        elif results == "tables":
            _print_tables(summary, run, console.width)
        _write_report(run, summary, console)
    # In a run with values, the conclusion names the failures; in a failing run, the error of `exit_with_status`.
    for trial in failed[: 0 if ok or stop.reason == StopReason.FAILING else 5]:
        console.print(f"failed: {trial.trial}: {strip_control_characters(trial.reason)}", style="red")
        if trial.hint:
            console.print(f"  hint: {complete_hint(trial, run.folder)}", style="yellow", soft_wrap=True)
    console.print(f"{STOP_TEXTS[stop.reason]}: {ok} trials ok, {len(failed)} failed")


def _print_tables(summary: Summary, run: Run, width: int) -> None:
    out = create_console()
    out.print(headline_table(summary, width, final=True))
    tables = (usual_value_table(summary), cpu_cost_table(summary, run, out.width))
    for table in filter(None, (*tables, *call_hooks("terminal", summary, run))):
        out.print(table)
    out.print()
    out.print(describe_conclusion(summary, run))


def exit_with_status(run: Run, stop: Stop) -> None:
    """Raise TareError or typer.Exit for a run that did not succeed; do nothing for one that did."""
    if stop.reason == StopReason.INTERRUPT:
        print_status(f"resume with: tare run --resume {run.folder}")
        raise typer.Exit(INTERRUPTED)
    if stop.reason == StopReason.FAILING:
        raise _all_failed_error(run)
    if stop.reason == StopReason.ERROR:
        raise TareError(stop.detail, f"fix this, run tare clean, then tare run --resume {run.folder}")
    if all(trial.status != "ok" for trial in run.trials):
        raise TareError("nothing could be measured", f"see the reasons: tare show {run.folder}")


def _all_failed_error(run: Run) -> TareError:
    """Return the error of a run that stopped because all trials fail for one reason."""
    last = {trial.workload: trial for trial in run.trials if trial.status == "failed"}
    reasons = [
        strip_control_characters(trial.reason)
        if len(last) == 1
        else f"{name}: {strip_control_characters(trial.reason)}"
        for name, trial in last.items()
    ]
    hints = [complete_hint(trial, run.folder) for trial in last.values() if trial.hint]
    stacks = {trial.stack for trial in run.trials if trial.status == "failed"}
    scope = "every stack fails for one reason" if len(stacks) > 1 else f"on the baseline {stacks.pop()}"
    what = f"nothing could be measured: {scope}: {'; '.join(reasons)}"
    return TareError(what, "; ".join([*dict.fromkeys(hints)] or [f"see the trials: tare show {run.folder}"]))


def _write_report(run: Run, summary: Summary, console: Console) -> None:
    began = time.monotonic()
    try:
        pages = write_report([run], summaries=[summary])
        call_hooks("after_run", run)
    except OSError as error:
        console.print(f"no report: {format_os_error(error)}; write it later: tare report {run.folder}", style="red")
        return
    seconds = format_duration(round(time.monotonic() - began, 1))
    console.print(f"report: {pages[0]} (written in {seconds})")


def run(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    suite: Annotated[Path | None, typer.Argument(help="The suite to run (TOML file).", show_default=False)] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder to create [default: runs/TIME-SUITE].", metavar="FOLDER")
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Time limit of the measurement, such as 30m, which ends with a block. Images are built before.",
            metavar="TIME",
        ),
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
    as_json: AsJson = False,
) -> None:
    """Measure a suite and write its report.

    Every workload runs in every stack, in randomized blocks.
    """
    results: Results = "json" if as_json else "tables"
    seconds, numbers, at = _parse_budget(budget), _parse_block_numbers(blocks), (port or 0) if serve or port else None

    def create_job() -> Job:
        job = _create_job(suite, out, seconds, resume)
        return restrict_to_blocks(job, numbers) if numbers else job

    job = create_job()
    while wait:
        wait_for_lock(partial(print_status, style="dim"))
        try:
            run_suite(create_job(), "run", at, results)  # read again: a run to resume may have grown meanwhile
        except LockHeld:  # another waiting process was faster
            continue
        return
    run_suite(job, "run", at, results)


def select_stacks_to_run(on: str | None, *, quickly: bool = False) -> tuple[str, ...]:
    """Return the stacks that `--on` lists, separated by commas; bare metal and all usable stacks if `on` is None.

    `quickly` restricts the default to stacks that start quickly. Raises TareError if only bare metal remains.
    """
    if on is not None:
        return tuple(split_names(on))
    isolate_mounts()
    with Console(stderr=True).status("looking at this machine"):
        usable = list_usable(LocalHost(), quick_only=quickly)
    if len(usable) < 2:
        what = "only bare metal starts quickly here" if quickly else "only bare metal is usable here"
        raise TareError(what, "see what can be installed: tare doctor")
    return usable


def run_suite(job: Job, command: str, port: int | None = None, results: Results = "tables") -> None:
    """Run a suite, print its results and write its report; raises TareError, or typer.Exit after Ctrl-C.

    With a port, the report is served on the loopback address during the run. Port 0 selects a free port; None serves
    nothing.
    """
    require_root(f"tare {command} …")
    console = Console(stderr=True)
    dim = partial(print_status, style="dim")
    with nullcontext() if port is None else _serve_report(port, dim) as served:
        with interruptible(), show_progress(console) as terminal:
            stop = execute(job, fan_out(terminal, served) if served else terminal)
        show_end(job.writer.run, console, stop, results)
        if served:
            served.end()
    with suppress(LockHeld), lock_this_machine():  # not while another run measures; it removes the layers later
        discard_old_layers()
    exit_with_status(job.writer.run, stop)


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
    seconds = None if budget is None else parse_option("--budget", budget, parse_duration, "5m")
    if seconds == 0:
        raise UsageError(f"--budget {budget}: a budget must be above 0", "for example --budget 5m")
    return seconds


def _parse_block_numbers(blocks: str | None) -> frozenset[int]:
    """Return the indices of the blocks of `--blocks`, which count from 1, such as `1-4,9`; empty for all blocks."""
    if blocks is None:
        return frozenset()
    numbers = parse_cpu_list(blocks) if _NUMBERS.fullmatch(blocks) else ()
    if not numbers or 0 in numbers:
        raise UsageError(f"--blocks {blocks}: not a list of block numbers", "for example --blocks 1-4,9")
    return frozenset(number - 1 for number in numbers)

"""How a run ends: its table, its report, and what the command ends with."""

from __future__ import annotations

import time
from contextlib import suppress

import typer

from tare.answers.stored import store
from tare.cli.console import Console, output, say
from tare.errors import TareError, UsageError, why_of
from tare.journal import Run
from tare.model.trials import Stop, StopReason
from tare.report import write_report
from tare.report.findings import findings
from tare.report.numbers import clean
from tare.report.terminal import matrix, usual_values, what_was_found
from tare.statistics.summarize import summarize
from tare.statistics.summary import Summary
from tare.units import format_duration

INTERRUPTED = 130
WHY = {
    StopReason.PLAN: "all blocks are done",
    StopReason.DECIDED: "all is decided",
    StopReason.BUDGET: "the budget is used up",
    StopReason.INTERRUPT: "stopped",
    StopReason.FAILING: "nothing works",
    StopReason.ERROR: "stopped",
}


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
        with suppress(UsageError):  # it cannot be part of a fleet: no trial has the baseline
            store(run)
    except OSError as error:
        console.print(f"no report: {why_of(error)}; later: tare report {run.folder}", style="red")
        return
    seconds = format_duration(round(time.monotonic() - began, 1))
    console.print(f"report: {pages[0]} (written in {seconds})")

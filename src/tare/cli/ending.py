"""How a run ends: its table, its report, and what the command ends with."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import typer

from tare.cli.console import Console
from tare.errors import TareError
from tare.journal import Run, load
from tare.report import write_report
from tare.report.numbers import clean
from tare.report.terminal import matrix, usual_values
from tare.report.words import in_brief, readiness
from tare.running.failing import FAILING
from tare.statistics.summarize import summarize
from tare.units import format_duration

_INTERRUPTED = 130
WHY = {
    "plan": "all blocks are done",
    "decided": "all is decided",
    "budget": "the budget is used up",
    "interrupt": "stopped",
    FAILING: "nothing works",
}


def show_end(folder: Path, console: Console, stopped: str) -> Path | None:
    """Print the table and write the report, whatever ended the run; return the report's page, if there is one."""
    run = load(folder)
    ok = sum(trial.status == "ok" for trial in run.trials)
    failed = [trial for trial in run.trials if trial.status == "failed"]
    report = None
    if ok:
        summary = summarize(run)
        out = Console(file=sys.stdout, highlight=False)
        out.print(matrix(summary, console.width))
        if table := usual_values(summary):
            out.print(table)
        out.print(" ".join([*in_brief(summary, run.record.measured_on), *readiness(summary)]), markup=False)
        report = _report(run, console)
    for trial in failed[: 0 if stopped == FAILING else 5]:  # for one reason, which `leave` has
        console.print(f"failed: {trial.trial}: {clean(trial.reason)}", style="red", markup=False)
        if trial.hint:
            console.print(f"  hint: {clean(trial.hint)}", markup=False, highlight=False)
    console.print(f"{WHY.get(stopped, 'stopped')}: {ok} trials ok, {len(failed)} failed", highlight=False)
    return report


def leave(folder: Path, stopped: str) -> None:
    """Raise what the command ends with, if that is not success."""
    if stopped == "interrupt":
        Console(stderr=True).print(f"go on with: tare run --resume {folder}", markup=False, highlight=False)
        raise typer.Exit(_INTERRUPTED)
    if stopped == FAILING:
        raise _nothing_works(load(folder))
    if stopped not in WHY:
        raise TareError(stopped, f"when that is mended: tare clean, then tare run --resume {folder}")
    if all(trial.status != "ok" for trial in load(folder).trials):
        raise TareError("nothing could be measured", f"`tare show {folder}` lists the trials with their reasons")


def _nothing_works(run: Run) -> TareError:
    """Return the error of a run that has stopped because all trials failed for one reason."""
    last = {trial.workload: trial for trial in run.trials if trial.status == "failed"}
    reasons = [
        clean(trial.reason) if len(last) == 1 else f"{name}: {clean(trial.reason)}" for name, trial in last.items()
    ]
    hints = [clean(trial.hint) for trial in last.values() if trial.hint]
    what = f"nothing could be measured: every stack fails for one reason: {'; '.join(reasons)}"
    return TareError(what, "; ".join([*dict.fromkeys(hints)] or [f"`tare show {run.folder}` lists the trials"]))


def _report(run: Run, console: Console) -> Path | None:
    began = time.monotonic()
    try:
        pages = write_report([run])
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        console.print(f"no report: {why}; later: tare report {run.folder}", style="red", markup=False)
        return None
    seconds = format_duration(round(time.monotonic() - began, 1))
    console.print(f"report: {pages[0]} (written in {seconds})", highlight=False)
    return pages[0]

"""Command `tare reparse`: values of a run, parsed again from its raw output."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from tare.cli.arguments import read_run
from tare.cli.console import print_status
from tare.model.errors import UsageError, to_tare_error
from tare.model.run_folder import WorkloadRecord, load_raw, replace_trials
from tare.model.trial import SERVICE_READY, Trial
from tare.plugins.workload import Workload
from tare.runner.sanity_checks import reject_impossible_values
from tare.runner.values import PrintedUnits, read_values
from tare.suites.suite import PlannedWorkload, read_suite


def reparse(run: Annotated[Path, typer.Argument(help="A run folder.")]) -> None:
    """Parse the values of a run from its raw output again.

    The earlier trials are kept in trials.jsonl.before.
    """
    loaded = read_run(run)
    suite = read_suite(run / "suite.toml", folder=loaded.record.base_folder)
    records = {record.name: record for record in loaded.record.workloads}
    workloads = {planned.name: _workload_as_recorded(planned, records[planned.name]) for planned in suite.workloads}
    references = (loaded.record.baseline, loaded.record.control)
    again = (_read_again(run, trial, workloads[trial.workload]) for trial in loaded.trials)
    trials = PrintedUnits(references).check_trials(again)
    changed = sum(before != after for before, after in zip(loaded.trials, trials, strict=True))
    if changed:
        replace_trials(run, trials)
    print_status(f"{changed} of {len(trials)} trials changed")


def _workload_as_recorded(planned: PlannedWorkload, record: WorkloadRecord) -> Workload:
    """Return a workload with the lowered settings of the run's record.

    A later version of tare may lower settings to other values.
    """
    recorded = {each.setting: record.settings[each.setting] for each in record.lowered}
    plain: Any = planned.workload
    lists = {name: tuple(setting) for name, setting in recorded.items() if isinstance(setting, list)}
    workload: Workload = replace(plain, **recorded | lists)
    return workload


def _read_again(run: Path, trial: Trial, workload: Workload) -> Trial:
    """Return a trial with the values of its raw output.

    A failed trial keeps its reason if its output still has no values. A trial with quarantined values stays unchanged
    if the parser returns the same values again.
    """
    if trial.status == "skipped":
        return trial
    try:
        # The outputs do not say whose kernel counted the CPU time.
        has_host_clock = any(value.cpu_shares for value in (*trial.values, *trial.quarantined))
        values = read_values(workload, load_raw(run, trial.trial), has_host_clock=has_host_clock)
        reject_impossible_values(values, len(trial.limits.asked.cpus) if trial.limits else 1)
    except UsageError:  # no raw output is stored, so there is nothing to parse
        raise
    except Exception as error:  # noqa: BLE001 - user-supplied plug-ins may raise anything
        fault = to_tare_error(error)
        return trial if trial.status == "failed" else trial.as_failed(str(fault), fault.hint)
    if trial.quarantined and set(values) <= set(trial.quarantined):
        return trial
    read = (*trial.values, *trial.quarantined)
    # tare itself times readiness, so no raw output contains it.
    readiness = tuple(value for value in read if value.metric == SERVICE_READY)
    return replace(trial, status="ok", reason="", hint="", values=(*values, *readiness), quarantined=())

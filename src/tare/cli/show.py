"""Command `tare show`: the list of a run's trials, or one trial in full."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Annotated, get_args

import typer
from rich.table import Table

from tare.cli.arguments import AsJson, read_run, split_names
from tare.cli.console import Console, create_console
from tare.model.errors import UsageError, did_you_mean
from tare.model.run_folder import Run, load_raw, trial_fields
from tare.model.trial import MeasuredValue, RawOutput, Status, Trial, Turn
from tare.model.units import format_count, format_duration, format_quantity, format_size
from tare.report.isolation_table import declared_by_layer, describe_isolation
from tare.report.trial_facts import CommandGroup, complete_hint, describe_turns, group_commands, limit_rows
from tare.statistics.cpu_costs import counted_unit, cpu_usage
from tare.statistics.outcomes import add_file_system_cautions
from tare.telemetry.parquet import count_samples, telemetry_files

_PIPED = 1000  # columns without a terminal: each trial stays on one line, for grep


def show(  # noqa: PLR0913, PLR0917 - each is an option of the command line
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    trial: Annotated[
        str | None, typer.Argument(help="A trial of the run [default: list all trials].", show_default=False)
    ] = None,
    stack: Annotated[str, typer.Option(help="List only trials of these stacks.", metavar="NAMES")] = "",
    workload: Annotated[str, typer.Option(help="List only trials of these workloads.", metavar="NAMES")] = "",
    status: Annotated[str, typer.Option(help="List only trials that are ok, failed or skipped.", metavar="NAMES")] = "",
    all_turns: Annotated[
        bool, typer.Option("--all", help="Show the command and the raw output of every turn.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the trials of a run, or show one in full."""
    loaded = read_run(run)
    trials = add_file_system_cautions(loaded.trials, loaded.record.baseline)
    if trial is None:
        selected = _select(trials, {"stack": stack, "workload": workload, "status": status})
        if as_json:
            print(json.dumps([trial_fields(each) for each in selected], indent=1, allow_nan=False))
        else:
            _list_trials(selected)
        return
    if stack or workload or status:
        raise UsageError("--stack, --workload and --status select from the list", f"leave out {trial}")
    by_name = {each.trial: each for each in trials}
    if trial not in by_name:
        raise UsageError(f"{run}: no trial {trial}", did_you_mean(trial, by_name, f"`tare show {run}` lists them"))
    if as_json:
        outputs = {"outputs": [asdict(each) for each in load_raw(run, trial)]}
        print(json.dumps(trial_fields(by_name[trial]) | outputs, indent=1, allow_nan=False))
    else:
        _print_trial(by_name[trial], loaded, all_turns=all_turns)


def _select(trials: Sequence[Trial], wanted: Mapping[str, str]) -> list[Trial]:
    """Return the trials that fit; `wanted` has names, separated by commas, by the field of a trial.

    Raises UsageError for a name that no trial has.
    """
    selected = list(trials)
    for field, text in wanted.items():
        names = split_names(text)
        known = get_args(Status) if field == "status" else tuple(dict.fromkeys(getattr(each, field) for each in trials))
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known, f"choose from {', '.join(known)}")
                raise UsageError(f"--{field} {name}: no trial has this {field}", hint)
        selected = [each for each in selected if not names or getattr(each, field) in names]
    return selected


def _first_outputs(outputs: Sequence[RawOutput]) -> list[RawOutput]:
    """Return for each label the first output that is no warm-up; the first output if all are warm-ups."""
    first: dict[str, RawOutput] = {}
    for raw in outputs:
        if first.setdefault(raw.label, raw).warm_up and not raw.warm_up:
            first[raw.label] = raw
    return list(first.values())


def _print_values(trial: Trial, console: Console) -> None:
    for value in (*trial.values, *trial.quarantined):
        point = f" at {value.point:g}" if value.point is not None else ""
        prefix = "  quarantined: " if trial.quarantined else "  "
        quantity = format_quantity(value.value, value.unit)
        text = f"{prefix}{value.metric}{point}: {quantity}{_describe_mean_of_turns(value, trial)}"
        text += _describe_cpu_time(value, trial)
        console.print(text, soft_wrap=True)
    if len(trial.turns) > 1:
        console.print(_describe_turn_times(trial.turns))


def _describe_mean_of_turns(value: MeasuredValue, trial: Trial) -> str:
    """Return the number of turns of a value, their median and the slowest turn; "" for a value without turns."""
    if not value.turns:
        return ""
    slowest = (min if value.better == "higher" else max)(value.turns)
    middle, extreme = (format_quantity(each, value.unit) for each in (median(value.turns), slowest))
    number = trial.first_round + value.turns.index(slowest) + 1
    return f", mean of {len(value.turns)} turns (median {middle}, slowest {extreme} in round {number})"


def _describe_cpu_time(value: MeasuredValue, trial: Trial) -> str:
    """Return the CPU time of the instance for a request or another unit of a rate, or for a run; "" if unknown."""
    usage = cpu_usage(value, trial.turns)
    seconds = usage.seconds_per_unit if usage else None
    return "" if seconds is None else f"; {format_quantity(seconds, 's')} of CPU time per {counted_unit(value.unit)}"


def _describe_turn_times(turns: Sequence[Turn]) -> str:
    """Return the time of all turns, the time from their first begin to their last end, and the largest steal time."""
    measured, end = sum(turn.seconds for turn in turns), max(turn.began + turn.seconds for turn in turns)
    text = f"{len(turns)} turns: {format_duration(round(measured, 3))}"
    text += f" in {format_duration(round(end - turns[0].began, 3))}"
    steal = max((turn.steal or 0.0 for turn in turns), default=0.0)
    return f"{text}; at most {100 * steal:.0f} % steal time in a turn" if steal else text


def _print_sampling_rate(run: Run, trial: Trial, console: Console) -> None:
    """Print the sampling rate of the instance; nothing without telemetry."""
    for file in telemetry_files(run.folder, trial):
        try:
            samples, seconds = count_samples(file, trial.trial)
        except OSError as error:
            console.print(f"telemetry: {file}: {error}", soft_wrap=True)
            continue
        rate = f", {(samples - 1) / seconds:.1f} of {1 / run.record.sample_seconds:g} per second" if seconds else ""
        console.print(f"telemetry: {samples} samples{rate}")


def _print_isolation(trial: Trial, run: Run, console: Console) -> None:
    for text in describe_isolation(trial.isolation, declared_by_layer(run, trial.stack)):
        console.print(f"isolation, {text}", soft_wrap=True)


def _list_trials(trials: Sequence[Trial]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("trial", "status", "seconds", "reason or cautions"):
        table.add_column(column, overflow="fold")
    for trial in trials:
        remarks = trial.reason or ", ".join(dict.fromkeys(caution.kind for caution in trial.cautions))
        table.add_row(trial.trial, trial.status, f"{trial.seconds:.1f}", remarks)
    create_console(_PIPED).print(table)


def _print_trial(trial: Trial, run: Run, *, all_turns: bool) -> None:
    console = create_console()
    _print_facts(trial, run, console, all_turns)
    for record in run.record.workloads:
        if record.name == trial.workload and record.turns:
            console.print(describe_turns(record), soft_wrap=True)
    _print_sampling_rate(run, trial, console)
    outputs = load_raw(run.folder, trial.trial)
    for raw in outputs if all_turns else _first_outputs(outputs):
        console.rule(f"{raw.label} ({format_duration(round(raw.seconds, 3))})", align="left")
        console.print(shlex.join(raw.argv), style="bold", soft_wrap=True)
        console.print(raw.text.rstrip("\n"), soft_wrap=True)
        if raw.errors.strip():
            console.print(f"standard error: {raw.errors.strip()}", style="yellow", soft_wrap=True)
        more = sum(each.label == raw.label for each in outputs) - 1
        if more and not all_turns:
            console.print(f"… {format_count(more, 'more turn')} of {raw.label}; show with --all", style="dim")


def _print_facts(trial: Trial, run: Run, console: Console, all_turns: bool) -> None:
    console.print(f"{trial.stack}, {trial.workload}, block {trial.block + 1}: {trial.status} {trial.reason}".rstrip())
    if trial.hint:
        console.print(f"hint: {complete_hint(trial, run.folder)}", soft_wrap=True)
    _print_values(trial, console)
    marks = ", ".join(f"{mark.name} {format_duration(round(mark.seconds, 4))}" for mark in trial.timeline)
    console.print(f"timeline: {marks or 'none, as another trial of the block started the instance'}")
    if trial.footprint and trial.footprint.memory_bytes is not None:
        reported = trial.footprint.reported_bytes
        inside = "" if reported is None else f"; the guest reports {format_size(reported)} as used"
        memory = f"{format_size(trial.footprint.memory_bytes)} in {trial.footprint.processes} processes"
        console.print(f"memory: {memory}{inside}")
    for layer in trial.layers:
        memory_bytes = layer.footprint.memory_bytes
        cost = "" if memory_bytes is None else f", {format_size(memory_bytes)} on its host"
        console.print(f"layer {layer.name}: {format_duration(round(layer.seconds, 3))}{cost}")
    for limit in limit_rows(trial.limits) if trial.limits else ():
        console.print(f"limit on {limit.name}: requested {limit.asked}, observed {limit.seen}")
    _print_isolation(trial, run, console)
    for file_system in trial.file_systems:
        console.print(f"file system under {file_system.path}: {file_system}")
    console.print(f"path: {trial.path}")
    for name, text in trial.proof:
        console.print(f"{name}: {text}")
    for caution in trial.cautions:
        console.print(f"caution: {caution.kind}: {caution.text}", style="yellow")
    for group in [CommandGroup(argv, 0) for argv in trial.commands] if all_turns else group_commands(trial.commands):
        console.print(f"$ {shlex.join(group.first)}", style="dim", soft_wrap=True)
        if group.more:
            console.print(f"… {group.rest}; show with --all", style="dim")

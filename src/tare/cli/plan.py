"""`tare plan`: what a suite would run, and for how long."""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from rich.table import Table

from tare.cli.console import Console
from tare.errors import UsageError
from tare.journal import Run, load
from tare.model.trials import LimitsWanted
from tare.report.limits import said_lowered
from tare.report.numbers import percent
from tare.running.schedule import Pace, seconds_to_intervals
from tare.statistics.anytime import least_count
from tare.statistics.cells import Cell
from tare.statistics.planning import blocks_needed, margin_reached
from tare.statistics.summarize import summarize
from tare.suites.plan import estimate, to_run
from tare.suites.suite import Suite, read_suite
from tare.units import format_duration, format_size, margin_option


class Forecast(NamedTuple):
    """What the margin takes for a stack whose blocks vary as those of a finished run.

    `blocks` is None where it takes more than can be predicted, `resolves` where the suite's blocks give no interval.
    """

    deviation: float
    stack: str
    blocks: int | None
    seconds: float
    resolves: float | None

    def cells(self) -> tuple[str, ...]:
        """Return the cells of its row in the table."""
        needed = (str(self.blocks), _about(self.seconds)) if self.blocks else ("over 10,000", "-")
        return self.stack, percent(self.deviation), *needed, percent(self.resolves) if self.resolves else "too few"


def plan(
    suite: Annotated[Path, typer.Argument(help="A suite, a TOML file.")],
    pilot: Annotated[
        Path | None,
        typer.Option("--from", help="A short or earlier run, to predict blocks and minutes.", metavar="RUN"),
    ] = None,
    margin: Annotated[
        str | None, typer.Option(help="With --from, the difference to resolve, such as 3% [default: the suite's].")
    ] = None,
) -> None:
    """Show what a suite would run, and estimate how long it takes. Starts nothing."""
    read = read_suite(suite)
    wanted = margin_option(margin) or read.margin
    if margin and not pilot:
        raise UsageError("--margin: what it takes is not known without a run", "add --from RUN, a short or earlier run")
    run = load(pilot) if pilot else None
    pace = Pace({planned.name: planned.workload for planned in read.workloads})
    for trial in run.trials if run else ():
        pace.learn(trial)
    console = Console(file=sys.stdout, highlight=False)
    _say_what(console, read)
    _say_time(console, read, pace, known=run is not None)
    _say_brought(console, read)
    if run:
        _predict(console, replace(read, margin=wanted), run, pace)


def _say_what(console: Console, read: Suite) -> None:
    console.print(f"{len(read.stacks)} stacks: {', '.join(stack.name for stack in read.stacks)}", soft_wrap=True)
    control = f"measured twice in each block (A/A, as {read.control})"
    console.print(
        f"baseline {read.baseline}, {control}; at most {read.blocks} blocks of each workload, seed {read.seed}",
        soft_wrap=True,
    )
    console.print(f"each instance: {_in_words(read.limits)}", soft_wrap=True)
    for planned in read.workloads:
        if planned.limits != read.limits:
            console.print(f"each instance of {planned.name}: {_in_words(planned.limits)}", markup=False, soft_wrap=True)
    console.print()


def _in_words(limits: LimitsWanted) -> str:
    cpus = "1 CPU" if limits.cpus == 1 else f"{limits.cpus} CPUs"
    time = f", measures for {format_duration(limits.seconds)} at most" if limits.seconds else ""
    return f"{cpus}, {format_size(limits.memory_bytes)}, {limits.open_files} open files{time}"


def _say_time(console: Console, read: Suite, pace: Pace, known: bool) -> None:
    blocks = to_run(read)
    table = Table(box=None, pad_edge=False)
    for column in ("workload", "plug-in", "trials", "about"):
        table.add_column(column)
    for planned in read.workloads:
        own = [block for block in blocks if block.workload == planned.name]
        trials = sum(len(block.steps) for block in own)
        table.add_row(planned.name, planned.use, str(trials), _about(estimate(own, pace.seconds_of)))
    console.print(table)
    for planned in read.workloads:
        if planned.exclude:
            console.print(f"{planned.name}: without {', '.join(planned.exclude)}", markup=False, soft_wrap=True)
        if said := said_lowered(planned.lowered):
            console.print(f"{planned.name}: {said}", markup=False, soft_wrap=True)
    total = _about(estimate(blocks, pace.seconds_of))
    without = "" if known else " without skips and emulated machines"
    ends = f"{_budget_in_words(read, pace)}; what is decided earlier takes less"
    console.print(f"\nin all at most about {total}{without}{ends}", markup=False, soft_wrap=True)


def _budget_in_words(read: Suite, pace: Pace) -> str:
    """Return that the budget ends the run, and what it is too short for; empty without a budget."""
    if not read.budget_seconds:
        return ""
    ends = f", ended by the budget after {format_duration(read.budget_seconds)}"
    ready = seconds_to_intervals(to_run(read), pace)
    late = [name for name, seconds in ready.items() if seconds > read.budget_seconds]
    if not late or read.blocks < least_count():
        return ends
    of = f" of {', '.join(late)}" if len(late) < len(ready) else ""
    needed = f"too short for the {least_count()} blocks that an interval{of} needs"
    return f"{ends}, which is {needed} (about {_about(max(ready.values()))})"


def _say_brought(console: Console, read: Suite) -> None:
    """List what the suite, which may be untrusted, executes or opens outside tare."""
    lines = [f"{stack.name}: {what}" for stack in read.stacks for layer in stack.layers for what in layer.brings()]
    for stack in read.stacks:
        lines += [f"{stack.name}: an image of its own: {stack.own.source}"] if stack.own.source else []
    for planned in read.workloads:
        for stack in read.stacks:
            name = f"{planned.name} on {stack.name}" if stack.own.command else planned.name
            own = stack.own.workload(planned.workload.started_in(stack.own.image(read.image)))
            lines += [f"{name}: {what}" for what in own.brings()]
    for role, machine in (("server", read.hosts.server), ("client", read.hosts.client)):
        if machine is not None:
            lines.append(f"{role}: as root on {machine.ssh}")
        if machine is not None and machine.ssh_config:
            lines.append(f"{role}: ssh reads {machine.ssh_config}, which may name programs to start (ProxyCommand)")
    source = read.image.source
    if source and source.started.entry_point is None:
        lines.append(f"image: {source}, whose entry point, if it has one, comes first")
    if lines:
        console.print("\nthis suite also executes or opens, outside tare:", soft_wrap=True)
    for line in dict.fromkeys(lines):
        console.print(f"  {line}", markup=False, soft_wrap=True)


def _predict(console: Console, read: Suite, run: Run, pace: Pace) -> None:
    """Predict the blocks and minutes of each workload for the margin, from its median and its noisiest stack."""
    summary = summarize(run)
    table = Table(box=None, pad_edge=False)
    needed, resolved = f"blocks for {percent(read.margin)}", f"{read.blocks} blocks resolve"
    for column in ("workload", "stack", "SD", needed, "about", resolved):
        table.add_column(column)
    noisiest = []
    for planned in read.workloads:
        cells = [cell for cell in summary.headlines if cell.workload == planned.name and cell.stack in _asked(read)]
        block = next(block for block in to_run(read) if block.workload == planned.name)
        forecasts = _forecasts(cells, read, estimate([block], pace.seconds_of))
        for forecast in forecasts:
            table.add_row(planned.name, *forecast.cells())
        if not forecasts:
            table.add_row(planned.name, "-", f"no two blocks in {run.folder.name}")
        noisiest += forecasts[-1:]
    text = f"until a stack that equals {read.baseline} is found equivalent"
    deviations = "for the stacks with the median and the largest deviation (SD) of a block's ratio"
    console.print(f"\nas in {run.folder}, {text}, {deviations}:", soft_wrap=True)
    console.print(table)
    total = sum(forecast.seconds for forecast in noisiest)
    if len(noisiest) == len(read.workloads) and all(forecast.blocks for forecast in noisiest):
        console.print(f"in all about {_about(total)} until all such stacks are decided", soft_wrap=True)


def _forecasts(cells: Sequence[Cell], read: Suite, seconds: float) -> list[Forecast]:
    """Forecast the median and the noisiest of these cells, where a block takes so many seconds."""
    known = sorted((_deviation(cell), cell.stack) for cell in cells if len(cell.ratios) > 1)
    forecasts = []
    for deviation, stack in sorted({known[(len(known) - 1) // 2], known[-1]}) if known else ():
        blocks = blocks_needed(deviation, read.margin)
        resolves = margin_reached(deviation, read.blocks)
        forecasts.append(Forecast(deviation, stack, blocks, seconds * (blocks or 0), resolves))
    return forecasts


def _asked(read: Suite) -> set[str]:
    """Return the stacks that have to be decided: the A/A control, which varies more, only where it is alone."""
    others = {stack.name for stack in read.stacks} - {read.baseline}
    return others or {read.control}


def _deviation(cell: Cell) -> float:
    """Return the standard deviation of the log ratios of the blocks."""
    return statistics.stdev(math.log(ratio) for ratio in cell.ratios)


def _about(seconds: float) -> str:
    return format_duration(round(seconds))

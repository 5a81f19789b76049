"""`tare plan`: what a suite would run, and for how long."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tare.cli.console import Console, output
from tare.model.errors import UsageError
from tare.model.journal import Run, load
from tare.model.trial import LimitsWanted
from tare.model.units import counted, format_duration, format_size, margin_option
from tare.report.numbers import percent
from tare.report.trial_facts import said_lowered
from tare.runner.schedule import DurationEstimates, shortfall
from tare.statistics.cells import Cell
from tare.statistics.planning import blocks_needed, margin_reached
from tare.statistics.summarize import summarize
from tare.statistics.summary import Summary
from tare.suites.json_schema import suite_schema
from tare.suites.plan import estimate, to_run
from tare.suites.suite import Suite, read_suite
from tare.suites.user_files import brought


def plan(
    suite: Annotated[Path | None, typer.Argument(help="A suite, a TOML file.", show_default=False)] = None,
    pilot: Annotated[
        Path | None,
        typer.Option("--from", help="A short or earlier run, to predict blocks and minutes.", metavar="RUN"),
    ] = None,
    margin: Annotated[
        str | None, typer.Option(help="With --from, the difference to resolve, such as 3% [default: the suite's].")
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of suites, for your editor, instead.")
    ] = False,
) -> None:
    """Show what a suite would run, and estimate how long it takes. Starts nothing."""
    if schema:
        print(json.dumps(suite_schema(), indent=1, ensure_ascii=False))
        return
    if suite is None:
        raise UsageError("no suite is named", "tare plan SUITE; examples/ has some")
    read = read_suite(suite)
    wanted = margin_option(margin) or read.margin
    if margin and not pilot:
        raise UsageError("--margin: what it takes is not known without a run", "add --from RUN, a short or earlier run")
    run = load(pilot) if pilot else None
    pace = DurationEstimates(read.by_name)
    for trial in run.trials if run else ():
        pace.learn(trial)
    console = output()
    console.soft_wrap = True
    _say_what(console, read)
    _say_time(console, read, pace, known=run is not None)
    _say_brought(console, read)
    if run:
        _predict(console, replace(read, margin=wanted), run, pace)


def _say_what(console: Console, read: Suite) -> None:
    console.print(f"{len(read.stacks)} stacks: {', '.join(stack.name for stack in read.stacks)}")
    control = f"measured twice in each block (A/A, as {read.control})"
    console.print(
        f"baseline {read.baseline}, {control}; at most {read.blocks} blocks of each workload, seed {read.seed}"
    )
    console.print(f"each instance: {_in_words(read.limits)}")
    for planned in read.workloads:
        if planned.limits != read.limits:
            console.print(f"each instance of {planned.name}: {_in_words(planned.limits)}")
    console.print()


def _in_words(limits: LimitsWanted) -> str:
    time = f", measures for {format_duration(limits.seconds)} at most" if limits.seconds else ""
    return f"{counted(limits.cpus, 'CPU')}, {format_size(limits.memory_bytes)}, {limits.open_files} open files{time}"


def _say_time(console: Console, read: Suite, pace: DurationEstimates, known: bool) -> None:
    blocks = to_run(read)
    table = Table(box=None, pad_edge=False)
    for column in ("workload", "plug-in", "trials", "about"):
        table.add_column(column)
    for planned in read.workloads:
        own = [block for block in blocks if block.workload == planned.name]
        trials = sum(len(block.steps) for block in own)
        table.add_row(planned.name, planned.use, str(trials), _about(estimate(own, pace.seconds_of)))
    console.print(table, soft_wrap=False)
    for planned in read.workloads:
        if planned.exclude:
            console.print(f"{planned.name}: without {', '.join(planned.exclude)}")
        if said := said_lowered(planned.lowered):
            console.print(f"{planned.name}: {said}")
    total = _about(estimate(blocks, pace.seconds_of))
    without = "" if known else " without skips and emulated machines"
    ends = f"{_budget_in_words(read, pace)}; what is decided earlier takes less"
    console.print(f"\nin all at most about {total}{without}{ends}")


def _budget_in_words(read: Suite, pace: DurationEstimates) -> str:
    """Return that the budget ends the run, and what it is too short for; empty without a budget."""
    if not read.budget_seconds:
        return ""
    ends = f", ended by the budget after {format_duration(read.budget_seconds)}"
    short = shortfall(to_run(read), pace, (read.baseline, read.control), read.budget_seconds)
    return f"{ends}, which is {short}" if short else ends


def _say_brought(console: Console, read: Suite) -> None:
    if lines := brought(read):
        console.print("\nthis suite also executes or opens, outside tare:")
    for line in lines:
        console.print(f"  {line}")


def _predict(console: Console, read: Suite, run: Run, pace: DurationEstimates) -> None:
    """Predict the blocks and minutes of each workload for the margin, from its median and its noisiest stack."""
    table = Table(box=None, pad_edge=False)
    needed, resolved = f"blocks for {percent(read.margin)}", f"{read.blocks} blocks resolve"
    for column in ("workload", "stack", "SD", needed, "about", resolved):
        table.add_column(column)
    found = forecasts(summarize(run), read, pace)
    for workload, stacks in found.items():
        for each in stacks:
            table.add_row(workload, *_cells(each))
        if not stacks:
            table.add_row(workload, "-", f"no two blocks in {run.folder.name}")
    text = f"until a stack that equals {read.baseline} is found equivalent"
    deviations = "for the stacks with the median and the largest deviation (SD) of a block's ratio"
    console.print(f"\nas in {run.folder}, {text}, {deviations}:")
    console.print(table, soft_wrap=False)
    if all(stacks and stacks[-1].blocks for stacks in found.values()):
        total = sum(stacks[-1].seconds for stacks in found.values())
        console.print(f"in all about {_about(total)} until all such stacks are decided")


def _cells(forecast: Forecast) -> tuple[str, ...]:
    needed = (str(forecast.blocks), _about(forecast.seconds)) if forecast.blocks else ("over 10,000", "-")
    resolves = percent(forecast.resolves) if forecast.resolves else "too few"
    return forecast.stack, percent(forecast.deviation), *needed, resolves


def _about(seconds: float) -> str:
    return format_duration(round(seconds))


@dataclass(frozen=True)
class Forecast:
    """What the margin takes for a stack whose ratios to the baseline have this standard deviation (of their logs).

    `blocks` is None where it takes more than can be predicted, `resolves` where the suite's blocks give no interval.
    """

    stack: str
    deviation: float
    blocks: int | None
    seconds: float
    resolves: float | None


def forecasts(summary: Summary, suite: Suite, pace: DurationEstimates) -> Mapping[str, Sequence[Forecast]]:
    """Return by workload the forecasts of its median and of its noisiest stack; none without two blocks."""
    # The A/A control, which varies more, has to be decided only where it is alone.
    stacks = {stack.name for stack in suite.stacks} - {suite.baseline} or {suite.control}
    cells = [cell for cell in summary.headlines if cell.stack in stacks and len(cell.ratios) > 1]
    seconds = {block.workload: estimate((block,), pace.seconds_of) for block in to_run(suite) if block.index == 0}
    return {
        planned.name: [
            _forecast(deviation, stack, suite, seconds[planned.name])
            for deviation, stack in _median_and_noisiest([cell for cell in cells if cell.workload == planned.name])
        ]
        for planned in suite.workloads
    }


def _median_and_noisiest(cells: Sequence[Cell]) -> list[tuple[float, str]]:
    known = sorted((statistics.stdev(map(math.log, cell.ratios)), cell.stack) for cell in cells)
    return sorted({known[(len(known) - 1) // 2], known[-1]}) if known else []


def _forecast(deviation: float, stack: str, suite: Suite, seconds: float) -> Forecast:
    blocks = blocks_needed(deviation, suite.margin)
    return Forecast(stack, deviation, blocks, seconds * (blocks or 0), margin_reached(deviation, suite.blocks))

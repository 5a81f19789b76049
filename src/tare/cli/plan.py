"""`tare plan`: what a suite would do, before it does it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tare.plan import estimate
from tare.plan import plan as plan_of
from tare.runner import Pace
from tare.suite import read_suite
from tare.units import format_duration, format_size


def plan(suite: Annotated[Path, typer.Argument(help="A suite, a TOML file.")]) -> None:
    """Show what a suite would run, and estimate how long it takes. Starts nothing."""
    read = read_suite(suite)
    blocks = plan_of(read)
    pace = Pace({planned.name: planned.workload for planned in read.workloads})
    table = Table(box=None, pad_edge=False)
    for column in ("workload", "plug-in", "trials", "about"):
        table.add_column(column)
    for planned in read.workloads:
        own = [block for block in blocks if block.workload == planned.name]
        trials = sum(len(block.steps) for block in own)
        table.add_row(planned.name, planned.use, str(trials), _about(estimate(own, pace.seconds_of)))
    console = Console(file=sys.stdout, highlight=False)
    console.print(f"{len(read.stacks)} stacks: {', '.join(stack.name for stack in read.stacks)}", soft_wrap=True)
    console.print(f"baseline {read.baseline}, {read.blocks} blocks of each workload, seed {read.seed}")
    memory = format_size(read.limits.memory_bytes)
    cpus = "1 CPU" if read.limits.cpus == 1 else f"{read.limits.cpus} CPUs"
    console.print(f"each instance: {cpus}, {memory}, {read.limits.open_files} open files\n")
    console.print(table)
    total = _about(estimate(blocks, pace.seconds_of))
    budget = f", ended by the budget after {format_duration(read.budget_seconds)}" if read.budget_seconds else ""
    console.print(f"\nin all about {total} without skips and emulated machines{budget}")


def _about(seconds: float) -> str:
    return format_duration(round(seconds))

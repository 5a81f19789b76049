"""Command `tare plan`: the trials of a suite and their estimated duration, or the JSON Schema of suites.

Editors complete keys and check values by the schema, which is made from the tables of suites and the plug-ins.
"""

from __future__ import annotations

import inspect
import json
import math
import statistics
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer
from pydantic import TypeAdapter
from pydantic.json_schema import PydanticJsonSchemaWarning
from rich.table import Table

from tare.cli.console import Console, create_console
from tare.hosts.local import LocalHost
from tare.model.errors import UsageError
from tare.model.machine import SshTarget
from tare.model.run_folder import Run, load_run
from tare.model.trial import LimitsSpec
from tare.model.units import format_count, format_duration, format_setting, format_size, parse_margin_option
from tare.plugins import registry
from tare.report.numbers import format_percent
from tare.report.trial_facts import describe_lowered
from tare.runner.prepare import require_memory
from tare.runner.schedule import DurationEstimates, find_shortfall
from tare.statistics.cells import Cell
from tare.statistics.planning import blocks_needed, margin_reached
from tare.statistics.summarize import summarize
from tare.statistics.summary import Summary
from tare.suites.document import Catalogue, load_plugins
from tare.suites.plan import estimate_total_seconds, plan_to_run
from tare.suites.stacks import OVERRIDE_KEYS
from tare.suites.suite import Suite, read_suite
from tare.suites.tables import MAX_WEIGHT, BoundsTable, ImageTable, LimitsTable, SuiteTable, TelemetryTable
from tare.suites.user_files import list_external_effects


def plan(
    suite: Annotated[Path | None, typer.Argument(help="A suite (TOML file).", show_default=False)] = None,
    pilot: Annotated[
        Path | None,
        typer.Option("--from", help="A short or earlier run, from which to predict blocks and minutes.", metavar="RUN"),
    ] = None,
    margin: Annotated[
        str | None,
        typer.Option(
            help="With --from, the difference to resolve, such as 3% [default: the suite's].", metavar="PERCENT"
        ),
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of suites for an editor, and nothing else.")
    ] = False,
) -> None:
    """Show the trials of a suite and estimate their duration.

    Nothing is started.
    """
    if schema:
        print(json.dumps(create_suite_schema(), indent=1, ensure_ascii=False))
        return
    if suite is None:
        raise UsageError("no suite is named", "tare plan SUITE; examples/ has some")
    read = read_suite(suite)
    if read.hosts.server is None:
        require_memory(read, LocalHost())
    target_margin = parse_margin_option(margin) or read.margin
    if margin and not pilot:
        raise UsageError("--margin requires --from", "add --from RUN, a short or earlier run")
    run = load_run(pilot) if pilot else None
    estimates = DurationEstimates(read.by_name, control=read.control)
    for trial in run.trials if run else ():
        estimates.learn(trial)
    console = create_console()
    console.soft_wrap = True
    _print_plan(console, read)
    _print_time(console, read, estimates, has_run=run is not None)
    _print_external_effects(console, read)
    if run:
        _print_forecasts(console, replace(read, margin=target_margin), run, estimates)


def _print_plan(console: Console, read: Suite) -> None:
    console.print(f"{len(read.stacks)} stacks: {', '.join(stack.name for stack in read.stacks)}")
    control = f"measured twice in each block (A/A, as {read.control})"
    console.print(
        f"baseline {read.baseline}, {control}; at most {read.blocks} blocks of each workload, seed {read.seed}"
    )
    console.print(f"each instance: {_format_limits(read.limits)}")
    for planned in read.workloads:
        if planned.limits != read.limits:
            console.print(f"each instance of {planned.name}: {_format_limits(planned.limits)}")
    console.print()


def _format_limits(limits: LimitsSpec) -> str:
    time = f", measures for {format_duration(limits.seconds)} at most" if limits.seconds else ""
    return (
        f"{format_count(limits.cpus, 'CPU')}, {format_size(limits.memory_bytes)}, {limits.open_files} open files{time}"
    )


def _print_time(console: Console, read: Suite, estimates: DurationEstimates, has_run: bool) -> None:
    blocks = plan_to_run(read)
    table = Table(box=None, pad_edge=False)
    for column in ("workload", "plug-in", "trials", "about"):
        table.add_column(column)
    for planned in read.workloads:
        of_workload = [block for block in blocks if block.workload == planned.name]
        trials = sum(len(block.trials) for block in of_workload)
        table.add_row(
            planned.name,
            planned.use,
            str(trials),
            _format_about(estimate_total_seconds(of_workload, estimates.seconds_of)),
        )
    console.print(table, soft_wrap=False)
    for planned in read.workloads:
        if planned.exclude:
            console.print(f"{planned.name}: without {', '.join(planned.exclude)}")
        if text := describe_lowered(planned.lowered):
            console.print(f"{planned.name}: {text}")
    total = _format_about(estimate_total_seconds(blocks, estimates.seconds_of))
    without = "" if has_run else " (emulated stacks take longer, skipped ones no time)"
    ends = f"{_describe_budget(read, estimates)}; decided comparisons end earlier"
    console.print(f"\ntotal: at most about {total}{without}{ends}")


def _describe_budget(read: Suite, estimates: DurationEstimates) -> str:
    """Return when the budget ends the run, and the comparisons that it is too short for; "" without a budget."""
    if not read.budget_seconds:
        return ""
    ends = f", ended by the budget after {format_duration(read.budget_seconds)}"
    short = find_shortfall(plan_to_run(read), estimates, (read.baseline, read.control), read.budget_seconds)
    return f"{ends}, which is {short}" if short else ends


def _print_external_effects(console: Console, read: Suite) -> None:
    if lines := list_external_effects(read):
        console.print("\nthis suite also executes or opens, outside tare:")
    for line in lines:
        console.print(f"  {line}")


def _print_forecasts(console: Console, read: Suite, run: Run, estimates: DurationEstimates) -> None:
    """Print the predicted blocks and time of each workload for the margin."""
    table = Table(box=None, pad_edge=False)
    needed, resolved = f"blocks for {format_percent(read.margin)}", f"{read.blocks} blocks resolve"
    for column in ("workload", "stack", "SD", needed, "about", resolved):
        table.add_column(column)
    forecasts = create_forecasts(summarize(run), read, estimates)
    for workload, stacks in forecasts.items():
        for each in stacks:
            table.add_row(workload, *_format_forecast(each))
        if not stacks:
            table.add_row(workload, "-", f"no two blocks in {run.folder.name}")
    target = f"blocks until a stack that equals {read.baseline} is found equivalent"
    stacks_shown = "for the stacks with the median and the largest standard deviation (SD) between blocks"
    console.print(f"\nforecast from {run.folder}: {target}, {stacks_shown}:")
    console.print(table, soft_wrap=False)
    if all(stacks and stacks[-1].blocks for stacks in forecasts.values()):
        total = sum(stacks[-1].seconds for stacks in forecasts.values())
        console.print(f"total: about {_format_about(total)} until all of these are decided")


def _format_forecast(forecast: Forecast) -> tuple[str, ...]:
    needed = (str(forecast.blocks), _format_about(forecast.seconds)) if forecast.blocks else ("over 10,000", "-")
    resolves = format_percent(forecast.resolves) if forecast.resolves else "too few"
    return forecast.stack, format_percent(forecast.deviation), *needed, resolves


def _format_about(seconds: float) -> str:
    return format_duration(round(seconds))


@dataclass(frozen=True)
class Forecast:
    """Forecast for a stack: blocks and seconds until its margin is resolved.

    `deviation` is the standard deviation of the logarithms of its ratios to the baseline. `blocks` is None if more are
    needed than can be predicted. `resolves` is the margin that the suite's blocks resolve; None without an interval.
    """

    stack: str
    deviation: float
    blocks: int | None
    seconds: float
    resolves: float | None


def create_forecasts(summary: Summary, suite: Suite, estimates: DurationEstimates) -> Mapping[str, Sequence[Forecast]]:
    """Return by workload the forecasts of its median and its noisiest stack; empty if no stack has two blocks."""
    # The A/A control varies more than other stacks, so it is only forecast if there is no other stack.
    stacks = {stack.name for stack in suite.stacks} - {suite.baseline} or {suite.control}
    cells = [cell for cell in summary.headlines if cell.stack in stacks and len(cell.ratios) > 1]
    seconds = {
        block.workload: estimate_total_seconds((block,), estimates.seconds_of)
        for block in plan_to_run(suite)
        if block.index == 0
    }
    return {
        planned.name: [
            _create_forecast(deviation, stack, suite, seconds[planned.name])
            for deviation, stack in _median_and_noisiest([cell for cell in cells if cell.workload == planned.name])
        ]
        for planned in suite.workloads
    }


def _median_and_noisiest(cells: Sequence[Cell]) -> list[tuple[float, str]]:
    known = sorted((statistics.stdev(map(math.log, cell.ratios)), cell.stack) for cell in cells)
    return sorted({known[(len(known) - 1) // 2], known[-1]}) if known else []


def _create_forecast(deviation: float, stack: str, suite: Suite, seconds: float) -> Forecast:
    blocks = blocks_needed(deviation, suite.margin)
    return Forecast(stack, deviation, blocks, seconds * (blocks or 0), margin_reached(deviation, suite.blocks))


Schema = dict[str, Any]
_DRAFT = "http://json-schema.org/draft-07/schema#"  # the newest draft that editors of TOML support
_TEXT: Schema = {"type": "string"}
_SCHEMA_KEYS = ("type", "enum", "const", "anyOf", "items", "minimum", "maximum", "minItems", "additionalProperties")


def create_suite_schema(catalogue: Catalogue = registry) -> Schema:
    """Return the schema of a suite with all plug-ins that can be loaded."""
    stacks = {
        "description": "user-defined stacks, by name",
        "type": "object",
        "additionalProperties": _stack_schema(catalogue),
    }
    machine = _table_schema(SshTarget)
    several = {"type": "array", "items": machine, "minItems": 1, "description": "clients that share the load"}
    hosts: Schema = {"server": machine, "client": {"anyOf": [machine, several]}}
    return {
        "$schema": _DRAFT,
        "title": "A suite of tare",
        **_closed_table(
            {
                "suite": _table_schema(SuiteTable, required=("stacks",)),
                "limits": _table_schema(LimitsTable),
                "image": _table_schema(
                    ImageTable, more={"from": {**_TEXT, "description": "an image that others have built"}}
                ),
                "telemetry": _table_schema(TelemetryTable),
                "stacks": stacks,
                "hosts": {**_closed_table(hosts), "description": "the machines of a run, over SSH"},
                "workloads": {"type": "array", "items": {"anyOf": [*_workload_schemas(catalogue)]}},
            },
            ("suite", "workloads"),
        ),
    }


def _workload_schemas(catalogue: Catalogue) -> Iterable[Schema]:
    """Yield the schema of each workload's table."""
    common_keys = {
        "name": {**_TEXT, "description": "its name in this suite"},
        "limits": _table_schema(BoundsTable),
        "exclude": {"type": "array", "items": _TEXT, "description": "stacks that do not run it"},
        "weight": {"type": "number", "minimum": 0, "maximum": MAX_WEIGHT, "description": "how often a session does it"},
    }
    for name, plugin in load_plugins(catalogue, "workloads"):
        schema = _table_schema(plugin, more={"use": {"const": name}, **common_keys}, required=("use",))
        yield {"title": plugin.title, **schema, "description": (inspect.getdoc(plugin) or "").partition("\n")[0]}


def _stack_schema(catalogue: Catalogue) -> Schema:
    """Return the schema of a stack's table: its technologies, and settings of one or tables of its layers."""
    settings: dict[str, Schema] = {}
    for _, plugin in load_plugins(catalogue, "technologies"):
        for name, setting in _table_schema(plugin)["properties"].items():
            if settings.setdefault(name, setting) != setting:
                settings[name] = {}  # technologies differ in it, and a schema cannot depend on the text of `stack`
    overrides = {name: {"description": f"{name} of this stack in place of the run's"} for name in OVERRIDE_KEYS}
    stack = {**_TEXT, "description": 'technologies, inner first, such as "docker" or "docker/qemu"'}
    return {"type": "object", "properties": {"stack": stack, **overrides, **settings}, "required": ["stack"]}


def _table_schema(
    table_class: type[Any], more: Mapping[str, Schema] | None = None, required: tuple[str, ...] = ()
) -> Schema:
    """Return the schema of a table, in which descriptions have the defaults in the notation of suites."""
    with warnings.catch_warnings():
        # pydantic warns of defaults that JSON cannot represent. They are in the descriptions.
        warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
        found = TypeAdapter(table_class).json_schema()
    hints, settings = get_type_hints(table_class, include_extras=True), {}
    for each in fields(table_class):
        if each.init and each.name in found.get("properties", {}):
            default = each.default_factory() if each.default_factory is not MISSING else each.default
            text = "" if default in (MISSING, None, "") else f"default: {format_setting(default, hints[each.name])}"
            settings[each.name] = _simplify(found["properties"][each.name], found) | (
                {"description": text} if text else {}
            )
    return _closed_table({**(more or {}), **settings}, required)


def _simplify(schema: Schema, whole: Schema) -> Schema:
    """Return the parts of a setting's schema that editors use, with references replaced by their targets."""
    if "$ref" in schema:
        return _simplify(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    kept = {name: schema[name] for name in _SCHEMA_KEYS if name in schema}
    if "anyOf" in kept:
        kept["anyOf"] = [_simplify(each, whole) for each in kept["anyOf"] if each.get("type") != "null"]
    for name in ("items", "additionalProperties"):
        if isinstance(kept.get(name), dict):
            kept[name] = _simplify(kept[name], whole)
    if "properties" in schema:
        kept["properties"] = {name: _simplify(each, whole) for name, each in schema["properties"].items()}
    return kept


def _closed_table(properties: Mapping[str, Schema], required: Iterable[str] = ()) -> Schema:
    """Return the schema of a table that allows no other keys."""
    found: Schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return found | ({"required": list(required)} if required else {})

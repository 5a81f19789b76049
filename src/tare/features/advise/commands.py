"""Commands `tare advise` and `tare prices`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from tare.cli.answer import print_and_exit
from tare.cli.arguments import AsJson, read_run
from tare.cli.run import run_suite, select_stacks_to_run
from tare.cli.try_command import parse_adhoc_suite
from tare.features.advise.advice import Advice, AdviceOptions, ReferenceRun, Requirements, measured_times
from tare.features.advise.advice import advise as find_advice
from tare.features.advise.advice_text import answer
from tare.features.advise.application_profile import combine_profiles
from tare.features.advise.capacity import SECONDS_PER_UNIT, MachineType, read_machine_types
from tare.features.advise.profiler.profile import read_profile
from tare.features.advise.unit_costs import load_orientation_prices
from tare.model.errors import UsageError, find_nearest
from tare.model.isolation import LEVELS, IsolationLevel
from tare.model.units import format_setting, parse_duration, parse_option, parse_rate, parse_size
from tare.runner.job import new_job, require_root

PROFILE_FILE = "profile.json"  # profile of a reference application, in its run folder
_TYPES_FILE_SUFFIX = ".toml"
# Values of `--needs isolation=…`. The lowest level is left out: every stack meets it.
_ISOLATION_LEVELS: dict[str, IsolationLevel] = {level.replace(" ", "-"): level for level in LEVELS[1:]}
_SUITE_TEMPLATE = """\
[suite]
name = "prices"
stacks = {stacks}
blocks = 30
until = "blocks"
budget = {budget}

[limits]
cpus = 1
memory = "512MiB"

[[workloads]]
use = "prices"

[[workloads]]
use = "network-prices"
"""
_DEFAULT_BUDGET = "15m"  # enough for ten stacks
_On = Annotated[
    str | None,
    typer.Option(help="Stacks, separated by commas [default: bare metal and all usable stacks].", metavar="STACKS"),
]
_Budget = Annotated[str, typer.Option(help="Time limit of the measurement, which ends with a block.", metavar="TIME")]
_Out = Annotated[Path | None, typer.Option(help="Run folder to create [default: runs/TIME-prices].", metavar="FOLDER")]


def advise(  # noqa: PLR0913 - each is an option of the command line
    app: Annotated[
        list[Path],
        typer.Argument(help="Profiles of one application, from `tare profile`.", metavar="APP.JSON..."),
    ],
    *,
    prices: Annotated[
        Path | None,
        typer.Option(
            help="Run folder of `tare prices` [default: rough unit costs of another machine].",
            metavar="RUN",
            show_default=False,
        ),
    ] = None,
    needs: Annotated[
        list[str] | None,
        typer.Option(help=f"Minimum isolation: isolation={'|'.join(_ISOLATION_LEVELS)}.", metavar="NEED"),
    ] = None,
    memory: Annotated[
        str, typer.Option(help="Maximum memory, application included, such as 256MiB.", metavar="SIZE")
    ] = "",
    starts_within: Annotated[str, typer.Option(help="Maximum start time, such as 200ms.", metavar="TIME")] = "",
    reference: Annotated[
        list[Path] | None,
        typer.Option(
            help=f"Run of another application, for calibration, with its {PROFILE_FILE}; repeatable.", metavar="RUN"
        ),
    ] = None,
    node_price: Annotated[
        str,
        typer.Option(help="Price of a machine, such as 0.12/h, or a file with machine types.", metavar="PRICE|FILE"),
    ] = "",
    load_: Annotated[
        str, typer.Option("--load", help="Load in units of work per time, such as 5000/s.", metavar="RATE")
    ] = "",
    across_machines: Annotated[
        bool, typer.Option("--across-machines", help="Also use unit costs of another machine or kernel.")
    ] = False,
    page: Annotated[
        Path | None,
        typer.Option(
            "--html",
            help="Also write an HTML page with the cost breakdowns to this file.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Predict an application's cost in each stack, and rank them."""
    size = parse_option("--memory", memory, parse_size, "256MiB") if memory else None
    start = parse_option("--starts-within", starts_within, parse_duration, "200ms") if starts_within else None
    requirements = Requirements(_parse_isolation(needs or []), size, start)
    hourly, load_rate, machine_types = _parse_prices_and_load(node_price, load_)
    # Orientation prices are always of another machine, and the answer says so in its first line.
    options = AdviceOptions(requirements, hourly, load_rate, machine_types, across_machines or prices is None)
    application = combine_profiles(*map(read_profile, app))
    references = [_read_reference_run(folder) for folder in reference or ()]
    run = read_run(prices) if prices else load_orientation_prices()
    advice = find_advice(application, run, options, references)
    print_and_exit(answer(advice), page, partial(_render, advice), as_json=as_json)


def _render(advice: Advice) -> bytes:
    from tare.features.advise.advice_page import render  # noqa: PLC0415 - drawing charts takes a second to load

    return render(advice)


def _parse_prices_and_load(node_price: str, load: str) -> tuple[float | None, float | None, tuple[MachineType, ...]]:
    """Return the hourly price of a machine, the load per second, and the machine types of a file.

    Price and load are None if they were not given. The price is also None where `node_price` names a file.
    """
    rate = _parse_rate_option("--load", load, "5000/s")
    if not node_price.endswith(_TYPES_FILE_SUFFIX):
        example = f"0.12/h, or name a {_TYPES_FILE_SUFFIX} file of machine types"
        price = _parse_rate_option("--node-price", node_price, example)
        return price * SECONDS_PER_UNIT["h"] if price else None, rate, ()
    machine_types = read_machine_types(Path(node_price))
    if rate is None:
        raise UsageError("machine types are compared for a load", "say it, for example --load 5000/s")
    return None, rate, machine_types


def _read_reference_run(folder: Path) -> ReferenceRun:
    """Read a reference application: its run, and the profile in its folder; raises UsageError."""
    profile, run = combine_profiles(read_profile(folder / PROFILE_FILE)), read_run(folder)
    times = measured_times(run)
    if not times:
        raise UsageError(f"{folder}: no stack has a value in all workloads", "give a run whose stacks were compared")
    return ReferenceRun(str(folder), profile.operations, times, run.record.instance_machine)


def _parse_isolation(needs: list[str]) -> IsolationLevel | None:
    """Return the isolation level of the last of `needs`, None if there are none; raises UsageError."""
    isolation = None
    for need in needs:
        name, _, level = need.partition("=")
        isolation = _ISOLATION_LEVELS.get(level.strip().lower()) if name.strip() == "isolation" else None
        if isolation is None:
            known = ", ".join(f"isolation={level}" for level in _ISOLATION_LEVELS)
            meant = find_nearest(level or name, _ISOLATION_LEVELS)
            guess = f'did you mean "{meant}"? ' if meant else ""
            raise UsageError(f"--needs {need}: unknown need", f"{guess}name the least that is enough: {known}")
    return isolation


def _parse_rate_option(option: str, text: str, example: str) -> float | None:
    """Parse a quantity per time, such as 0.12/h; return it per second, None for "". Raises UsageError."""
    return parse_option(option, text, lambda rate: parse_rate(rate, SECONDS_PER_UNIT), example) if text else None


def price_suite(stacks: Sequence[str], budget: str) -> str:
    """Return the suite that measures unit costs, as TOML.

    The suite is without early stop (`until = "blocks"`): a decided comparison would end it, but `tare advise` needs
    each unit cost as precise as the budget allows.
    """
    return _SUITE_TEMPLATE.format(stacks=format_setting(tuple(stacks)), budget=format_setting(budget))


def prices(on: _On = None, budget: _Budget = _DEFAULT_BUDGET, out: _Out = None) -> None:
    """Measure the unit costs of operations, for `tare advise`.

    System calls, page faults, program starts, messages and more are measured separately, on bare metal and in every
    stack. The result is a run folder, as of `tare run`.
    """
    require_root("tare prices")
    suite = parse_adhoc_suite(price_suite(select_stacks_to_run(on), budget), "tare prices")
    run_suite(new_job(suite, out), "prices")

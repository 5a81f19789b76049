"""`tare advise`: which stack an application should take, from its profile and a price list."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from tare.answers.advice import Advice, Asked, Measured, Needs, measured_times
from tare.answers.advice import advise as find_advice
from tare.answers.application import application_of
from tare.answers.capacity import Kind
from tare.answers.machine_kinds import PER, read_kinds
from tare.answers.orientation import orientation
from tare.cli.console import output
from tare.cli.files import writing
from tare.cli.reading import read_run
from tare.errors import TareError, UsageError, nearest
from tare.model.isolation import LEVELS, IsolationLevel
from tare.profiles.profile import read_profile
from tare.report.advised import document, for_orientation, legend, remarks, sentence, situation, table
from tare.report.next_step import next_step
from tare.report.numbers import clean
from tare.units import parse_duration, parse_rate, parse_size

PROFILE = "profile.json"  # of a reference application, in its run folder
_LOG = 180
_TABLE = ".toml"
# What `--needs isolation=…` may ask for.
_NEEDED: dict[str, IsolationLevel] = {level.replace(" ", "-"): level for level in LEVELS[1:]}


def advise(  # noqa: PLR0913 - each is an option of the command line
    app: Annotated[
        list[Path],
        typer.Argument(help="A profile of `tare profile`, or several of one application.", metavar="APP.JSON..."),
    ],
    *,
    prices: Annotated[
        Path | None,
        typer.Option(
            help="The run folder of `tare prices` [default: prices of another machine, for orientation].",
            metavar="RUN",
            show_default=False,
        ),
    ] = None,
    needs: Annotated[
        list[str] | None,
        typer.Option(help=f"The least isolation: isolation={'|'.join(_NEEDED)}.", metavar="NEED"),
    ] = None,
    memory: Annotated[str, typer.Option(help="The most memory, application included, such as 256MiB.")] = "",
    starts_within: Annotated[str, typer.Option(help="The longest start, such as 200ms.", metavar="TIME")] = "",
    reference: Annotated[
        list[Path] | None,
        typer.Option(help=f"A run of another application, with its {PROFILE} in it; repeatable.", metavar="RUN"),
    ] = None,
    node_price: Annotated[
        str,
        typer.Option(
            help="The price of a machine, such as 0.12/h, or a file with kinds of machines.", metavar="PRICE|FILE"
        ),
    ] = "",
    load_: Annotated[
        str, typer.Option("--load", help="Units of work that are to be done, such as 5000/s.", metavar="RATE")
    ] = "",
    across_machines: Annotated[
        bool, typer.Option("--across-machines", help="Also use prices of another machine or kernel.")
    ] = False,
    page: Annotated[
        Path | None, typer.Option("--html", help="Write a page with the bills to this file, too.", show_default=False)
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")] = False,
) -> None:
    """Rank the stacks for an application: what it would cost in each, and why."""
    size = _quantity("--memory", memory, parse_size)
    start = _quantity("--starts-within", starts_within, parse_duration)
    wanted = Needs(_isolation(needs or []), size, start)
    load_rate, hourly = _rate("--load", load_, "5000/s"), None
    kinds: tuple[Kind, ...] = ()
    if node_price.endswith(_TABLE):
        kinds = read_kinds(Path(node_price))
        if load_rate is None:
            raise UsageError("kinds of machines are compared for a load", "say it, for example --load 5000/s")
    elif price := _rate(
        "--node-price", node_price, f"0.12/h, or give a file with kinds of machines that ends in {_TABLE}"
    ):
        hourly = price * PER["h"]
    asked = Asked(wanted, hourly, load_rate, kinds, across_machines or prices is None)
    application, references = application_of(*map(read_profile, app)), [_measured(folder) for folder in reference or ()]
    found = find_advice(application, read_run(prices) if prices else orientation(), asked, references)
    if page is not None:
        _write(page, found)
    if as_json:
        print(document(found))
    else:
        _print(found)
    if not found.of("ranked"):
        _end_without_answer(found)


def _end_without_answer(found: Advice) -> None:
    """End with 1 where no stack meets the needs, and with an error where nothing can be told."""
    if not found.of("cannot tell"):
        raise typer.Exit(1)
    hint = "`tare prices` measures prices of this machine; `tare profile` watches the application again"
    raise TareError(sentence(found).rstrip("."), hint)


def _print(found: Advice) -> None:
    # A log has no width: do not break its lines.
    console = output(_LOG)
    loud = for_orientation(found)
    if loud:
        console.print(clean(loud), style="bold yellow", soft_wrap=True)
    if first := situation(found):
        console.print(first, style="bold", soft_wrap=True)
    console.print(table(found, console.width))
    for line in (legend(found), *(line for line in remarks(found) if line != loud)):
        console.print(clean(line), style="dim", soft_wrap=True)
    console.print(clean(sentence(found)), style="bold", soft_wrap=True)
    if step := next_step(found):
        console.print(Text(f"{'Check' if found.is_settled else 'Settle'} it: {clean(step.how)}"), soft_wrap=True)
        for line in step.suite.splitlines():
            console.print(Text(f"    {clean(line)}".rstrip()), soft_wrap=True)


def _write(page: Path, found: Advice) -> None:
    from tare.report.html import advised  # noqa: PLC0415 - drawing charts takes a second to load

    with writing(page, "choose another file with --html"):
        page.write_bytes(advised(found))


def _measured(folder: Path) -> Measured:
    """Read a reference application: its run, and the profile that is in its folder."""
    profile, found = application_of(read_profile(folder / PROFILE)), read_run(folder)
    times = measured_times(found)
    if not times:
        raise UsageError(f"{folder}: no stack has a value in all workloads", "give a run whose stacks were compared")
    return Measured(str(folder), profile.basket, times, found.record.measured_on)


def _isolation(needs: list[str]) -> IsolationLevel | None:
    """Return the level of isolation that the last of the needs names; None without one."""
    found = None
    for need in needs:
        name, _, level = need.partition("=")
        found = _NEEDED.get(level.strip().lower()) if name.strip() == "isolation" else None
        if found is None:
            known, meant = ", ".join(f"isolation={each}" for each in _NEEDED), nearest(level or name, _NEEDED)
            guess = f'did you mean "{meant}"? ' if meant else ""
            raise UsageError(f"--needs {need}: unknown need", f"{guess}name the least that is enough: {known}")
    return found


def _quantity(option: str, text: str, parse: Callable[[object], float]) -> float | None:
    """Read a size or a time of the command line; None where it was not given."""
    try:
        return parse(text) if text else None
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}", f"`tare advise --help` has an example of {option}") from error


def _rate(option: str, text: str, example: str) -> float | None:
    """Read a quantity per time, such as 0.12/h, as one per second; None where it was not given."""
    try:
        return parse_rate(text, PER) if text else None
    except ValueError as error:
        raise UsageError(f"{option} {text}: not a number per time", f"for example {option} {example}") from error

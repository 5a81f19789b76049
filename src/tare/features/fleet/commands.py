"""Measure a suite on many machines and compare the runs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.live import Live

from tare import __version__
from tare.cli.answer import print_and_exit, print_answer
from tare.cli.app import GROUP_SETTINGS, PlainCommand
from tare.cli.arguments import AsJson, ChartsFile, reading_progress
from tare.cli.console import Console, create_console, print_status
from tare.cli.signals import INTERRUPTED, stop_event
from tare.features.compare.commands import (
    AcrossMachinesOption,
    AsMarkdown,
    BaselineOption,
    FailOnOption,
    MarginOption,
    StackOption,
    parse_compare_options,
)
from tare.features.compare.run_comparison import CompareOptions
from tare.features.fleet.ansible import Inventory, TaskResult, open_playbooks, read_inventory
from tare.features.fleet.comparison import FleetComparison, compare_fleets, compare_machines, is_fleet, run_folders
from tare.features.fleet.controller import Controller, FleetOptions, StopRequested, files_to_upload
from tare.features.fleet.fleet_page import render
from tare.features.fleet.fleet_text import answer, log_line, plan_lines, plan_table, state_table
from tare.features.fleet.state import (
    Fleet,
    Member,
    find_newest_fleet,
    has_controller,
    hold_controller_lock,
    read,
    save,
    to_document,
)
from tare.model.architecture import ARCHITECTURES
from tare.model.errors import TareError, UsageError, format_os_error
from tare.model.files import convert_write_errors
from tare.model.units import format_count
from tare.suites.suite import Suite, read_suite

_FLEETS = Path("fleets")
_POLL_INTERVAL_SECONDS = 5.0


fleet = typer.Typer(name="fleet", help=__doc__, **GROUP_SETTINGS)
_SuiteFile = Annotated[Path | None, typer.Argument(help="The suite, a TOML file.", show_default=False)]
_Inventory = Annotated[
    Path | None,
    typer.Option(
        "--inventory", "-i", help="Ansible's inventory, with a group `servers`.", metavar="FILE", show_default=False
    ),
]
_Folder = Annotated[
    Path | None,
    typer.Option(
        "--fleet",
        help="Folder of the fleet [default: the newest of the suite in fleets].",
        metavar="FOLDER",
        show_default=False,
    ),
]


@fleet.command(cls=PlainCommand)
def plan(suite: _SuiteFile = None, inventory: _Inventory = None) -> None:
    """Show the blocks of each machine, and estimate their duration."""
    parsed, path, servers = _require_suite_and_inventory(suite, inventory, "plan")
    machines = read_inventory(servers)
    state, options = _new_fleet(parsed, machines), FleetOptions(parsed, path, Path())
    with (
        Console(stderr=True).status("asking the machines"),
        _open_controller(options, state, lambda: None, saves_state=False) as controller,
    ):
        machine_types = controller.identify_machines()
    console = create_console(160)
    console.print(plan_table(parsed, state))
    for line in plan_lines(parsed, state, machine_types):
        console.print(line, style="dim", soft_wrap=True)


@fleet.command(cls=PlainCommand)
def run(suite: _SuiteFile = None, inventory: _Inventory = None, folder: _Folder = None) -> None:
    """Measure a suite on all machines.

    If the folder of --fleet exists, that fleet continues. The folder of a new fleet is fleets/TIME-SUITE.
    """
    parsed, _, servers = _require_suite_and_inventory(suite, inventory, "run")
    machines = read_inventory(servers)
    folder = folder or _FLEETS / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{parsed.name}"
    if folder.exists():
        state = _resume_fleet(folder, parsed, machines.servers)
    else:
        state = _create_fleet(folder, parsed, machines)
    state.inventory = str(servers.resolve())
    options = FleetOptions(parsed, folder / "suite.toml", folder, _role_variables(parsed))
    with (
        hold_controller_lock(folder),
        _show_machines(state) as report_changes,
        _open_controller(options, state, report_changes) as controller,
    ):
        try:
            machine_types = controller.identify_machines()
            report_changes(*plan_lines(parsed, state, machine_types))
            controller.prepare()
            controller.measure()
            controller.clean()
        except StopRequested:
            _stop_runs(controller, folder)
    _finish(state, folder)


@fleet.command(cls=PlainCommand)
def status(suite: _SuiteFile = None, folder: _Folder = None, as_json: AsJson = False) -> None:
    """Show the progress of each machine."""
    folder = _find_fleet(suite, folder)
    state, is_controlled = read(folder), has_controller(folder)
    if as_json:
        print(json.dumps(to_document(state) | {"controlled": is_controlled}, indent=1))
        return
    console = create_console(160)
    console.print(state_table(state))
    for note in state.notes:
        console.print(note, style="yellow", soft_wrap=True)
    last = max((each.seen for each in state.members.values()), default=0.0)
    ago = f", as of {time.time() - last:.0f} s ago" if last else ""
    console.print(f"{folder}{ago}: {'it is measured now' if is_controlled else 'no tare watches it now'}", style="dim")
    if not is_controlled and state.in_states("runs"):
        console.print(f"go on: tare fleet run -i {state.inventory} SUITE --fleet {folder}", style="dim", soft_wrap=True)


@fleet.command(cls=PlainCommand)
def collect(suite: _SuiteFile = None, folder: _Folder = None) -> None:
    """Copy the runs from the machines, finished or not."""
    folder = _find_fleet(suite, folder)
    state = read(folder)
    suite_path = folder / "suite.toml"
    options = FleetOptions(read_suite(suite_path, folder=Path(state.suite_folder)), suite_path, folder)
    uncollected = [each for each in state.members.values() if each.start and each.state != "collected"]
    # Another process may measure the fleet: its state must not be overwritten by an older one.
    with _open_controller(options, state, lambda: None, saves_state=not has_controller(folder)) as controller:
        controller.collect(uncollected)
    failed = [f"{each.name}: {each.reason}" for each in uncollected if each.reason]
    for line in failed:
        print_status(line, style="yellow")
    if failed and len(failed) == len(uncollected):
        raise TareError(f"{folder}: no run could be brought here", "fix what is said above, and collect again")
    print_status(f"{len(uncollected) - len(failed)} runs are here as far as they are: tare compare {folder}")


@fleet.command(cls=PlainCommand)
def clean(
    inventory: _Inventory = None,
    remove: Annotated[bool, typer.Option("--remove", help="Also remove tare and its images.")] = False,
) -> None:
    """Remove the leftovers of a fleet from its machines."""
    path = _require_inventory(inventory, "clean -i INVENTORY")
    machines = read_inventory(path).servers
    failed: dict[str, str] = {}

    def record_failure(result: TaskResult) -> None:
        if result.outcome != "ok":
            failed[result.machine] = result.reason

    with (
        Console(stderr=True).status("cleaning the machines"),
        stop_event() as stop,
        open_playbooks(path, stop) as playbooks,
    ):
        playbooks.run("clean", machines, {"tare_remove": remove}, record_failure)
    for name, reason in failed.items():
        print_status(f"{name}: {reason}", style="yellow")
    if failed:
        raise TareError(f"{len(failed)} of {len(machines)} machines are not clean", "fix this, and clean again")
    print_status(f"clean: {format_count(len(machines), 'machine')}")


@fleet.command(cls=PlainCommand)
def report(
    folder: Annotated[Path, typer.Argument(help="A fleet: a folder with runs.", metavar="FLEET")],
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to [default: FLEET/report].", metavar="FOLDER")
    ] = None,
) -> None:
    """Write the page and the JSON of a fleet."""
    with convert_write_errors(out, "choose another folder with --out"):
        for path in _report_fleet(_read_fleets(folder, None, CompareOptions()), out):
            print(path)


@fleet.command(cls=PlainCommand)
def compare(  # noqa: PLR0913 - each is an option of the command line
    folder: Annotated[Path, typer.Argument(help="A fleet: a folder with runs.", metavar="FLEET")],
    after: Annotated[
        Path | None, typer.Argument(help="A later fleet to compare with FLEET.", metavar="AFTER", show_default=False)
    ] = None,
    *,
    baseline: BaselineOption = None,
    stack: StackOption = None,
    margin: MarginOption = None,
    fail_on: FailOnOption = None,
    across_machines: AcrossMachinesOption = False,
    page: ChartsFile = None,
    as_json: AsJson = False,
    as_markdown: AsMarkdown = False,
) -> None:
    """Compare the stacks on each machine type, or two fleets."""
    options = parse_compare_options(baseline, stack, margin, fail_on, across_machines=across_machines)
    result = _read_fleets(folder, after, options)
    print_and_exit(answer(result), page, partial(render, result), as_json=as_json, as_markdown=as_markdown)


def _require_suite_and_inventory(suite: Path | None, inventory: Path | None, action: str) -> tuple[Suite, Path, Path]:
    """Return the suite, its path and the path of the inventory; raises UsageError if one is not named."""
    machines = _require_inventory(inventory, f"{action} -i INVENTORY SUITE")
    if suite is None:
        raise UsageError("no suite is named", f"tare fleet {action} -i INVENTORY SUITE")
    parsed = read_suite(suite)
    if parsed.hosts.server or parsed.hosts.client:
        hint = "a fleet's machines are in its inventory: leave [hosts] out"
        raise UsageError(f"{suite}: [hosts] names machines", hint)
    return parsed, suite, machines


def _require_inventory(inventory: Path | None, usage: str) -> Path:
    if inventory is None:
        raise UsageError("no inventory is named", f"tare fleet {usage}")
    return inventory


def _find_fleet(suite: Path | None, folder: Path | None) -> Path:
    if folder is not None:
        return folder
    if suite is None:
        raise UsageError("no fleet is named", "tare fleet status SUITE, or --fleet FOLDER")
    return find_newest_fleet(read_suite(suite).name, _FLEETS)


@contextmanager
def _open_controller(
    options: FleetOptions, state: Fleet, report: Callable[[], None], *, saves_state: bool = True
) -> Iterator[Controller]:
    with stop_event() as stop, open_playbooks(Path(state.inventory), stop) as playbooks:
        yield Controller(options, state, playbooks, report, stop, _POLL_INTERVAL_SECONDS, saves_state)


def _new_fleet(suite: Suite, machines: Inventory) -> Fleet:
    members = {name: Member(name) for name in machines.servers}
    return Fleet(suite.name, str(machines.path.resolve()), members, suite_folder=str(suite.folder.absolute()))


def _stop_runs(controller: Controller, folder: Path) -> None:
    """Stop all runs after their current trials and collect them; a second signal ends this process at once."""
    print_status("stopping the runs, and bringing here what they have")
    controller.stop.clear()
    controller.end_runs()
    print_status(f"go on: tare fleet run -i INVENTORY SUITE --fleet {folder}; or tare fleet clean -i INVENTORY")
    raise typer.Exit(INTERRUPTED)


def _resume_fleet(folder: Path, suite: Suite, servers: tuple[str, ...]) -> Fleet:
    """Return the fleet of a folder, with new machines added; raises UsageError for another suite or tare."""
    state = read(folder)
    if (folder / "suite.toml").read_text(encoding="utf-8") != suite.text:
        raise UsageError(f"{folder}: it was begun with another suite", "choose another --fleet")
    if state.tare != __version__:  # other versions may measure differently: their blocks must not be mixed
        hint = f"go on with tare {state.tare}, or choose another --fleet"
        raise UsageError(f"{folder}: it was begun by tare {state.tare}, and this is {__version__}", hint)
    for name in servers:
        state.members.setdefault(name, Member(name))
    return state


def _create_fleet(folder: Path, suite: Suite, machines: Inventory) -> Fleet:
    """Create the folder of a new fleet with its suite and state; raises UsageError."""
    state = _new_fleet(suite, machines)
    try:
        folder.mkdir(parents=True)
        (folder / "suite.toml").write_text(suite.text, encoding="utf-8")
        save(folder, state)
    except OSError as error:
        raise UsageError(
            f"{folder}: cannot be made: {format_os_error(error)}", "choose another folder with --fleet"
        ) from error
    return state


def _role_variables(suite: Suite) -> dict[str, Any]:
    """Return the variables of the roles: packages of the suite's technologies, tare's version, and the files."""
    layers = [layer for stack in suite.stacks for layer in stack.layers]
    packages = {
        each.machine: {
            each.localize(name) for layer in layers if each in layer.architectures for name in layer.debian_packages
        }
        for each in ARCHITECTURES.values()
    }
    return {
        "tare_engines": {machine: sorted(names) for machine, names in packages.items()},
        "tare_requirement": f"tare-bench=={__version__}",
        "tare_files": files_to_upload(suite),
    }


@contextmanager
def _show_machines(state: Fleet) -> Iterator[Callable[..., None]]:
    """Context manager: show the machines in a live table; without a terminal, print a line for each change.

    Yield a function to call after a change. It prints its arguments and the fleet's notes, each line once.
    """
    console = Console(stderr=True)
    printed: set[str] = set()
    last: dict[str, str] = {}  # last line by machine, and for the preparation of all machines

    def report_changes(*lines: str) -> None:
        for line in (*lines, *state.notes):
            if line not in printed:
                printed.add(line)
                console.print(line, soft_wrap=True, style="dim" if line in lines else "yellow")
        for each in state.members.values() if not console.is_terminal else ():
            subject, line = log_line(each)
            if line and last.get(subject) != line:
                last[subject] = line
                console.print(line, soft_wrap=True)

    if not console.is_terminal:
        yield report_changes
        return
    with Live(get_renderable=partial(state_table, state), console=console, refresh_per_second=2):
        yield report_changes


def _finish(state: Fleet, folder: Path) -> None:
    """Print the comparison of the fleet and write its report; raises TareError if nothing was measured."""
    if not is_fleet(folder):
        reasons = {each.reason for each in state.members.values() if each.reason}
        raise TareError(f"{folder}: nothing was measured: {'; '.join(sorted(reasons))}", "fix this, and go on")
    try:
        result = _read_fleets(folder, None, CompareOptions())
        print_answer(answer(result))
    except UsageError as error:
        raise TareError(str(error), f"tare show {folder}/MACHINE lists trials with their reasons") from error
    page, _ = _report_fleet(result, None)
    print_status(f"report: {page}")


def _read_fleets(before: Path, after: Path | None, options: CompareOptions) -> FleetComparison:
    """Compare the stacks of a fleet, or two fleets if there is `after`; raises UsageError or TareError."""
    runs = [run for folder in (before, after) if folder is not None for run in run_folders(folder)]
    with reading_progress(runs) as progress:
        return (
            compare_machines(before, options, progress)
            if after is None
            else compare_fleets(before, after, options, progress)
        )


def _report_fleet(result: FleetComparison, out: Path | None) -> tuple[Path, ...]:
    """Write the report of a fleet, a page and JSON; return their paths."""
    place = out or result.folders[0] / "report"
    page, data = place / "index.html", place / "report.json"
    hint = f"choose another folder: tare fleet report {result.folders[0]} --out FOLDER"
    with convert_write_errors(page, hint):
        place.mkdir(parents=True, exist_ok=True)
        page.write_bytes(render(result))
        data.write_text(answer(result).document() + "\n", encoding="utf-8")
    return page, data

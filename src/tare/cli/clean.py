"""Command `tare clean`: leftovers of killed runs, listed or removed."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tare.cli.console import Console
from tare.hosts.ledger import LEDGERS, ledger_folder, read_pending_undos, state_folder
from tare.hosts.local import LocalHost
from tare.hosts.lock import LockHolder, lock_this_machine, read_lock_holder
from tare.images.cache import remove_engine_copies
from tare.model.errors import TareError, UsageError
from tare.model.units import format_count
from tare.plugins import registry
from tare.runner.cleanup import HostInventory, clean_up, read_settings, take_inventory


def clean(
    images: Annotated[
        bool, typer.Option("--images", help="Also remove the images, which take minutes to build.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="List the leftovers and remove nothing; exit code 3 if there are any.")
    ] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="With --check: print JSON, with kernel settings and firewall rules.")
    ] = False,
) -> None:
    """Remove the leftovers of killed runs."""
    if json_ and not check:
        raise UsageError("--json requires --check", "tare clean --check --json")
    if check and images:
        raise UsageError("--check and --images exclude each other", "leave out one of them")
    if os.geteuid():
        raise UsageError("only root can find and remove leftovers", "sudo tare clean")
    console = Console(stderr=True)
    if check:
        _check(console, json_)
        return
    with lock_this_machine():
        troubles = clean_up(lambda line: console.print(line[: console.width]))
        if images:
            shutil.rmtree(state_folder() / "images", ignore_errors=True)
            troubles += [f"on this machine: {trouble}" for trouble in remove_engine_copies(LocalHost())]
    if troubles:
        hint = f"fix this, then run tare clean again; the rest is recorded in {ledger_folder()}"
        raise TareError(f"not everything could be removed: {'; '.join(troubles)}", hint)
    console.print("clean")


def _check(console: Console, as_json: bool) -> None:
    """Print the resources of tare on this machine; raises TareError for resources that no active run holds."""
    holder, is_running = read_lock_holder()
    inventory = take_inventory(registry.process_names(), registry.list_commands())
    if as_json:
        owner = asdict(holder) if holder and is_running else None
        print(json.dumps({**HostInventory(inventory.ours, read_settings()).to_document(), "run": owner}, indent=1))
    else:
        for line in inventory.lines():
            print(line)
    left = inventory.select_of_other_runs(holder) if holder and is_running else inventory
    if is_running:
        count = len(inventory.lines()) - len(left.lines())
        name = holder or "a tare that the lock does not name"
        console.print(f"a run is active and has {count} of these: {name}", soft_wrap=True)
    if lines := left.lines():
        others = " of other runs" if is_running else ""
        leftovers = format_count(len(lines), "leftover")
        raise TareError(f"{leftovers}{others} on this machine", _removal_hint(left, holder))
    if not is_running:
        console.print("no leftovers on this machine")


def _removal_hint(left: HostInventory, holder: LockHolder | None) -> str:
    """Return how to remove the leftovers, by the ledgers of this TARE_HOME or of the killed run's."""
    if left.ours.get("ledgers"):
        return "remove them when no run is active: tare clean"
    if holder and holder.is_here and read_pending_undos(Path(holder.home) / LEDGERS):
        return f"{holder} was killed: TARE_HOME={shlex.quote(holder.home)} tare clean"
    return f"check and remove each by hand: tare clean removes only what a ledger in {ledger_folder()} records"

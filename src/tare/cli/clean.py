"""Command `tare clean`: remove the leftovers of a killed run."""

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
    """Remove leftovers of killed runs from this machine."""
    if json_ and not check:
        raise UsageError("--json is for --check", "tare clean --check --json")
    if check and images:
        raise UsageError("--check removes nothing", "leave out --images")
    if os.geteuid():
        raise UsageError("only root can remove what root has made", "sudo tare clean")
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
        hint = f"fix this, then `tare clean` again; what is left to undo is in {ledger_folder()}"
        raise TareError(f"not everything could be undone: {'; '.join(troubles)}", hint)
    console.print("clean")


def _check(console: Console, as_json: bool) -> None:
    """Print the resources of tare on this machine; raises TareError if any belongs to no running run."""
    holder, is_running = read_lock_holder()
    found = take_inventory(registry.process_names(), registry.list_commands())
    if as_json:
        owner = asdict(holder) if holder and is_running else None
        print(json.dumps({**HostInventory(found.ours, read_settings()).to_document(), "run": owner}, indent=1))
    else:
        for line in found.lines():
            print(line)
    left = found.select_of_other_runs(holder) if holder and is_running else found
    if is_running:
        running = format_count(len(found.lines()) - len(left.lines()), "thing")
        name = holder or "a tare that the lock does not name"
        console.print(f"a run is under way, which has {running} of these: {name}", soft_wrap=True)
    if lines := left.lines():
        others = ", of other runs" if is_running else ""
        raise TareError(
            f"on this machine: {format_count(len(lines), 'thing')} of tare's{others}", _removal_hint(left, holder)
        )
    if not is_running:
        console.print("nothing of tare's is left on this machine, but its images")


def _removal_hint(left: HostInventory, holder: LockHolder | None) -> str:
    """Return the command that removes the leftovers: with the ledgers of this home, or of the killed run's home."""
    if left.ours.get("ledgers"):
        return "without a run under way: tare clean"
    if holder and holder.is_here and read_pending_undos(Path(holder.home) / LEDGERS):
        return f"{holder} was killed: TARE_HOME={shlex.quote(holder.home)} tare clean"
    return (
        f"no ledger in {ledger_folder()} says how they were made, so `tare clean` leaves them: look at each, remove it"
    )

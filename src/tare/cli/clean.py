"""`tare clean`: remove what a killed run left behind."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from typing import Annotated

import typer

from tare import plugins
from tare.cli.console import Console
from tare.errors import TareError, UsageError
from tare.hosts.ledger import ledgers, state_folder
from tare.hosts.local import LocalHost
from tare.hosts.lock import only_one
from tare.hosts.remains import Remains, remains, settings
from tare.images.kept import forgotten
from tare.running.leftovers import remove_left
from tare.units import counted


def clean(
    images: Annotated[
        bool, typer.Option("--images", help="Also remove the images, which take minutes to build.")
    ] = False,
    check: Annotated[
        bool, typer.Option("--check", help="Remove nothing: list what of tare's is there; exit code 3 if anything is.")
    ] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="With --check, as JSON, with the kernel's settings and firewall rules.")
    ] = False,
) -> None:
    """Remove what a killed run left behind on this machine."""
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
    with only_one():
        troubles = remove_left(lambda line: console.print(line[: console.width]))
        if images:
            shutil.rmtree(state_folder() / "images", ignore_errors=True)
            troubles += [f"on this machine: {trouble}" for trouble in forgotten(LocalHost())]
    if troubles:
        hint = f"fix this, then `tare clean` again; what is left to undo is in {ledgers()}"
        raise TareError(f"not everything could be undone: {'; '.join(troubles)}", hint)
    console.print("clean")


def _check(console: Console, as_json: bool) -> None:
    """Print what of tare's is on this machine; raises TareError where there is anything."""
    found = remains(plugins.processes(), plugins.lists())
    lines = found.lines()
    if as_json:
        print(json.dumps(replace(found, settings=settings()).document(), indent=1))
    else:
        for line in lines:
            print(line)
    if lines:
        raise TareError(f"on this machine: {counted(len(lines), 'thing')} of tare's", _hint(found))
    console.print("nothing of tare's is left on this machine, but its images")


def _hint(found: Remains) -> str:
    if found.ours["ledgers"]:
        return "without a run under way: tare clean"
    return f"no ledger in {ledgers()} says how they were made, so `tare clean` leaves them: look at each, and remove it"

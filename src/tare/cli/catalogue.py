"""`tare technologies` and `tare workloads`: the catalogue, from the plug-ins' own words."""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tare import plugins
from tare.model import UsageError

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]


def technologies(as_json: Json = False) -> None:
    """List the technologies. `tare doctor` tells which can be used here."""
    _print("technologies", ("name", "family", "title", "about"), as_json)


def workloads(as_json: Json = False) -> None:
    """List the workloads with their settings."""
    _print("workloads", ("name", "title", "settings", "about"), as_json)


def _print(kind: plugins.Kind, columns: tuple[str, ...], as_json: bool) -> None:
    entries = [entry for name in plugins.names(kind) if (entry := _entry(kind, name))]
    if as_json:
        print(json.dumps({"format": 1, kind: entries}, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for entry in entries:
        table.add_row(*(str(entry.get(column, "")) for column in columns))
    Console(file=sys.stdout).print(table)


def _entry(kind: plugins.Kind, name: str) -> dict[str, str]:
    """Describe a plug-in, nothing where it is hidden; of a broken one, what is wrong with it."""
    try:
        found = plugins.find(kind, name)
    except UsageError as error:
        return {"name": name, "title": "", "family": "", "settings": "", "about": str(error)}
    if getattr(found, "hidden", False):
        return {}
    module = inspect.getmodule(found)
    about = inspect.getdoc(module) if module else ""
    settings = [f"{field.name} = {field.default!r}" for field in dataclasses.fields(found)]
    return {
        "name": found.name,
        "title": found.title,
        "family": getattr(found, "family", ""),
        "settings": ", ".join(settings),
        "about": (about or "").partition("\n\n")[0].replace("\n", " "),
    }

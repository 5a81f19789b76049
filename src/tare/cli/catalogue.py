"""`tare technologies` and `tare workloads`: the catalogue, from the plug-ins' docstrings and members."""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
import typing
from collections.abc import Iterator
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from tare import plugins
from tare.cli.console import Console
from tare.contracts import Workload
from tare.doctor.usable import look_at
from tare.errors import UsageError
from tare.hosts.local import LocalHost
from tare.units import written

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
Name = Annotated[str, typer.Argument(help="Describe this one alone, in full.", show_default=False)]

_TESTED = {
    "real": "on the real thing",
    "emulated": "on the real thing, in an emulated machine",
    "stand-in": "only against a program that stands in for its tool",
}


def technologies(name: Name = "", as_json: Json = False) -> None:
    """List the technologies: how they isolate, what they need, and whether they can be used here or why not."""
    if name and not as_json:
        print("\n".join(_described("technologies", name)))
        return
    entries = _entries("technologies", name)
    with Console(stderr=True).status("looking at this machine"):
        usable = {each.name: each for each in look_at(LocalHost())}
    for entry in entries:
        known = usable.get(str(entry["name"]))
        problems = known.problems if known else ()
        entry["usable"] = known is not None and known.usable
        entry["problems"] = [{"what": problem.what, "fix": problem.fix} for problem in problems]
    if as_json:
        print(json.dumps({"format": 1, "technologies": entries}, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("name", "family", "isolates by", "needs", "usable here, or why not"):
        table.add_column(column, overflow="fold")
    for entry in sorted(entries, key=lambda each: (not each["usable"], each["family"], each["name"])):
        needs = "; ".join(f"{problem['what']} (fix: {problem['fix']})" for problem in entry["problems"])
        here = "[green]yes[/]" if entry["usable"] else "[yellow]no:[/] " + escape(needs or entry["about"])
        table.add_row(entry["name"], entry["family"], escape(entry["isolates"]), escape(entry["needs"]), here)
    console = Console(file=sys.stdout)
    console.print(table)
    console.print(f"\n{sum(each['usable'] for each in entries)} of {len(entries)} can be used here", highlight=False)


def workloads(name: Name = "", as_json: Json = False) -> None:
    """List the workloads with their settings."""
    if name and not as_json:
        print("\n".join(_described("workloads", name)))
        return
    entries = _entries("workloads", name)
    if as_json:
        print(json.dumps({"format": 1, "workloads": entries}, indent=2))
        return
    table = Table(box=None, pad_edge=False)
    for column in ("name", "title", "settings", "about"):
        table.add_column(column, overflow="fold")
    for entry in entries:
        table.add_row(*(escape(str(entry[column])) for column in ("name", "title", "settings", "about")))
    Console(file=sys.stdout).print(table)


def _entries(kind: plugins.Kind, name: str) -> list[dict[str, Any]]:
    """Describe all plug-ins of a kind, or the one of a name; raises UsageError for an unknown one."""
    if name:
        plugins.find(kind, name)
    return [_entry(kind, each) for each in ((name,) if name else plugins.names(kind))]


def _described(kind: plugins.Kind, name: str) -> Iterator[str]:
    """Give the lines that describe a plug-in: its whole docstring, and what it declares."""
    plugin = plugins.find(kind, name)
    entry = _entry(kind, name)
    yield from (f"{entry['name']}: {entry['title']}", "", _about(plugin), "", "Settings and their defaults:")
    yield from (f"    {setting}" for setting in settings_of(plugin) or ("none",))
    if kind == "technologies":
        rest = {"Family": entry["family"], "Isolates by": entry["isolates"], "Needs": entry["needs"]}
    else:
        metrics = "; ".join(
            f"{each['name']} in {each['unit']}, {each['better']} is better" for each in entry["metrics"]
        )
        packages = {"Packages in the image": "packages", "Packages of its load": "client_packages"}
        rest = {"Metrics": metrics, **{title: ", ".join(entry[key]) for title, key in packages.items()}}
    yield from ("", *(f"{title}: {text}" for title, text in rest.items() if text))


def _about(plugin: type[Any]) -> str:
    """Give the docstring of a plug-in's file."""
    module = inspect.getmodule(plugin)
    return (inspect.getdoc(module) if module else "") or ""


def _entry(kind: plugins.Kind, name: str) -> dict[str, Any]:
    """Describe a plug-in; for a broken one, give the error."""
    try:
        plugin = plugins.find(kind, name)
    except UsageError as error:
        empty = dict.fromkeys(("title", "family", "settings", "isolates", "needs", "tested"), "")
        return {"name": name, **empty, "about": str(error)}
    entry = {
        "name": plugin.name,
        "title": plugin.title,
        "settings": ", ".join(settings_of(plugin)),
        "about": _about(plugin).partition("\n\n")[0].replace("\n", " "),
    }
    if kind == "technologies":
        entry |= {
            "family": plugin.family,
            "isolates": getattr(plugin, "isolates", ""),
            "needs": ", ".join((*plugin().debian_packages, *filter(None, (plugin.needs,)))),
            "tested": _TESTED.get(getattr(plugin, "tested", ""), ""),
            "hosts": plugin.hosts,
            "nests": plugin.nests,
        }
    else:
        entry |= _of_workload(plugin)
    return entry


def _of_workload(plugin: type[Workload]) -> dict[str, Any]:
    """Give what a workload has with its default settings; nothing for one that needs a setting."""
    try:
        workload = plugin()
    except TypeError:
        return {"metrics": [], "packages": [], "client_packages": []}
    return {
        "metrics": [dataclasses.asdict(metric) for metric in workload.all_metrics],
        "packages": list(workload.packages),
        "client_packages": list(workload.client_packages),
    }


def settings_of(plugin: type[Any]) -> list[str]:
    """Write the settings of a plug-in that have a default, as in a suite."""
    types = typing.get_type_hints(plugin, include_extras=True)
    defaults = {field.name: _default(field) for field in dataclasses.fields(plugin) if field.init}
    return [f"{name} = {written(default, types[name])}" for name, default in defaults.items() if default is not None]


def _default(field: dataclasses.Field[Any]) -> object:
    """Give the default of a setting; None without one."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return None if field.default_factory is dataclasses.MISSING else field.default_factory()

"""`tare technologies` and `tare workloads`: the catalogue, from the plug-ins' docstrings and members."""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import shutil
import typing
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from tare import plugins
from tare.contracts.technologies import Technology
from tare.contracts.workloads import Workload
from tare.errors import UsageError
from tare.model.trials import Family
from tare.units import written

Json = Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")]
CheckedJson = Annotated[
    bool,
    typer.Option(
        "--json", help="Print JSON for a program to read. It also checks what can be used here: some seconds."
    ),
]
Name = Annotated[str, typer.Argument(help="Describe this one alone, in full.", show_default=False)]

_TESTED = {
    "real": "on the real thing",
    "emulated": "on the real thing, in an emulated machine",
    "stand-in": "only against a program that stands in for its tool",
}

_PATH_OF_ROOT = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # where root finds more programs than others
_AFTER_TECHNOLOGIES = (
    "`tare technologies NAME` describes one in full.",
    "`tare doctor` checks everything that they need here, and shows the fixes.",
)
_AFTER_WORKLOADS = "`tare workloads NAME` describes one in full, with its settings."


def technologies(name: Name = "", as_json: CheckedJson = False) -> None:
    """List the technologies, and the programs of each that are not installed here."""
    if as_json:
        print(json.dumps({"format": 1, "technologies": _checked(_entries("technologies", name))}, indent=2))
    elif name:
        print("\n".join(_described("technologies", name)))
    else:
        order = {family: number for number, family in enumerate(typing.get_args(Family))}
        rows = sorted(
            map(_technology, plugins.names("technologies")), key=lambda row: (order.get(row[1], len(order)), row)
        )
        print("\n".join((*_columns(("name", "family", "title", "not on the PATH"), *rows), "", *_AFTER_TECHNOLOGIES)))


def workloads(name: Name = "", as_json: Json = False) -> None:
    """List the workloads, or describe one with its settings."""
    if as_json:
        print(json.dumps({"format": 1, "workloads": _entries("workloads", name)}, indent=2))
    elif name:
        print("\n".join(_described("workloads", name)))
    else:
        rows = [(each, _title("workloads", each)) for each in plugins.names("workloads")]
        print("\n".join((*_columns(("name", "title"), *rows), "", _AFTER_WORKLOADS)))


def _technology(name: str) -> tuple[str, str, str, str]:
    """Return the row of a technology. It starts nothing: programs are looked up on the PATH."""
    try:
        technology: Technology = plugins.find("technologies", name)()
    except UsageError as error:
        return name, "", "", str(error)
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_PATH_OF_ROOT))
    missing = [program for program in technology.tools if not shutil.which(program, path=path)]
    return name, technology.family, technology.title, ", ".join((*missing[:1], *("…" for _ in missing[1:2])))


def _title(kind: plugins.Kind, name: str) -> str:
    """Return the title of a plug-in, or what is wrong with a broken one."""
    try:
        return str(plugins.find(kind, name).title)
    except UsageError as error:
        return str(error)


def _columns(*rows: Sequence[str]) -> Iterator[str]:
    """Align the columns of a table, whose first row is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{text:{width}}" for text, width in zip(row, widths, strict=True)).rstrip()


def _checked(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add to the entries of technologies whether each can be used here, or what is missing."""
    from tare.cli.console import Console  # noqa: PLC0415 - the list without this check is there at once
    from tare.doctor.usable import look_at  # noqa: PLC0415
    from tare.hosts.local import LocalHost  # noqa: PLC0415

    with Console(stderr=True).status("looking at this machine"):
        found = tuple(look_at(LocalHost(), [str(entry["name"]) for entry in entries]))
    return [
        entry | {"usable": each.usable, "problems": [{"what": one.what, "fix": one.fix} for one in each.problems]}
        for entry, each in zip(entries, found, strict=True)
    ]


def _entries(kind: plugins.Kind, name: str) -> list[dict[str, Any]]:
    """Describe all plug-ins of a kind, or the one of a name; raises UsageError for an unknown one."""
    if name:
        plugins.find(kind, name)
    return [_entry(kind, each) for each in ((name,) if name else plugins.names(kind))]


def _described(kind: plugins.Kind, name: str) -> Iterator[str]:
    """Yield the lines that describe a plug-in: its whole docstring, and what it declares."""
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
    """Return the docstring of a plug-in's file."""
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
    """Return what a workload has with its default settings; nothing for one that needs a setting."""
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
    """Return the default of a setting; None without one."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return None if field.default_factory is dataclasses.MISSING else field.default_factory()

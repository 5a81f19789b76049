"""What the plug-ins say of themselves: their docstrings, settings and needs."""

from __future__ import annotations

import dataclasses
import inspect
import os
import shutil
import typing
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from tare.model.errors import UsageError
from tare.model.units import format_setting
from tare.plugins import registry
from tare.plugins.technology import Technology, list_by_reason
from tare.plugins.workload import Workload

_TEST_LABELS = {
    "real": "on the real thing",
    "emulated": "on the real thing, in an emulated machine",
    "stand-in": "only against a program that stands in for its tool",
}
_ROOT_PATH_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # where root finds more programs than others


def describe_plugins(kind: registry.PluginKind, name: str) -> list[dict[str, Any]]:
    """Describe all plug-ins of a kind, or the one of a name; raises UsageError for an unknown one."""
    if name:
        registry.find(kind, name)
    return [_describe_plugin(kind, each) for each in ((name,) if name else registry.names(kind))]


def _describe_plugin(kind: registry.PluginKind, name: str) -> dict[str, Any]:
    """Describe a plug-in; a broken one by its error."""
    try:
        plugin = registry.find(kind, name)
    except UsageError as error:
        empty = dict.fromkeys(("title", "family", "settings", "isolation", "isolates", "needs", "tested"), "")
        return {"name": name, **empty, "about": str(error)}
    entry = {
        "name": plugin.name,
        "title": plugin.title,
        "settings": ", ".join(format_settings(plugin)),
        "about": _module_docstring(plugin).partition("\n\n")[0].replace("\n", " "),
    }
    if kind == "technologies":
        technology: Technology = plugin()
        entry |= {
            "family": plugin.family,
            "differs": dict(technology.expected_differences),
            "isolation": technology.isolation.level,
            "isolates": technology.isolation.reason,
            "needs": ", ".join((*technology.debian_packages, *filter(None, (plugin.needs,)))),
            "tested": _TEST_LABELS.get(getattr(plugin, "tested", ""), ""),
            "also": list(other_names(plugin)),
            "hosts": plugin.can_host,
            "nests": plugin.can_be_nested,
        }
    else:
        entry |= _describe_workload(plugin)
    return entry


def _describe_workload(plugin: type[Workload]) -> dict[str, Any]:
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


def description_lines(kind: registry.PluginKind, name: str) -> Iterator[str]:
    """Yield the lines that describe a plug-in: its whole docstring, and what it declares."""
    plugin = registry.find(kind, name)
    entry = _describe_plugin(kind, name)
    yield from (f"{entry['name']}: {entry['title']}", "", _module_docstring(plugin), "", "Settings and their defaults:")
    yield from (f"    {setting}" for setting in format_settings(plugin) or ("none",))
    if kind == "technologies":
        isolation = f"{entry['isolation']} ({entry['isolates']})"
        rest = {"Family": entry["family"], "Isolation": isolation, "Needs": entry["needs"]}
        rest["Also named"] = ", ".join(entry["also"])
        rest["Not equal inside"] = list_by_reason(entry["differs"].items())
    else:
        metrics = "; ".join(
            f"{each['name']} in {each['unit']}, {each['better']} is better" for each in entry["metrics"]
        )
        packages = {"Packages in the image": "packages", "Packages of its load": "client_packages"}
        rest = {"Metrics": metrics, **{title: ", ".join(entry[key]) for title, key in packages.items()}}
    yield from ("", *(f"{title}: {text}" for title, text in rest.items() if text))


def _module_docstring(plugin: type[Any]) -> str:
    """Return the docstring of a plug-in's file."""
    module = inspect.getmodule(plugin)
    return (inspect.getdoc(module) if module else "") or ""


def technology_row(name: str) -> tuple[str, str, str, str]:
    """Return the row of a technology. It starts nothing: programs are looked up on the PATH."""
    try:
        technology: Technology = registry.find("technologies", name)()
    except UsageError as error:
        return name, "", "", str(error)
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_ROOT_PATH_FOLDERS))
    missing = [program for program in technology.tools if not shutil.which(program, path=path)]
    return name, technology.family, technology.title, ", ".join((*missing[:1], *("…" for _ in missing[1:2])))


def all_other_names() -> Iterator[str]:
    """Yield the other names of all technologies in suites."""
    for name in registry.names("technologies"):
        with suppress(UsageError):
            yield from other_names(registry.find("technologies", name))


def other_names(plugin: type[Technology], words: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the other names of a technology in suites: the short one, and those with each of the words after it.

    Where the words are not known, the name of the setting stands for them, in capitals.
    """
    first = plugin.short_name or plugin.name
    if words is None:
        words = [plugin.variant_setting.replace("_", "-").upper()] if plugin.variant_setting else ()
    return (*((first,) if plugin.short_name else ()), *(f"{first}-{word}" for word in words))


def title_of(kind: registry.PluginKind, name: str) -> str:
    """Return the title of a plug-in, or what is wrong with a broken one."""
    try:
        return str(registry.find(kind, name).title)
    except UsageError as error:
        return str(error)


def format_settings(plugin: type[Any]) -> list[str]:
    """Write the settings of a plug-in that have a default, as in a suite."""
    types = typing.get_type_hints(plugin, include_extras=True)
    defaults = {field.name: _default(field) for field in dataclasses.fields(plugin) if field.init}
    return [
        f"{name} = {format_setting(default, types[name])}" for name, default in defaults.items() if default is not None
    ]


def _default(field: dataclasses.Field[Any]) -> object:
    """Return the default of a setting; None without one."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return None if field.default_factory is dataclasses.MISSING else field.default_factory()

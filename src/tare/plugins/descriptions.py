"""Descriptions of plug-ins for `tare technologies` and `tare workloads`: docstrings, settings and requirements."""

from __future__ import annotations

import dataclasses
import inspect
import os
import shutil
import textwrap
import typing
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from tare.model.architecture import this_architecture
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
_WIDTH = 100
_ROOT_PATH_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # on root's PATH, but not on every user's


def describe_plugins(plugin_type: registry.PluginType, name: str) -> list[dict[str, Any]]:
    """Return the JSON description of the plug-in `name`, or of all plug-ins of a type if `name` is "".

    Raises UsageError for an unknown name.
    """
    if name:
        registry.find(plugin_type, name)
    return [_describe_plugin(plugin_type, plugin) for plugin in ((name,) if name else registry.names(plugin_type))]


def _describe_plugin(plugin_type: registry.PluginType, name: str) -> dict[str, Any]:
    """Return the JSON description of a plug-in; a broken one has its error as `about`."""
    try:
        plugin = registry.find(plugin_type, name)
    except UsageError as error:
        empty = dict.fromkeys(("title", "family", "settings", "isolation", "isolates", "needs", "tested"), "")
        return {"name": name, **empty, "about": str(error)}
    entry = {
        "name": plugin.name,
        "title": plugin.title,
        "settings": ", ".join(format_settings(plugin)),
        "about": _module_docstring(plugin).partition("\n\n")[0].replace("\n", " "),
    }
    if plugin_type == "technologies":
        technology: Technology = plugin()
        entry |= {
            "family": plugin.family,
            "differs": dict(technology.expected_differences),
            "isolation": technology.isolation.level,
            "isolates": technology.isolation.reason,
            "needs": ", ".join((*technology.debian_packages, *filter(None, (plugin.needs,)))),
            "architectures": [architecture.title for architecture in plugin.architectures],
            "tested": _TEST_LABELS.get(getattr(plugin, "tested", ""), ""),
            "also": list(other_names(plugin)),
            "hosts": plugin.can_host,
            "nests": plugin.can_be_nested,
        }
    else:
        entry |= _describe_workload(plugin)
    return entry


def _describe_workload(plugin: type[Workload]) -> dict[str, Any]:
    """Return a workload's metrics and packages with default settings; empty lists if a setting has no default."""
    try:
        workload = plugin()
    except TypeError:
        return {"metrics": [], "packages": [], "client_packages": []}
    return {
        "metrics": [dataclasses.asdict(metric) for metric in workload.all_metrics],
        "packages": list(workload.packages),
        "client_packages": list(workload.client_packages),
    }


def description_lines(plugin_type: registry.PluginType, name: str) -> Iterator[str]:
    """Yield the lines of a plug-in's text description: its module docstring, settings and declarations."""
    plugin = registry.find(plugin_type, name)
    entry = _describe_plugin(plugin_type, name)
    yield from (f"{entry['name']}: {entry['title']}", "", _describe_module(plugin), "", "Settings and their defaults:")
    yield from (f"    {setting}" for setting in format_settings(plugin) or ("none",))
    if plugin_type == "technologies":
        isolation = f"{entry['isolation']} ({entry['isolates']})"
        rest = {"Family": entry["family"], "Isolation": isolation, "Needs": entry["needs"]}
        rest |= {"Architectures": ", ".join(entry["architectures"]), "Also named": ", ".join(entry["also"])}
    else:
        metrics = "; ".join(
            f"{metric['name']} in {metric['unit']}, {metric['better']} is better" for metric in entry["metrics"]
        )
        packages = {"Packages in the image": "packages", "Packages of the load generator": "client_packages"}
        rest = {"Metrics": metrics, **{title: ", ".join(entry[key]) for title, key in packages.items()}}
    yield from ("", *(f"{title}: {text}" for title, text in rest.items() if text))
    if differences := entry.get("differs"):
        yield "Differs from other instances:"
        for line in list_by_reason(differences.items()):
            yield from textwrap.wrap(line, _WIDTH, initial_indent="    ", subsequent_indent="      ")


def _describe_module(plugin: type[Any]) -> str:
    """Return the docstring of a plug-in's module, without the title that it repeats in front of a colon."""
    text = _module_docstring(plugin)
    name, colon, rest = text.partition(": ")
    is_title = bool(colon) and (name == plugin.name or plugin.title.lower().startswith(name.lower()))
    return f"{rest[:1].upper()}{rest[1:]}" if is_title else text


def _module_docstring(plugin: type[Any]) -> str:
    """Return the docstring of a plug-in's module; "" if there is none."""
    module = inspect.getmodule(plugin)
    return (inspect.getdoc(module) if module else "") or ""


def technology_row(name: str) -> tuple[str, str, str, str]:
    """Return a technology's name, family, title and first missing program ("" if none), with "…" for others.

    It starts nothing, so that the list is printed at once: it only looks for the programs on the PATH.
    """
    try:
        technology: Technology = registry.find("technologies", name)()
    except UsageError as error:
        return name, "", "", str(error)
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), *_ROOT_PATH_FOLDERS))
    tools = map(this_architecture().localize, technology.tools)
    missing = [program for program in tools if not shutil.which(program, path=path)]
    return name, technology.family, technology.title, ", ".join((*missing[:1], *("…" for _ in missing[1:2])))


def all_other_names() -> Iterator[str]:
    """Yield the alternative names of all technologies in suites; skips broken plug-ins."""
    for name in registry.names("technologies"):
        with suppress(UsageError):
            yield from other_names(registry.find("technologies", name))


def other_names(plugin: type[Technology], words: Sequence[str] | None = None) -> tuple[str, ...]:
    """Return the alternative names of a technology in suites: its short name, and the names of its variants.

    `words` are the values of `variant_setting`. If they are None, the setting's name in capitals is a placeholder, such
    as `pod-RUNTIME-CLASS`.
    """
    base = plugin.short_name or plugin.name
    if words is None:
        words = [plugin.variant_setting.replace("_", "-").upper()] if plugin.variant_setting else ()
    return (*((base,) if plugin.short_name else ()), *(f"{base}-{word}" for word in words))


def title_of(plugin_type: registry.PluginType, name: str) -> str:
    """Return the title of a plug-in; the error message of a broken one."""
    try:
        return str(registry.find(plugin_type, name).title)
    except UsageError as error:
        return str(error)


def format_settings(plugin: type[Any]) -> list[str]:
    """Return the settings of a plug-in that have a default, each as NAME = VALUE like in a suite."""
    types = typing.get_type_hints(plugin, include_extras=True)
    # Fields for keywords only are those of a base class, and come last.
    listed = sorted(dataclasses.fields(plugin), key=lambda field: bool(field.kw_only))
    defaults = {field.name: _default(field) for field in listed if field.init}
    return [
        f"{name} = {format_setting(default, types[name])}" for name, default in defaults.items() if default is not None
    ]


def _default(field: dataclasses.Field[Any]) -> object:
    """Return the default value of a setting; None if it has no default."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return None if field.default_factory is dataclasses.MISSING else field.default_factory()

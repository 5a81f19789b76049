"""Registry of technologies and workloads: finds plug-ins by name.

Each plug-in of tare is a file with its name: `technologies/qemu_tcg.py` has the class whose `name` is `qemu-tcg`. A
technology of several modules is a package whose class is in `technology.py`. Other packages add plug-ins with an entry
point in the group `tare.technologies` or `tare.workloads`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import pkgutil
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any, Literal

from tare.model.architecture import ARCHITECTURES
from tare.model.errors import UsageError, did_you_mean

PluginType = Literal["technologies", "workloads"]
_SINGULAR: Mapping[PluginType, str] = {"technologies": "technology", "workloads": "workload"}
_PROGRAMS = ("probe", "init", "micro", "bpftrace")  # tare's programs, and bpftrace, which `tare profile` runs
_NAME_LENGTH = 15  # the kernel truncates process names (TASK_COMM_LEN is 16, with a zero byte)


def names(plugin_type: PluginType) -> tuple[str, ...]:
    """Return the sorted names of all plug-ins of a type, without importing any."""
    return tuple(sorted(_find_entry_points(plugin_type, tuple(sys.path))))


@lru_cache  # importlib.metadata reads all installed packages, which takes milliseconds per call
def _find_entry_points(plugin_type: PluginType, path: tuple[str, ...]) -> Mapping[str, EntryPoint | None]:  # noqa: ARG001 - cache key
    """Return the entry point of each plug-in by name; None for a plug-in of tare, which has no entry point."""
    package = importlib.import_module(f"tare.{plugin_type}")
    builtin = {module.name.replace("_", "-"): None for module in pkgutil.iter_modules(package.__path__)}
    external = importlib.metadata.entry_points(group=f"tare.{plugin_type}")
    return builtin | {entry.name: entry for entry in reversed(tuple(external))}  # the first of equal names wins


def find(plugin_type: PluginType, name: str) -> type[Any]:
    """Return a plug-in's class by name; raises UsageError if there is none, or if it is broken or incomplete."""
    if name not in names(plugin_type):
        hint = did_you_mean(name, names(plugin_type), f"`tare {plugin_type}` lists them")
        raise UsageError(f"no {_SINGULAR[plugin_type]} named {name!r}", hint)
    return _find_complete(plugin_type, name, tuple(sys.path))


@cache  # a report looks up the same few names ten thousand times
def _find_complete(plugin_type: PluginType, name: str, path: tuple[str, ...]) -> type[Any]:  # noqa: ARG001 - cache key
    plugin = _load_class(plugin_type, name)
    contract: type[Any] = importlib.import_module(f"tare.{plugin_type}").CONTRACT
    if lacking := _missing_members(plugin, contract):
        hint = (
            f"inherit from {contract.__module__}.{contract.__name__}, and see docs/adding-a-{_SINGULAR[plugin_type]}.md"
        )
        raise UsageError(f"this plug-in lacks {', '.join(lacking)}: {name!r}", hint)
    return plugin


@cache
def process_names() -> frozenset[str]:
    """Return the names of all processes that a run may start, truncated as the kernel does it."""
    programs = [*_PROGRAMS]
    for technology in create_all("technologies"):
        tools = (each.localize(tool) for each in ARCHITECTURES.values() for tool in technology.tools)
        programs += (*tools, *technology.process_names)
    for workload in create_all("workloads"):
        if service := workload.service("127.0.0.1"):
            programs.append(Path(service.argv[0]).name)
    return frozenset(program[:_NAME_LENGTH] for program in programs)


@cache
def list_commands() -> frozenset[tuple[str, ...]]:
    """Return the commands that print the names of the engines' objects, for all engines installed on this machine."""
    commands = (command for technology in create_all("technologies") for command in technology.list_commands)
    return frozenset(command for command in commands if shutil.which(command[0]))


def create_all(plugin_type: PluginType) -> Iterator[Any]:
    """Yield an object of each plug-in of a type, with default settings.

    It skips broken plug-ins, and those with a setting that has no default.
    """
    for name in names(plugin_type):
        with suppress(UsageError, TypeError):
            yield find(plugin_type, name)()


def _load_class(plugin_type: PluginType, name: str) -> type[Any]:
    try:
        if entry := _find_entry_points(plugin_type, tuple(sys.path))[name]:
            loaded: type[Any] = entry.load()
            return loaded
        module = importlib.import_module(f"tare.{plugin_type}.{name.replace('-', '_')}")
        if hasattr(module, "__path__"):  # a plug-in of several modules is a package
            module = importlib.import_module(f"{module.__name__}.{_SINGULAR[plugin_type]}")
    except Exception as error:  # a broken plug-in breaks only itself
        raise UsageError(f"the plug-in {name!r} is broken: {error}", "repair or remove its package") from error
    for _, member in inspect.getmembers(module, inspect.isclass):
        if getattr(member, "name", None) == name:
            return member
    raise UsageError(f"{module.__name__} has no class with name = {name!r}", "name the class after its file")


def _missing_members(plugin: type[Any], contract: type[Any]) -> list[str]:
    """Return the names of the contract's members that a class lacks; those that are still abstract count as lacking."""
    # Annotations without a value, such as `name: ClassVar[str]`, are not in `vars`.
    members = dict.fromkeys((*contract.__annotations__, *vars(contract)))
    fields = getattr(plugin, "__dataclass_fields__", {})
    return [
        name
        for name in members
        if not name.startswith("_")
        and name not in fields
        and (not hasattr(plugin, name) or getattr(getattr(plugin, name), "__isabstractmethod__", False))
    ]

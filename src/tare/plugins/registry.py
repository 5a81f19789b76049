"""Finds technologies and workloads by name: one file each, with the plug-in's name.

The file `technologies/qemu_tcg.py` holds the class whose `name` is `qemu-tcg`. A technology of several modules is a
package whose class is in `technology.py`. Other packages add theirs with an entry point in the group
`tare.technologies` or `tare.workloads`.
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

from tare.model.errors import UsageError, did_you_mean

PluginKind = Literal["technologies", "workloads"]
_SINGULAR: Mapping[PluginKind, str] = {"technologies": "technology", "workloads": "workload"}
_PROGRAMS = ("probe", "init", "micro", "bpftrace")  # tare's own, and what counts for a profile
_NAME_LENGTH = 15  # the kernel cuts the names of processes there


def names(kind: PluginKind) -> tuple[str, ...]:
    """Return the sorted names of all plug-ins of a kind; imports none of them."""
    return tuple(sorted(_find_places(kind, tuple(sys.path))))


@lru_cache  # reading what is installed takes milliseconds, and commands ask for one plug-in after the other
def _find_places(kind: PluginKind, path: tuple[str, ...]) -> Mapping[str, EntryPoint | None]:  # noqa: ARG001 - part of the key
    """Find where each plug-in is: at an entry point of another package, or in a file of tare's own (None)."""
    package = importlib.import_module(f"tare.{kind}")
    own = {module.name.replace("_", "-"): None for module in pkgutil.iter_modules(package.__path__)}
    others = importlib.metadata.entry_points(group=f"tare.{kind}")
    return own | {entry.name: entry for entry in reversed(tuple(others))}  # of two with a name, the first one


def find(kind: PluginKind, name: str) -> type[Any]:
    """Return a plug-in's class by name; raises UsageError if there is none or it is broken."""
    if name not in names(kind):
        hint = did_you_mean(name, names(kind), f"`tare {kind}` lists them")
        raise UsageError(f"no {_SINGULAR[kind]} named {name!r}", hint)
    plugin = _load_class(kind, name)
    contract: type[Any] = importlib.import_module(f"tare.{kind}").CONTRACT
    if lacking := _missing_members(plugin, contract):
        hint = f"inherit from {contract.__module__}.{contract.__name__}, and see docs/adding-a-{_SINGULAR[kind]}.md"
        raise UsageError(f"this plug-in lacks {', '.join(lacking)}: {name!r}", hint)
    return plugin


@cache
def process_names() -> frozenset[str]:
    """Return the names of the processes that a run may start, as the kernel cuts them."""
    programs = [*_PROGRAMS]
    for technology in create_all("technologies"):
        programs += (*technology.tools, *technology.process_names)
    for workload in create_all("workloads"):
        if service := workload.service("127.0.0.1"):
            programs.append(Path(service.argv[0]).name)
    return frozenset(program[:_NAME_LENGTH] for program in programs)


@cache
def list_commands() -> frozenset[tuple[str, ...]]:
    """Return the commands that print the names of what engines keep, of the engines that are installed here."""
    found = (words for technology in create_all("technologies") for words in technology.list_commands)
    return frozenset(words for words in found if shutil.which(words[0]))


def create_all(kind: PluginKind) -> Iterator[Any]:
    """Yield each plug-in of a kind with the settings that it has by itself; without those that need some."""
    for name in names(kind):
        with suppress(UsageError, TypeError):
            yield find(kind, name)()


def _load_class(kind: PluginKind, name: str) -> type[Any]:
    try:
        if entry := _find_places(kind, tuple(sys.path))[name]:
            loaded: type[Any] = entry.load()
            return loaded
        module = importlib.import_module(f"tare.{kind}.{name.replace('-', '_')}")
        if hasattr(module, "__path__"):  # a plug-in of several modules is a package
            module = importlib.import_module(f"{module.__name__}.{_SINGULAR[kind]}")
    except Exception as error:  # a broken plug-in breaks only itself
        raise UsageError(f"the plug-in {name!r} is broken: {error}", "repair or remove its package") from error
    for _, member in inspect.getmembers(module, inspect.isclass):
        if getattr(member, "name", None) == name:
            return member
    raise UsageError(f"{module.__name__} has no class with name = {name!r}", "name the class after its file")


def _missing_members(plugin: type[Any], contract: type[Any]) -> list[str]:
    """Name the members of a kind's contract that a class neither has nor inherits."""
    members = dict.fromkeys((*contract.__annotations__, *vars(contract)))
    fields = getattr(plugin, "__dataclass_fields__", {})
    return [
        name
        for name in members
        if not name.startswith("_")
        and name not in fields
        and (not hasattr(plugin, name) or getattr(getattr(plugin, name), "__isabstractmethod__", False))
    ]

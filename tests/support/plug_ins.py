"""The plug-ins that come with tare: without those of the tests, which are another package's."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from tare import plugins
from tare.contracts.technologies import Technology

_OURS = ("knock", "init", "micro")
_NAME_LENGTH = 15  # the kernel cuts the names of processes there


def own(kind: plugins.Kind) -> dict[str, type[Any]]:
    """Return tare's own plug-ins of a kind by their names."""
    found = {name: plugins.find(kind, name) for name in plugins.names(kind)}
    return {name: each for name, each in found.items() if each.__module__.startswith(f"tare.{kind}.")}


def in_contract() -> list[type[Technology]]:
    """Return the technologies that the contract tests run on the real thing, here: all, or those without an inside."""
    found = own("technologies").values()
    return [each for each in found if each.tested == "real" and each.tested_in.startswith("tests/contract")]


@functools.cache
def processes() -> frozenset[str]:
    """Name the processes that no test may leave behind."""
    started = [name for found in own("technologies").values() for name in (*found().tools, *found.processes)]
    services = [found().service("127.0.0.1") for found in own("workloads").values()]
    servers = [Path(service.argv[0]).name for service in services if service]
    return frozenset(name[:_NAME_LENGTH] for name in (*_OURS, *started, *servers))


@functools.cache
def lists() -> frozenset[tuple[str, ...]]:
    """Return the commands that print the names of what technologies have made."""
    return frozenset(words for found in own("technologies").values() for words in found.lists)

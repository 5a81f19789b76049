"""The plug-ins that come with tare: without those of the tests, which are another package's."""

from __future__ import annotations

from typing import Any

from tare.plugins import registry
from tare.plugins.technology import Technology


def own(kind: registry.PluginType) -> dict[str, type[Any]]:
    """Return tare's own plug-ins of a kind by their names."""
    found = {name: registry.find(kind, name) for name in registry.names(kind)}
    return {name: each for name, each in found.items() if each.__module__.startswith(f"tare.{kind}.")}


def in_contract() -> list[type[Technology]]:
    """Return the technologies that the contract tests run on the real thing, here: all, or those without an inside."""
    found = own("technologies").values()
    return [each for each in found if each.tested == "real" and each.tests_path.startswith("tests/contract")]

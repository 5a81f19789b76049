"""Stacks: technologies nested, inner first, as `docker/qemu` is Docker in a QEMU guest.

A suite lists stacks in `[suite]`; a table `[stacks.NAME]` makes a variant, one technology with other settings.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

from tare import plugins

if TYPE_CHECKING:
    from tare.suite import Document, Key


@dataclass(frozen=True)
class Stack:
    """Technologies nested, inner first, each with its settings."""

    name: str
    layers: tuple[Any, ...]


class Catalogue(Protocol):
    """Where technologies and workloads are found by name: `tare.plugins`, or a small one in a test."""

    def names(self, kind: plugins.Kind) -> Sequence[str]:
        """Names of all plug-ins of a kind."""

    def find(self, kind: plugins.Kind, name: str) -> type[Any]:
        """Find a plug-in's class; raises UsageError where it is broken."""


def split(stack: str) -> tuple[str, ...]:
    """Give the names of a stack's technologies, inner first."""
    return tuple(stack.split("/"))


def nearest(name: str, known: Collection[str]) -> str:
    """Give the known name that was probably meant, or an empty text."""
    return next(iter(difflib.get_close_matches(name, sorted(known), n=1)), "")


def did_you_mean(name: str, known: Collection[str], otherwise: str) -> str:
    """Give the hint for a name that is not known; `otherwise` where none comes near it."""
    meant = nearest(name, known)
    return f'did you mean "{meant}"?' if meant else otherwise


def read_stacks(document: Document) -> tuple[Stack, ...]:
    """Read the stacks that the suite lists, in its order; what is wrong with them becomes faults of the document."""
    variants = {name: _variant(document, name) for name in document.table(("stacks",))}
    listed = document.texts(("suite", "stacks"))
    meant = set(listed.values())
    found: dict[str, Stack] = {}
    for index, name in listed.items():
        key = ("suite", "stacks", index)
        if name in found:
            document.fault(key, f'"{name}" is listed twice', "remove one; other settings need a table [stacks.NAME]")
        elif name in variants:
            found[name] = Stack(name, variants[name])
        else:
            likely = _likely(document, name, variants)
            meant.add(likely)
            found[name] = Stack(name, _nested(document, key, name, likely))
    for name in variants.keys() - meant if listed else ():
        document.fault(("stacks", name), "not used", f'add "{name}" to stacks in [suite], or remove this table')
    return tuple(found.values())


def _variant(document: Document, name: str) -> tuple[Any, ...]:
    key = ("stacks", name)
    if not isinstance(document.at(key), dict):
        document.fault(key, "not a table", f'write [stacks.{name}] and below it stack = "docker"')
        return ()
    if name in document.catalogue.names("technologies"):
        document.fault(key, "this is the name of a technology", f"give it its own, for example [stacks.{name}-2]")
    document.check_name(key, name)
    stack = document.required(key, "stack", "docker")
    if stack is None:
        return ()
    if "/" in stack:
        for setting in document.table(key).keys() - {"stack"}:
            document.fault((*key, setting), f"{stack} takes no settings", "only a stack of one technology does")
    elif stack in document.catalogue.names("technologies"):
        technology = document.plugin((*key, "stack"), "technologies", stack)
        return (document.build(key, technology, ("stack",)),) if technology else ()
    return _nested(document, (*key, "stack"), stack, _likely(document, stack, ()))


def _likely(document: Document, stack: str, variants: Collection[str]) -> str:
    """Give the stack that was probably meant by one that is not there; the stack itself where it is."""
    names = document.catalogue.names("technologies")
    if all(layer in names for layer in split(stack)):
        return stack
    corrected = [layer if layer in names else nearest(layer, names) for layer in split(stack)]
    return nearest(stack, {*variants, "/".join(corrected)} if all(corrected) else variants)


def _nested(document: Document, key: Key, stack: str, likely: str) -> tuple[Any, ...]:
    """Give the technologies with their own defaults."""
    if stack != likely:
        hint = f'did you mean "{likely}"?' if likely else "`tare technologies` lists the names"
        document.fault(key, f'no stack named "{stack}"', hint)
        return ()
    layers = []
    for name in split(stack):
        technology = document.plugin(key, "technologies", name)
        needed = _needed(technology) if technology else ""
        if needed:
            hint = f'write a table [stacks.NAME] with stack = "{name}" and {needed} = …'
            document.fault(key, f"{name} needs the setting {needed}", hint)
        elif technology:
            layers.append(technology())
    return tuple(layers)


def _needed(technology: type[Any]) -> str:
    """Give the first setting that has no default, or an empty text."""
    settings = (each for each in fields(technology) if each.init)
    return next((each.name for each in settings if each.default is MISSING and each.default_factory is MISSING), "")

"""Stacks: technologies nested, inner first, as `docker/qemu` is Docker in a QEMU guest.

A suite lists stacks in `[suite]`; a table `[stacks.NAME]` makes a variant, one technology with other settings.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import MISSING, dataclass, fields
from typing import Any

from tare.document import Document, Key, nearest


@dataclass(frozen=True)
class Stack:
    """Technologies nested, inner first, each with its settings."""

    name: str
    layers: tuple[Any, ...]


def split(stack: str) -> tuple[str, ...]:
    """Give the names of a stack's technologies, inner first."""
    return tuple(stack.split("/"))


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
    if not _nestable(document, key, stack):
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


_NO_DEVICES = "its instances have neither the devices nor the control groups that another technology needs"


def _nestable(document: Document, key: Key, stack: str) -> bool:
    """Tell whether technologies can be nested like this; what is in the way becomes a fault that names the layer."""
    names = split(stack)
    for name in {each for each in names if names.count(each) > 1}:
        document.fault(key, f"{stack} names {name} twice", "a technology can be in a stack once")
    for name in names[1:]:
        technology = document.plugin(key, "technologies", name)
        if technology and not getattr(technology, "hosts", False):
            why = "its instances have no inside" if getattr(technology, "family", "") == "unikernel" else _NO_DEVICES
            document.fault(key, f"{name} cannot be an outer layer: {why}", _turned(names))
    first = document.plugin(key, "technologies", names[0])
    if first and getattr(first, "only_outer", False):
        document.fault(key, f"{names[0]} only gives a machine", f'name what runs in it, as in "native/{names[0]}"')
    return key not in document.faults


def _turned(names: tuple[str, ...]) -> str:
    if len(names) > 2:
        return "the outer layer comes last, as in docker/qemu"
    return f'the outer layer comes last: did you mean "{names[1]}/{names[0]}"?'


def _needed(technology: type[Any]) -> str:
    """Give the first setting that has no default, or an empty text."""
    settings = (each for each in fields(technology) if each.init)
    return next((each.name for each in settings if each.default is MISSING and each.default_factory is MISSING), "")

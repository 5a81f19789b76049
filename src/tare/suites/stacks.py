"""Stacks: technologies nested, inner first, as `docker/qemu` is Docker in a QEMU guest.

A suite lists stacks in `[suite]`; a table `[stacks.NAME]` makes a variant, a technology with other settings. A nested
stack has its settings by layer, in tables below that, as `[stacks.NAME.docker]`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from tare import plugins
from tare.errors import Fault, SuiteError, nearest
from tare.suites.document import Document, Key
from tare.suites.own_program import OWN, OwnProgram, read_own_program


@dataclass(frozen=True)
class Stack:
    """Technologies nested, inner first, each with its settings; and what it runs of its own."""

    name: str
    layers: tuple[Any, ...]
    own: OwnProgram = field(default_factory=OwnProgram)


def split(stack: str) -> tuple[str, ...]:
    """Return the names of a stack's technologies, inner first."""
    return tuple(stack.split("/"))


def read_stacks(document: Document) -> tuple[Stack, ...]:
    """Read the stacks that the suite lists, in its order; errors become faults of the document."""
    variants = {name: _variant(document, name) for name in document.table(("stacks",))}
    listed = document.texts(("suite", "stacks"))
    meant = set(listed.values())
    stacks: dict[str, Stack] = {}
    for index, name in listed.items():
        key = ("suite", "stacks", index)
        if name in stacks:
            document.fault(key, f'"{name}" is listed twice', "remove one; other settings need a table [stacks.NAME]")
        elif name in variants:
            stacks[name] = Stack(name, variants[name], _own(document, ("stacks", name)))
        else:
            likely = _likely(document, name, variants)
            meant.add(likely)
            stacks[name] = Stack(name, _nested(document, key, name, likely))
    for name in variants.keys() - meant if listed else ():
        document.fault(("stacks", name), "not used", f'add "{name}" to stacks in [suite], or remove this table')
    return tuple(stacks.values())


def stack_named(name: str) -> Stack:
    """Return a stack by name, with default settings; raises SuiteError if it does not exist or needs settings."""
    document = Document({"suite": {"stacks": [name]}}, plugins)
    stacks = read_stacks(document)
    if document.faults:
        raise SuiteError([Fault(what, hint) for what, hint in document.faults.values()])
    return stacks[0]


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
    likely = _likely(document, stack, ())
    if "/" in stack and likely:
        _check_layers(document, key, likely)
    elif stack in document.catalogue.names("technologies") and _nestable(document, (*key, "stack"), stack):
        technology = document.plugin((*key, "stack"), "technologies", stack)
        return (document.build(key, technology, ("stack", *_own_keys(document, stack))),) if technology else ()
    return _nested(document, (*key, "stack"), stack, likely)


def _own_keys(document: Document, stack: str) -> tuple[str, ...]:
    """Return the keys of a variant that say what it runs of its own: none that is a setting of its technology."""
    technology = document.catalogue.find("technologies", stack) if "/" not in stack else None
    settings = {each.name for each in fields(technology)} if technology else set()
    return tuple(name for name in OWN if name not in settings)


def _own(document: Document, key: Key) -> OwnProgram:
    """Read what the stack of a table runs of its own."""
    stack = document.table(key).get("stack")
    if not isinstance(stack, str):
        return OwnProgram()
    if any(name not in document.catalogue.names("technologies") for name in split(stack)):
        return OwnProgram()
    return read_own_program(document, key, _own_keys(document, stack))


def _check_layers(document: Document, key: Key, stack: str) -> None:
    """Refuse keys that are not tables of a nested stack's layers."""
    names = split(stack)
    for setting, value in document.table(key).items():
        if setting not in {"stack", *OWN} and not isinstance(value, dict):
            tables = " or ".join(f"[{'.'.join(map(str, key))}.{each}]" for each in names if each)
            hint = f"write it below {tables}"
            document.fault((*key, setting), f"{stack} takes its settings by layer", hint)
    document.refuse_unknown(key, ("stack", *OWN, *names))


def _likely(document: Document, stack: str, variants: Collection[str]) -> str:
    """Return the stack that an unknown name probably means; the name itself if it is known."""
    names = document.catalogue.names("technologies")
    if all(layer in names for layer in split(stack)):
        return stack
    corrected = [layer if layer in names else nearest(layer, names) for layer in split(stack)]
    return nearest(stack, {*variants, "/".join(corrected)} if all(corrected) else variants)


def _nested(document: Document, key: Key, stack: str, likely: str) -> tuple[Any, ...]:
    """Return the technologies with the settings of a variant's table, or with their defaults."""
    if not _can_be(document, key, stack, likely):
        return ()
    return tuple(_layer(document, key, stack, name) for name in split(stack))


def check_stack(document: Document, key: Key, stack: str, variants: Collection[str]) -> None:
    """Record a fault unless this is the name of a variant, or of technologies that can be nested in this order."""
    if stack not in variants:
        _can_be(document, key, stack, _likely(document, stack, variants))


def _can_be(document: Document, key: Key, stack: str, likely: str) -> bool:
    if stack != likely:
        hint = f'did you mean "{likely}"?' if likely else "`tare technologies` lists the names"
        document.fault(key, f'no stack named "{stack}"', hint)
        return False
    return _nestable(document, key, stack)


def _layer(document: Document, key: Key, stack: str, name: str) -> Any:
    technology = document.plugin(key, "technologies", name)
    own = (*key[:-1], name)
    if technology is None or (key[0] == "stacks" and isinstance(document.at(own), dict)):
        return document.build(own, technology) if technology else None
    if needed := needed_setting(technology):
        own_table = f"below it [stacks.NAME.{name}] with " if "/" in stack else ""
        hint = f'write a table [stacks.NAME] with stack = "{stack}" and {own_table}{needed} = …'
        document.fault(key, f"{name} needs the setting {needed}", hint)
        return None
    return technology()


_NO_DEVICES = "its instances have neither the devices nor the control groups that another technology needs"


def _nestable(document: Document, key: Key, stack: str) -> bool:
    """Return whether technologies can be nested in this order; if not, record a fault that names the layer."""
    names = split(stack)
    for name in {each for each in names if names.count(each) > 1}:
        document.fault(key, f"{stack} names {name} twice", "a technology can be in a stack once")
    for name in names[1:]:
        technology = document.plugin(key, "technologies", name)
        if technology and not getattr(technology, "hosts", False):
            why = "its instances have no inside" if getattr(technology, "family", "") == "unikernel" else _NO_DEVICES
            document.fault(key, f"{name} cannot be an outer layer: {why}", _turned(names))
    for name in names[:-1]:
        if getattr(document.plugin(key, "technologies", name), "gives_machine", False):
            document.fault(key, f"{name} can only be the outermost layer", _turned(names))
    if len(names) == 1 and getattr(document.plugin(key, "technologies", stack), "gives_machine", False):
        document.fault(key, f"{stack} only lends a machine", f'name what runs in it, as in "native/{stack}"')
    return key not in document.faults


def refuse_far_bridges(document: Document, stacks: Sequence[Stack], near: bool) -> None:
    """Refuse networks that the client must join, if it is on another machine than the instance."""
    for stack in stacks:
        nested = len(stack.layers) > 1
        for layer in stack.layers:
            if getattr(layer, "joins_client", False) and (nested or not near):
                key = ("stacks", stack.name, *((layer.name,) if nested else ()), "network")
                location = f"outside of {stack.layers[-1].name}" if nested else "on another machine"
                what = f'the client would have to join "{layer.network}", but it is {location}'
                document.fault(key, what, 'write "nat", or leave it out')


def _turned(names: tuple[str, ...]) -> str:
    if len(names) > 2:
        return "the outer layer comes last, as in docker/qemu"
    return f'the outer layer comes last: did you mean "{names[1]}/{names[0]}"?'


def needed_setting(technology: type[Any]) -> str:
    """Return the first setting without a default; empty if all have one."""
    settings = (each for each in fields(technology) if each.init)
    return next((each.name for each in settings if each.default is MISSING and each.default_factory is MISSING), "")

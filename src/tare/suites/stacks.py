"""Parse stacks of nested technologies, their short names and settings.

`pod` is Kubernetes, and `pod-gvisor` is Kubernetes with runtime_class = "gvisor": a technology declares its short name,
and which setting the word is.

A suite lists stacks in `[suite]`; a table `[stacks.NAME]` makes a variant, a technology with other settings. Some
variants need no table (`tare.suites.stacks`). A nested stack has its settings by layer, in tables below that, as
`[stacks.NAME.docker]`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from tare.model.errors import Fault, SuiteError, nearest
from tare.plugins import registry
from tare.suites.document import Catalogue, Document, Key, loadable
from tare.suites.stack_overrides import OWN, OwnProgram, read_own_program

_NO_DEVICES = "its instances have neither the devices nor the control groups that another technology needs"
_ELSEWHERE = 'name a machine that can run it: [hosts.server] ssh = "root@HOST"'
_BOTH = "write [hosts.server] and [hosts.client], both with the ssh of that machine"


@dataclass(frozen=True)
class NamedLayer:
    """What the name of a layer stands for: a technology by its own name, and settings of it."""

    technology: str
    settings: Mapping[str, str] = field(default_factory=dict)


def named_layer(catalogue: Catalogue, name: str) -> NamedLayer | None:
    """Return what a name stands for; None if it stands for nothing.

    A technology's own name comes first. Of two that begin a name, the longer one counts.
    """
    if name in catalogue.names("technologies"):
        return NamedLayer(name)
    found: dict[str, NamedLayer] = {}
    for known, plugin in _known(catalogue):
        setting = getattr(plugin, "variant_setting", "")
        if name == known:
            found[known] = NamedLayer(plugin.name)
        elif setting and name.startswith(f"{known}-") and name != f"{known}-":
            found[known] = NamedLayer(plugin.name, {setting: name.removeprefix(f"{known}-")})
    return found[max(found, key=len)] if found else None


def technologies_of(catalogue: Catalogue, stack: str) -> str:
    """Return a stack with the technologies' own names; what stands for nothing stays as it is."""
    layers = ((name, named_layer(catalogue, name)) for name in stack.split("/"))
    return "/".join(found.technology if found else name for name, found in layers)


def nearest_layer(catalogue: Catalogue, name: str) -> str:
    """Return the name that was probably meant by one that stands for nothing; empty if none is near."""
    own, known = catalogue.names("technologies"), dict(_known(catalogue))
    likely = {*own, *known}
    for between in re.finditer(r"[-_:](?=.)", name):
        head, word = name[: between.start()], name[between.end() :]
        meant = head if head in known else nearest(head, {*own, *known})
        if head not in own and getattr(known.get(meant), "variant_setting", None):
            likely.add(f"{meant}-{word}")
    return nearest(name, likely)


def _known(catalogue: Catalogue) -> Iterator[tuple[str, type[Any]]]:
    """Yield the names of the technologies that can be loaded, and the short ones."""
    for name, plugin in loadable(catalogue, "technologies"):
        yield name, plugin
        if short := getattr(plugin, "short_name", ""):
            yield short, plugin


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
    document = Document({"suite": {"stacks": [name]}}, registry)
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
    layer = named_layer(document.catalogue, stack)
    if "/" in stack and likely:
        _check_layers(document, key, likely)
    elif layer and _nestable(document, (*key, "stack"), stack):
        technology = document.plugin((*key, "stack"), "technologies", layer.technology)
        keys = ("stack", *_own_keys(document, stack))
        return (document.build(key, technology, keys, layer.settings),) if technology else ()
    return _nested(document, (*key, "stack"), stack, likely)


def _own_keys(document: Document, stack: str) -> tuple[str, ...]:
    """Return the keys of a variant that say what it runs of its own: none that is a setting of its technology."""
    layer = named_layer(document.catalogue, stack)
    technology = document.catalogue.find("technologies", layer.technology) if layer else None
    settings = {each.name for each in fields(technology)} if technology else set()
    return tuple(name for name in OWN if name not in settings)


def _own(document: Document, key: Key) -> OwnProgram:
    """Read what the stack of a table runs of its own."""
    stack = document.table(key).get("stack")
    if not isinstance(stack, str):
        return OwnProgram()
    if any(named_layer(document.catalogue, name) is None for name in split(stack)):
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
    known = {layer for layer in split(stack) if named_layer(document.catalogue, layer)}
    if known == {*split(stack)}:
        return stack
    corrected = [layer if layer in known else nearest_layer(document.catalogue, layer) for layer in split(stack)]
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
    layer = named_layer(document.catalogue, name)
    technology = document.plugin(key, "technologies", layer.technology) if layer else None
    own = (*key[:-1], name)
    if layer is None or technology is None:
        return None
    if key[0] == "stacks" and isinstance(document.at(own), dict):
        return document.build(own, technology, given=layer.settings)
    if needed := needed_setting(technology):
        own_table = f"below it [stacks.NAME.{name}] with " if "/" in stack else ""
        hint = f'write a table [stacks.NAME] with stack = "{stack}" and {own_table}{needed} = …'
        document.fault(key, f"{name} needs the setting {needed}", hint)
        return None
    return technology(**layer.settings)


def _nestable(document: Document, key: Key, stack: str) -> bool:
    """Return whether technologies can be nested in this order; if not, record a fault that names the layer."""
    names = split(stack)
    kinds = split(technologies_of(document.catalogue, stack))
    layers = [document.plugin(key, "technologies", kind) for kind in kinds]
    for kind in {each for each in kinds if kinds.count(each) > 1}:
        document.fault(key, f"{stack} names {kind} twice", "a technology can be in a stack once")
    for name, technology in zip(names[1:], layers[1:], strict=True):
        if technology and not getattr(technology, "hosts", False):
            why = "its instances have no inside" if getattr(technology, "family", "") == "unikernel" else _NO_DEVICES
            document.fault(key, f"{name} cannot be an outer layer: {why}", _turned(names))
    for depth, (name, technology) in enumerate(zip(names[:-1], layers[:-1], strict=True), start=1):
        if getattr(technology, "gives_machine", False):
            document.fault(key, f"{name} can only be the outermost layer", _turned(names))
        booted = not all(getattr(outer, "gives_machine", False) for outer in layers[depth:])
        if booted and technology and not getattr(technology, "nests", False):
            needs = f": it needs {technology.needs}" if getattr(technology, "needs", "") else ""
            document.fault(key, f"{name} cannot be in a machine that tare boots{needs}", _ELSEWHERE)
    if len(names) == 1 and getattr(layers[0], "gives_machine", False):
        document.fault(key, f"{stack} only lends a machine", f'name what runs in it, as in "native/{stack}"')
    return key not in document.faults


def refuse_far_clients(document: Document, stacks: Sequence[Stack], near: bool) -> None:
    """Refuse instances that the client can reach only on their own machine, if it is on another one."""
    for stack in stacks:
        nested = len(stack.layers) > 1
        location = f"outside of {stack.layers[-1].name}" if nested else "on another machine"
        for layer in stack.layers:
            if not getattr(layer, "joins_client", False) or (near and not nested):
                continue
            network = getattr(layer, "network", "")
            if network:
                key: Key = ("stacks", stack.name, *((layer.name,) if nested else ()), "network")
                what = f'the client would have to join "{network}", but it is {location}'
                document.fault(key, what, 'write "nat", or leave it out')
            else:
                what = f"{stack.name}: only a client on the same machine reaches its instances, but it is {location}"
                document.fault(("suite", "stacks"), what, _BOTH)


def _turned(names: tuple[str, ...]) -> str:
    if len(names) > 2:
        return "the outer layer comes last, as in docker/qemu"
    return f'the outer layer comes last: did you mean "{names[1]}/{names[0]}"?'


def needed_setting(technology: type[Any]) -> str:
    """Return the first setting without a default; empty if all have one."""
    settings = (each for each in fields(technology) if each.init)
    return next((each.name for each in settings if each.default is MISSING and each.default_factory is MISSING), "")

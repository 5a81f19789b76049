"""Parser of stacks: nested technologies, their short names and their settings.

A technology may declare a short name and a variant setting. So `pod` is Kubernetes, and `pod-gvisor` is Kubernetes with
runtime_class = "gvisor".

A suite lists stacks in `[suite]`. A table `[stacks.NAME]` defines a variant, which is a technology with other settings.
A nested stack has its settings by layer, in tables below that, such as `[stacks.NAME.docker]`.

A stack may also override commands and images. Two stacks of one technology then compare an old and a new version of a
program in turns of one run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from tare.model.errors import Fault, SuiteError, UsageError, find_nearest
from tare.model.image import Image, ImageReference, ImageSpec
from tare.model.units import PackageName
from tare.plugins import registry
from tare.plugins.workload import Workload
from tare.suites.document import Catalogue, Document, TomlKey, load_plugins
from tare.suites.tables import read_source

_SHELL_SYNTAX = re.compile(r"[|&;]+|[0-9]*[<>]+&?[0-9]*")
NoCommand = Literal[""]
Packages = tuple[PackageName, ...]
OVERRIDE_KEYS = ("command", "image")


def split_words(command: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a command line, or of a list; raises ValueError for a line with an unclosed quote."""
    return tuple(shlex.split(command)) if isinstance(command, str) else command


def _check_command(command: str | tuple[str, ...]) -> str | tuple[str, ...]:
    try:
        words = split_words(command)
    except ValueError as error:
        raise ValueError(f"it cannot be split into words: {str(error).lower()}") from error
    if not words or not words[0]:
        raise ValueError('name a program, as in command = "sysbench cpu run"')
    if any("\0" in word for word in words):
        raise ValueError("no word may have a zero byte")
    # Without `posix`, quoted words keep their quotes, so that only unquoted operators match.
    unquoted = shlex.split(command, posix=False) if isinstance(command, str) else ()
    if shells := [word for word in unquoted if _SHELL_SYNTAX.fullmatch(word)]:
        raise ValueError(f"no shell runs it, which {shells[0]} is for: write sh -c '…', or quote it")
    return command


CommandLine = Annotated[str | tuple[str, ...], AfterValidator(_check_command)]


@dataclass(frozen=True)
class StackOverride:
    """Command and image that a stack runs in place of those of the workload and of the run.

    An empty command or a source of None overrides nothing.
    """

    command: tuple[str, ...] = ()
    source: ImageReference | None = None

    def apply_to_workload(self, workload: Workload) -> Workload:
        """Return the workload with the stack's command, or unchanged if it runs no user-supplied command."""
        return (workload.with_command(self.command) or workload) if self.command else workload

    def apply_to_image(self, requested: ImageSpec) -> ImageSpec:
        """Return the stack's image, with the start configuration and the files of the run's image."""
        if self.source is None:
            return requested
        source = self.source
        if requested.source is not None:
            source = requested.source.with_name(source.transport, source.name)
        return ImageSpec(source=source, files=requested.files, architecture=requested.architecture)

    def describe(self, image: Image | None = None) -> dict[str, str]:
        """Return the overridden keys and their values as text; `image` is the stack's image, None if not yet built."""
        values = {"command": shlex.join(self.command)} if self.command else {}
        if self.source is not None:
            values["image"] = str(self.source) if image is None else image.origin or image.digest
        return values


@dataclass(frozen=True)
class _OverrideTable:
    """Override keys of a table `[stacks.NAME]`."""

    command: CommandLine | None = None
    image: str | None = None


def read_stack_override(document: Document, key: TomlKey, names: Sequence[str] = OVERRIDE_KEYS) -> StackOverride:
    """Return the override in a stack's table; only `names` are override keys. Invalid values become faults."""
    written = document.table(key)
    table: _OverrideTable = document.build(key, _OverrideTable, tuple(written)) or _OverrideTable()
    source = None
    if "image" in names and table.image is not None:
        try:
            source = read_source(table.image, document.folder)
        except UsageError as error:
            document.add_fault((*key, "image"), str(error), error.hint)
    command = table.command if "command" in names else None
    return StackOverride(() if command is None else split_words(command), source)


_NO_DEVICES = "its instances have neither the devices nor the control groups that another technology needs"
_NAME_HOST_HINT = 'name a machine that can run it: [hosts.server] ssh = "root@HOST"'
_NAME_BOTH_HOSTS_HINT = "write [hosts.server] and [hosts.client], both with the ssh of that machine"


@dataclass(frozen=True)
class LayerName:
    """Meaning of a layer's name: the full name of a technology, and settings of it."""

    technology: str
    settings: Mapping[str, str] = field(default_factory=dict)


def find_layer(catalogue: Catalogue, name: str) -> LayerName | None:
    """Return the meaning of a layer's name; None for an unknown name.

    The full name of a technology takes precedence. If several known names are a prefix, the longest counts.
    """
    if name in catalogue.names("technologies"):
        return LayerName(name)
    found: dict[str, LayerName] = {}
    for known, plugin in _list_known_layers(catalogue):
        setting = getattr(plugin, "variant_setting", "")  # getattr, because an external plug-in may lack the attribute
        if name == known:
            found[known] = LayerName(plugin.name)
        elif setting and name.startswith(f"{known}-") and name != f"{known}-":
            found[known] = LayerName(plugin.name, {setting: name.removeprefix(f"{known}-")})
    return found[max(found, key=len)] if found else None


def resolve_technologies(catalogue: Catalogue, stack: str) -> str:
    """Return a stack with the full names of its technologies. Unknown names stay."""
    layers = ((name, find_layer(catalogue, name)) for name in stack.split("/"))
    return "/".join(found.technology if found else name for name, found in layers)


def find_nearest_layer(catalogue: Catalogue, name: str) -> str:
    """Return the known layer name that an unknown name probably means; "" if none is similar."""
    full_names, known = catalogue.names("technologies"), dict(_list_known_layers(catalogue))
    if meant := next((each for each, plugin in known.items() if name in getattr(plugin, "other_names", ())), ""):
        return meant
    likely = {*full_names, *known}
    for separator in re.finditer(r"[-_:](?=.)", name):
        head, word = name[: separator.start()], name[separator.end() :]
        meant = head if head in known else find_nearest(head, {*full_names, *known})
        if head not in full_names and getattr(known.get(meant), "variant_setting", None):
            likely.add(f"{meant}-{word}")
    return find_nearest(name, likely)


def _list_known_layers(catalogue: Catalogue) -> Iterator[tuple[str, type[Any]]]:
    """Yield the full and the short names of the technologies that can be loaded."""
    for name, plugin in load_plugins(catalogue, "technologies"):
        yield name, plugin
        if short := getattr(plugin, "short_name", ""):
            yield short, plugin


@dataclass(frozen=True)
class Stack:
    """Nested technologies with their settings, inner first, and the stack's override of command and image."""

    name: str
    layers: tuple[Any, ...]
    override: StackOverride = field(default_factory=StackOverride)


def split_stack(stack: str) -> tuple[str, ...]:
    """Return the names of a stack's technologies, inner first."""
    return tuple(stack.split("/"))


def read_stacks(document: Document) -> tuple[Stack, ...]:
    """Return the stacks that the suite lists, in its order; errors become faults of the document."""
    variants = {name: _read_variant(document, name) for name in document.table(("stacks",))}
    listed = document.texts(("suite", "stacks"))
    meant = set(listed.values())
    stacks: dict[str, Stack] = {}
    for index, name in listed.items():
        key = ("suite", "stacks", index)
        if name in stacks:
            document.add_fault(
                key, f'"{name}" is listed twice', "remove one; other settings need a table [stacks.NAME]"
            )
        elif name in variants:
            stacks[name] = Stack(name, variants[name], _read_override(document, ("stacks", name)))
        else:
            likely = _guess_stack(document, name, variants)
            meant.add(likely)
            stacks[name] = Stack(name, _read_nested(document, key, name, likely))
    for name in variants.keys() - meant if listed else ():
        document.add_fault(("stacks", name), "not used", f'add "{name}" to stacks in [suite], or remove this table')
    return tuple(stacks.values())


def create_stack(name: str) -> Stack:
    """Return a stack by name, with default settings; raises SuiteError if it does not exist or needs settings."""
    document = Document({"suite": {"stacks": [name]}}, registry)
    stacks = read_stacks(document)
    if document.faults:
        raise SuiteError([Fault(what, hint) for what, hint in document.faults.values()])
    return stacks[0]


def _read_variant(document: Document, name: str) -> tuple[Any, ...]:
    key = ("stacks", name)
    if not isinstance(document.at(key), dict):
        document.add_fault(key, "not a table", f'write [stacks.{name}] and below it stack = "docker"')
        return ()
    if name in document.catalogue.names("technologies"):
        document.add_fault(key, "this is the name of a technology", f"choose another, for example [stacks.{name}-2]")
    document.check_name(key, name)
    stack = document.read_required_text(key, "stack", "docker")
    if stack is None:
        return ()
    likely = _guess_stack(document, stack, ())
    layer = find_layer(document.catalogue, stack)
    if "/" in stack and likely:
        _check_layers(document, key, likely)
    elif layer and _check_nesting(document, (*key, "stack"), stack):
        technology = document.plugin((*key, "stack"), "technologies", layer.technology)
        keys = ("stack", *_override_keys(document, stack))
        return (document.build(key, technology, keys, layer.settings),) if technology else ()
    return _read_nested(document, (*key, "stack"), stack, likely)


def _override_keys(document: Document, stack: str) -> tuple[str, ...]:
    """Return the override keys of a variant, without those that are also settings of its technology."""
    layer = find_layer(document.catalogue, stack)
    technology = document.catalogue.find("technologies", layer.technology) if layer else None
    settings = {each.name for each in fields(technology)} if technology else set()
    return tuple(name for name in OVERRIDE_KEYS if name not in settings)


def _read_override(document: Document, key: TomlKey) -> StackOverride:
    """Return the override in the table of a stack."""
    stack = document.table(key).get("stack")
    if not isinstance(stack, str):
        return StackOverride()
    if any(find_layer(document.catalogue, name) is None for name in split_stack(stack)):
        return StackOverride()
    return read_stack_override(document, key, _override_keys(document, stack))


def _check_layers(document: Document, key: TomlKey, stack: str) -> None:
    """Record faults for keys that are no tables of a nested stack's layers."""
    names = split_stack(stack)
    for setting, value in document.table(key).items():
        if setting not in {"stack", *OVERRIDE_KEYS} and not isinstance(value, dict):
            tables = " or ".join(f"[{'.'.join(map(str, key))}.{each}]" for each in names if each)
            hint = f"write it below {tables}"
            document.add_fault((*key, setting), f"{stack} takes its settings by layer", hint)
    document.refuse_unknown(key, ("stack", *OVERRIDE_KEYS, *names))


def _guess_stack(document: Document, stack: str, variants: Collection[str]) -> str:
    """Return the stack that an unknown name probably means; the name itself if it is known."""
    known = {layer for layer in split_stack(stack) if find_layer(document.catalogue, layer)}
    if known == {*split_stack(stack)}:
        return stack
    corrected = [
        layer if layer in known else find_nearest_layer(document.catalogue, layer) for layer in split_stack(stack)
    ]
    meant = "/".join(corrected) if all(corrected) else ""
    return find_nearest(stack, {*variants, meant} - {""}) or meant


def _read_nested(document: Document, key: TomlKey, stack: str, likely: str) -> tuple[Any, ...]:
    """Return the technologies with the settings of a variant's table, or with their defaults; () with a fault."""
    if not _check_layer_names(document, key, stack, likely):
        return ()
    return tuple(_read_layer(document, key, stack, name) for name in split_stack(stack))


def check_stack(document: Document, key: TomlKey, stack: str, variants: Collection[str]) -> None:
    """Record a fault unless this is the name of a variant or of technologies that can be nested in this order."""
    if stack not in variants:
        _check_layer_names(document, key, stack, _guess_stack(document, stack, variants))


def _check_layer_names(document: Document, key: TomlKey, stack: str, likely: str) -> bool:
    if stack != likely:
        hint = f'did you mean "{likely}"?' if likely else "`tare technologies` lists the names"
        document.add_fault(key, f'no stack named "{stack}"', hint)
        return False
    return _check_nesting(document, key, stack)


def _read_layer(document: Document, key: TomlKey, stack: str, name: str) -> Any:
    layer = find_layer(document.catalogue, name)
    technology = document.plugin(key, "technologies", layer.technology) if layer else None
    table_key = (*key[:-1], name)
    if layer is None or technology is None:
        return None
    if key[0] == "stacks" and isinstance(document.at(table_key), dict):
        return document.build(table_key, technology, defaults=layer.settings)
    if needed := find_required_setting(technology):
        layer_table = f"below it [stacks.NAME.{name}] with " if "/" in stack else ""
        hint = f'write a table [stacks.NAME] with stack = "{stack}" and {layer_table}{needed} = …'
        document.add_fault(key, f"{name} needs the setting {needed}", hint)
        return None
    return technology(**layer.settings)


def _check_nesting(document: Document, key: TomlKey, stack: str) -> bool:
    """Return whether technologies can be nested in this order; if not, record a fault that names the layer."""
    names = split_stack(stack)
    kinds = split_stack(resolve_technologies(document.catalogue, stack))
    layers = [document.plugin(key, "technologies", kind) for kind in kinds]
    for kind in {each for each in kinds if kinds.count(each) > 1}:
        document.add_fault(key, f"{stack} names {kind} twice", "a technology can be in a stack once")
    for name, technology in zip(names[1:], layers[1:], strict=True):
        if technology and not getattr(technology, "can_host", False):
            why = "its instances have no inside" if getattr(technology, "family", "") == "unikernel" else _NO_DEVICES
            document.add_fault(key, f"{name} cannot be an outer layer: {why}", _outer_first(names))
    for depth, (name, technology) in enumerate(zip(names[:-1], layers[:-1], strict=True), start=1):
        if getattr(technology, "provisions_machine", False):
            document.add_fault(key, f"{name} can only be the outermost layer", _outer_first(names))
        # A provisioned machine may have the devices that a technology needs; a guest that tare boots has not.
        booted = not all(getattr(outer, "provisions_machine", False) for outer in layers[depth:])
        if booted and technology and not getattr(technology, "can_be_nested", False):
            needs = f": it needs {technology.needs}" if getattr(technology, "needs", "") else ""
            document.add_fault(key, f"{name} cannot be in a machine that tare boots{needs}", _NAME_HOST_HINT)
    if len(names) == 1 and getattr(layers[0], "provisions_machine", False):
        document.add_fault(key, f"{stack} only lends a machine", f'name what runs in it, as in "native/{stack}"')
    return key not in document.faults


def refuse_remote_clients(document: Document, stacks: Sequence[Stack], client_is_local: bool) -> None:
    """Record a fault for instances that only a client on the same machine can reach, if the client is elsewhere."""
    for stack in stacks:
        nested = len(stack.layers) > 1
        location = f"outside of {stack.layers[-1].name}" if nested else "on another machine"
        for layer in stack.layers:
            if not getattr(layer, "needs_local_client", False) or (client_is_local and not nested):
                continue
            network = getattr(layer, "network", "")
            if network:
                key: TomlKey = ("stacks", stack.name, *((layer.name,) if nested else ()), "network")
                what = f'the client would have to join "{network}", but it is {location}'
                document.add_fault(key, what, 'write "nat", or leave it out')
            else:
                what = f"{stack.name}: only a client on the same machine reaches its instances, but it is {location}"
                document.add_fault(("suite", "stacks"), what, _NAME_BOTH_HOSTS_HINT)


def _outer_first(names: tuple[str, ...]) -> str:
    if len(names) > 2:
        return "the outer layer comes last, as in docker/qemu"
    return f'the outer layer comes last: did you mean "{names[1]}/{names[0]}"?'


def find_required_setting(technology: type[Any]) -> str:
    """Return the name of the first setting without a default; "" if all have one."""
    settings = (each for each in fields(technology) if each.init)
    return next((each.name for each in settings if each.default is MISSING and each.default_factory is MISSING), "")

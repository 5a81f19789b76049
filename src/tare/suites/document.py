"""Tables of a TOML file, with their faults by key.

A fault names its key as `workloads[0].clients`; numbers in brackets count from 0.
"""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol

from pydantic import TypeAdapter, ValidationError, ValidationInfo
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic_core import ErrorDetails

from tare.model.errors import Fault, SuiteError, UsageError, did_you_mean, find_nearest
from tare.model.units import check_given_name, format_like
from tare.plugins import registry

TomlKey = tuple[str | int, ...]

_EXAMPLES = {"stacks": '["native", "docker"]', "ssh": '"user@address"'}
_ERROR_TEXTS = {  # by pydantic's type of error: a text for the message, and the hint
    "string_type": ("is not a text", "write it in quotes"),
    "bool_type": ("is neither true nor false", "write true or false, without quotes"),
    "int_type": ("is not a whole number", "write a whole number, without quotes"),
    "float_type": ("is not a number", "write a number, without quotes"),
    "tuple_type": ("is not a list", "write a list in brackets"),
    "dataclass_type": ("is not a table", "write a table"),
    "greater_than": ("is too small", "write more than {gt}"),
    "greater_than_equal": ("is too small", "write {ge} or more"),
    "less_than": ("is too large", "write less than {lt}"),
    "less_than_equal": ("is too large", "write {le} or less"),
    "too_short": ("has too few entries", "write at least {min_length}"),
    "too_long": ("has too many entries", "write at most {max_length}"),
}


class Catalogue(Protocol):
    """Catalogue of technologies and workloads by name: `tare.plugins.registry`, or a small one in a test."""

    def names(self, plugin_type: registry.PluginType) -> Sequence[str]:
        """Return the names of all plug-ins of a type."""

    def find(self, plugin_type: registry.PluginType, name: str) -> type[Any]:
        """Return a plug-in's class; raises UsageError if it is broken."""


def load_plugins(catalogue: Catalogue, plugin_type: registry.PluginType) -> Iterator[tuple[str, type[Any]]]:
    """Yield the plug-ins of a type with their names, without those that cannot be loaded."""
    for name in catalogue.names(plugin_type):
        with suppress(UsageError):
            yield name, catalogue.find(plugin_type, name)


@dataclass
class Document:
    """Tables of one TOML file, with at most one fault for each key.

    Paths in the file are relative to `folder`. Validators of settings find it in pydantic's context under this name.
    `other_file_faults` are faults of files that this one names, whose messages have the keys of those files.
    """

    tables: dict[str, Any]
    catalogue: Catalogue
    folder: Path = field(default_factory=Path)
    faults: dict[TomlKey, tuple[str, str]] = field(default_factory=dict)
    other_file_faults: list[Fault] = field(default_factory=list)
    adapters: dict[type[Any], TypeAdapter[Any]] = field(default_factory=dict)  # a file may have many tables of a class

    def add_fault(self, key: TomlKey, what: str, hint: str) -> None:
        """Record a fault, unless the key already has one."""
        self.faults.setdefault(key, (what, hint))

    def in_file_order(self, source: str) -> list[Fault]:
        """Return the faults in the order of their keys in the file; missing keys come at the end of their table."""
        ordered = sorted(self.faults.items(), key=lambda item: self._position(item[0]))
        faults = [Fault(f"{source}: {_format_key(key)}: {what}", hint) for key, (what, hint) in ordered]
        return [*faults, *dict.fromkeys(self.other_file_faults)]

    def at(self, key: TomlKey) -> Any:
        """Return the value under a key; None if there is none."""
        value: Any = self.tables
        for part in key:
            if isinstance(value, dict):
                value = value.get(str(part))
            elif isinstance(value, list) and isinstance(part, int) and part < len(value):
                value = value[part]
            else:
                return None
        return value

    def table(self, key: TomlKey) -> dict[str, Any]:
        """Return the table under a key; empty if there is none."""
        value = self.at(key)
        return value if isinstance(value, dict) else {}

    def texts(self, key: TomlKey) -> dict[int, str]:
        """Return the texts of the list under a key, by their positions."""
        value = self.at(key)
        entries = value if isinstance(value, list) else []
        return {index: entry for index, entry in enumerate(entries) if isinstance(entry, str)}

    def read_required_text(self, key: TomlKey, setting: str, example: str) -> str | None:
        """Return a required text of the table under a key; None, with a fault, if it is missing or no text."""
        table = self.table(key)
        value = table.get(setting)
        if setting not in table:
            self.add_fault((*key, setting), "missing", f'write {setting} = "{example}"')
        elif not isinstance(value, str):
            self.add_fault((*key, setting), f"{_format_value(value)} is not a text", "write it in quotes")
        return value if isinstance(value, str) else None

    def read_number(self, key: TomlKey, least: float, most: float) -> float | None:
        """Return the number under a key; None without one, and with a fault for anything else or out of range."""
        value = self.at(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.add_fault(key, f"{_format_value(value)} is not a number", "write a number, without quotes")
        elif not least <= value <= most:
            what, hint = ("small", f"{least:,.10g} or more") if value < least else ("large", f"{most:,.10g} or less")
            self.add_fault(key, f"{_format_value(value)} is too {what}", f"write {hint}")
        else:
            return float(value)
        return None

    def name(self, key: TomlKey, default: str) -> str:
        """Return the name under a key, or the default without one; an invalid name is recorded as a fault."""
        value = self.at(key)
        if value is None:
            return default
        if not isinstance(value, str):
            self.add_fault(key, f"{_format_value(value)} is not a text", "write it in quotes")
            return default
        self.check_name(key, value)
        return value

    def check_name(self, key: TomlKey, name: str) -> None:
        """Record a fault for a name that cannot be part of a file name."""
        try:
            check_given_name(name)
        except ValueError as error:
            self.add_fault(key, f"{_format_value(name)} cannot be a name", str(error))

    def refuse_unknown(self, key: TomlKey, known: Collection[str]) -> set[str]:
        """Record faults for unknown keys; return the known keys that were probably meant.

        A key that was probably meant is not reported as missing, too.
        """
        unknown = [name for name in self.table(key) if name not in known]
        for name in unknown:
            hint = did_you_mean(name, known, f"the keys here are {', '.join(sorted(known))}")
            self.add_fault((*key, name), "unknown key", hint)
        return {find_nearest(name, known) for name in unknown}

    def plugin(self, key: TomlKey, plugin_type: registry.PluginType, name: str) -> type[Any] | None:
        """Return a plug-in's class; None, with a fault, if it cannot be loaded or its settings cannot be read."""
        try:
            plugin = self.catalogue.find(plugin_type, name)
            fields(plugin)
            self._adapter(plugin)
        except UsageError as error:
            self.add_fault(key, str(error), error.hint)
        except (TypeError, PydanticUserError, PydanticUndefinedAnnotation) as error:
            reason = str(error).splitlines()[0]
            self.add_fault(key, f'the settings of "{name}" cannot be read: {reason}', "repair or remove its package")
        else:
            return plugin
        return None

    def build(
        self, key: TomlKey, cls: type[Any], reserved: tuple[str, ...] = (), defaults: Mapping[str, str] | None = None
    ) -> Any:
        """Return an instance of the dataclass `cls` with the values of the table under a key; None with a fault.

        None, too, if the key has no table. Keys of the table are the fields, and the `reserved` keys, which are
        ignored. `defaults` apply to keys that the table does not have.
        """
        if not isinstance(self.at(key), dict):
            return None
        known = [each.name for each in fields(cls) if each.init]
        guesses = self.refuse_unknown(key, (*reserved, *known))
        settings = {**(defaults or {}), **{name: value for name, value in self.table(key).items() if name in known}}
        try:
            # JSON, because pydantic's strict mode takes a list for a tuple only from JSON.
            text, context = json.dumps(settings, default=str), {"folder": self.folder}
            return self._adapter(cls).validate_json(text, strict=True, context=context)
        except ValidationError as error:
            for each in error.errors():
                if each["type"] != "missing" or each["loc"][-1] not in guesses:
                    self._translate(key, each)
        except SuiteError as error:
            self.other_file_faults += error.faults
        return None

    def _adapter(self, cls: type[Any]) -> TypeAdapter[Any]:
        if cls not in self.adapters:
            self.adapters[cls] = TypeAdapter(cls)
        return self.adapters[cls]

    def _translate(self, key: TomlKey, error: ErrorDetails) -> None:
        """Record an error of pydantic as a fault of its key."""
        path = key
        for part in error["loc"]:  # the last parts of pydantic's location may name a type, which is no key of the file
            if error["type"] != "missing" and self.at((*path, part)) is None:
                break
            path = (*path, part)
        what, hint = _describe_error(error, self.at(path))
        self.add_fault(path, what, hint)

    def _position(self, key: TomlKey) -> tuple[int, ...]:
        position = []
        for depth, part in enumerate(key):
            siblings = list(self.table(key[:depth]))
            position.append(part if isinstance(part, int) else (*siblings, part).index(part))
        return tuple(position)


def folder_of(info: ValidationInfo) -> Path:
    """Return the folder to which a path in a setting is relative; the current one for a setting of no file."""
    return Path((info.context or {}).get("folder", ""))


def parse_tables(text: str, source: str) -> dict[str, Any]:
    """Return the tables of a TOML text, which messages call `source`; raises SuiteError with the line of an error."""
    try:
        return tomllib.loads(text, parse_float=_parse_finite)
    except (ValueError, RecursionError) as error:  # deeply nested brackets exceed Python's stack
        raise SuiteError([_toml_fault(str(error), source)]) from None


def _parse_finite(text: str) -> float | str:
    """Return a number, but `inf` and `nan` as text, so that no setting accepts them as numbers."""
    return float(text) if math.isfinite(float(text)) else text


def _toml_fault(problem: str, source: str) -> Fault:
    match = re.search(r" \(at line (\d+), column \d+\)$", problem)
    line = f"line {match[1]}" if match else "at its end"
    message = re.sub(r" \(at .*\)$", "", problem)
    return Fault(
        f"{source}: {line}: not TOML: {message[:1].lower()}{message[1:]}",
        'a line is `key = value` or `[table]`; texts stand in "quotes", lists in [brackets]',
    )


def _describe_error(error: ErrorDetails, value: object) -> tuple[str, str]:
    error_type, context, shown = error["type"], error.get("ctx", {}), _format_value(value)
    if error_type == "missing":
        name = str(error["loc"][-1])
        return "missing", f"write {name} = {_EXAMPLES.get(name, '…')}"
    if error_type == "value_error":
        message = str(context["error"])
        return (f"{shown} cannot be used", message) if error["loc"] else (message, "change the settings of this table")
    if error_type == "unexpected_keyword_argument":
        return "unknown key", "remove it"
    if error_type in {"literal_error", "enum"}:
        known = re.findall(r"'([^']*)'", context["expected"])
        return f"{shown} is not known", did_you_mean(str(error["input"]), known, f"write one of {', '.join(known)}")
    if error_type in _ERROR_TEXTS:
        phrase, hint = _ERROR_TEXTS[error_type]
        return f"{shown} {phrase}", hint.format(**{name: format_like(value, bound) for name, bound in context.items()})
    return f"{shown} cannot be used", error["msg"].replace("Input should", "it should")


def _format_value(value: object) -> str:
    if isinstance(value, dict | list):
        return "a table" if isinstance(value, dict) else "a list"
    return json.dumps(value, default=str, ensure_ascii=False)


def _format_key(key: TomlKey) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key).removeprefix(".")

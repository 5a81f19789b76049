"""The JSON Schema of suites, from the tables and the plug-ins: with it, editors complete keys and check values."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from pydantic import TypeAdapter
from pydantic.json_schema import PydanticJsonSchemaWarning

from tare.model.machine import Machine
from tare.model.units import written
from tare.plugins import registry
from tare.suites.document import Catalogue, loadable
from tare.suites.stack_overrides import OWN
from tare.suites.tables import BoundsTable, ImageTable, LimitsTable, SuiteTable, TelemetryTable

Schema = dict[str, Any]
_DRAFT = "http://json-schema.org/draft-07/schema#"  # the newest that editors of TOML know
_TEXT: Schema = {"type": "string"}
_KEPT = ("type", "enum", "const", "anyOf", "items", "minimum", "maximum", "minItems", "additionalProperties")


def suite_schema(catalogue: Catalogue = registry) -> Schema:
    """Return the schema of a suite with the plug-ins that are there; one that is broken is left out."""
    stacks = {"description": "stacks of yours, by name", "type": "object", "additionalProperties": _variant(catalogue)}
    machine = _table(Machine)
    several = {"type": "array", "items": machine, "minItems": 1, "description": "clients that share the load"}
    hosts: Schema = {"server": machine, "client": {"anyOf": [machine, several]}}
    return {
        "$schema": _DRAFT,
        "title": "A suite of tare",
        **_closed(
            {
                "suite": _table(SuiteTable, required=("stacks",)),
                "limits": _table(LimitsTable),
                "image": _table(ImageTable, more={"from": {**_TEXT, "description": "an image that others have built"}}),
                "telemetry": _table(TelemetryTable),
                "stacks": stacks,
                "hosts": {**_closed(hosts), "description": "the machines of a run, over SSH"},
                "workloads": {"type": "array", "items": {"anyOf": [*_workloads(catalogue)]}},
            },
            ("suite", "workloads"),
        ),
    }


def _workloads(catalogue: Catalogue) -> Iterable[Schema]:
    """Yield a table for each workload."""
    beside = {
        "name": {**_TEXT, "description": "its name in this suite"},
        "limits": _table(BoundsTable),
        "exclude": {"type": "array", "items": _TEXT, "description": "stacks that do not run it"},
    }
    for name, plugin in loadable(catalogue, "workloads"):
        found = _table(plugin, more={"use": {"const": name}, **beside}, required=("use",))
        yield {"title": plugin.title, **found, "description": (inspect.getdoc(plugin) or "").partition("\n")[0]}


def _variant(catalogue: Catalogue) -> Schema:
    """Return the table of a stack: its technologies, and settings of one, or tables with those of its layers."""
    settings: dict[str, Schema] = {}
    for _, plugin in loadable(catalogue, "technologies"):
        for name, setting in _table(plugin)["properties"].items():
            if settings.setdefault(name, setting) != setting:
                settings[name] = {}  # which of them it is, the stack says
    own = {name: {"description": f"{name} of its own, which other stacks do not run"} for name in OWN}
    stack = {**_TEXT, "description": 'technologies, inner first, such as "docker" or "docker/qemu"'}
    return {"type": "object", "properties": {"stack": stack, **own, **settings}, "required": ["stack"]}


def _table(kind: type[Any], more: Mapping[str, Schema] | None = None, required: tuple[str, ...] = ()) -> Schema:
    """Return the schema of a table: its settings with their defaults as one writes them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PydanticJsonSchemaWarning)  # a default that JSON does not know is written below
        found = TypeAdapter(kind).json_schema()
    hints, settings = get_type_hints(kind, include_extras=True), {}
    for each in fields(kind):
        if each.init and each.name in found.get("properties", {}):
            default = each.default_factory() if each.default_factory is not MISSING else each.default
            text = "" if default in (MISSING, None, "") else f"default: {written(default, hints[each.name])}"
            settings[each.name] = _plain(found["properties"][each.name], found) | (
                {"description": text} if text else {}
            )
    return _closed({**(more or {}), **settings}, required)


def _plain(schema: Schema, whole: Schema) -> Schema:
    """Leave what an editor needs of a setting, with what it refers to in its place."""
    if "$ref" in schema:
        return _plain(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    kept = {name: schema[name] for name in _KEPT if name in schema}
    if "anyOf" in kept:
        kept["anyOf"] = [_plain(each, whole) for each in kept["anyOf"] if each.get("type") != "null"]
    for name in ("items", "additionalProperties"):
        if isinstance(kept.get(name), dict):
            kept[name] = _plain(kept[name], whole)
    if "properties" in schema:
        kept["properties"] = {name: _plain(each, whole) for name, each in schema["properties"].items()}
    return kept


def _closed(properties: Mapping[str, Schema], required: Iterable[str] = ()) -> Schema:
    """Return the schema of a table that has no other keys."""
    found: Schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return found | ({"required": list(required)} if required else {})

"""JSON Schema of suites, from the tables and the plug-ins, with which editors complete keys and check values."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any, get_type_hints

from pydantic import TypeAdapter
from pydantic.json_schema import PydanticJsonSchemaWarning

from tare.model.machine import SshTarget
from tare.model.units import format_setting
from tare.plugins import registry
from tare.suites.document import Catalogue, load_plugins
from tare.suites.stacks import OVERRIDE_KEYS
from tare.suites.tables import BoundsTable, ImageTable, LimitsTable, SuiteTable, TelemetryTable

Schema = dict[str, Any]
_DRAFT = "http://json-schema.org/draft-07/schema#"  # the newest draft that editors of TOML support
_TEXT: Schema = {"type": "string"}
_SCHEMA_KEYS = ("type", "enum", "const", "anyOf", "items", "minimum", "maximum", "minItems", "additionalProperties")


def create_suite_schema(catalogue: Catalogue = registry) -> Schema:
    """Return the schema of a suite with all plug-ins that can be loaded."""
    stacks = {
        "description": "user-defined stacks, by name",
        "type": "object",
        "additionalProperties": _stack_schema(catalogue),
    }
    machine = _table_schema(SshTarget)
    several = {"type": "array", "items": machine, "minItems": 1, "description": "clients that share the load"}
    hosts: Schema = {"server": machine, "client": {"anyOf": [machine, several]}}
    return {
        "$schema": _DRAFT,
        "title": "A suite of tare",
        **_closed_table(
            {
                "suite": _table_schema(SuiteTable, required=("stacks",)),
                "limits": _table_schema(LimitsTable),
                "image": _table_schema(
                    ImageTable, more={"from": {**_TEXT, "description": "an image that others have built"}}
                ),
                "telemetry": _table_schema(TelemetryTable),
                "stacks": stacks,
                "hosts": {**_closed_table(hosts), "description": "the machines of a run, over SSH"},
                "workloads": {"type": "array", "items": {"anyOf": [*_workload_schemas(catalogue)]}},
            },
            ("suite", "workloads"),
        ),
    }


def _workload_schemas(catalogue: Catalogue) -> Iterable[Schema]:
    """Yield the schema of each workload's table."""
    common_keys = {
        "name": {**_TEXT, "description": "its name in this suite"},
        "limits": _table_schema(BoundsTable),
        "exclude": {"type": "array", "items": _TEXT, "description": "stacks that do not run it"},
    }
    for name, plugin in load_plugins(catalogue, "workloads"):
        schema = _table_schema(plugin, more={"use": {"const": name}, **common_keys}, required=("use",))
        yield {"title": plugin.title, **schema, "description": (inspect.getdoc(plugin) or "").partition("\n")[0]}


def _stack_schema(catalogue: Catalogue) -> Schema:
    """Return the schema of a stack's table: its technologies, and settings of one or tables of its layers."""
    settings: dict[str, Schema] = {}
    for _, plugin in load_plugins(catalogue, "technologies"):
        for name, setting in _table_schema(plugin)["properties"].items():
            if settings.setdefault(name, setting) != setting:
                settings[name] = {}  # technologies differ in it, and a schema cannot depend on the text of `stack`
    overrides = {name: {"description": f"{name} of this stack in place of the run's"} for name in OVERRIDE_KEYS}
    stack = {**_TEXT, "description": 'technologies, inner first, such as "docker" or "docker/qemu"'}
    return {"type": "object", "properties": {"stack": stack, **overrides, **settings}, "required": ["stack"]}


def _table_schema(
    table_class: type[Any], more: Mapping[str, Schema] | None = None, required: tuple[str, ...] = ()
) -> Schema:
    """Return the schema of a table, in which descriptions have the defaults in the notation of suites."""
    with warnings.catch_warnings():
        # pydantic warns of defaults that JSON cannot represent. They are in the descriptions.
        warnings.simplefilter("ignore", PydanticJsonSchemaWarning)
        found = TypeAdapter(table_class).json_schema()
    hints, settings = get_type_hints(table_class, include_extras=True), {}
    for each in fields(table_class):
        if each.init and each.name in found.get("properties", {}):
            default = each.default_factory() if each.default_factory is not MISSING else each.default
            text = "" if default in (MISSING, None, "") else f"default: {format_setting(default, hints[each.name])}"
            settings[each.name] = _simplify(found["properties"][each.name], found) | (
                {"description": text} if text else {}
            )
    return _closed_table({**(more or {}), **settings}, required)


def _simplify(schema: Schema, whole: Schema) -> Schema:
    """Return the parts of a setting's schema that editors use, with references replaced by their targets."""
    if "$ref" in schema:
        return _simplify(whole["$defs"][schema["$ref"].rpartition("/")[2]], whole)
    kept = {name: schema[name] for name in _SCHEMA_KEYS if name in schema}
    if "anyOf" in kept:
        kept["anyOf"] = [_simplify(each, whole) for each in kept["anyOf"] if each.get("type") != "null"]
    for name in ("items", "additionalProperties"):
        if isinstance(kept.get(name), dict):
            kept[name] = _simplify(kept[name], whole)
    if "properties" in schema:
        kept["properties"] = {name: _simplify(each, whole) for name, each in schema["properties"].items()}
    return kept


def _closed_table(properties: Mapping[str, Schema], required: Iterable[str] = ()) -> Schema:
    """Return the schema of a table that allows no other keys."""
    found: Schema = {"type": "object", "properties": dict(properties), "additionalProperties": False}
    return found | ({"required": list(required)} if required else {})

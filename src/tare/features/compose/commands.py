"""Command `tare application`: write the application of a Compose file."""

from __future__ import annotations

import math
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import typer
import yaml  # type: ignore[import-untyped]

from tare.cli.console import print_status
from tare.features.compose.context import ComposeContext, Location
from tare.features.compose.convert import convert_compose
from tare.features.compose.syntax import read_variables
from tare.loads.application_file import FILE, parse_application
from tare.model.errors import SuiteError, UsageError
from tare.model.files import convert_write_errors, exists, is_below, is_file, read_small

_ENVIRONMENT_FILE = ".env"
_FILE_KIND = "compose file"
_MAX_VALUES = 100_000


def application(
    action: Annotated[Literal["from"], typer.Argument(help="The word `from`.")],  # noqa: ARG001 - there is one
    compose: Annotated[Path, typer.Argument(help="A compose file.", metavar="FILE")],
    service: Annotated[
        str, typer.Option(help="The service under test [default: the one that publishes ports].", metavar="NAME")
    ] = "",
) -> None:
    """Convert a Compose file to an application.toml next to it.

    The command prints what it leaves out and the consequence, and starts nothing. Variables have their values from the
    environment, and from .env next to the file. All settings that an application cannot have are reported at once.
    """
    target = compose.parent / FILE
    folder = compose.parent.absolute()
    converted = convert_compose(
        parse_compose(read_small(compose, _FILE_KIND), str(compose)), str(compose), service, _read_context(folder)
    )
    try:
        parse_application(converted.text, folder)  # reports faults now, not in the first run
    except SuiteError as error:  # under the compose file's name: the other file is not written
        faults = [
            replace(each, message=each.message.replace(str(folder / FILE), str(compose))) for each in error.faults
        ]
        raise SuiteError(faults) from None
    hint = "move it away, or copy the compose file to another folder"
    with convert_write_errors(target, hint), target.open("x", encoding="utf-8") as file:
        file.write(converted.text)
    lines = [*_find_override_files(compose), *converted.notes]
    if converted.embedded_variables:
        lines.append(
            f"filled in: {', '.join(converted.embedded_variables)}: {target} has their values, so protect it as "
            "you do the variables"
        )
    print_status(
        *lines, f'{target} is the application; its load is an example. In a suite: use = "application", folder = "…"'
    )


def _read_context(folder: Path) -> ComposeContext:
    """Return the folder and the variables of a Compose file; the shell overrides `.env`, as for engines.

    Raises UsageError for an unreadable `.env`.
    """

    def locate(name: str) -> Location:
        return "outside" if not is_below(folder, name) else "there" if exists(folder / name) else "missing"

    def read(name: str) -> str | None:
        return read_small(folder / name, _FILE_KIND) if is_file(folder / name) else None

    if locate(_ENVIRONMENT_FILE) == "outside":
        what = f"{folder / _ENVIRONMENT_FILE}: a link that leads out of the folder"
        raise UsageError(what, "copy it into the folder of the compose file")

    # Values that are not UTF-8 cannot be written to the file: such variables count as not set.
    shell = {
        name: value for name, value in os.environ.items() if not any("\udc80" <= each <= "\udcff" for each in value)
    }
    unset: dict[str, None] = {}
    try:
        values = read_variables(read(_ENVIRONMENT_FILE) or "", shell, unset)
    except ValueError as error:
        raise UsageError(f"{folder / _ENVIRONMENT_FILE}: {error}", "write NAME=value in each line") from None
    return ComposeContext(str(folder), values | shell, read, locate, tuple(unset))


def _find_override_files(compose: Path) -> list[str]:
    """Return a text for each existing override file, which an engine would read in addition to this file."""
    names = (f"{compose.stem}.override{suffix}" for suffix in (".yaml", ".yml"))
    existing = [name for name in names if (compose.parent / name).exists()]
    what = "which engines read, too: `docker compose config` writes one file of all"
    return [f"left out: {name}, {what}" for name in existing]


def parse_compose(text: str, source: str) -> object:
    """Parse the YAML of a Compose file; raises UsageError, which names `source`, if it is not YAML or too large."""
    try:
        document = yaml.load(text, _Loader)  # noqa: S506 - it is a safe loader
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise UsageError(f"{source}: {line}not YAML: {error.problem}", "give a compose file") from None
    except (yaml.YAMLError, RecursionError, ValueError, TypeError) as error:
        message = str(error).partition("\n")[0][:200]
        raise UsageError(f"{source}: not YAML: {message}", "give a compose file") from None
    if _count_values(document, {}) > _MAX_VALUES:
        raise UsageError(f"{source}: its aliases make more than {_MAX_VALUES:,} values", "give a compose file")
    return document


def _count_values(value: object, counted: dict[int, float]) -> float:
    """Return the number of values in a document with all aliases expanded; infinite for a value within itself.

    Aliases of aliases can expand a small file to billions of values ("billion laughs").
    """
    if not isinstance(value, dict | list):
        return 1
    if id(value) not in counted:
        counted[id(value)] = math.inf
        parts = value if isinstance(value, list) else (*value, *value.values())
        counted[id(value)] = 1 + sum(_count_values(each, counted) for each in parts)
    return counted[id(value)]


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # PyYAML has no types
    """YAML loader that reads plain scalars as text, except null, true and false.

    PyYAML follows YAML 1.1, in which `22:22` is the number 1342 and `no` is false. Engines read a port and a text.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


for _kind, _pattern, _first in (
    ("bool", "true|True|TRUE|false|False|FALSE", "tTfF"),
    ("null", "~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", "<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(f"^(?:{_pattern})$"), list(_first))

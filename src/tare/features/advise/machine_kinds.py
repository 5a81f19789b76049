"""Reads a file of machine kinds: what a machine of each costs, and how many CPUs and how much memory it has.

[machines.small]
price = "0.05/h"
cpus = 2
memory = "4GiB"
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from tare.features.advise.capacity import Kind
from tare.model.errors import UsageError, unreadable
from tare.model.files import TooLarge, contents
from tare.model.units import Size, parse_rate
from tare.suites.document import parse_tables

PER = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MOST_BYTES = 1 << 20
_HINT = 'a kind is a table such as [machines.small] with price = "0.05/h", cpus = 2, memory = "4GiB" (docs/advice.md)'


def _hourly(text: object) -> float:
    return round(parse_rate(text if isinstance(text, str) else "", PER) * PER["h"], 9)


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class _Table:
    price: Annotated[float, BeforeValidator(_hourly)]
    cpus: Annotated[int, Field(ge=1, le=65536, strict=True)]
    memory: Size | None = None


_TABLES = TypeAdapter(dict[Annotated[str, Field(min_length=1, max_length=40)], _Table])


def read_kinds(path: Path) -> tuple[Kind, ...]:
    """Read a file of machine kinds, which may be untrusted; raises UsageError or SuiteError."""
    try:
        text = contents(path, _MOST_BYTES).decode("utf-8-sig")
    except TooLarge:
        raise UsageError(f"{path}: more than 1 MiB, and no kinds of machines", _HINT) from None
    except (OSError, UnicodeDecodeError) as error:
        fault = unreadable(path, error, "give the path of a file with kinds of machines")
        raise UsageError(fault.what, fault.hint) from None
    whole: dict[str, Any] = parse_tables(text, str(path))
    if unknown := sorted(whole.keys() - {"machines"}):
        raise UsageError(f"{path}: unknown key {unknown[0]!r:.60}", _HINT)
    try:
        tables = _TABLES.validate_python(whole.get("machines", {}))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in ("machines", *first["loc"]))
        raise UsageError(f"{path}: {place:.80}: {first['msg'].removeprefix('Value error, ')}", _HINT) from None
    if not tables:
        raise UsageError(f"{path}: has no kind of machine", _HINT)
    return tuple(Kind(each.cpus, each.price, each.memory, name) for name, each in tables.items())

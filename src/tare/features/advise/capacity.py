"""Number and hourly cost of machines that a load needs, with response times (M/M/c), and the file of machine types.

Requests arrive at random, each uses one of c CPUs, and a request that finds all CPUs busy waits (Kleinrock, "Queueing
Systems", volume 1, Wiley 1975, section 3.5). The service time of the queue is the CPU time of a request. Let a = rate ·
service time be the offered load, and b the share of requests that would be lost if none could wait (Erlang B, by its
recursion in c). The share of requests that wait is

    C = b / (1 - (a / c) (1 - b))

and their mean waiting time is service time / (c - a).

A file of machine types has a table for each type:

    [machines.small]
    price = "0.05/h"
    cpus = 2
    memory = "4GiB"
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from tare.model.errors import UsageError, describe_unreadable
from tare.model.files import FileTooLarge, read_bounded
from tare.model.units import Size, parse_rate
from tare.suites.document import parse_tables

SECONDS_PER_UNIT = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_MAX_BYTES = 1 << 20
_HINT = 'write a table such as [machines.small] with price = "0.05/h", cpus = 2, memory = "4GiB" (docs/advice.md)'


def response_seconds(requests_per_second: float, cpu_seconds: float, cpus: int) -> float | None:
    """Return the mean time from a request to its response; None if the CPUs cannot keep up with the rate.

    `cpu_seconds` is the CPU time of a request.
    """
    offered = requests_per_second * cpu_seconds
    if offered >= cpus:
        return None
    blocked = 1.0
    for number in range(1, cpus + 1):
        blocked = offered * blocked / (number + offered * blocked)
    waiting = blocked / (1 - offered / cpus * (1 - blocked))
    return cpu_seconds + waiting * cpu_seconds / (cpus - offered)


@dataclass(frozen=True)
class MachineType:
    """Machine type: its number of CPUs, its price and its memory.

    The CPUs are as fast as those of the machine on which `tare prices` measured the unit costs, because the CPU time of
    a request follows from these. `hourly` is the price of one machine for an hour, named as in the JSON output, in any
    currency. None stands for an unknown price or memory, "" for a type without a name.
    """

    cpus: int
    hourly: float | None = None
    memory_bytes: int | None = None
    name: str = ""


@dataclass(frozen=True)
class MachinePlan:
    """Number of machines of one type that a load needs.

    Each machine runs one instance, and all instances get equal shares of the load. `busy` is the share of the machines'
    CPU time that the load uses. `response_seconds` is the mean time from a request to its response, if requests wait
    for CPUs but not for disks or other services. It is infinite if rounding makes the load as large as the CPUs.
    """

    machine_type: MachineType
    count: int
    busy: float
    response_seconds: float

    @property
    def hourly(self) -> float | None:
        """The hourly price of all machines; None if unknown."""
        return None if self.machine_type.hourly is None else self.count * self.machine_type.hourly


def plan_machines(machine_type: MachineType, requests_per_second: float, cpu_seconds: float) -> MachinePlan:
    """Return the plan with the fewest machines of a type that keep up with the rate.

    `cpu_seconds` is the CPU time of a request.
    """
    count = math.floor(requests_per_second * cpu_seconds / machine_type.cpus) + 1
    busy = requests_per_second * cpu_seconds / (count * machine_type.cpus)
    seconds = response_seconds(requests_per_second / count, cpu_seconds, machine_type.cpus)
    return MachinePlan(machine_type, count, busy, math.inf if seconds is None else seconds)


def find_cheapest_plan(
    machine_types: Iterable[MachineType], requests_per_second: float, cpu_seconds: float, memory_bytes: int | None
) -> MachinePlan | None:
    """Return the plan with the lowest price, of equal prices the one with the fewest machines.

    Machine types with less memory than `memory_bytes`, which an instance needs, are excluded. None stands for an
    unknown need, which excludes no type. If any remaining type has a price, types without a price are excluded, too. If
    no type has a price, return the plan with the fewest machines. Return None if no type has enough memory.
    """
    plans = [
        plan_machines(machine_type, requests_per_second, cpu_seconds)
        for machine_type in machine_types
        if machine_type.memory_bytes is None or memory_bytes is None or memory_bytes <= machine_type.memory_bytes
    ]
    priced = [plan for plan in plans if plan.hourly is not None]
    return min(priced or plans, key=lambda plan: (plan.hourly or 0.0, plan.count, plan.response_seconds), default=None)


def _parse_hourly_price(text: object) -> float:
    # Rounded, because the conversion to a price per second and back changes 0.12/h to 0.12000000000000001.
    return round(parse_rate(text if isinstance(text, str) else "", SECONDS_PER_UNIT) * SECONDS_PER_UNIT["h"], 9)


@checked_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class _MachineTypeTable:
    price: Annotated[float, BeforeValidator(_parse_hourly_price)]
    cpus: Annotated[int, Field(ge=1, le=65536, strict=True)]
    memory: Size | None = None


_TABLES = TypeAdapter(dict[Annotated[str, Field(min_length=1, max_length=40)], _MachineTypeTable])


def read_machine_types(path: Path) -> tuple[MachineType, ...]:
    """Read a file of machine types, which may be untrusted.

    Raises SuiteError for text that is not TOML, and UsageError for a file that is unreadable, too large or has a wrong
    key or value.
    """
    try:
        text = read_bounded(path, _MAX_BYTES).decode("utf-8-sig")
    except FileTooLarge:
        raise UsageError(f"{path}: more than 1 MiB, and no machine types", _HINT) from None
    except (OSError, UnicodeDecodeError) as error:
        fault = describe_unreadable(path, error, "give the path of a file with machine types")
        raise UsageError(fault.message, fault.hint) from None
    whole: dict[str, Any] = parse_tables(text, str(path))
    if unknown := sorted(whole.keys() - {"machines"}):
        raise UsageError(f"{path}: unknown key {unknown[0]!r:.60}", _HINT)
    try:
        tables = _TABLES.validate_python(whole.get("machines", {}))
    except ValidationError as error:
        first = error.errors()[0]
        location = ".".join(str(part) for part in ("machines", *first["loc"]))
        raise UsageError(f"{path}: {location:.80}: {first['msg'].removeprefix('Value error, ')}", _HINT) from None
    if not tables:
        raise UsageError(f"{path}: has no machine type", _HINT)
    return tuple(MachineType(each.cpus, each.price, each.memory, name) for name, each in tables.items())

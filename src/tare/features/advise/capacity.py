"""Number and hourly cost of machines that a load needs, with response times (M/M/c), and the file of machine types.

Requests arrive at random, each uses one of c CPUs, and a request that finds all CPUs busy waits (Kleinrock, "Queueing
Systems", volume 1, Wiley 1975, section 3.5). Let a = rate · service time be the offered load, and b the share of
requests that would be lost if none could wait (Erlang B, by its recursion in c). The share of requests that wait is

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


def response_seconds(requests_per_second: float, service_seconds: float, cpus: int) -> float | None:
    """Return the mean time from a request to its response; None if the CPUs cannot keep up with the rate."""
    offered = requests_per_second * service_seconds
    if offered >= cpus:
        return None
    blocked = 1.0
    for number in range(1, cpus + 1):
        blocked = offered * blocked / (number + offered * blocked)
    waiting = blocked / (1 - offered / cpus * (1 - blocked))
    return service_seconds + waiting * service_seconds / (cpus - offered)


@dataclass(frozen=True)
class MachineType:
    """Machine type with CPUs like those of the price list; `hourly` is its price. None stands for unknown."""

    cpus: int
    hourly: float | None = None
    memory_bytes: int | None = None
    name: str = ""


@dataclass(frozen=True)
class MachinePlan:
    """Machines of a type for a load, which is spread evenly over one instance on each machine.

    `busy` is the share of CPU time in use. `response_seconds` is the mean time from a request to its response,
    without waits for anything but CPUs.
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
    """Return the fewest machines of a type that keep up with the rate; a request uses `cpu_seconds`."""
    count = math.floor(requests_per_second * cpu_seconds / machine_type.cpus) + 1
    busy = requests_per_second * cpu_seconds / (count * machine_type.cpus)
    seconds = response_seconds(requests_per_second / count, cpu_seconds, machine_type.cpus)
    return MachinePlan(machine_type, count, busy, math.inf if seconds is None else seconds)


def find_cheapest_plan(
    machine_types: Iterable[MachineType], requests_per_second: float, cpu_seconds: float, memory_bytes: int | None
) -> MachinePlan | None:
    """Return the cheapest plan, or the plan with the fewest machines if there are no prices.

    Return None if no machine type has the memory.
    """
    plans = [
        plan_machines(machine_type, requests_per_second, cpu_seconds)
        for machine_type in machine_types
        if machine_type.memory_bytes is None or memory_bytes is None or memory_bytes <= machine_type.memory_bytes
    ]
    return min(plans, key=lambda plan: (plan.hourly or 0.0, plan.count, plan.response_seconds), default=None)


def _parse_hourly_price(text: object) -> float:
    # Rounded, because the way to a second and back loses the last digit: 0.12/h would become 0.12000000000000001.
    return round(parse_rate(text if isinstance(text, str) else "", SECONDS_PER_UNIT) * SECONDS_PER_UNIT["h"], 9)


@checked_dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class _MachineTypeTable:
    price: Annotated[float, BeforeValidator(_parse_hourly_price)]
    cpus: Annotated[int, Field(ge=1, le=65536, strict=True)]
    memory: Size | None = None


_TABLES = TypeAdapter(dict[Annotated[str, Field(min_length=1, max_length=40)], _MachineTypeTable])


def read_machine_types(path: Path) -> tuple[MachineType, ...]:
    """Read a file of machine types, which may be untrusted; raises UsageError or SuiteError."""
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

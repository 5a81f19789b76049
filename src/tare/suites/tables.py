"""Run-wide tables of a suite, and limits that shorten workload settings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_type_hints

from pydantic import Field, TypeAdapter

from tare.model.trial import LimitsWanted, Lowered
from tare.model.units import Duration, Margin, Size, counted, format_duration, format_size, written
from tare.plugins.workload import Workload

Until = Literal["decided", "blocks"]
PRECISION = 0.1


@dataclass(frozen=True)
class SuiteTable:
    """The table `[suite]`. 30 blocks are the replication of the papers."""

    stacks: Annotated[tuple[str, ...], Field(min_length=1)]
    name: str = ""
    baseline: str = ""
    blocks: Annotated[int, Field(ge=1, le=10_000)] = 30
    until: Until = "decided"
    rounds: Annotated[int, Field(ge=1, le=10_000)] | Literal["auto"] = "auto"
    budget: Annotated[Duration, Field(gt=0)] | None = None
    margin: Margin = 0.03
    precision: Margin = PRECISION
    seed: Annotated[int, Field(ge=0)] = 1


@dataclass(frozen=True)
class LimitsTable:
    """The table `[limits]`."""

    cpus: Annotated[int, Field(ge=1)] = LimitsWanted.cpus
    memory: Annotated[Size, Field(gt=0)] = LimitsWanted.memory_bytes
    open_files: Annotated[int, Field(ge=1)] = LimitsWanted.open_files
    time: Annotated[Duration, Field(gt=0)] | None = None


@dataclass(frozen=True)
class BoundsTable:
    """The table `[workloads.limits]`: what is left out is as in `[limits]`."""

    cpus: Annotated[int, Field(ge=1)] | None = None
    memory: Annotated[Size, Field(gt=0)] | None = None
    time: Annotated[Duration, Field(gt=0)] | None = None


@dataclass(frozen=True)
class TelemetryTable:
    """The table `[telemetry]`."""

    every: Annotated[Duration, Field(ge=0.01, le=3600)] = 0.1


_SHORTEST_SECONDS = 0.02  # a shorter measurement is no turn


def bounded(workload: Workload, limits: LimitsWanted) -> tuple[Workload, tuple[Lowered, ...]]:
    """Return a workload with settings that fit these limits, and what was lowered for it.

    Raises ValueError with the reason if there are no such settings.
    """
    plain: Any = workload  # plug-ins are dataclasses; their common class is none
    fitting: Workload = replace(plain, **workload.within(limits))
    has = f"{counted(limits.cpus, 'CPU')} and {format_size(limits.memory_bytes)} of memory"
    lowered = _lowered(workload, fitting, f"an instance has {has}")
    if limits.seconds is None or fitting.seconds() <= limits.seconds:
        return fitting, lowered
    shorter = _shortened(fitting, limits.seconds)
    time = f"a trial may measure for {format_duration(limits.seconds)}"
    return shorter, (*lowered, *_lowered(fitting, shorter, time))


def _lowered(before: Workload, after: Workload, bound: str) -> tuple[Lowered, ...]:
    return tuple(
        Lowered(name, written(asked, kind), written(used, kind), bound)
        for name, asked in vars(before).items()
        if (used := vars(after)[name]) != asked and (kind := _kind(before, name))
    )


def _kind(workload: Workload, setting: str) -> Any:
    return get_type_hints(type(workload), include_extras=True)[setting]


def _shortened(workload: Workload, seconds: float) -> Workload:
    """Lower the setting that decides how long the workload takes, to the most that fits, in two digits."""
    name = workload.shortened_by
    shortest: Workload = workload
    if name in vars(workload):
        kind = _kind(workload, name)
        read = TypeAdapter(kind).validate_python
        plain: Any = workload  # as above
        for fewer in _below(getattr(workload, name)):
            try:  # what the setting itself refuses is no choice
                shortest = replace(plain, **{name: read(json.loads(written(fewer, kind)))})
            except ValueError:
                continue
            if shortest.seconds() <= seconds:
                return shortest
    least = format_duration(shortest.seconds())
    raise ValueError(f"takes about {least} at the least, and may take {format_duration(seconds)}")


def _below(value: float) -> Iterator[float]:
    """Yield the numbers of two digits below a value, the largest first: whole ones below a whole one."""
    for power in range(12, -4, -1):
        for digits in range(99, 9, -1):
            number = digits * 10**power if power >= 0 else digits / 10**-power
            if number >= value:
                continue
            if isinstance(value, int) and number % 1 == 0:
                yield int(number)
            elif isinstance(value, float) and number >= _SHORTEST_SECONDS:
                yield float(number)

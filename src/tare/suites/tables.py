"""The tables of a suite that have settings of the whole run, as they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from tare.model.trials import LimitsWanted
from tare.units import Duration, Margin, Size

Until = Literal["decided", "blocks"]
PRECISION = 0.1


def _not_nothing(quantity: float) -> float:
    if quantity <= 0:
        raise ValueError("write more than 0, or leave it out")
    return quantity


@dataclass(frozen=True)
class SuiteTable:
    """The table `[suite]`. 30 blocks are the replication of the papers."""

    stacks: Annotated[tuple[str, ...], Field(min_length=1)]
    name: str = ""
    baseline: str = ""
    blocks: Annotated[int, Field(ge=1, le=10_000)] = 30
    until: Until = "decided"
    rounds: Annotated[int, Field(ge=1, le=10_000)] | Literal["auto"] = "auto"
    budget: Annotated[Duration, AfterValidator(_not_nothing)] | None = None
    margin: Margin = 0.03
    precision: Margin = PRECISION
    seed: Annotated[int, Field(ge=0)] = 1


@dataclass(frozen=True)
class LimitsTable:
    """The table `[limits]`."""

    cpus: Annotated[int, Field(ge=1)] = LimitsWanted.cpus
    memory: Annotated[Size, AfterValidator(_not_nothing)] = LimitsWanted.memory_bytes
    open_files: Annotated[int, Field(ge=1)] = LimitsWanted.open_files
    time: Annotated[Duration, AfterValidator(_not_nothing)] | None = None


@dataclass(frozen=True)
class BoundsTable:
    """The table `[workloads.limits]`: what is left out is as in `[limits]`."""

    cpus: Annotated[int, Field(ge=1)] | None = None
    memory: Annotated[Size, AfterValidator(_not_nothing)] | None = None
    time: Annotated[Duration, AfterValidator(_not_nothing)] | None = None


def _not_too_often(seconds: float) -> float:
    if not 0.01 <= seconds <= 3600:
        raise ValueError('write a duration from 10ms to 1h, for example "100ms"')
    return seconds


@dataclass(frozen=True)
class TelemetryTable:
    """The table `[telemetry]`."""

    every: Annotated[Duration, AfterValidator(_not_too_often)] = 0.1

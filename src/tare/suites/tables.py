"""The tables of a suite that have settings of the whole run, as they are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from tare.model.trials import LimitsWanted
from tare.units import Duration, Margin, Size

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

"""A workload for tests: one load that prints a speed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tare.model.trial import Metric, RawOutput, Value
from tare.plugins.workload import MeasurementContext, Workload


@dataclass(frozen=True)
class Plain(Workload):
    """Measures 100 requests a second, whatever runs."""

    name: ClassVar[str] = "plain"
    title: ClassVar[str] = "Plain"
    metrics: ClassVar[tuple[Metric, ...]] = (Metric("speed", "Speed", "requests/s", "higher"),)

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:  # noqa: ARG002 - nobody is asked
        yield RawOutput("all", ("load",), "100", 0.1)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        return (Value("speed", None, float(raw[0].text)),)

    def estimate_seconds(self) -> float:
        return 0.0

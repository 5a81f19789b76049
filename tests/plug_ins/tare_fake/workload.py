"""odd: a workload with a bug, made up for the tests of tare itself. It runs nothing.

Its setting `gives` says what of its only value, or of its raw output, is no number that a run can hold.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tare.model.trial import Metric, RawOutput, Value
from tare.plugins.workload import MeasurementContext, Workload

_NAN, _INFINITY = float("nan"), float("inf")
_VALUES: dict[str, tuple[Any, Any]] = {  # the point and the value
    "nan": (None, _NAN),
    "infinity": (1.0, _INFINITY),
    "object": (None, object()),
    "integer": (None, np.int64(5)),
    "point": (_NAN, 5.0),
}


@dataclass(frozen=True)
class Odd(Workload):
    """Gives what a run cannot hold, for the tests of tare itself."""

    name = "odd"
    title = "odd, measures nothing"
    metrics = (Metric("speed", "Speed", "runs/s", "higher"),)
    runs_inside = False

    gives: Literal["", "nan", "infinity", "object", "integer", "point", "text", "seconds", "argv", "surrogate"] = ""

    def measure(self, setup: MeasurementContext) -> Iterable[RawOutput]:  # noqa: ARG002 - as workloads are asked
        """Return one output, in which something may be wrong."""
        seconds = _INFINITY if self.gives == "seconds" else 0.5
        argv: Any = (object(),) if self.gives == "argv" else ("odd",)
        text = "\udc80" if self.gives == "surrogate" else "speed: 5\n"
        given: Any = text if self.gives == "text" else RawOutput("odd", argv, text, seconds)
        return (given,)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:  # noqa: ARG002 - likewise
        """Return the value."""
        return (Value("speed", *_VALUES.get(self.gives, (None, 5.0))),)

    def estimate_seconds(self) -> float:
        """Nothing: it runs nothing."""
        return 0.0

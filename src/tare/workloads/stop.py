"""Stop: the time from the request to end an instance until nothing of it is left.

Each measurement stops a fresh instance without a server. The request closes the standard input of the instance's main
process, which then exits; an engine is told to remove the container, and the monitor of a guest is killed. The time
ends when all processes of the instance are gone, and the network namespace and the mounts that tare made for it; not
those that an engine names and removes by itself. It includes the steps by which tare removes what it made: bare metal
(`native`) shows how long these take.

Settings: `stops`, the maximum number of stops in a block.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from tare.loads.parsing import check_labels
from tare.model.lifecycle import duration_metrics, format_durations, parse_durations
from tare.model.trial import RawOutput, Value
from tare.plugins.workload import MeasurementContext, Workload

_LABEL = "stop"
_MOST_SECONDS = 10.0  # of all stops of a trial, with the starts before them
_USUAL_SECONDS = 0.3  # estimate of a start and a stop


@dataclass(frozen=True)
class InstanceStop(Workload):
    """Time from the request to stop an instance until nothing of it is left."""

    name = "stop"
    title = "Stop"
    metrics = duration_metrics("Time until nothing is left")
    runs_inside = False
    instances_at_once = 2

    stops: Annotated[int, Field(ge=1, le=100)] = 16

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Start and stop instances one after the other; yield the durations of the stops."""
        starter, began, seconds = setup.require_starter(self.name), time.monotonic(), list[float]()
        while len(seconds) < self.stops and (not seconds or time.monotonic() - began < _MOST_SECONDS):
            seconds.append(starter.measure_stop())
        yield RawOutput(_LABEL, (), format_durations(seconds), time.monotonic() - began)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the percentiles; raises TrialFailed for other output."""
        check_labels(raw, [_LABEL])
        return parse_durations(raw[0].text)

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`."""
        return min(_MOST_SECONDS, self.stops * _USUAL_SECONDS)

"""Start-up in a burst: the time to the first answer of instances that are all requested at once.

At each concurrency, that many instances without a server are requested together, and removed when all have answered.
Small bursts are repeated, so that each concurrency has about as many starts as the largest one. The time of an instance
begins with its own request, and ends with the first byte that `init` sends to the client. The CPU time is that of the
whole machine, divided by the instances: engines work outside of the instances, and tare's own share, which bare metal
shows, is part of it. All instances are pinned to the CPUs of the suite's limits, as in all workloads; engines are not.

An instance that does not start is no failure of the trial. It lowers the metric `started`, and a caution has the
reason. The trial's first instance has started before, so that caches are warm.

Settings: `concurrency`, the numbers of instances that are requested at once; `stagger`, the time between two requests.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from tare.hosts.network import SLOTS
from tare.loads.parsing import check_labels, rising_check
from tare.model.errors import TrialFailed, quote_output
from tare.model.lifecycle import Burst, compute_percentiles, duration_metrics
from tare.model.trial import Caution, Metric, RawOutput, Sweep, Value
from tare.model.units import Duration
from tare.plugins.workload import InstanceStarter, MeasurementContext, Workload

_MOST_SECONDS = 10.0  # of repetitions at one concurrency
_USUAL_SECONDS = 0.1  # estimate of a start in a burst
_BURSTS = TypeAdapter(Annotated[tuple[Burst, ...], Field(min_length=1)])
_HINT = "`tare show` has the whole output"


@dataclass(frozen=True)
class StartupBurst(Workload):
    """Time to the first answer of instances that are requested at once."""

    name = "startup-burst"
    title = "Start-up in a burst"
    metrics = (
        *duration_metrics("Time to the first answer"),
        Metric("slowest", "Time to the first answer of the slowest", "s", "lower", headline=False),
        Metric("cpu", "CPU time of the machine for each instance", "s", "lower", headline=False),
        Metric("started", "Instances that started", "instances", "higher", headline=False),
    )
    sweep = Sweep("instances")
    runs_inside = False

    concurrency: Annotated[tuple[int, ...], AfterValidator(rising_check("numbers of instances", 1, SLOTS - 1))] = (
        *(1, 4, 16),
    )
    stagger: Annotated[Duration, Field(ge=0, le=60)] = 0.0

    @property
    def instances_at_once(self) -> int:
        """Most instances that are alive at the same time: the largest burst, and the trial's first instance."""
        return self.concurrency[-1] + 1

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Run the bursts of each concurrency; yield their starts and the CPU time as JSON."""
        starter = setup.require_starter(self.name)
        for count in self.concurrency:
            began = time.monotonic()
            bursts = _BURSTS.dump_json((*self._run_bursts(starter, count, began),), exclude_defaults=True).decode()
            yield RawOutput(_label(count), (), f"{bursts}\n", time.monotonic() - began)

    def _run_bursts(self, starter: InstanceStarter, count: int, began: float) -> Iterator[Burst]:
        """Run bursts of `count` instances until there are as many starts as in the largest burst."""
        for _ in range(max(1, self.concurrency[-1] // count)):
            yield starter.start_burst(count, self.stagger)
            if time.monotonic() - began >= _MOST_SECONDS:
                return

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the values of each concurrency; raises TrialFailed if no instance of one started."""
        check_labels(raw, [_label(count) for count in self.concurrency])
        return [value for count, each in zip(self.concurrency, raw, strict=True) for value in _read_bursts(count, each)]

    def find_cautions(self, raw: Sequence[RawOutput]) -> Sequence[Caution]:
        """Return a caution with the number of starts that failed, and the reason of the first."""
        bursts = [burst for each in raw for burst in _BURSTS.validate_json(each.text, strict=True)]
        starts = [start for burst in bursts for start in burst.starts]
        reasons = [start.reason for start in starts if start.seconds is None]
        what = f"{len(reasons)} of {len(starts)} instances did not start: {reasons[0]}" if reasons else ""
        return (Caution("failed-starts", what),) if what else ()

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`."""
        starts = sum(max(count, self.concurrency[-1]) for count in self.concurrency)
        return starts * (_USUAL_SECONDS + self.stagger)


def _label(count: int) -> str:
    return f"burst {count}"


def _read_bursts(count: int, raw: RawOutput) -> Iterator[Value]:
    """Yield the values of the bursts of one concurrency; raises TrialFailed for other output."""
    try:
        bursts = _BURSTS.validate_json(raw.text, strict=True)
    except ValidationError as error:
        raise TrialFailed(f"expected bursts of {count} starts; {quote_output(raw.text)}", _HINT) from error
    if any(len(burst.starts) != count for burst in bursts):
        raise TrialFailed(f"expected bursts of {count} starts; {quote_output(raw.text)}", _HINT)
    starts = [start for burst in bursts for start in burst.starts]
    ready = [start.seconds for start in starts if start.seconds is not None]
    if not ready:
        raise TrialFailed(f"none of {count} instances started: {starts[0].reason}", _HINT)
    point = float(count)
    yield from compute_percentiles(ready, point)
    yield Value("slowest", point, max(ready))
    if used_seconds := sum(burst.cpu_seconds for burst in bursts):
        yield Value("cpu", point, used_seconds / len(starts))
    yield Value("started", point, len(ready) / len(bursts))

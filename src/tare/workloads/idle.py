"""idle: memory of an instance in which nothing runs, and the size of the image that it was started from.

VTmark (section 5, "Idle State", Table 4) gives the used share of the machine's memory. For VirtualBox and VMware it
adds the memory that the guest reports to the memory that the machine uses without the guest. Here the same figure is
measured for every technology: the proportional set size of all processes of the instance on the host, including its
monitor, and the kernel memory of its control group, if the kernel counts it. A separate metric is the used memory that
a guest with a private kernel reports. It leaves out the monitor, and pages that the guest has used before.

The image's size is that of the format in which the technology stores it: a folder, an engine's layer, or a disk with
its kernel. The page cache counts in neither.

Settings: `settle`, the idle time before the measurement.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from tare.loads.parsing import check_labels
from tare.model.errors import TrialFailed, quote_output
from tare.model.trial import Metric, RawOutput, Value
from tare.model.units import Duration
from tare.plugins.workload import MeasurementContext, Workload

_MAX_BYTES = 2**63 - 1
_Bytes = Annotated[int, Field(gt=0, le=_MAX_BYTES)]


@dataclass(frozen=True)
class IdleFootprint:
    """Bytes of an idle instance; None for those that the host does not report."""

    memory_bytes: _Bytes
    kernel_bytes: Annotated[int, Field(ge=0, le=_MAX_BYTES)] | None
    reported_bytes: _Bytes | None
    image_bytes: _Bytes | None


_IDLE_FOOTPRINT = TypeAdapter(IdleFootprint)


@dataclass(frozen=True)
class Idle(Workload):
    """Memory of an instance in which nothing runs."""

    name = "idle"
    title = "Idle: memory with nothing running"
    metrics = (
        Metric("memory", "Memory of an idle instance", "bytes", "lower", overall=False),
        Metric("process_memory", "Memory of its processes", "bytes", "lower", headline=False),
        Metric("kernel_memory", "Kernel memory", "bytes", "lower", headline=False),
        Metric("reported", "Memory in use as the guest reports it", "bytes", "lower", headline=False),
        Metric("image", "Image on the disk", "bytes", "lower", headline=False),
    )
    runs_inside = False
    duration_setting = "settle"

    settle: Annotated[Duration, Field(ge=0, le=600)] = 2.0

    def measure(self, setup: MeasurementContext) -> Iterator[RawOutput]:
        """Wait, then read the footprint of the instance; raises TrialFailed if the host does not report it."""
        if setup.instance_starter is None:
            raise TrialFailed("idle asks for the cost of all instances", "this is a bug: it must have a single round")
        setup.client.run("sleep", f"{self.settle:g}", timeout=self.settle + 30)
        found = setup.instance_starter.measure_footprint()
        if found.memory_bytes is None:
            raise TrialFailed(f"{setup.instance.name}: its host does not report the memory of its processes")
        cost = IdleFootprint(found.memory_bytes, found.kernel_bytes, found.reported_bytes, setup.instance.image_bytes())
        yield RawOutput("cost", (), json.dumps(asdict(cost)) + "\n", 0.0)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the bytes by metric; raises TrialFailed for missing or impossible ones."""
        check_labels(raw, ["cost"])
        try:
            cost = _IDLE_FOOTPRINT.validate_json(raw[0].text, strict=True)
        except ValidationError as error:
            what = f"not the memory of an instance; {quote_output(raw[0].text)}"
            raise TrialFailed(what, "`tare show` has the raw output") from error
        found = {
            "memory": cost.memory_bytes + (cost.kernel_bytes or 0),
            "process_memory": cost.memory_bytes,
            "kernel_memory": cost.kernel_bytes,
            "reported": cost.reported_bytes,
            "image": cost.image_bytes,
        }
        return tuple(Value(metric, None, value) for metric, value in found.items() if value is not None)

    def estimate_seconds(self) -> float:
        """Estimate the seconds of `measure`."""
        return self.settle

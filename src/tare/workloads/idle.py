"""idle: the memory of an instance in which nothing runs, and the size of the image that it was started from.

VTmark (section 5, "Idle State", Table 4) gives the share of the machine's memory that is in use, and for VirtualBox and
VMware adds what the guest reports to what the machine uses without it. Here one figure is taken of every technology in
the same way: the proportional set size of all processes that the instance costs the host, its monitor among them, and
the kernel memory that its control group is charged where the kernel counts that. Beside it is what the guest itself
reports as used, where it has a kernel of its own: that leaves out its monitor, and pages that it once used.

The image's size is that of the form in which the technology keeps it: a folder, an engine's layer, or a disk with its
kernel. The caches of files count in neither.

Settings: `settle`, how long nothing runs before.
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
    """The bytes of an idle instance; None where the host does not report them."""

    memory_bytes: _Bytes
    kernel_bytes: Annotated[int, Field(ge=0, le=_MAX_BYTES)] | None
    reported_bytes: _Bytes | None
    image_bytes: _Bytes | None


_IDLE_FOOTPRINT = TypeAdapter(IdleFootprint)


@dataclass(frozen=True)
class Idle(Workload):
    """Memory of an instance with nothing running."""

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
        """Wait, and read what the instance costs and reports; raises TrialFailed where the host does not report it."""
        if setup.instance_starter is None:
            raise TrialFailed("idle asks for the cost of all instances", "this is a bug: it has a single round")
        setup.client.run("sleep", f"{self.settle:g}", timeout=self.settle + 30)
        found = setup.instance_starter.measure_footprint()
        if found.memory_bytes is None:
            raise TrialFailed(f"{setup.instance.name}: its host does not report the memory of its processes")
        cost = IdleFootprint(found.memory_bytes, found.kernel_bytes, found.reported_bytes, setup.instance.image_bytes())
        yield RawOutput("cost", (), json.dumps(asdict(cost)) + "\n", 0.0)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Read the bytes; raises TrialFailed if any are missing or absurd."""
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

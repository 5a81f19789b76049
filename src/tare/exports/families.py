"""The families of metrics that Prometheus is given, and which column of the telemetry is in which of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from tare.exports.samples import Labels, Sample

_ESCAPED = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True)
class Family:
    """A family of metrics. Its unit, if it has one, is the end of its name."""

    name: str
    kind: Literal["counter", "gauge"]
    unit: str
    about: str

    @property
    def metric(self) -> str:
        """The name of its samples."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


CPU = Family("tare_cpu_seconds", "counter", "seconds", "CPU time of all CPUs; softirq is part of system.")
EACH_CPU = Family("tare_each_cpu_seconds", "counter", "seconds", "CPU time of each CPU; softirq is part of system.")
MEMORY = Family(
    "tare_memory_bytes",
    "gauge",
    "bytes",
    "Of a host, memory that is not available; of an instance, resident set sizes.",
)
CHARGED = Family("tare_charged_bytes", "gauge", "bytes", "Memory charged to the control group, with the page cache.")
SWAP = Family("tare_swap_bytes", "gauge", "bytes", "What lies in swap.")
SWAPPED = Family("tare_swapped_bytes", "counter", "bytes", "What came back from swap (in), or went there (out).")
DISK = Family("tare_disk_bytes", "counter", "bytes", "Bytes that disks read and wrote.")
DISK_OPERATIONS = Family("tare_disk_operations", "counter", "", "Reads and writes that disks have done.")
DISK_BUSY = Family("tare_disk_busy_seconds", "counter", "seconds", "Time in which disks were at work.")
NETWORK = Family("tare_network_bytes", "counter", "bytes", "Bytes received and sent.")
PACKETS = Family("tare_network_packets", "counter", "", "Packets received and sent.")
SWITCHES = Family("tare_context_switches", "counter", "", "Context switches.")
INTERRUPTS = Family("tare_interrupts", "counter", "", "Interrupts served.")
PRESSURE = Family(
    "tare_pressure_seconds", "counter", "seconds", "Time in which some tasks, or all (full), waited for the resource."
)

COLUMNS: dict[str, tuple[Family, Labels]] = {
    **{f"cpu_{mode}": (CPU, (("mode", mode),)) for mode in ("user", "system", "iowait", "softirq", "steal")},
    "memory_bytes": (MEMORY, ()),
    "charged_bytes": (CHARGED, ()),
    "swap_bytes": (SWAP, ()),
    **{f"swap_{way}_bytes": (SWAPPED, (("direction", way),)) for way in ("in", "out")},
    **{f"disk_{way}_bytes": (DISK, (("direction", way),)) for way in ("read", "write")},
    **{f"disk_{way}s": (DISK_OPERATIONS, (("direction", way),)) for way in ("read", "write")},
    "disk_busy": (DISK_BUSY, ()),
    **{f"network_{way}_bytes": (NETWORK, (("direction", way),)) for way in ("receive", "send")},
    **{f"network_{way}_packets": (PACKETS, (("direction", way),)) for way in ("receive", "send")},
    "context_switches": (SWITCHES, ()),
    "interrupts": (INTERRUPTS, ()),
    "pressure_cpu": (PRESSURE, (("resource", "cpu"), ("share", "some"))),
    **{f"pressure_{name}": (PRESSURE, (("resource", name), ("share", "some"))) for name in ("memory", "io")},
    **{f"pressure_{name}_full": (PRESSURE, (("resource", name), ("share", "full"))) for name in ("memory", "io")},
}
"""The family of each column of the telemetry, and the labels that distinguish it from the others of that family."""

FAMILIES = (*dict.fromkeys(family for family, _ in COLUMNS.values()), EACH_CPU)


def measured(sample: Sample) -> Iterator[tuple[Family, Labels, float]]:
    """Yield the values of a sample, each with its family and the labels that it has besides the sample's."""
    for column, value in sample.values.items():
        if column in COLUMNS and math.isfinite(value):  # a newer tare may have others
            yield (*COLUMNS[column], value)
    for number, times in sample.cpus.items():
        for mode, value in times.items():
            if math.isfinite(value):
                yield EACH_CPU, (("cpu", str(number)), ("mode", mode)), value


def series(family: Family, *labels: Labels) -> str:
    """Write the name of a series with these labels together."""
    return f"{family.metric}{{{','.join(written for each in labels if (written := _written(each)))}}}"


@lru_cache(maxsize=1024)  # they come again with each sample
def _written(labels: Labels) -> str:
    return ",".join(f'{name}="{label_value(value)}"' for name, value in labels)


def label_value(text: str) -> str:
    """Escape the value of a label."""
    return text.translate(_ESCAPED)

"""OpenMetrics 1.0 with the times of the samples, as `promtool tsdb create-blocks-from openmetrics` reads it.

The text has all samples of a family of metrics together, and a run has them by time. So each family is written into
separate temporary files, and then one after the other: a run of any size takes little memory.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from tare.exports.samples import Labels, Sample

_CHUNK = 1 << 20
_MOST_WAITING = 50_000  # lines in memory
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


def _measured(sample: Sample) -> Iterator[tuple[Family, Labels, float]]:
    """Yield the values of a sample, each with its family and the labels that it has in addition to the sample's."""
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


class _Spool:
    """Texts by key, in files of a folder as soon as there are many."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[tuple[Family, Labels], Path] = {}
        self._waiting: dict[tuple[Family, Labels], list[str]] = {}
        self._count = 0

    def add(self, family: Family, labels: Labels, line: str) -> None:
        """Add a line to those of a family with these labels of its own."""
        self._waiting.setdefault((family, labels), []).append(line)
        self._count += 1
        if self._count >= _MOST_WAITING:
            self.flush()

    def flush(self) -> None:
        """Write what waits. A file is not kept open: there may be more than a process can have."""
        for key, lines in self._waiting.items():
            path = self._files.setdefault(key, self._folder / str(len(self._files)))
            with path.open("a", encoding="utf-8") as file:
                file.writelines(lines)
        self._waiting.clear()
        self._count = 0

    def texts(self, family: Family) -> Iterator[str]:
        """Yield the texts of a family, in pieces."""
        for path in [path for (each, _), path in self._files.items() if each == family]:
            with path.open(encoding="utf-8") as file:
                while text := file.read(_CHUNK):
                    yield text


def texts(samples: Iterable[Sample]) -> Iterator[str]:
    """Write samples, in pieces."""
    with tempfile.TemporaryDirectory(prefix="tare-export-") as folder:
        spool = _Spool(Path(folder))
        for sample in samples:
            seconds = f"{sample.nanoseconds / 1e9:.3f}"
            for family, own, value in _measured(sample):
                spool.add(family, own, f"{series(family, sample.labels, own)} {value!r} {seconds}\n")
        spool.flush()
        for family in FAMILIES:
            found = spool.texts(family)
            if (first := next(found, None)) is not None:
                yield _head(family)
                yield first
                yield from found
    yield "# EOF\n"


def _head(family: Family) -> str:
    unit = f"# UNIT {family.name} {family.unit}\n" if family.unit else ""
    return f"# TYPE {family.name} {family.kind}\n{unit}# HELP {family.name} {family.about}\n"

"""InfluxDB's line protocol, as servers 1.x and 2.x take it.

The measurement `tare` has a field for each column of the telemetry, `tare_cpu` the times of each CPU, with the tag
`cpu`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from tare.exports.samples import Labels, Sample

_MEASUREMENT, _EACH_CPU = "tare", "tare_cpu"
_SPECIAL = re.compile(r"([,= ])")
# The protocol has no way to write a line's end in a tag, nor a backslash before what it would escape.
_UNWRITABLE = re.compile(r"[\x00-\x1f\x7f\\]")


def lines(samples: Iterable[Sample]) -> Iterator[str]:
    """Write samples, each line with its end. Times are in nanoseconds, counts and bytes whole numbers."""
    for sample in samples:
        if line := _line(_MEASUREMENT, sample.labels, sample.values, sample.nanoseconds):
            yield line
        for number, times in sample.cpus.items():
            if line := _line(_EACH_CPU, (*sample.labels, ("cpu", str(number))), times, sample.nanoseconds):
                yield line


def _line(measurement: str, labels: Labels, values: Mapping[str, float], nanoseconds: int) -> str:
    tags = "".join(f",{name}={tag_value(value)}" for name, value in labels if value)
    fields = ",".join(f"{name}={_field(value)}" for name, value in values.items() if math.isfinite(value))
    return f"{measurement}{tags} {fields} {nanoseconds}\n" if fields else ""


def tag_value(text: str) -> str:
    """Escape the value of a tag; control characters become blanks, and backslashes become slashes."""
    written = _UNWRITABLE.sub(lambda match: "/" if match[0] == "\\" else " ", text)
    return _SPECIAL.sub(r"\\\1", written)


def _field(value: float) -> str:
    return f"{value}i" if isinstance(value, int) else repr(value)

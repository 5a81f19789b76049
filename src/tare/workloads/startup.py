"""Start-up: the time from the request for an instance to its first answer over the network.

Every trial has a timeline of its instance's start. This workload runs nothing, and makes the timeline's length a value.
The time begins when tare begins to create the instance (`requested`), after all work that several instances share. It
ends with the first byte that `init` sends to the client (`ready`), so that a slow network path counts. The moments in
between (`started`, `kernel`, `userspace`) are in the trial's timeline.

A stack is started several times in a block, in turns with the others, and the median counts. All starts of a stack in a
block share one second, so a stack that takes longer is started once. A warm start finds the pages in memory that
earlier starts have read; one start before the first block does not count. Before a cold start, the page cache of the
machine under test is written back and dropped. The bytes that its disks then read are a value, too, and a start that
reads nothing fails as not cold. Engines and all other programs of the machine keep the pages that they have mapped. No
paper measured starts.

Settings: `caches`, `warm` or `cold`; `starts`, the most starts of a stack in a block (default 12; a cold start is
always a single one).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

from tare.loads.parsing import check_labels
from tare.model.errors import TrialFailed, quote_output
from tare.model.trial import Metric, RawOutput, Value
from tare.plugins.workload import MeasurementContext, Workload

_TIMELINE = TypeAdapter(list[tuple[str, FiniteFloat]])
_HINT = "`tare show` has the whole timeline"


@dataclass(frozen=True)
class Startup(Workload):
    """Time from the request of an instance to its first answer."""

    name = "startup"
    title = "Start-up"
    metrics = (
        Metric("total", "Time to the first answer", "s", "lower", overall=False),
        Metric("read", "Read from disks by a cold start", "bytes", "lower", headline=False, overall=False),
    )
    runs_inside = False

    runs_exclusively = True
    leaves_instance_fresh = True

    caches: Literal["warm", "cold"] = "warm"
    starts: Annotated[int, Field(ge=1, le=100)] = 12

    @property
    def rounds(self) -> int:
        """Most starts of a stack in a block."""
        return 1 if self.starts_cold else self.starts

    @property
    def starts_cold(self) -> bool:
        """Whether caches are dropped before each start."""
        return self.caches == "cold"

    def measure(self, setup: MeasurementContext) -> Iterable[RawOutput]:
        """Yield the timeline as JSON: pairs of a name and seconds of the machine's monotonic clock."""
        marks = [[mark.name, mark.seconds] for mark in setup.timeline]
        yield RawOutput("timeline", (), json.dumps(marks) + "\n", 0.0)
        if setup.cold_read_bytes is not None:
            yield RawOutput("read", (), f"{setup.cold_read_bytes}\n", 0.0)

    def parse(self, raw: Sequence[RawOutput]) -> Sequence[Value]:
        """Return the seconds from `requested` to `ready`; raises TrialFailed if one is missing or they do not rise."""
        labels = ["timeline", "read"] if self.starts_cold else ["timeline"]
        check_labels(raw, labels)
        requested, ready = (_read_moment(raw[0].text, name) for name in ("requested", "ready"))
        if not requested < ready:
            raise TrialFailed(f"ready at {ready} s, not after it was requested at {requested} s", _HINT)
        total = Value("total", None, ready - requested)
        return (total, Value("read", None, _read_bytes(raw[1].text))) if self.starts_cold else (total,)

    def estimate_seconds(self) -> float:
        """Return 0: every trial's estimate includes the start of its instance."""
        return 0.0


def _read_bytes(text: str) -> int:
    """Return the bytes that the disks have read; raises TrialFailed for 0, as then caches were not dropped."""
    if not re.fullmatch(r"[1-9][0-9]{0,15}\n", text):
        what = f"the disks of the machine read nothing while the instance started cold; {quote_output(text)}"
        raise TrialFailed(what, "its caches cannot be dropped, or its files are in memory")
    return int(text)


def _read_moment(text: str, name: str) -> float:
    """Return the seconds of the only mark with this name; raises TrialFailed for none or several."""
    moments = [seconds for mark, seconds in _read_marks(text) if mark == name]
    if len(moments) != 1:
        raise TrialFailed(f"expected one moment {name!r} in the timeline, found {moments} in {text[:400]!r}", _HINT)
    return moments[0]


def _read_marks(text: str) -> list[tuple[str, float]]:
    try:
        return _TIMELINE.validate_json(text, strict=True)
    except ValidationError as error:
        what = f"expected a timeline, a list of pairs of a name and seconds, found {text[:400]!r}"
        raise TrialFailed(what, _HINT) from error

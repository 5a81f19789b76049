"""The single starts of a run as percentiles: what somebody waits who is unlucky."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tare.journal import Run, WorkloadRecord
from tare.statistics.percentiles import least_count, percentile
from tare.statistics.summary import Summary
from tare.units import format_duration

_WORKLOAD, _METRIC = "startup", "total"
_PERCENTS = (50, 95, 99)


@dataclass(frozen=True)
class StartsRow:
    """The starts of a stack: how many there were, and the 50th, the 95th and the 99th percentile in words."""

    stack: str
    starts: int
    percentiles: tuple[str, ...]


def start_rows(summary: Summary, run: Run, record: WorkloadRecord) -> tuple[StartsRow, ...]:
    """Describe the starts of each stack; nothing for a workload that is not about starts."""
    if record.use != _WORKLOAD:
        return ()
    starts: dict[str, list[float]] = {stack: [] for stack in summary.stacks}
    for trial in run.trials:
        if trial.workload == record.name and trial.status == "ok":
            for value in trial.values:
                own = (value.turns or (value.value,)) if value.metric == _METRIC else ()
                starts[trial.stack] += filter(math.isfinite, own)  # the run may be untrusted
    return tuple(
        StartsRow(stack, len(found), tuple(_in_words(found, percent) for percent in _PERCENTS))
        for stack, found in starts.items()
        if found
    )


def _in_words(starts: Sequence[float], percent: int) -> str:
    found = percentile(starts, percent)
    return f"needs {least_count(percent)} starts" if found is None else format_duration(found)

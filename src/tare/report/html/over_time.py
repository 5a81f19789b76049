"""The number of answers of each kind over the time of a load, read from its output.

A load may end its output with a JSON object that has `over_time`: by the kind of answer, the number in each second.
That of `examples/dictionary` does, for VTmark's Figure 8.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence

from tare.errors import UsageError
from tare.journal import Run, WorkloadRecord, load_raw
from tare.report.curves import Rate
from tare.statistics.outcomes import latest

_USE = "application"  # the workload whose load is the user's own
_PARTS = 60  # of the load's time that are drawn
_MOST = 100  # trials that are read
Counts = Mapping[str, Sequence[float]]


def over_time(run: Run, record: WorkloadRecord) -> list[Rate]:
    """Return the rates of each stack, averaged over its trials; nothing for a workload whose output has none."""
    if record.use != _USE:
        return []
    found: dict[str, list[Counts]] = {}
    own = latest(run.of(record.name))
    for trial in [each for each in own if each.status == "ok"][:_MOST]:
        if counts := _of_trial(run, trial.trial):
            found.setdefault(trial.stack, []).append(counts)
    return rates(found)


def _of_trial(run: Run, trial: str) -> Counts:
    if "/" in trial:  # the folder may be untrusted
        return {}
    try:
        raw = load_raw(run.folder, trial)
    except UsageError:
        return {}
    return counts_in(raw[-1].text) if raw else {}


def counts_in(text: str) -> Counts:
    """Read the counts from an output; empty where it has none, or others than lists of numbers."""
    try:
        document = json.loads(text)
    except ValueError:
        return {}
    found = document.get("over_time") if isinstance(document, dict) else None
    if not isinstance(found, dict) or not all(map(_are_counts, found.values())):
        return {}
    return found


def rates(found: Mapping[str, Sequence[Counts]]) -> list[Rate]:
    """Average the trials of each stack, in parts of the time of the longest, up to the end of its own load."""
    longest = {stack: max(map(_length, own), default=0) for stack, own in found.items()}
    width = max(1, -(-max(longest.values(), default=0) // _PARTS))
    kinds = list(dict.fromkeys(kind for own in found.values() for counts in own for kind in counts))
    return [
        Rate(stack, kind, begin + width / 2, _mean([counts.get(kind, ()) for counts in own], begin, width))
        for stack, own in found.items()
        for kind in kinds
        for begin in range(0, longest[stack], width)
    ]


def _length(counts: Counts) -> int:
    return max(map(len, counts.values()), default=0)


def _mean(trials: Sequence[Sequence[float]], begin: int, width: int) -> float:
    return round(sum(sum(seconds[begin : begin + width]) for seconds in trials) / (len(trials) * width), 2)


def _are_counts(seconds: object) -> bool:
    return isinstance(seconds, list) and all(
        isinstance(each, int | float) and not isinstance(each, bool) and 0 <= each < math.inf for each in seconds
    )

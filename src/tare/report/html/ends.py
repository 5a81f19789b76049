"""Why no further instance was started, where a workload counts how many fit: its last output has the reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from tare.errors import UsageError
from tare.journal import Run, WorkloadRecord, load_raw
from tare.model.ends import End
from tare.model.trials import Trial
from tare.report.numbers import cut

_SWEEP, _END = "instances", "end: "
_MOST_LETTERS = 300


def ends(run: Run, record: WorkloadRecord) -> tuple[str, ...]:
    """Describe how many instances of each stack there were and what ended that; nothing for other workloads."""
    if record.sweep is None or record.sweep.name != _SWEEP:
        return ()
    trials = [trial for trial in run.trials if trial.workload == record.name and trial.status == "ok"]
    counted: dict[str, Counter[str]] = {}
    for trial in trials:
        counted.setdefault(trial.stack, Counter()).update(_of_trial(run, trial))
    return tuple(
        f"{stack}: {text} ({times} of {found.total()} trials)."
        for stack, found in counted.items()
        for text, times in found.most_common()
    )


def _of_trial(run: Run, trial: Trial) -> Iterator[str]:
    """Yield what ended a trial; nothing where its output is not there or says something else."""
    if "/" in trial.trial:  # the run may be untrusted
        return
    try:
        raw = load_raw(run.folder, trial.trial)
    except UsageError:
        return
    word = raw[-1].label.removeprefix(_END) if raw else ""
    if word not in frozenset(End):
        return
    counts = {value.metric: value.value for value in trial.values if value.point is None}
    points = [value.point for value in trial.values if value.metric == "memory" and value.point is not None]
    count = counts.get("instances", max(points, default=0.0))
    reason = " ".join(raw[-1].text.split())
    words = End(word).words
    why = f"{words}: {reason}" if reason else words
    yield cut(f"{count:g} instance{'' if count == 1 else 's'}; {why}", _MOST_LETTERS)

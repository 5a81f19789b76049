"""What of a run is compared: the stacks that were asked for, and the values that other runs have, too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tare.errors import UsageError, did_you_mean
from tare.journal import Run
from tare.model.trials import Trial
from tare.statistics.summary import Summary

_NAMED = 4


def stacks_of(run: Run) -> tuple[str, ...]:
    """Return the stacks of a run, also those that only its trials know."""
    return tuple(dict.fromkeys([*run.record.stacks, *(trial.stack for trial in run.trials)]))


def known_stack(run: Run, stack: str) -> str:
    """Return the name of a stack that a run has; raises UsageError."""
    names = stacks_of(run)
    if stack not in names:
        hint = did_you_mean(stack, names, f"it has {', '.join(names)}" if names else "it has none")
        raise UsageError(f"{run.folder}: has no stack {stack}", hint)
    return stack


def narrowed(run: Run, baseline: str, stacks: Sequence[str], margin: float | None) -> Run:
    """Leave only these stacks in a run, so that no verdict is made doubtful by others that nobody asked for."""
    control = run.record.control if run.record.control in stacks and baseline == run.record.baseline else ""
    record = replace(
        run.record,
        baseline=baseline,
        control=control,
        margin=run.record.margin if margin is None else margin,
        stacks=tuple(stack for stack in run.record.stacks if stack in stacks),
    )
    trials: tuple[Trial, ...] = tuple(trial for trial in run.trials if trial.stack in stacks)
    return replace(run, record=record, trials=trials)


def measured(summary: Summary, workload: str) -> set[tuple[str, float | None]]:
    """Return the metrics of a workload's headlines, each with its points."""
    metrics = {metric for rule in summary.rules_of(workload) for metric in rule.metrics}
    return {(cell.metric, cell.point) for cell in summary.of(workload) if cell.metric in metrics}


def in_short(points: set[tuple[str, float | None]]) -> str:
    """Name metrics and their points, the first few of them."""
    ordered = sorted(points, key=lambda each: (each[0], each[1] is not None, each[1] or 0.0))
    texts = [metric if point is None else f"{metric} at {point:g}" for metric, point in ordered[:_NAMED]]
    return ", ".join(texts) + (f" and {len(ordered) - _NAMED} more" if len(ordered) > _NAMED else "")

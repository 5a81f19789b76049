"""What every stack was: path, limits asked and seen, proof of what ran, and where its trials are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tare.model.machines import FileSystem
from tare.model.trials import Limits, SetLimits, Trial
from tare.report.html.trials import Anchors
from tare.report.limits import Limit, limits_of
from tare.report.numbers import listing


@dataclass(frozen=True)
class StackFacts:
    """A stack as it ran. `trials` has the place of its trials, by workload."""

    anchor: str
    stack: str
    path: str
    limits: tuple[Limit, ...]
    file_systems: tuple[FileSystem, ...]
    proof: tuple[tuple[str, str], ...]
    trials: tuple[tuple[str, str], ...]


def stack_facts(stack: str, own: Sequence[Trial], anchor: str, places: Anchors) -> StackFacts:
    """Read what a stack was from its own trials."""
    paths = tuple(dict.fromkeys(trial.path for trial in own if trial.path))
    limits = tuple(_limits(own))
    proof = dict(entry for trial in own for entry in trial.proof)
    file_systems = tuple(dict.fromkeys(system for trial in own for system in trial.file_systems))
    workloads = dict.fromkeys(trial.workload for trial in own)
    there = tuple((workload, at) for workload in workloads if (at := places.get((workload, stack))))
    return StackFacts(anchor, stack, listing(paths), limits, file_systems, tuple(proof.items()), there)


def _limits(trials: Sequence[Trial]) -> Iterable[Limit]:
    """Yield the limits of a stack; where its workloads have several, each with their names."""
    seen: dict[Limits, SetLimits] = {}
    workloads: dict[Limits, dict[str, None]] = {}
    for trial in trials:
        if trial.limits:
            seen.setdefault(trial.limits.asked, trial.limits)
            workloads.setdefault(trial.limits.asked, {})[trial.workload] = None
    for asked, limits in seen.items():
        whose = f" ({', '.join(workloads[asked])})" if len(seen) > 1 else ""
        yield from (replace(limit, name=f"{limit.name}{whose}") for limit in limits_of(limits))

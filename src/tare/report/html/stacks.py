"""What every stack was: path, limits asked and seen, proof of what ran, and the exact commands."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tare.journal import Run
from tare.machines import FileSystem
from tare.model import Limits, SetLimits, Trial
from tare.report.commands import alike
from tare.report.limits import Limit, limits_of
from tare.report.numbers import listing


@dataclass(frozen=True)
class StackFacts:
    """A stack as it ran. `commands` has the command lines of one trial of each workload, with its name."""

    anchor: str
    stack: str
    path: str
    limits: tuple[Limit, ...]
    file_systems: tuple[FileSystem, ...]
    proof: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str, str], ...]


def stack_facts(stack: str, run: Run, anchor: str) -> StackFacts:
    """Read what a stack was from its trials."""
    own = [trial for trial in run.trials if trial.stack == stack]
    paths = tuple(dict.fromkeys(trial.path for trial in own if trial.path))
    limits = tuple(_limits(own))
    proof = dict(entry for trial in own for entry in trial.proof)
    file_systems = tuple(dict.fromkeys(system for trial in own for system in trial.file_systems))
    return StackFacts(anchor, stack, listing(paths), limits, file_systems, tuple(proof.items()), tuple(_commands(own)))


def _limits(trials: Sequence[Trial]) -> Iterable[Limit]:
    """Give the limits of a stack; where its workloads have several, each with their names."""
    seen: dict[Limits, SetLimits] = {}
    workloads: dict[Limits, dict[str, None]] = {}
    for trial in trials:
        if trial.limits:
            seen.setdefault(trial.limits.asked, trial.limits)
            workloads.setdefault(trial.limits.asked, {})[trial.workload] = None
    for asked, limits in seen.items():
        whose = f" ({', '.join(workloads[asked])})" if len(seen) > 1 else ""
        yield from (replace(limit, name=f"{limit.name}{whose}") for limit in limits_of(limits))


def _commands(trials: Sequence[Trial]) -> Iterable[tuple[str, str, str]]:
    """Give the commands of the first trial of each workload that ran to its end, or at least began."""
    ordered = sorted((trial for trial in trials if trial.commands), key=lambda trial: trial.status != "ok")
    first: dict[str, Trial] = {}
    for trial in ordered:
        first.setdefault(trial.workload, trial)
    for workload, trial in first.items():
        yield workload, trial.trial, "\n".join(_lines(trial))


def _lines(trial: Trial) -> Iterable[str]:
    """Give the lines of a shell; those of further turns are a comment."""
    for kind in alike(trial.commands):
        yield shlex.join(kind.first)
        if kind.more:
            yield f"# … {kind.rest}"

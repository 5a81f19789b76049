"""What every stack was: path, limits asked and seen, proof of what ran, and the exact commands."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tare.journal import Run
from tare.model import SetLimits, Trial
from tare.report.numbers import listing
from tare.units import format_size


@dataclass(frozen=True)
class Limit:
    """One limit: asked for, seen from inside, and whether they differ."""

    name: str
    asked: str
    seen: str
    differs: bool


@dataclass(frozen=True)
class StackFacts:
    """A stack as it ran. `commands` has one trial's command lines for each workload, with the trial's name."""

    stack: str
    path: str
    limits: tuple[Limit, ...]
    proof: tuple[tuple[str, str], ...]
    commands: tuple[tuple[str, str, str], ...]


def stack_facts(stack: str, run: Run) -> StackFacts:
    """Read what a stack was from its trials."""
    own = [trial for trial in run.trials if trial.stack == stack]
    paths = tuple(dict.fromkeys(trial.path for trial in own if trial.path))
    limits = next((_limits(trial.limits) for trial in own if trial.limits), ())
    proof = dict(entry for trial in own for entry in trial.proof)
    return StackFacts(stack, listing(paths), limits, tuple(proof.items()), tuple(_commands(own)))


def _limits(limits: SetLimits) -> tuple[Limit, ...]:
    asked, seen = limits.asked, limits.seen
    numbers = ", ".join(str(cpu) for cpu in asked.cpus)
    return (
        _limit("CPUs", f"{len(asked.cpus)} (number {numbers})", (len(asked.cpus), seen.cpus), str),
        _limit("memory", format_size(asked.memory_bytes), (asked.memory_bytes, seen.memory_bytes), format_size),
        _limit("open files", str(asked.open_files), (asked.open_files, seen.open_files), str),
    )


def _limit(name: str, asked: str, values: tuple[int, int | None], write: Callable[[int], str]) -> Limit:
    wanted, seen = values
    if seen is None:
        return Limit(name, asked, "it cannot say", differs=False)
    return Limit(name, asked, write(seen), differs=seen != wanted)


def _commands(trials: Sequence[Trial]) -> Iterable[tuple[str, str, str]]:
    """Give the commands of the first trial of each workload that ran to its end, or at least began."""
    ordered = sorted((trial for trial in trials if trial.commands), key=lambda trial: trial.status != "ok")
    first: dict[str, Trial] = {}
    for trial in ordered:
        first.setdefault(trial.workload, trial)
    for workload, trial in first.items():
        yield workload, trial.trial, "\n".join(shlex.join(command) for command in trial.commands)

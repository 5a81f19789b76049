"""Cautions about the file systems that a workload uses: one that is not the baseline's changes values on any stack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tare.model.machines import FileSystem
from tare.model.trials import Caution, Trial

_IN_MEMORY = {"ramfs", "rootfs", "tmpfs"}
_OF_THE_STACK = "a disk or a layer of its own belongs to the stack, and values of files have it in them"


def with_file_systems_compared(trials: Sequence[Trial], baseline: str) -> list[Trial]:
    """Add a caution to each trial in which a path of the workload's is on another file system than the baseline's."""
    known: dict[tuple[str, str], FileSystem] = {}
    for trial in trials:
        if trial.stack == baseline:
            known |= {(trial.workload, system.path): system for system in trial.file_systems}
    return [_with(trial, _differences(trial, known)) for trial in trials]


def _with(trial: Trial, cautions: Sequence[Caution]) -> Trial:
    return replace(trial, cautions=(*trial.cautions, *cautions)) if cautions else trial


def _differences(trial: Trial, known: dict[tuple[str, str], FileSystem]) -> list[Caution]:
    """Return a caution for each pair of unlike file systems, which names the first of its paths."""
    paths: dict[tuple[str, str, str], list[str]] = {}
    for own in trial.file_systems:
        other = known.get((trial.workload, own.path))
        if other is None or (own.type, own.options) == (other.type, other.options):
            continue
        nature = _nature(own, other)
        if own.written or other.written or nature != _OF_THE_STACK:
            paths.setdefault((str(own), str(other), nature), []).append(own.path)
    return [
        Caution("file-system-differs", f"{_named(found)} on {own}, the baseline's on {other}: {nature}")
        for (own, other, nature), found in paths.items()
    ]


def _named(paths: Sequence[str]) -> str:
    return f"{paths[0]} is" if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more of its paths are"


def _nature(own: FileSystem, other: FileSystem) -> str:
    """Describe whether the difference belongs to the stacks, or is an accident of how they are set up."""
    if own.type == other.type:
        return "they are mounted differently, which is no part of virtualization"
    if (own.type in _IN_MEMORY) != (other.type in _IN_MEMORY):
        return "memory against a disk, which is no part of virtualization"
    return _OF_THE_STACK

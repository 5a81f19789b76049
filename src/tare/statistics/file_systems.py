"""What differs in the file systems that a workload uses: another one than the baseline's moves values by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tare.machines import FileSystem
from tare.model import Caution, Trial

_IN_MEMORY = {"ramfs", "rootfs", "tmpfs"}


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
    pairs = ((system, known.get((trial.workload, system.path))) for system in trial.file_systems)
    return [
        Caution("file-system-differs", f"{own.path} is on {own}, the baseline's on {other}: {_nature(own, other)}")
        for own, other in pairs
        if other is not None and (own.type, own.options) != (other.type, other.options)
    ]


def _nature(own: FileSystem, other: FileSystem) -> str:
    """Say whether the difference belongs to the stacks, or is an accident of how they are set up."""
    if own.type == other.type:
        return "they are mounted differently, which is no part of virtualization"
    if (own.type in _IN_MEMORY) != (other.type in _IN_MEMORY):
        return "memory against a disk, which is no part of virtualization"
    return "a disk or a layer of its own belongs to the stack, and values of files have it in them"

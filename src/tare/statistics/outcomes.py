"""Count successful, failed and skipped trials, and flag file-system differences."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from tare.model.machine import FileSystem
from tare.model.trial import Caution, Trial
from tare.statistics.cells import CautionCount, Failure

WorkloadStatus = Literal["works", "fails", "fails at times", "skipped", "not tried"]
# Numbers of a reason, such as times, addresses and process numbers, but not how a program ended.
_NUMBER = re.compile(r"0x[0-9a-f]+|(?<!code )(?<!signal )(?<!\d)\d+")
_MEMORY_FILE_SYSTEMS = {"ramfs", "rootfs", "tmpfs"}
_BELONGS_TO_STACK = "a disk or a layer of its own belongs to the stack, and values of files have it in them"


@dataclass(frozen=True)
class TrialOutcomes:
    """`ok` counts the trials that have a result; `skipped` is empty unless the stack never ran this workload."""

    ok: int
    cautions: tuple[CautionCount, ...]
    failures: tuple[Failure, ...]
    skipped: str

    @property
    def status(self) -> WorkloadStatus:
        """Whether the workload works in the stack."""
        if self.ok:
            return "fails at times" if self.failures else "works"
        if self.skipped:
            return "skipped"
        return "fails" if self.failures else "not tried"


def normalize_reason(reason: str) -> str:
    """Return what the reason of a failure has in common with others of its kind: the text without its numbers."""
    return _NUMBER.sub("0", reason)


def select_latest(trials: Sequence[Trial]) -> list[Trial]:
    """Keep one trial for each workload, stack and block, so that none counts twice: an ok one, else the latest."""
    kept: dict[tuple[str, str, int], Trial] = {}
    for trial in trials:
        cell = (trial.workload, trial.stack, trial.block)
        if cell not in kept or trial.status == "ok" or kept[cell].status != "ok":
            kept[cell] = trial
    return list(kept.values())


def count_outcomes(stack: str, trials: Sequence[Trial]) -> TrialOutcomes:
    """Count what became of one stack's trials of one workload."""
    ok = [trial for trial in trials if trial.status == "ok"]
    skipped = next((trial.reason for trial in trials if trial.status == "skipped"), "")
    failed = (trial for trial in trials if trial.status == "failed")
    failures = tuple(Failure(trial.trial, trial.block, trial.reason, trial.hint) for trial in failed)
    return TrialOutcomes(len(ok), _count_cautions(stack, ok), failures, "" if ok else skipped)


def _count_cautions(stack: str, trials: Sequence[Trial]) -> tuple[CautionCount, ...]:
    texts: dict[str, dict[str, None]] = {}
    touched: dict[str, set[str]] = {}
    for trial in trials:
        for caution in trial.cautions:
            texts.setdefault(caution.kind, {})[caution.text] = None
            touched.setdefault(caution.kind, set()).add(trial.trial)
    return tuple(CautionCount(kind, tuple(texts[kind]), stack, len(touched[kind]), len(trials)) for kind in texts)


def add_file_system_cautions(trials: Sequence[Trial], baseline: str) -> list[Trial]:
    """Add a caution to each trial in which a path of the workload's is on another file system than the baseline's."""
    known: dict[tuple[str, str], FileSystem] = {}
    for trial in trials:
        if trial.stack == baseline:
            known |= {(trial.workload, system.path): system for system in trial.file_systems}
    return [
        replace(trial, cautions=(*trial.cautions, *_find_file_system_differences(trial, known))) for trial in trials
    ]


def _find_file_system_differences(trial: Trial, known: dict[tuple[str, str], FileSystem]) -> list[Caution]:
    """Return a caution for each pair of unlike file systems, which names the first of its paths."""
    paths: dict[tuple[str, str, str], list[str]] = {}
    for own in trial.file_systems:
        other = known.get((trial.workload, own.path))
        if other is None or (own.type, own.options) == (other.type, other.options):
            continue
        nature = _describe_difference(own, other)
        if own.written or other.written or nature != _BELONGS_TO_STACK:
            paths.setdefault((str(own), str(other), nature), []).append(own.path)
    return [
        Caution("file-system-differs", f"{_name_paths(found)} on {own}, the baseline's on {other}: {nature}")
        for (own, other, nature), found in paths.items()
    ]


def _name_paths(paths: Sequence[str]) -> str:
    return f"{paths[0]} is" if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more of its paths are"


def _describe_difference(own: FileSystem, other: FileSystem) -> str:
    """Describe whether the difference belongs to the stacks, or is an accident of how they are set up."""
    if own.type == other.type:
        return "they are mounted differently, which is no part of virtualization"
    if (own.type in _MEMORY_FILE_SYSTEMS) != (other.type in _MEMORY_FILE_SYSTEMS):
        return "memory against a disk, which is no part of virtualization"
    return _BELONGS_TO_STACK

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
_BELONGS_TO_STACK = "a separate disk or layer belongs to the stack, and values of files include it"


@dataclass(frozen=True)
class TrialOutcomes:
    """Outcomes of a stack's trials of a workload. `ok` is the number of successful trials.

    `skipped` is the reason of a skip; empty unless the stack never ran this workload.
    """

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
    """Return a failure's reason with all numbers as 0, so that equal failures have equal texts."""
    return _NUMBER.sub("0", reason)


def select_latest(trials: Sequence[Trial]) -> list[Trial]:
    """Return one trial for each workload, stack and block, so that no block counts twice.

    The latest successful trial of a block counts, or else its latest trial.
    """
    kept: dict[tuple[str, str, int], Trial] = {}
    for trial in trials:
        cell = (trial.workload, trial.stack, trial.block)
        if cell not in kept or trial.status == "ok" or kept[cell].status != "ok":
            kept[cell] = trial
    return list(kept.values())


def count_outcomes(stack: str, trials: Sequence[Trial]) -> TrialOutcomes:
    """Return the outcomes of one stack's trials of one workload."""
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
    """Return the trials, with a caution if a path of the workload is on another file system than the baseline's."""
    known: dict[tuple[str, str], FileSystem] = {}
    for trial in trials:
        if trial.stack == baseline:
            known |= {(trial.workload, system.path): system for system in trial.file_systems}
    return [
        replace(trial, cautions=(*trial.cautions, *_find_file_system_differences(trial, known))) for trial in trials
    ]


def _find_file_system_differences(trial: Trial, known: dict[tuple[str, str], FileSystem]) -> list[Caution]:
    """Return a caution for each pair of different file systems, which names the first of its paths."""
    paths: dict[tuple[str, str, str], list[str]] = {}
    for here in trial.file_systems:
        there = known.get((trial.workload, here.path))
        if there is None or (here.type, here.options) == (there.type, there.options):
            continue
        nature = _describe_difference(here, there)
        if here.written or there.written or nature != _BELONGS_TO_STACK:
            paths.setdefault((str(here), str(there), nature), []).append(here.path)
    return [
        Caution("file-system-differs", f"{_name_paths(of_pair)} on {here}, the baseline's on {there}: {nature}")
        for (here, there, nature), of_pair in paths.items()
    ]


def _name_paths(paths: Sequence[str]) -> str:
    return f"{paths[0]} is" if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more of its paths are"


def _describe_difference(here: FileSystem, there: FileSystem) -> str:
    """Return a text that says whether a difference belongs to the stack, or to its configuration."""
    if here.type == there.type:
        return "they are mounted differently, which is no part of virtualization"
    if (here.type in _MEMORY_FILE_SYSTEMS) != (there.type in _MEMORY_FILE_SYSTEMS):
        return "memory against a disk, which is no part of virtualization"
    return _BELONGS_TO_STACK

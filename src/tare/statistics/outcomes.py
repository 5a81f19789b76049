"""What became of a stack's trials of a workload: which were ok, with which cautions, and why others were not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tare.model.trials import Trial
from tare.statistics.cells import CautionCount, Failure

Fate = Literal["works", "fails", "fails at times", "skipped", "not tried"]
# Numbers of a reason, such as times, addresses and process numbers, but not how a program ended.
_NUMBER = re.compile(r"0x[0-9a-f]+|(?<!code )(?<!signal )(?<!\d)\d+")


@dataclass(frozen=True)
class Outcome:
    """`ok` counts the trials that have a result; `skipped` is empty unless the stack never ran this workload."""

    ok: int
    cautions: tuple[CautionCount, ...]
    failures: tuple[Failure, ...]
    skipped: str

    @property
    def fate(self) -> Fate:
        """Whether the workload works in the stack."""
        if self.ok:
            return "fails at times" if self.failures else "works"
        if self.skipped:
            return "skipped"
        return "fails" if self.failures else "not tried"


def alike(reason: str) -> str:
    """Return what the reason of a failure has in common with others of its kind: the text without its numbers."""
    return _NUMBER.sub("0", reason)


def latest(trials: Sequence[Trial]) -> list[Trial]:
    """Keep one trial for each workload, stack and block, so that none counts twice: an ok one, else the latest."""
    kept: dict[tuple[str, str, int], Trial] = {}
    for trial in trials:
        cell = (trial.workload, trial.stack, trial.block)
        if cell not in kept or trial.status == "ok" or kept[cell].status != "ok":
            kept[cell] = trial
    return list(kept.values())


def outcome(stack: str, trials: Sequence[Trial]) -> Outcome:
    """Count what became of one stack's trials of one workload."""
    ok = [trial for trial in trials if trial.status == "ok"]
    skipped = next((trial.reason for trial in trials if trial.status == "skipped"), "")
    failed = (trial for trial in trials if trial.status == "failed")
    failures = tuple(Failure(trial.trial, trial.block, trial.reason, trial.hint) for trial in failed)
    return Outcome(len(ok), _cautions(stack, ok), failures, "" if ok else skipped)


def _cautions(stack: str, trials: Sequence[Trial]) -> tuple[CautionCount, ...]:
    texts: dict[str, dict[str, None]] = {}
    touched: dict[str, set[str]] = {}
    for trial in trials:
        for caution in trial.cautions:
            texts.setdefault(caution.kind, {})[caution.text] = None
            touched.setdefault(caution.kind, set()).add(trial.trial)
    return tuple(CautionCount(kind, tuple(texts[kind]), stack, len(touched[kind]), len(trials)) for kind in texts)

"""Whether nothing works: the first block of every workload has failed, in all its stacks for one reason.

More blocks would fail alike. A single trial that succeeds, now or before the run was resumed, lets the run go on, and
so do stacks that fail for different reasons. Skipped trials count for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tare.model.trials import Trial
from tare.statistics.outcomes import alike


@dataclass
class Failing:
    """What trials have failed for, by workload; `workloads` are those that the run still measures."""

    workloads: frozenset[str]
    _reasons: dict[str, set[str]] = field(default_factory=dict)
    _works: bool = False

    def resume(self, done: Iterable[Trial]) -> None:
        """Take the trials from before the run was resumed into account: failures may have been fixed since."""
        self._works = any(trial.status == "ok" for trial in done)

    def learn(self, trial: Trial) -> None:
        """Take a trial into account."""
        if trial.status == "ok":
            self._works = True
        elif trial.status == "failed":
            self._reasons.setdefault(trial.workload, set()).add(alike(trial.reason))

    def is_certain(self) -> bool:
        """Return whether every workload has failed, each for one reason."""
        alike = all(len(self._reasons.get(workload, ())) == 1 for workload in self.workloads)
        return bool(self.workloads) and alike and not self._works

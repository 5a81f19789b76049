"""How long trials take: the workloads' own estimates at first, then what the run has seen."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tare.contracts.workloads import Workload
from tare.model.trials import Trial, Turn
from tare.suites.plan import Step

_START_SECONDS = 2.0  # what starting and ending an instance takes, until the run has seen it
SLOW = 3.0  # times as long as the median stack's turns: the others do not wait for more of them

Place = tuple[str, str]  # a workload and a stack


def rounds_by_label(turns: Iterable[Turn]) -> Counter[str]:
    """Count the turns of each label that hold a value: after whole rounds, as many of each."""
    return Counter(turn.label for turn in turns if not turn.warm_up)


@dataclass
class Pace:
    """Estimates the seconds of a trial: the median of its workload and stack, or at first the workload's own estimate.

    Not the mean: the first trial is often slow, because caches are cold. `passes` is how often each workload is
    measured in its next block (`tare.running.repetition`), once where nothing is said.
    """

    workloads: Mapping[str, Workload]
    passes: dict[str, int] = field(default_factory=dict)
    _starting: dict[Place, list[float]] = field(default_factory=dict)
    _turning: dict[Place, list[float]] = field(default_factory=dict)  # of one pass
    _turns: dict[str, tuple[int, int]] = field(default_factory=dict)  # the latest block, and the turns of a pass

    def learn(self, trial: Trial) -> None:
        """Take a trial into account."""
        if trial.status != "ok":
            return
        place, passes = (trial.workload, trial.stack), self._passes_in(trial)
        turning = sum(turn.seconds for turn in trial.turns)
        self._starting.setdefault(place, []).append(max(0.0, trial.seconds - turning))
        self._turning.setdefault(place, []).append(turning / passes)
        if trial.turns:
            block, turns = self._turns.get(trial.workload, (trial.block, 0))
            own = (trial.turns[-1].number + 1) // passes
            self._turns[trial.workload] = (trial.block, max(own, turns if block == trial.block else 0))

    def _passes_in(self, trial: Trial) -> int:
        counts = rounds_by_label(trial.turns)
        return max(1, max(counts.values(), default=1) // max(1, self.workloads[trial.workload].rounds))

    def seconds_of(self, step: Step) -> float:
        """Estimate a trial."""
        return self.starting_seconds_of(step) + self.turning_seconds_of(step)

    def starting_seconds_of(self, step: Step) -> float:
        """Estimate what starting and ending the instance of a trial takes."""
        known = self._starting.get((step.workload, step.stack))
        return statistics.median(known) if known else _START_SECONDS

    def turning_seconds_of(self, step: Step) -> float:
        """Estimate the part of a trial in which it has its turns."""
        return self.pass_seconds_of(step) * self.passes_of(step)

    def pass_seconds_of(self, step: Step) -> float:
        """Estimate the turns of a trial in which its workload is measured once."""
        known = self._turning.get((step.workload, step.stack))
        return statistics.median(known) if known else self.workloads[step.workload].seconds()

    def passes_of(self, step: Step) -> int:
        """Return how often a trial of the next block measures: once where its stack is much slower than the others."""
        passes = self.passes.get(step.workload, 1)
        return 1 if passes > 1 and self.pass_seconds_of(step) > SLOW * self._usual_pass(step.workload) else passes

    def _usual_pass(self, workload: str) -> float:
        known = [statistics.median(seconds) for (name, _), seconds in self._turning.items() if name == workload]
        return statistics.median(known) if known else self.workloads[workload].seconds()

    def turns_of(self, workload: str) -> int | None:
        """Return how many turns stacks have in the next block of a workload; None before there was one."""
        return self._turns[workload][1] * self.passes.get(workload, 1) if workload in self._turns else None

"""What is decided while a run goes on, and so needs no more blocks: its time goes to what is still open.

The decisions are those of the report (`tare.statistics.summarize`), taken again after every block from the same
arrays: an interval that holds at every look, and error control over the whole matrix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from tare.journal import WorkloadRecord
from tare.model import Trial
from tare.statistics.anytime import told_together
from tare.statistics.grid import Arranging
from tare.statistics.headlines import headline
from tare.statistics.ratios import Ratio, compare_together, log_differences
from tare.suites.plan import Block
from tare.suites.suite import Suite

_TRIES = 3  # a stack that has failed as often, and never succeeded, is not tried again

Cell = tuple[str, str]  # a workload and a stack


@dataclass
class Decisions:
    """What a run has found so far. `baseline` is measured with the others, `again` is its second name.

    With `all_blocks`, nothing is left out because it is decided.
    """

    workloads: tuple[WorkloadRecord, ...]
    stacks: tuple[str, ...]
    baseline: str
    again: str
    margin: float
    all_blocks: bool = False
    _arranging: dict[str, Arranging] = field(init=False)
    _tried: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._arranging = {record.name: Arranging(record, self.stacks) for record in self.workloads}

    def learn(self, trial: Trial) -> None:
        """Take a trial into account."""
        self._arranging[trial.workload].add(trial)
        self._tried[trial.workload, trial.stack, trial.status] += 1

    def needed(self, blocks: Iterable[Block]) -> tuple[Block, ...]:
        """Leave out what is settled: trials of decided cells, and the blocks of workloads in which nothing is open."""
        decided, given_up = set() if self.all_blocks else self.decided(), self._given_up()
        going_on = {name for name in self._arranging if self._goes_on(name, decided, given_up)}
        left = []
        for block in blocks:
            steps = tuple(step for step in block.steps if (step.workload, step.stack) not in decided | given_up)
            if steps and block.workload in going_on:
                left.append(replace(block, steps=steps))
        return tuple(left)

    def _goes_on(self, workload: str, decided: set[Cell], given_up: set[Cell]) -> bool:
        """Tell whether a workload has open cells. Where no stack can be compared, that is the baseline with itself."""
        if (workload, self.baseline) in given_up:
            return False
        cells = {(workload, stack) for stack in self.stacks if stack not in (self.baseline, self.again)}
        asked = cells - given_up or {(workload, self.again)} - given_up
        return bool(asked - decided)

    def decided(self) -> set[Cell]:
        """Give the cells for which it is known how the stack stands to the baseline.

        That may change: when later blocks show that those of all stacks depend on each other, a cell is open again.
        """
        found: dict[Cell, Ratio | None] = {}
        reference = self.stacks.index(self.baseline)
        again = self.stacks.index(self.again) if self.again in self.stacks else None
        for name, arranging in self._arranging.items():
            head = headline(arranging.grid())
            compared = compare_together(*log_differences(head.logs, head.usable, reference), self.margin, again)
            for index, stack in enumerate(self.stacks):
                if stack != self.baseline and not self._skipped(name, stack):
                    found[name, stack] = compared.at((index,))
        evidence = np.array([ratio.evidence if ratio else 0.0 for ratio in found.values()])
        kept = told_together(evidence, np.array([stack == self.again for _, stack in found], dtype=bool))
        return {
            cell for (cell, ratio), sure in zip(found.items(), kept, strict=True) if sure and ratio and ratio.decided
        }

    def _given_up(self) -> set[Cell]:
        """Give the cells that cannot be had: skipped once, or failed three times and never succeeded."""
        found = set()
        for workload in self._arranging:
            for stack in self.stacks:
                hopeless = self._tried[workload, stack, "failed"] >= _TRIES
                if not self._tried[workload, stack, "ok"] and (hopeless or self._skipped(workload, stack)):
                    found.add((workload, stack))
        return found

    def _skipped(self, workload: str, stack: str) -> bool:
        return bool(self._tried[workload, stack, "skipped"]) and not self._tried[workload, stack, "ok"]


def decisions_of(suite: Suite) -> Decisions:
    """Begin a run's decisions."""
    records = tuple(
        WorkloadRecord(each.name, each.use, each.workload.title, each.workload.metrics, each.workload.sweep)
        for each in suite.workloads
    )
    stacks = tuple(stack.name for stack in suite.measured)
    return Decisions(records, stacks, suite.baseline, suite.again, suite.margin, suite.until == "blocks")

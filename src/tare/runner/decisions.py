"""Decisions during a run: a cell that is decided and known well gets no more blocks: its time goes to the others.

They are the decisions of the report, computed after every block by the same functions (`tare.statistics.looks`). A cell
that left the schedule as decided stays decided until another block of it says otherwise. It comes back for one when the
blocks of other stacks show that blocks depend on each other, or vary more than they did.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tare.model.journal import WorkloadRecord
from tare.model.trial import Trial
from tare.statistics.anytime import SINGLE_STATEMENT_EVIDENCE, evidence_needed
from tare.statistics.headlines import Headline
from tare.statistics.looks import Looks
from tare.statistics.planning import (
    VarianceComponents,
    extra_blocks_needed,
    extra_blocks_until_narrow,
    headline_variance_components,
)
from tare.statistics.ratios import BaselineRows, RatioComparison
from tare.suites.plan import Block, PlannedTrial
from tare.suites.tables import PRECISION

_NARROWING_WEIGHT = 0.1  # what it is worth to know a decided cell well, in decisions
_MIN_BLOCK_SECONDS = 1e-9  # of a block
_MAX_FAILURES = 3  # a stack that has failed this often and never succeeded gets no more trials

CellKey = tuple[str, str]  # a workload and a stack
HeadlineId = tuple[str, str]  # a workload and the name of one of its headlines


@dataclass(frozen=True)
class _DecisionState:
    """What all trials so far say, by workload and headline; computed once after the latest of them.

    `compared` are the comparisons in the light of all blocks, and `widths` half the widths of their intervals, in those
    that are asked for. `is_decided` are the decided cells, and `confirmed` those that all blocks confirm.
    """

    heads: Mapping[HeadlineId, Headline]
    compared: Mapping[HeadlineId, RatioComparison]
    widths: Mapping[HeadlineId, NDArray[np.float64]]
    decided: frozenset[CellKey]
    confirmed: frozenset[CellKey]

    @cached_property
    def blocks_to_decide(self) -> Mapping[HeadlineId, NDArray[np.float64]]:
        """About how many more blocks each stack needs until one more cell is decided."""
        cells = sum(comparison.count.size for comparison in self.compared.values())
        needed = evidence_needed(cells, len(self.confirmed) + 1)
        return {head: extra_blocks_needed(comparison, needed) for head, comparison in self.compared.items()}

    @cached_property
    def blocks_to_narrow(self) -> Mapping[HeadlineId, NDArray[np.float64]]:
        """About how many more blocks each stack needs until its interval is narrow enough."""
        return {
            head: extra_blocks_until_narrow(comparison.count, self.widths[head])
            for head, comparison in self.compared.items()
        }

    def heads_of(self, workload: str) -> list[HeadlineId]:
        """Return the headlines of a workload that were compared."""
        return [head for head in self.compared if head[0] == workload]


@dataclass
class Decisions:
    """The decisions of a run so far. `control` is the A/A control.

    With `all_blocks`, decided cells get all their blocks, too.
    """

    workloads: tuple[WorkloadRecord, ...]
    stacks: tuple[str, ...]
    baseline: str
    control: str
    margin: float
    all_blocks: bool = False
    precision: float = PRECISION
    _looks: Looks = field(init=False)
    _status_counts: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    _state: _DecisionState | None = None  # until the next trial

    def __post_init__(self) -> None:
        self._looks = Looks(self.workloads, self.stacks, self._baseline_row(), self.margin)

    def learn(self, trial: Trial) -> None:
        """Take a trial into account."""
        self._state = None
        self._looks.learn(trial)
        self._status_counts[trial.workload, trial.stack, trial.status] += 1

    def select_needed_blocks(
        self, blocks: Sequence[Block], seconds_of: Callable[[PlannedTrial], float]
    ) -> tuple[Block, ...]:
        """Leave out trials of finished cells and of hopeless stacks, and blocks of workloads without an open cell.

        A cell is finished when it is decided and its interval narrow. One that is only decided waits where its time
        tells more of open cells, of any workload; `seconds_of` estimates a trial. The A/A control stays as long as the
        baseline, because stacks are compared with both.
        """
        decided, given_up = self._finished_cells(), self._hopeless_cells()
        following = {block.workload: block for block in reversed(blocks)}
        best = max((self._open_worth(block, given_up | decided, seconds_of) for block in following.values()), default=0)
        steps = {(step.workload, step.stack): step for block in following.values() for step in block.trials}
        wide = {
            cell
            for cell in self._select_wide_cells(decided) & steps.keys()
            if self._wide_worth(cell) >= best * max(seconds_of(steps[cell]), _MIN_BLOCK_SECONDS)
        }
        left_out = given_up | (decided - wide)
        going_on = {workload for workload in following if self._open_cells(workload, left_out)}
        needed = []
        for block in blocks:
            own_out = {stack for workload, stack in left_out if workload == block.workload}
            own_out -= {self.control} - {stack for workload, stack in given_up if workload == block.workload}
            kept = tuple(step for step in block.trials if step.stack not in own_out)
            if kept and block.workload in going_on:
                needed.append(block.with_steps(kept))
        return tuple(needed)

    def restrict_to_open_cells(self, block: Block) -> Block:
        """Return a block with its open cells alone, and with what they are compared with."""
        cells = self._open_cells(block.workload, self._finished_cells() | self._hopeless_cells())
        kept = {stack for _, stack in cells} | {self.baseline, self.control}
        return block.with_steps(step for step in block.trials if step.stack in kept) if cells else block

    def _open_worth(self, block: Block, settled: set[CellKey], seconds_of: Callable[[PlannedTrial], float]) -> float:
        """Return the expected decisions a second of a block that has open cells and what they are compared with."""
        cells = self._open_cells(block.workload, settled)
        kept = {stack for _, stack in cells} | {self.baseline, self.control}
        seconds = sum(seconds_of(step) for step in block.trials if step.stack in kept)
        return sum(1 / self._blocks_to_decide(cell) for cell in cells) / max(seconds, _MIN_BLOCK_SECONDS)

    def _blocks_to_decide(self, cell: CellKey) -> float:
        """Return about how many more blocks an open cell needs; 1 where too little is known to say."""
        (workload, stack), known = cell, self._current_state()
        row = self.stacks.index(stack)
        several = [head for head in known.heads_of(workload) if known.compared[head].count[row] > 1]
        return max((float(known.blocks_to_decide[head][row]) for head in several), default=1.0)

    def _wide_worth(self, cell: CellKey) -> float:
        """Return the worth, in decisions, of one more block for a decided cell whose interval is to become narrow."""
        (workload, stack), known = cell, self._current_state()
        row = self.stacks.index(stack)
        return _NARROWING_WEIGHT / max(
            1.0, *(float(known.blocks_to_narrow[head][row]) for head in known.heads_of(workload))
        )

    def are_soon_decided(self, workload: str, blocks: int) -> bool:
        """Return whether about so many more blocks decide all open cells of a workload.

        False before deviations are known.
        """
        known, settled = self._current_state(), self._confirmed_cells() | self._hopeless_cells()
        rows = [self.stacks.index(stack) for _, stack in self._open_cells(workload, settled)]
        return all(
            bool((known.compared[head].count[rows] > 1).all())
            and bool((known.blocks_to_decide[head][rows] <= blocks).all())
            for head in known.heads_of(workload)
        )

    def are_complete(self) -> bool:
        """Return whether a cell is decided and none is open in any workload."""
        leaving = self._finished_cells()
        settled = leaving | self._hopeless_cells()
        return bool(leaving) and not any(self._open_cells(record.name, settled) for record in self.workloads)

    def expected_decisions(self) -> Mapping[str, float]:
        """Return the expected number of decisions from one more block of each workload.

        A cell that needs about ten more blocks counts as a tenth of a decision. Empty with `all_blocks`: then the
        values must not choose the number of blocks.
        """
        if self.all_blocks:
            return {}
        known, decided = self._current_state(), self._confirmed_cells()
        settled = decided | self._hopeless_cells()
        near, wide = dict.fromkeys([record.name for record in self.workloads], 0.0), self._select_wide_cells(decided)
        for head in known.compared:
            workload, shares = head[0], 1 / known.blocks_to_decide[head]
            near[workload] += sum(
                float(shares[self.stacks.index(stack)]) for _, stack in self._open_cells(workload, settled)
            )
            further = known.blocks_to_narrow[head]
            for stack in (stack for name, stack in wide if name == workload):
                near[workload] += _NARROWING_WEIGHT / max(float(further[self.stacks.index(stack)]), 1.0)
        return near

    def _select_wide_cells(self, cells: set[CellKey]) -> set[CellKey]:
        """Return those of these cells whose interval, of any headline, is wider than is asked for."""
        widths = self._current_state().widths.items()
        return cells & {
            (workload, self.stacks[row]) for (workload, _), own in widths for row in np.flatnonzero(own > 1)
        }

    def variance_components(self, workload: str) -> VarianceComponents | None:
        """Return the variance components of a workload's headline; None where they are unknown, or must not be used.

        With `all_blocks`, the values must not choose what is measured.
        """
        if self.all_blocks:
            return None
        first = next(head for head in self._current_state().heads.values() if head.rule.workload == workload)
        return headline_variance_components(first, self._baseline_row())

    def _finished_cells(self) -> set[CellKey]:
        return set() if self.all_blocks else self._confirmed_cells()

    def _open_cells(self, workload: str, settled: set[CellKey]) -> set[CellKey]:
        """Return the open cells of a workload: that of the A/A control where no other stack can be compared."""
        given_up = self._hopeless_cells()
        if (workload, self.baseline) in given_up:
            return set()
        cells = {(workload, stack) for stack in self.stacks if stack not in (self.baseline, self.control)}
        asked = cells - given_up or {(workload, self.control)} - given_up
        return asked - settled

    def decided_cells(self) -> set[CellKey]:
        """Return the decided cells."""
        return set(self._current_state().decided)

    def _confirmed_cells(self) -> set[CellKey]:
        """Return the decided cells that need no more blocks, as all blocks so far confirm them."""
        return set(self._current_state().confirmed)

    def _current_state(self) -> _DecisionState:
        """Compare all stacks with the baseline; computed once after each trial."""
        if self._state is None:
            judged = [each for of_workload in self._looks.headline_verdicts().values() for each in of_workload]
            heads = {(each.head.rule.workload, each.head.rule.name): each.head for each in judged}
            compared = {
                place: each.latest_comparison.with_needed_evidence(SINGLE_STATEMENT_EVIDENCE)
                for place, each in zip(heads, judged, strict=True)
            }
            self._state = _DecisionState(
                heads,
                compared,
                widths={place: self._widths(head, compared[place]) for place, head in heads.items()},
                decided=self._cells_where([(each.head, each.held_comparison.is_decided) for each in judged]),
                confirmed=self._cells_where(
                    [
                        (each.head, each.held_comparison.is_decided & each.latest_comparison.is_decided)
                        for each in judged
                    ]
                ),
            )
        return self._state

    def _widths(self, head: Headline, compared: RatioComparison) -> NDArray[np.float64]:
        """Return half the widths of the intervals, in those asked for: of a time to start, that of the time itself."""
        if head.rule.overall:
            return compared.relative_widths(self.precision)
        return np.asarray(head.quantity_half_widths() / np.log1p(self.precision))

    def _baseline_row(self) -> BaselineRows:
        control = self.stacks.index(self.control) if self.control in self.stacks else None
        return BaselineRows(self.stacks.index(self.baseline), control)

    def _cells_where(self, heads: Sequence[tuple[Headline, NDArray[np.bool_]]]) -> frozenset[CellKey]:
        """Return the cells for which something holds in all headlines of their workload."""
        asked = [
            ((head.rule.workload, stack), bool(holds[row]))
            for head, holds in heads
            for row, stack in enumerate(self.stacks)
            if stack != self.baseline and not self._is_skipped(head.rule.workload, stack)
        ]
        return frozenset(cell for cell, _ in asked) - {cell for cell, holds in asked if not holds}

    def _hopeless_cells(self) -> set[CellKey]:
        """Return the cells that never succeeded and were skipped once, or failed three times."""
        cells = set()
        for workload in (record.name for record in self.workloads):
            for stack in self.stacks:
                hopeless = self._status_counts[workload, stack, "failed"] >= _MAX_FAILURES
                if not self._status_counts[workload, stack, "ok"] and (hopeless or self._is_skipped(workload, stack)):
                    cells.add((workload, stack))
        return cells

    def _is_skipped(self, workload: str, stack: str) -> bool:
        return bool(self._status_counts[workload, stack, "skipped"]) and not self._status_counts[workload, stack, "ok"]

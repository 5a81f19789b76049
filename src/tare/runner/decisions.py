"""Decisions during a run: a decided cell with a narrow interval gets no more blocks, and its time goes to other cells.

The decisions are those of the report, computed after every block by the same functions (`tare.statistics.looks`). A
cell that left the schedule as decided stays decided until it gets another block. It gets one if later blocks of other
stacks show more variance, or autocorrelation of blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tare.model.run_folder import WorkloadRecord
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

# Worth of a narrow interval, in decisions. Without it, runs ended with "49 times slower [17, 144]", which is useless.
# It is small because one emulator's interval took a quarter of a demo's time while other cells stayed open.
_NARROWING_WEIGHT = 0.1
_MIN_BLOCK_SECONDS = 1e-9  # never divide by 0, even if a block is estimated to take no time
_FAR_RATIO, _FAR_BLOCKS = 5.0, 3
_MAX_FAILURES = 3  # a stack that has failed this often and never succeeded gets no more trials

CellKey = tuple[str, str]  # a workload and a stack
HeadlineId = tuple[str, str]  # a workload and the name of one of its headlines


@dataclass(frozen=True)
class _DecisionState:
    """State of all decisions after the latest trial, by workload and headline.

    `compared` has the comparisons by all blocks, and `widths` half the widths of their intervals as multiples of the
    requested precision. `decided` are the decided cells, and `confirmed` those that all blocks confirm.
    """

    heads: Mapping[HeadlineId, Headline]
    compared: Mapping[HeadlineId, RatioComparison]
    widths: Mapping[HeadlineId, NDArray[np.float64]]
    decided: frozenset[CellKey]
    confirmed: frozenset[CellKey]

    @cached_property
    def blocks_to_decide(self) -> Mapping[HeadlineId, NDArray[np.float64]]:
        """The estimated number of additional blocks until each stack's cell is decided."""
        cells = sum(comparison.count.size for comparison in self.compared.values())
        needed = evidence_needed(cells, len(self.confirmed) + 1)
        return {head: extra_blocks_needed(comparison, needed) for head, comparison in self.compared.items()}

    @cached_property
    def blocks_to_narrow(self) -> Mapping[HeadlineId, NDArray[np.float64]]:
        """The estimated number of additional blocks until each stack's interval is narrow enough."""
        return {
            head: extra_blocks_until_narrow(comparison.count, self.widths[head])
            for head, comparison in self.compared.items()
        }

    def heads_of(self, workload: str) -> list[HeadlineId]:
        """Return the headlines of a workload that were compared."""
        return [head for head in self.compared if head[0] == workload]


@dataclass
class Decisions:
    """Decisions of a run so far. `control` is the A/A control; empty without one.

    With `all_blocks`, decided cells also get all their blocks.
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
        self._looks = Looks(self.workloads, self.stacks, self._baseline_rows(), self.margin)

    def learn(self, trial: Trial) -> None:
        """Add a trial, which invalidates the present state."""
        self._state = None
        self._looks.learn(trial)
        self._status_counts[trial.workload, trial.stack, trial.status] += 1

    def select_needed_blocks(
        self, blocks: Sequence[Block], seconds_of: Callable[[PlannedTrial], float]
    ) -> tuple[Block, ...]:
        """Return the blocks without trials of finished cells and hopeless stacks, and without workloads that are done.

        A cell is finished when it is decided and its interval narrow. A decided cell with a wide interval waits while
        open cells, of any workload, gain more from its seconds; `seconds_of` estimates a trial. The A/A control stays
        as long as the baseline, because stacks are compared with both.
        """
        decided, hopeless = self._finished_cells(), self._hopeless_cells()
        following = {block.workload: block for block in reversed(blocks)}
        best = max((self._open_worth(block, hopeless | decided, seconds_of) for block in following.values()), default=0)
        steps = {(step.workload, step.stack): step for block in following.values() for step in block.trials}
        wide = {
            cell
            for cell in self._select_wide_cells(decided) & steps.keys()
            if self._wide_worth(cell) >= best * max(seconds_of(steps[cell]), _MIN_BLOCK_SECONDS)
        }
        left_out = hopeless | (decided - wide)
        unfinished = {workload for workload in following if self._open_cells(workload, left_out)}
        needed = []
        for block in blocks:
            stacks_out = {stack for workload, stack in left_out if workload == block.workload}
            # Stacks are compared with the control, too: only a hopeless one leaves.
            stacks_out -= {self.control} - {stack for workload, stack in hopeless if workload == block.workload}
            kept = tuple(step for step in block.trials if step.stack not in stacks_out)
            if kept and block.workload in unfinished:
                needed.append(block.with_steps(kept))
        return tuple(needed)

    def restrict_to_open_cells(self, block: Block) -> Block:
        """Return a block with only its open cells, the baseline and the control; unchanged if no cell is open."""
        cells = self._open_cells(block.workload, self._finished_cells() | self._hopeless_cells())
        kept = {stack for _, stack in cells} | {self.baseline, self.control}
        return block.with_steps(step for step in block.trials if step.stack in kept) if cells else block

    def _open_worth(self, block: Block, settled: set[CellKey], seconds_of: Callable[[PlannedTrial], float]) -> float:
        """Return the expected decisions per second of a block with only open cells, the baseline and the control."""
        cells = self._open_cells(block.workload, settled)
        kept = {stack for _, stack in cells} | {self.baseline, self.control}
        seconds = sum(seconds_of(step) for step in block.trials if step.stack in kept)
        return sum(1 / self._blocks_to_decide(cell) for cell in cells) / max(seconds, _MIN_BLOCK_SECONDS)

    def _blocks_to_decide(self, cell: CellKey) -> float:
        """Return the estimated number of additional blocks until an open cell is decided; 1 if nothing is known yet."""
        (workload, stack), known = cell, self._current_state()
        row = self.stacks.index(stack)
        several = [head for head in known.heads_of(workload) if known.compared[head].count[row] > 1]
        return max((float(known.blocks_to_decide[head][row]) for head in several), default=1.0)

    def _wide_worth(self, cell: CellKey) -> float:
        """Return the worth, in decisions, of another block for a decided cell with a wide interval."""
        (workload, stack), known = cell, self._current_state()
        row = self.stacks.index(stack)
        return _NARROWING_WEIGHT / max(
            1.0, *(float(known.blocks_to_narrow[head][row]) for head in known.heads_of(workload))
        )

    def are_soon_decided(self, workload: str, blocks: int) -> bool:
        """Return whether `blocks` additional blocks are estimated to decide all open cells of a workload.

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
        """Return whether a cell is decided and no cell is open in any workload."""
        finished = self._finished_cells()
        settled = finished | self._hopeless_cells()
        return bool(finished) and not any(self._open_cells(record.name, settled) for record in self.workloads)

    def have_all_failed(self) -> bool:
        """Return whether every stack but the baseline and its control never succeeds in any workload."""
        others = {stack for stack in self.stacks if stack not in (self.baseline, self.control)}
        cells = {(record.name, stack) for record in self.workloads for stack in others}
        return bool(cells) and cells <= self._hopeless_cells()

    def expected_decisions(self) -> Mapping[str, float]:
        """Return the expected number of decisions from one more block of each workload.

        A cell that needs about ten more blocks counts as a tenth of a decision. Empty with `all_blocks`: for classical
        tests after a fixed number of blocks, the values must not choose what is measured.
        """
        if self.all_blocks:
            return {}
        known, decided = self._current_state(), self._confirmed_cells()
        settled = decided | self._hopeless_cells()
        expected, wide = (
            dict.fromkeys([record.name for record in self.workloads], 0.0),
            self._select_wide_cells(decided),
        )
        for head in known.compared:
            workload, shares = head[0], 1 / known.blocks_to_decide[head]
            expected[workload] += sum(
                float(shares[self.stacks.index(stack)]) for _, stack in self._open_cells(workload, settled)
            )
            blocks = known.blocks_to_narrow[head]
            for stack in (stack for name, stack in wide if name == workload):
                expected[workload] += _NARROWING_WEIGHT / max(float(blocks[self.stacks.index(stack)]), 1.0)
        return expected

    def _select_wide_cells(self, cells: set[CellKey]) -> set[CellKey]:
        """Return the cells out of `cells` with an interval, of any headline, wider than the requested precision.

        A far slower stack has given its answer: the others would wait for its turns.
        """
        known = self._current_state()
        return cells & {
            (head[0], self.stacks[row])
            for head, widths in known.widths.items()
            for row in np.flatnonzero((widths > 1) & ~self._is_far(head))
        }

    def _is_far(self, head: CellKey) -> NDArray[np.bool_]:
        """Return the mask of the stacks whose ratio is 5 or more, or a fifth or less, after a few blocks.

        All False for a quantity that is read by itself.
        """
        known = self._current_state()
        compared = known.compared[head]
        is_far = (np.abs(compared.mean) >= np.log(_FAR_RATIO)) & (compared.count >= _FAR_BLOCKS)
        return np.asarray(is_far & known.heads[head].rule.overall)

    def variance_components(self, workload: str) -> VarianceComponents | None:
        """Return the variance components of a workload's first headline; None if unknown.

        Also None with `all_blocks`: the values must then not choose what is measured.
        """
        if self.all_blocks:
            return None
        first = next(head for head in self._current_state().heads.values() if head.rule.workload == workload)
        return headline_variance_components(first, self._baseline_rows())

    def _finished_cells(self) -> set[CellKey]:
        return set() if self.all_blocks else self._confirmed_cells()

    def _open_cells(self, workload: str, settled: set[CellKey]) -> set[CellKey]:
        """Return the open cells of a workload; if no other stack is usable here, that of the A/A control.

        None if all other stacks fail: the rest of the budget would go into the baseline against itself.
        """
        hopeless = self._hopeless_cells()
        if (workload, self.baseline) in hopeless:  # no stack can be compared
            return set()
        cells = {(workload, stack) for stack in self.stacks if stack not in (self.baseline, self.control)}
        comparable = cells - hopeless
        if not comparable and all(self._is_skipped(*cell) for cell in cells):
            comparable = {(workload, self.control)} - hopeless
        return comparable - settled

    def decided_cells(self) -> set[CellKey]:
        """Return the decided cells."""
        return set(self._current_state().decided)

    def _confirmed_cells(self) -> set[CellKey]:
        """Return the decided cells that all blocks so far confirm: they need no more blocks."""
        return set(self._current_state().confirmed)

    def _current_state(self) -> _DecisionState:
        """Return the comparisons of all stacks with the baseline; cached until the next trial."""
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
                widths={place: self._compute_widths(head, compared[place]) for place, head in heads.items()},
                decided=self._cells_where([(each.head, each.held_comparison.is_decided) for each in judged]),
                confirmed=self._cells_where(
                    [
                        (each.head, each.held_comparison.is_decided & each.latest_comparison.is_decided)
                        for each in judged
                    ]
                ),
            )
        return self._state

    def _compute_widths(self, head: Headline, compared: RatioComparison) -> NDArray[np.float64]:
        """Return half the widths of the intervals as multiples of the requested precision.

        For a quantity that is read by itself, such as a start time, the interval is that of the quantity and not of
        its ratio.
        """
        if head.rule.overall:
            return compared.relative_widths(self.precision)
        return np.asarray(head.quantity_half_widths() / np.log1p(self.precision))

    def _baseline_rows(self) -> BaselineRows:
        control = self.stacks.index(self.control) if self.control in self.stacks else None
        return BaselineRows(self.stacks.index(self.baseline), control)

    def _cells_where(self, heads: Sequence[tuple[Headline, NDArray[np.bool_]]]) -> frozenset[CellKey]:
        """Return the cells for which the rows of `heads` are true in all headlines of the workload."""
        holds_by_cell = [
            ((head.rule.workload, stack), bool(holds[row]))
            for head, holds in heads
            for row, stack in enumerate(self.stacks)
            if stack != self.baseline and not self._is_skipped(head.rule.workload, stack)
        ]
        return frozenset(cell for cell, _ in holds_by_cell) - {cell for cell, holds in holds_by_cell if not holds}

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

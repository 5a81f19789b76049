"""Looks: interim analyses of a run, one after each block, as a pure function of its trials in the journal's order.

A cell (stack and headline) is judged by the trials until its last block, of all workloads. Later blocks, which only
other cells have, do not count: they could change the number of blocks that the cell needs and its moderated variance.
So a verdict changes only with a block of its cell. This is valid because a sequential test may end whenever its
evidence is enough: the bound is on the probability that the evidence for a false statement is *ever* large (Ville's
inequality; Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences",
The Annals of Statistics 49 (2021), 1055-1080; Johari, Koomen, Pekelis and Walsh, "Always valid inference: continuous
monitoring of A/B tests", Operations Research 70 (2022), 1806-1821). A stack that leaves the schedule has ended its
test.

e-BH judges all cells together after each block, each by its evidence at that look. A hypothesis that e-BH rejected at
any look since its cell's last block stays rejected, as in online e-BH (Fischer, Xu and Ramdas, "An online
generalization of the (e-)Benjamini-Hochberg procedure", arXiv:2407.20683 (2024)). docs/decisions/statistics.md has the
simulations.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from tare.model.run_folder import WorkloadRecord
from tare.model.trial import Better, Trial
from tare.statistics.anytime import MIN_VALUES_EARLY, SINGLE_STATEMENT_EVIDENCE, evidence_needed_together, has_interval
from tare.statistics.grid import Grid, GridBuilder
from tare.statistics.headlines import Headline, LogRatios, create_headlines
from tare.statistics.moderated_variance import VariancePrior, VarianceRatios, fit_prior
from tare.statistics.ratios import BaselineRows, RatioComparison

# Checkpoints of e-BH: each of the first 64 blocks of a run, then whenever 5 % more blocks are done. A run of 55,000
# trials took 42 s with a checkpoint at every block, and 4 s with these (docs/decisions/statistics.md).
_EVERY_BLOCK_UNTIL, _CHECKPOINT_GROWTH = 64, 1.05
_Look = Mapping[Better, RatioComparison]  # comparisons of a workload's headlines after some of its blocks
_LookRatios = Mapping[Better, LogRatios]
_HeadlineKey = tuple[str, Better]  # a headline: its workload and its direction
_NeededEvidence = Mapping[_HeadlineKey, NDArray[np.float64]]  # evidence that each stack needs, by headline


@dataclass(frozen=True)
class HeadlineVerdicts:
    """Headline with two comparisons, both with a row for each stack.

    `held_comparison` decides the verdicts: the row of a stack is as of the stack's last block. `latest_comparison`
    compares all stacks by all blocks of the workload.
    """

    head: Headline
    held_comparison: RatioComparison
    latest_comparison: RatioComparison

    @property
    def is_unconfirmed(self) -> NDArray[np.bool_]:
        """Mask of the decided stacks that all blocks would not decide: they need another block for confirmation."""
        return np.asarray(self.held_comparison.is_decided & ~self.latest_comparison.is_decided)


@dataclass
class _WorkloadTrials:
    """Trials of a workload so far, and the looks at them.

    A position is the number of trials in the journal up to and including a trial.

    - `ends`: the position of each block's last result, in increasing order.
    - `done`: the blocks in which a stack has a result.
    - `began` and `skipped`: the positions of each stack's first result and first skipped trial.
    - `looks`: by the number of blocks that they include.
    - `ratios` and `variances`: the log ratios of looks without a comparison, and the variance ratios of all looks.
    """

    grid_builder: GridBuilder
    ends: dict[int, int] = field(default_factory=dict)
    done: dict[str, set[int]] = field(default_factory=dict)
    began: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    looks: dict[int, _Look] = field(default_factory=dict)
    ratios: dict[int, _LookRatios] = field(default_factory=dict)
    variances: dict[int, VarianceRatios] = field(default_factory=dict)
    # Caches, cleared by each result. `stack_looks` has, by stack, the looks right after a block with the stack.
    stack_looks: dict[str, list[int]] = field(default_factory=dict)
    grid: Grid | None = None
    heads: tuple[Headline, ...] = ()

    def learn(self, trial: Trial, journal_position: int) -> bool:
        """Add a trial; return False if it changes earlier looks, because its block is not the latest one."""
        if trial.status == "skipped":
            self.skipped.setdefault(trial.stack, journal_position)
        if trial.status != "ok":
            return True
        self.grid_builder.add(trial)
        self.grid, self.heads = None, ()
        self.stack_looks.clear()
        self.began.setdefault(trial.stack, journal_position)
        self.done.setdefault(trial.stack, set()).add(trial.block)
        is_last = trial.block not in self.ends or trial.block == next(reversed(self.ends))
        if trial.block in self.ends:
            for caches in (self.looks, self.ratios, self.variances):
                for count in [count for count in caches if not is_last or count >= len(self.ends)]:
                    del caches[count]
            del self.ends[trial.block]
        self.ends[trial.block] = journal_position
        return is_last

    def was_skipped(self, stack: str, journal_position: int) -> bool:
        """Return whether a stack had been skipped, and had no result, up to a position in the journal."""
        return (
            self.skipped.get(stack, journal_position + 1)
            <= journal_position
            < self.began.get(stack, journal_position + 1)
        )


class Looks:
    """All looks at the trials of a run, which `learn` adds one by one in the journal's order."""

    def __init__(
        self, records: Sequence[WorkloadRecord], stacks: tuple[str, ...], reference: BaselineRows, margin: float
    ) -> None:
        self._stacks, self._reference, self._margin = stacks, reference, margin
        references = tuple(stacks[row] for row in (reference.row, reference.control) if row is not None and stacks)
        self._pasts = {record.name: _WorkloadTrials(GridBuilder(record, stacks, references)) for record in records}
        self._needed: dict[int, _NeededEvidence] = {}  # by position; a cache
        self._ends: list[int] = []  # positions of the ends of all workloads' blocks, in order; a cache
        self._count = 0  # trials in the journal so far
        self._latest = ("", 0)  # workload and block of the latest result

    def learn(self, trial: Trial) -> None:
        """Add the journal's next trial."""
        self._count += 1
        self._ends = []
        block = trial.workload, trial.block
        is_resumed = block != self._latest and trial.block in self._pasts[trial.workload].ends
        is_last = self._pasts[trial.workload].learn(trial, self._count)
        if trial.status == "ok":
            self._latest = block
            if is_resumed or not is_last:  # an interrupted block was completed after other blocks
                self._needed.clear()
                for past in self._pasts.values():
                    past.looks.clear()

    def grid(self, workload: str) -> Grid:
        """Return all values of a workload."""
        past = self._pasts[workload]
        if past.grid is None:
            past.grid = past.grid_builder.grid()
        return past.grid

    def headline_verdicts(self) -> Mapping[str, tuple[HeadlineVerdicts, ...]]:
        """Return the verdicts of all headlines so far, by workload."""
        looks = {name: self._look_after(name, len(past.ends)) for name, past in self._pasts.items()}
        by_key = {(name, better): compared for name, look in looks.items() for better, compared in look.items()}
        needed = self._needed_evidence_for({key: compared.evidence for key, compared in by_key.items()}, self._count)
        latest = {key: compared.with_needed_evidence(needed[key]) for key, compared in by_key.items()}
        return {
            name: tuple(
                HeadlineVerdicts(
                    head, self._compare_as_of_last_block(name, head.rule.better), latest[name, head.rule.better]
                )
                for head in self._all_headlines(name)
            )
            for name in looks
        }

    def compare_as_of_last_blocks(self, workload: str, ratios: LogRatios, reference: BaselineRows) -> RatioComparison:
        """Return the comparison of a workload's log ratios to `reference`; each stack's row is as of its last block."""
        blocks, ends = self.grid(workload).blocks, self._pasts[workload].ends

        def compare_after(count: int) -> RatioComparison:
            done = frozenset(islice(ends, count))
            at = [index for index, block in enumerate(blocks) if block in done]
            return ratios.compare(self._margin, reference, self._prior_after(workload, count), at)

        return self._compare_as_of(workload, self._count, compare_after)[0]

    def _compare_as_of_last_block(self, name: str, better: Better) -> RatioComparison:
        """Return a headline's comparison, each row as of its stack's last block.

        `needed` is the least evidence that e-BH required since that block, so that a rejection since then stays.
        """
        held, counts = self._compare_headline(name, better, self._count)
        ends = list(self._pasts[name].ends.values())
        needed = np.full(held.count.shape, SINGLE_STATEMENT_EVIDENCE)
        for row, count in enumerate(counts):
            # A stack without a block is judged at the latest look only.
            first = ends[count - 1] if count else self._count
            needed[row] = self._least_needed_evidence((name, better), row, float(held.evidence[row]), first)
        return held.with_needed_evidence(needed)

    def _least_needed_evidence(self, key: _HeadlineKey, row: int, evidence: float, first: int) -> float:
        """Return the least evidence that e-BH required of a cell (a headline's row) since its last block ended.

        `first` is the position of that end. The search stops at the latest look that rejects the cell's hypothesis.
        """
        least = math.inf
        for position in self._checkpoints(first):
            needed = self._needed_evidence_at(position)
            least = min(least, float(needed[key][row]) if key in needed else math.inf)
            # With less evidence than a single statement needs, e-BH rejects at no look: skip the others.
            if evidence >= least or evidence < SINGLE_STATEMENT_EVIDENCE:
                break
        return least

    def _compare_headline(self, name: str, better: Better, until: int) -> tuple[RatioComparison, NDArray[np.int64]]:
        """Return `_compare_as_of` for a headline."""
        return self._compare_as_of(name, until, lambda count: self._look_after(name, count).get(better))

    def _compare_as_of(
        self, name: str, until: int, compare: Callable[[int], RatioComparison | None]
    ) -> tuple[RatioComparison, NDArray[np.int64]]:
        """Return a comparison whose rows are from the looks after the stacks' last blocks, up to position `until`.

        Return also the number of blocks of each row's look. `compare` returns the comparison after the first n blocks;
        None if the headline has no value there.
        """
        block_count = bisect_right(list(self._pasts[name].ends.values()), until)
        result = compare(block_count)
        assert result is not None  # noqa: S101 - the latest look has all headlines
        look_of_row = np.full(len(self._stacks), block_count)
        last_looks, looks_before = self._last_two_looks(name, block_count)

        for look in {*last_looks.tolist()} - {0, block_count}:
            if at_look := compare(look):
                rows = last_looks == look
                result = result.with_rows(at_look, _row_mask(rows, result))
                look_of_row[rows] = look

        # An interval after three blocks needs degrees of freedom from other stacks. If these are too few for an
        # interval after four blocks, that does not contradict the earlier one: the look after three blocks counts.
        has_lost_interval = (result.count > MIN_VALUES_EARLY) & ~has_interval(result.count, result.borrowed)
        for look in {*looks_before[_any_cell(has_lost_interval)].tolist()} - {0}:
            if at_look := compare(look):
                rows_at_look = _row_mask(looks_before == look, result)
                cells = rows_at_look & has_lost_interval & has_interval(at_look.count, at_look.borrowed)
                result = result.with_rows(at_look, cells)
                look_of_row[_any_cell(cells)] = look
        return result, look_of_row

    def _last_two_looks(self, name: str, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the last and the second-to-last look of each stack, out of the first `count`; 0 for no such look.

        Only looks after blocks count in which the stack and the baseline or its control have a result.
        """
        past, rows = self._pasts[name], (self._reference.row, self._reference.control)
        if not past.stack_looks:
            references = set[int]().union(*(past.done.get(self._stacks[row], set()) for row in rows if row is not None))
            for stack in self._stacks:
                in_blocks = past.done.get(stack, set()) & references
                past.stack_looks[stack] = [
                    number for number, block in enumerate(past.ends, start=1) if block in in_blocks
                ]
        last_two = []
        for numbers in past.stack_looks.values():
            until = bisect_right(numbers, count)
            last_two.append([*reversed(numbers[max(0, until - 2) : until]), 0, 0][:2])
        looks = np.array(last_two, dtype=np.int64).reshape(-1, 2)
        return looks[:, 0], looks[:, 1]

    def _look_after(self, name: str, count: int) -> _Look:
        """Return the look after the first `count` blocks of a workload; cached."""
        past = self._pasts[name]
        if count not in past.looks:
            ratios, prior = self._ratios_after(name, count), self._prior_after(name, count)
            past.looks[count] = {
                better: each.compare(self._margin, self._reference, prior) for better, each in ratios.items()
            }
            past.ratios.pop(count, None)
        return past.looks[count]

    def _ratios_after(self, name: str, count: int) -> _LookRatios:
        """Return the log ratios of a workload's headlines after its first `count` blocks; cached until compared."""
        past = self._pasts[name]
        if count not in past.ratios:
            if count < len(past.ends):
                heads = create_headlines(self.grid(name).select_blocks(frozenset(islice(past.ends, count))))
            else:
                heads = self._all_headlines(name)
            past.ratios[count] = {head.rule.better: head.log_ratios(self._reference) for head in heads}
        return past.ratios[count]

    def _variances_after(self, name: str, count: int) -> VarianceRatios:
        """Return the variance ratios of a workload's stacks after its first `count` blocks, by headline; cached."""
        past = self._pasts[name]
        if count not in past.variances:
            of_heads = [each.variance_ratios() for each in self._ratios_after(name, count).values()]
            logs, freedom, lends = (
                np.stack([getattr(each, name) for each in of_heads]) for name in ("logs", "freedom", "lends")
            )
            past.variances[count] = VarianceRatios(logs, freedom, lends)
        return past.variances[count]

    def _prior_after(self, name: str, count: int) -> VariancePrior | None:
        """Return the prior of a workload's variances for each stack, when its first `count` blocks had ended.

        All cells of the run lend, except those of the same workload and stack. None before the workload has cells
        with rounds that lend, too.
        """
        if count == 0 or not self._variances_after(name, count).lends.any():
            return None
        position = next(islice(self._pasts[name].ends.values(), count - 1, None))
        cells, others = [], []
        for other, past in self._pasts.items():
            blocks = count if other == name else bisect_right(list(past.ends.values()), position)
            if blocks:
                cells.append(self._variances_after(other, blocks))
                is_same = np.eye(len(self._stacks), dtype=bool) & (other == name)
                others.append(np.tile(~is_same, len(cells[-1].logs)))
        ratios = VarianceRatios(
            *(
                np.concatenate([getattr(each, field).ravel() for each in cells])
                for field in ("logs", "freedom", "lends")
            )
        )
        return fit_prior(ratios, np.hstack(others), has_rounds=True)

    def _all_headlines(self, name: str) -> tuple[Headline, ...]:
        """Return a workload's headlines over all blocks; cached."""
        past = self._pasts[name]
        past.heads = past.heads or create_headlines(self.grid(name))
        return past.heads

    def _checkpoints(self, first: int) -> list[int]:
        """Return the positions at which e-BH may reject a cell whose last block ended at `first`, the latest first.

        They are `first`, and the ends of later blocks, of any workload, that are checkpoints.
        """
        if not self._ends:
            self._ends = sorted(end for past in self._pasts.values() for end in past.ends.values())
        ends = (self._ends[number - 1] for number in _checkpoint_numbers(len(self._ends)))
        return [*(end for end in ends if end > first), first]

    def _needed_evidence_at(self, journal_position: int) -> _NeededEvidence:
        """Return the evidence that e-BH required at a position, by the stacks' last blocks until then; cached."""
        if journal_position not in self._needed:
            evidence: dict[_HeadlineKey, NDArray[np.float64]] = {}
            for name, past in self._pasts.items():
                for better in self._look_after(name, bisect_right(list(past.ends.values()), journal_position)):
                    evidence[name, better] = self._compare_headline(name, better, journal_position)[0].evidence
            self._needed[journal_position] = self._needed_evidence_for(evidence, journal_position)
        return self._needed[journal_position]

    def _needed_evidence_for(
        self, evidence: Mapping[_HeadlineKey, NDArray[np.float64]], journal_position: int
    ) -> _NeededEvidence:
        """Return the evidence that e-BH requires of each cell, without the baseline and skipped stacks."""
        if not evidence:
            return {}
        rows = np.arange(len(self._stacks))
        skipped = [
            [self._pasts[name].was_skipped(stack, journal_position) for stack in self._stacks] for name, _ in evidence
        ]
        is_hypothesis = (rows != self._reference.row) & ~np.array(skipped, dtype=bool)
        is_control = np.broadcast_to(rows == self._reference.control, is_hypothesis.shape)
        needed = np.full(is_hypothesis.shape, SINGLE_STATEMENT_EVIDENCE)
        needed[is_hypothesis] = evidence_needed_together(
            np.array(list(evidence.values()))[is_hypothesis], is_control[is_hypothesis]
        )
        return dict(zip(evidence, needed, strict=True))


def _row_mask(rows: NDArray[np.bool_], comparison: RatioComparison) -> NDArray[np.bool_]:
    """Return a mask in the shape of a comparison that is true in the given rows."""
    shape = comparison.count.shape
    return np.broadcast_to(rows.reshape(-1, *[1] * (len(shape) - 1)), shape)


def _any_cell(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the mask of rows in which any cell of `mask` is true."""
    return np.asarray(mask.reshape(len(mask), -1).any(axis=1))


def _checkpoint_numbers(count: int) -> list[int]:
    """Return the numbers of blocks, of `count`, after which e-BH judges all cells; the last ones first."""
    numbers = [*range(1, min(count, _EVERY_BLOCK_UNTIL) + 1)]
    while (
        numbers
        and (number := math.ceil(_CHECKPOINT_GROWTH * numbers[-1])) <= count
        and numbers[-1] >= _EVERY_BLOCK_UNTIL
    ):
        numbers.append(number)
    return numbers[::-1]

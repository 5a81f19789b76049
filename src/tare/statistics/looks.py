"""Looks: the verdicts of a run after each of its blocks, as a pure function of its trials in the journal's order.

A cell is judged by what was measured until its last block, and not by the blocks that only other stacks have after
that: they can neither raise the number of blocks that it needs nor lower the variance that it borrows. So a verdict
changes only with a block of its cell. This is valid because a sequential test may end whenever its evidence is
enough: what is bounded is the probability that the evidence for a false statement is *ever* large (Ville's inequality;
Howard, Ramdas, McAuliffe and Sekhon, "Time-uniform, nonparametric, nonasymptotic confidence sequences", The Annals of
Statistics 49 (2021), 1055-1080; Johari, Koomen, Pekelis and Walsh, "Always valid inference: continuous monitoring of
A/B tests", Operations Research 70 (2022), 1806-1821). A stack that leaves the schedule has ended its test.

All cells are judged together by e-BH after each block, each with its evidence of then. What was rejected at any look
since a cell's last block stays rejected, as in online e-BH (Fischer, Xu and Ramdas, "An online generalization of the
(e-)Benjamini-Hochberg procedure", arXiv:2407.20683 (2024)). docs/decisions/anytime.md has the simulations.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from tare.journal import WorkloadRecord
from tare.model.trials import Better, Trial
from tare.statistics.anytime import ALONE, LEAST_EARLY, has_interval, needed_together
from tare.statistics.grid import Arranging, Grid
from tare.statistics.headlines import Headline, headlines
from tare.statistics.ratios import Comparison, Reference, compare_together


@dataclass(frozen=True)
class Judged:
    """A headline, and the comparison of its verdicts: each stack's row is as of the stack's last block.

    `latest` compares all stacks in the light of all blocks, as if each had just had one.
    """

    head: Headline
    held: Comparison
    latest: Comparison

    @property
    def unconfirmed(self) -> NDArray[np.bool_]:
        """Which decided stacks would not be decided in the light of all blocks: another block of theirs tells."""
        return np.asarray(self.held.decided & ~self.latest.decided)


_EACH, _GROWTH = 64, 1.05
_Look = Mapping[Better, Comparison]
_Key = tuple[str, Better]  # a workload and the direction of one of its headlines
_Needed = Mapping[_Key, NDArray[np.float64]]


@dataclass
class _Past:
    """The trials of a workload so far, and looks at them, by their number of blocks.

    `ends` has the blocks with a result, and how many trials the journal had at the end of each, in this order. `done`
    has the blocks with a result of each stack. `began` and `skipped` have the place in the journal of each stack's
    first result and first skipped trial.
    """

    arranging: Arranging
    ends: dict[int, int] = field(default_factory=dict)
    done: dict[str, set[int]] = field(default_factory=dict)
    began: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    looks: dict[int, _Look] = field(default_factory=dict)
    own_looks: dict[str, list[int]] = field(default_factory=dict)  # of each stack, once they are known
    grid: Grid | None = None
    heads: tuple[Headline, ...] = ()

    def learn(self, trial: Trial, place: int) -> bool:
        """Take a trial into account; return whether all earlier looks stay as they are."""
        if trial.status == "skipped":
            self.skipped.setdefault(trial.stack, place)
        if trial.status != "ok":
            return True
        self.arranging.add(trial)
        self.grid, self.heads = None, ()
        self.own_looks.clear()
        self.began.setdefault(trial.stack, place)
        self.done.setdefault(trial.stack, set()).add(trial.block)
        is_last = trial.block not in self.ends or trial.block == next(reversed(self.ends))
        if trial.block in self.ends:
            self.looks = {count: look for count, look in self.looks.items() if is_last and count < len(self.ends)}
            del self.ends[trial.block]
        self.ends[trial.block] = place
        return is_last

    def was_skipped(self, stack: str, place: int) -> bool:
        """Return whether a stack had been skipped at a place in the journal, and had no result."""
        return self.skipped.get(stack, place + 1) <= place < self.began.get(stack, place + 1)


class Looks:
    """All looks at the trials of a run, which are learned one by one in the order of the journal."""

    def __init__(
        self, records: Sequence[WorkloadRecord], stacks: tuple[str, ...], reference: Reference, margin: float
    ) -> None:
        self._stacks, self._reference, self._margin = stacks, reference, margin
        self._pasts = {record.name: _Past(Arranging(record, stacks)) for record in records}
        self._needed: dict[int, _Needed] = {}  # by the number of trials in the journal
        self._ends: list[int] = []  # of all blocks, in order, once they are known
        self._count = 0

    def learn(self, trial: Trial) -> None:
        """Take a trial into account."""
        self._count += 1
        self._ends = []
        if not self._pasts[trial.workload].learn(trial, self._count):
            self._needed.clear()  # a block that was broken off has been completed

    def grid(self, workload: str) -> Grid:
        """Return all values of a workload."""
        past = self._pasts[workload]
        if past.grid is None:
            past.grid = past.arranging.grid()
        return past.grid

    def judged(self) -> Mapping[str, tuple[Judged, ...]]:
        """Judge all headlines, by workload."""
        looks = {name: self._look(name, len(past.ends)) for name, past in self._pasts.items()}
        every = {(name, better): compared for name, look in looks.items() for better, compared in look.items()}
        needed = self._needed_for({key: compared.evidence for key, compared in every.items()}, self._count)
        latest = {key: replace(compared, needed=needed[key]) for key, compared in every.items()}
        return {
            name: tuple(
                Judged(head, self._held(name, head.rule.better), latest[name, head.rule.better])
                for head in self._heads(name)
            )
            for name in looks
        }

    def as_of_last_blocks(self, workload: str, compare: Callable[[frozenset[int]], Comparison]) -> Comparison:
        """Compare some of a workload's blocks by a function; return each stack's row as of its last block."""
        ends = self._pasts[workload].ends
        return self._as_of(workload, self._count, lambda count: compare(frozenset(islice(ends, count))))[0]

    def _held(self, name: str, better: Better) -> Comparison:
        """Return the rows of a headline as of the stacks' last blocks, with the least evidence needed since then."""
        held, counts = self._headline(name, better, self._count)
        ends = list(self._pasts[name].ends.values())
        needed = np.full(held.count.shape, ALONE)
        for row, count in enumerate(counts):
            first = ends[count - 1] if count else self._count
            needed[row] = self._least_needed((name, better), row, float(held.evidence[row]), first)
        return replace(held, needed=needed)

    def _least_needed(self, key: _Key, row: int, evidence: float, first: int) -> float:
        """Return what e-BH needed of a cell at the latest look since its last block at which that was reached.

        Return the least of all these looks where it never was.
        """
        least = math.inf
        for place in self._checkpoints(first):
            needed = self._needed_at(place)
            least = min(least, float(needed[key][row]) if key in needed else math.inf)
            if evidence >= least or evidence < ALONE:
                break
        return least

    def _headline(self, name: str, better: Better, until: int) -> tuple[Comparison, NDArray[np.int64]]:
        def compare(count: int) -> Comparison | None:
            return self._look(name, count).get(better)

        return self._as_of(name, until, compare)

    def _as_of(
        self, name: str, until: int, compare: Callable[[int], Comparison | None]
    ) -> tuple[Comparison, NDArray[np.int64]]:
        """Take each stack's row from the look after its last block, of the first trials of the journal.

        Return also the number of blocks of each stack's look. Four blocks that are too few for an interval, because
        the stack no longer borrows enough from others, contradict nothing: then the look at three holds.
        """
        count = bisect_right(list(self._pasts[name].ends.values()), until)
        found, counts = compare(count), np.full(len(self._stacks), count)
        assert found is not None  # noqa: S101 - the latest look has all headlines
        last, before = self._own_looks(name, count)
        for number in {*last.tolist()} - {0, count}:
            if other := compare(number):
                rows = last == number
                found, counts = found.with_rows(other, _like(rows, found)), np.where(rows, number, counts)
        lacks = (found.count > LEAST_EARLY) & ~has_interval(found.count, found.borrowed)
        for number in {*before[lacks.reshape(len(before), -1).any(axis=1)].tolist()} - {0}:
            if other := compare(number):
                cells = _like(before == number, found) & lacks & has_interval(other.count, other.borrowed)
                rows = cells.reshape(len(before), -1).any(axis=1)
                found, counts = found.with_rows(other, cells), np.where(rows, number, counts)
        return found, counts

    def _own_looks(self, name: str, count: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return each stack's last look, of the first ones, after a block in which it could be compared.

        Return also the one before; 0 where there is none.
        """
        past, rows = self._pasts[name], (self._reference.row, self._reference.control)
        if not past.own_looks:
            references = set[int]().union(*(past.done.get(self._stacks[row], set()) for row in rows if row is not None))
            for stack in self._stacks:
                own = past.done.get(stack, set()) & references
                past.own_looks[stack] = [number for number, block in enumerate(past.ends, start=1) if block in own]
        last_two = []
        for numbers in past.own_looks.values():
            until = bisect_right(numbers, count)
            last_two.append([*reversed(numbers[max(0, until - 2) : until]), 0, 0][:2])
        looks = np.array(last_two, dtype=np.int64).reshape(-1, 2)
        return looks[:, 0], looks[:, 1]

    def _look(self, name: str, count: int) -> _Look:
        """Return the look after the first blocks of a workload; computed once."""
        past = self._pasts[name]
        if count not in past.looks:
            if count < len(past.ends):
                heads = headlines(self.grid(name).of_blocks(frozenset(islice(past.ends, count))))
            else:
                heads = self._heads(name)
            past.looks[count] = {head.rule.better: self._compare(head) for head in heads}
        return past.looks[count]

    def _heads(self, name: str) -> tuple[Headline, ...]:
        past = self._pasts[name]
        past.heads = past.heads or headlines(self.grid(name))
        return past.heads

    def _compare(self, head: Headline) -> Comparison:
        found = head.differences(self._reference)
        return compare_together(found.logs, found.both, self._margin, self._reference)

    def _checkpoints(self, first: int) -> list[int]:
        """Return the looks at which e-BH may add a decision about a cell whose last block ended there.

        They are that look itself, and those after other blocks since, the latest first: after each of the first 64 of
        the run, and whenever their number has grown by 5 %, so that the work grows with the blocks and not faster.
        """
        if not self._ends:
            self._ends = sorted(end for past in self._pasts.values() for end in past.ends.values())
        ends = (self._ends[number - 1] for number in _numbers(len(self._ends)))
        return [*(end for end in ends if end > first), first]

    def _needed_at(self, place: int) -> _Needed:
        """Return the evidence that was needed at a place in the journal, each stack judged as of its last block."""
        if place not in self._needed:
            evidence: dict[_Key, NDArray[np.float64]] = {}
            for name, past in self._pasts.items():
                for better in self._look(name, bisect_right(list(past.ends.values()), place)):
                    evidence[name, better] = self._headline(name, better, place)[0].evidence
            self._needed[place] = self._needed_for(evidence, place)
        return self._needed[place]

    def _needed_for(self, evidence: Mapping[_Key, NDArray[np.float64]], place: int) -> _Needed:
        """Return what e-BH needs of each cell that is asked about: not of the baseline, and not of skipped stacks."""
        if not evidence:
            return {}
        rows = np.arange(len(self._stacks))
        skipped = [[self._pasts[name].was_skipped(stack, place) for stack in self._stacks] for name, _ in evidence]
        asked = (rows != self._reference.row) & ~np.array(skipped, dtype=bool)
        is_control = np.broadcast_to(rows == self._reference.control, asked.shape)
        needed = np.full(asked.shape, ALONE)
        needed[asked] = needed_together(np.array(list(evidence.values()))[asked], is_control[asked])
        return dict(zip(evidence, needed, strict=True))


def _like(rows: NDArray[np.bool_], comparison: Comparison) -> NDArray[np.bool_]:
    """Return a mask of rows in the shape of a comparison."""
    shape = comparison.count.shape
    return np.broadcast_to(rows.reshape(-1, *[1] * (len(shape) - 1)), shape)


def _numbers(count: int) -> list[int]:
    """Return the numbers of blocks, of so many, after which e-BH is asked about all cells; the last ones first."""
    numbers = [*range(1, min(count, _EACH) + 1)]
    while numbers and (number := math.ceil(_GROWTH * numbers[-1])) <= count and numbers[-1] >= _EACH:
        numbers.append(number)
    return numbers[::-1]

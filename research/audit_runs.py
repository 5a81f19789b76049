"""Simulated runs, thousands at once, decided after every block by the functions of tare itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from tare_fake.noise import DRAWS, Shape, shaped

from tare.statistics.anytime import MIN_VALUES_EARLY, e_bh_with_control, has_interval
from tare.statistics.headlines import relative_to_baseline
from tare.statistics.ratios import BaselineRows, Moderation, RatioComparison, compare_together

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]
Truths = NDArray[np.bool_]

BLOCKS = 60
WITHIN = 0.037  # standard deviation of a log ratio within a block, as it was measured on a small shared machine
MARGIN = 0.03
EFFECTS = (0.0, 0.01, 0.03, 0.05, 0.10, 0.30)
UNDECIDED, MORE, LESS, ALIKE = range(4)


@dataclass(frozen=True)
class Kind:
    """What disturbs the trials: noise of each stack by itself, or also of the machine that they share.

    With `alone`, only the first stack beside the baseline has that noise, and all others are normal. `correlation` is
    that of a trial with the one before, of shapes that have any; of a drift, it is what half a slow wave comes to.
    """

    name: str
    shape: Shape = "normal"
    correlation: float = 0.5
    machine: bool = False
    alone: bool = False


NORMAL = Kind("normal")
KINDS = (
    NORMAL,
    Kind("Student t, 3 degrees of freedom", "heavy"),
    Kind("two modes", "modes"),
    Kind("drift of the machine", "drift", machine=True),
    Kind("AR(1) of the machine, 0.5", "correlated", machine=True),
    Kind("AR(1) of each stack, 0.3", "correlated", 0.3),
    Kind("AR(1) of each stack, 0.5", "correlated", 0.5),
    Kind("drift of each stack", "drift"),
    Kind("1/f noise of the machine", "1/f", machine=True),  # the last, as the seeds of the others follow their places
)
# What blocks in random order are made for; the others are in one stack alone, and look like an effect of it.
COVERED = (*KINDS[:5], KINDS[-1])


@dataclass(frozen=True)
class World:
    """Log speeds without any effect. `own` has the axes run, stack, its n-th trial; `mood` run, n-th trial of all."""

    own: Floats
    mood: Floats
    places: Counts

    def in_turn(self) -> Floats:
        """Return the log speeds as blocks have them: one trial of each stack, in random order, then the next block."""
        runs, stacks, blocks = self.own.shape
        return self.own + np.take_along_axis(self.mood, self.places.reshape(runs, -1), axis=1).reshape(
            runs, stacks, blocks
        )

    def apart(self, trials: int) -> Floats:
        """Return the log speeds of a number of trials of one stack, followed by those of the next."""
        runs, stacks, _ = self.own.shape
        return self.own[..., :trials] + self.mood[:, : stacks * trials].reshape(runs, stacks, trials)


def make_world(kind: Kind, size: tuple[int, int], seed: int) -> World:
    """Draw runs and stacks, so that log ratios within blocks have the standard deviation `WITHIN`."""
    (runs, stacks), chance = size, np.random.default_rng(seed)
    draws = chance.standard_normal((runs, stacks, BLOCKS, DRAWS))
    orders = np.argsort(chance.random((runs, BLOCKS, stacks)), axis=2)
    places = (orders + stacks * np.arange(BLOCKS)[:, np.newaxis]).transpose(0, 2, 1)
    own = shaped(draws, "normal" if kind.machine or kind.alone else kind.shape, kind.correlation)
    if kind.alone:
        own[:, 1] = shaped(draws[:, 1], kind.shape, kind.correlation)
    mood = np.zeros((runs, stacks * BLOCKS))
    if kind.machine:
        mood = shaped(chance.standard_normal((*mood.shape, DRAWS)), kind.shape, kind.correlation)
    plain = World(own, mood, places)
    logs = plain.in_turn()
    spread = float(np.sqrt(((logs[:, 1] - logs[:, 0]) ** 2).mean())) if kind.machine else float(np.sqrt(2))
    return World(own * WITHIN / spread, mood * WITHIN / spread, places)


@dataclass(frozen=True)
class Said:
    """What is said of each cell in the end, its number of blocks, and what it would tolerate.

    The cells of tare's own runs are the stacks, then A/A; the arrays have the axes run, cell.
    """

    claim: Counts
    blocks: Counts
    tolerated_autocorrelation: Floats

    def false(self, effect: float, tolerating: float = 0.0) -> NDArray[np.bool_]:
        """Return which cells are decided falsely, and are said to tolerate that correlation all the same."""
        false = (self.claim != UNDECIDED) & ~np.isin(self.claim, right(effect))
        return np.asarray(false & (self.tolerated_autocorrelation >= tolerating))


@dataclass
class Held:
    """What is said of cells, each as of its last block, as `tare.statistics.looks` has it (arrays of one shape).

    `claim` is what is said, `side` and `evidence` are what an interval alone says and how surely, and
    `tolerated_autocorrelation` is what a decision would tolerate.
    """

    claim: Counts
    side: Counts
    evidence: Floats
    tolerated_autocorrelation: Floats

    @classmethod
    def nothing(cls, shape: tuple[int, ...]) -> Held:
        """Return what is said before the first look."""
        return cls(np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape), np.zeros(shape))

    def __getitem__(self, at: tuple[slice | Counts, ...]) -> Held:
        return Held(*(each[at] for each in vars(self).values()))

    def __setitem__(self, at: tuple[slice | Counts, ...], other: Held) -> None:
        for name, each in vars(self).items():
            each[at] = getattr(other, name)

    def after(self, found: RatioComparison, measured: Truths, e_bh: Callable[[Floats], Truths]) -> tuple[Held, Truths]:
        """Return what is said after a look, and which decisions all blocks confirm, so that the cells may leave.

        `measured` are the cells that have just had a block.
        """
        side = claims_of(found)
        anew = measured & (has_interval(found.count, found.borrowed) | (self.claim == UNDECIDED))
        side_held = np.where(anew, side, self.side)
        evidence = np.where(anew, found.evidence, self.evidence)
        sure = e_bh(evidence) & (side_held != UNDECIDED)
        claim = np.where(anew | (sure & (self.claim == UNDECIDED)), np.where(sure, side_held, UNDECIDED), self.claim)
        tolerated = np.where(anew, found.tolerated_autocorrelation, self.tolerated_autocorrelation)
        confirmed = (claim != UNDECIDED) & e_bh(found.evidence) & (side != UNDECIDED)
        return Held(claim, side_held, evidence, tolerated), confirmed


def decide(ratios: Floats, all_blocks: bool = False, errors: Floats | None = None) -> Said:
    """Look after every block at log ratios (axes: run, row, block), as `tare run` does, until all is decided.

    The rows are those of `log_ratios`. What is decided is measured no more, unless later blocks do not confirm it; A/A
    is measured with the baseline. With `all_blocks`, everything is measured to the end, and looked at then. The errors
    are the variances that rounds explain, if there are any.
    """
    logs = ratios.transpose(1, 0, 2)
    explained = np.zeros(logs.shape) if errors is None else errors.transpose(1, 0, 2)
    rows, runs, blocks = logs.shape
    present = np.zeros(logs.shape, dtype=bool)
    held, settled = Held.nothing((rows, runs)), np.zeros((rows, runs), dtype=bool)
    is_control, going = np.arange(1, rows) == rows - 1, np.arange(runs)

    def e_bh(evidence: Floats) -> Truths:
        return np.concatenate(
            [np.zeros_like(evidence[:1], dtype=bool), e_bh_with_control(evidence[1:].T, is_control).T]
        )

    for count in range(1, blocks + 1):
        present[:, going, count - 1] = ~settled[:, going]
        present[-1, going, count - 1] = True
        if count < (blocks if all_blocks else MIN_VALUES_EARLY):
            continue
        found = compare_together(
            logs[:, going, :count],
            present[:, going, :count],
            MARGIN,
            BaselineRows(0, rows - 1),
            Moderation(explained[:, going, :count]),
        )
        now, confirmed = held[:, going].after(found, present[:, going, count - 1], e_bh)
        held[:, going], settled[:, going] = now, confirmed
        going = going[~confirmed[1:-1].all(axis=0)]
        if going.size == 0:
            break
    return Said(held.claim[1:].T, present[1:].sum(axis=-1).T, held.tolerated_autocorrelation[1:].T)


def log_ratios(logs: Floats, effects: tuple[float, ...]) -> Floats:
    """Return the rows of a run from log speeds (axes: run, stack, block, and of turns the round).

    They are the baseline, stacks with these effects, and A/A.
    """
    rows = 2 + len(effects)
    turns = logs[:, :rows].swapaxes(0, 1)[..., np.newaxis] if logs.ndim == 3 else logs[:, :rows].swapaxes(0, 1)
    found = relative_to_baseline(turns, np.ones(turns.shape, dtype=bool), BaselineRows(0, rows - 1)).logs.swapaxes(0, 1)
    return np.asarray(found + np.log1p(-np.array([0.0, *effects, 0.0]))[:, np.newaxis])


def claims_of(found: RatioComparison) -> Counts:
    """Return what each interval says by itself, as `RatioComparison.at` does for one row."""
    alike = np.abs(found.mean) + found.half_widths < found.limit
    different = np.abs(found.mean) > found.half_widths
    return np.where(alike, ALIKE, np.where(different, np.where(found.mean > 0, MORE, LESS), UNDECIDED))


def right(effect: float) -> tuple[int, ...]:
    """Return what may truly be said of a stack that is slower by this share."""
    truths = [LESS] if effect else []
    return (*truths, ALIKE) if -np.log1p(-effect) < np.log1p(MARGIN) else tuple(truths)


@dataclass(frozen=True)
class Tally:
    """Shares of runs, and blocks until they ended.

    `unsaid` are the false ones that are said to tolerate the correlation that the noise has; `firm` is the median of
    the correlations that right ones are said to tolerate.
    """

    false: float
    unsaid: float
    firm: float
    right: float
    undecided: float
    median: float
    most: float


def tally(said: Said, effect: float, correlation: float) -> Tally:
    """Count what was said of the first stack of each run, whose noise has this correlation."""
    claim, blocks = said.claim[:, 0], said.blocks[:, 0]
    good = np.isin(claim, right(effect))
    return Tally(
        false=float(said.false(effect)[:, 0].mean()),
        unsaid=float(said.false(effect, correlation)[:, 0].mean()),
        firm=float(np.median(said.tolerated_autocorrelation[good, 0])) if good.any() else 0.0,
        right=float(good.mean()),
        undecided=float((claim == UNDECIDED).mean()),
        median=float(np.median(blocks)),
        most=float(np.percentile(blocks, 95)),
    )


@dataclass(frozen=True)
class Coverage:
    """After each block: the share of intervals that missed the truth once so far.

    `student` is the share that missed it once so far of the interval of Student's t, which is meant for one look.
    """

    so_far: Floats
    student: Floats


def coverage(ratios: Floats) -> Coverage:
    """Look at log ratios (rows as those of `log_ratios`, of one stack whose truth is 0) after every block."""
    logs = ratios.transpose(1, 0, 2)
    missed, student = np.zeros(len(ratios), dtype=bool), np.zeros(len(ratios), dtype=bool)
    rows = []
    for count in range(2, ratios.shape[2] + 1):
        found = compare_together(
            logs[..., :count], np.ones(logs[..., :count].shape, dtype=bool), MARGIN, BaselineRows(0, 2)
        )
        missed |= np.abs(found.mean[1]) > found.half_widths[1]
        student |= np.abs(found.mean[1]) > stats.t.ppf(0.975, count - 1) * found.deviation[1] / np.sqrt(count)
        rows.append((missed.mean(), student.mean()))
    return Coverage(*np.array(rows).T)

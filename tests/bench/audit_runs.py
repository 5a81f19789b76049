"""Simulated runs, thousands at once, decided after every block by the functions of tare itself."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from tare.deciding import Decisions
from tare.fake_noise import DRAWS, Shape, shaped
from tare.journal import WorkloadRecord
from tare.model import Measured, Metric, Trial
from tare.statistics.anytime import false_discoveries_kept_rare
from tare.statistics.ratios import Comparison, compare

Floats = NDArray[np.float64]
Counts = NDArray[np.int64]

BLOCKS = 60
WITHIN = 0.037  # standard deviation of a log ratio within a block, as it was measured on a small shared machine
MARGIN = 0.03
EFFECTS = (0.0, 0.01, 0.03, 0.05, 0.10, 0.30)
UNDECIDED, MORE, LESS, ALIKE = range(4)


@dataclass(frozen=True)
class Kind:
    """What disturbs the trials: noise of the stacks alone, each by itself, or also of the machine that they share."""

    name: str
    shape: Shape = "normal"
    correlation: float = 0.5
    machine: bool = False


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
)
# What blocks in random order are made for; the others are in one stack alone, and look like an effect of it.
COVERED = KINDS[:5]


@dataclass(frozen=True)
class World:
    """Log speeds without any effect. `own` has the axes run, stack, its n-th trial; `mood` run, n-th trial of all."""

    own: Floats
    mood: Floats
    places: Counts

    def in_turn(self) -> Floats:
        """Give the log speeds as blocks have them: one trial of each stack, in random order, then the next block."""
        runs, stacks, blocks = self.own.shape
        return self.own + np.take_along_axis(self.mood, self.places.reshape(runs, -1), axis=1).reshape(
            runs, stacks, blocks
        )

    def apart(self, trials: int) -> Floats:
        """Give the log speeds of a number of trials of one stack, followed by those of the next."""
        runs, stacks, _ = self.own.shape
        return self.own[..., :trials] + self.mood[:, : stacks * trials].reshape(runs, stacks, trials)


def make_world(kind: Kind, size: tuple[int, int], seed: int) -> World:
    """Draw runs and stacks, so that log ratios within blocks have the standard deviation `WITHIN`."""
    (runs, stacks), chance = size, np.random.default_rng(seed)
    draws = chance.standard_normal((runs, stacks, BLOCKS, DRAWS))
    orders = np.argsort(chance.random((runs, BLOCKS, stacks)), axis=2)
    places = (orders + stacks * np.arange(BLOCKS)[:, np.newaxis]).transpose(0, 2, 1)
    own = shaped(draws, "normal" if kind.machine else kind.shape, kind.correlation)
    mood = np.zeros((runs, stacks * BLOCKS))
    if kind.machine:
        mood = shaped(chance.standard_normal((*mood.shape, DRAWS)), kind.shape, kind.correlation)
    plain = World(own, mood, places)
    logs = plain.in_turn()
    spread = float(np.sqrt(((logs[:, 1] - logs[:, 0]) ** 2).mean())) if kind.machine else float(np.sqrt(2))
    return World(own * WITHIN / spread, mood * WITHIN / spread, places)


@dataclass(frozen=True)
class Said:
    """What was said of each cell, after how many blocks, and whether with the caution that blocks depend on others."""

    claim: Counts
    blocks: Counts
    cautioned: NDArray[np.bool_]


def decide(ratios: Floats) -> Said:
    """Look after every block at log ratios (axes: run, cell, block), as `tare.deciding` does, until all is decided.

    What is decided is measured no more: its evidence stays what it was. All cells of a run are told together.
    """
    runs, cells, blocks = ratios.shape
    claim = np.zeros((runs, cells), dtype=np.int64)
    after, evidence = np.full((runs, cells), blocks), np.zeros((runs, cells))
    cautioned = np.zeros((runs, cells), dtype=bool)
    for count in range(2, blocks + 1):
        going = np.nonzero((claim == UNDECIDED).any(axis=1))[0]
        if going.size == 0:
            break
        undecided = claim[going] == UNDECIDED
        found = look(ratios[going, :, :count])
        evidence[going] = np.where(undecided, found.evidence, evidence[going])
        cautioned[going] = np.where(undecided, found.widened, cautioned[going])
        claims = np.where(undecided, claims_of(found), UNDECIDED)
        for row in np.nonzero((claims != UNDECIDED).any(axis=1))[0]:
            sure = (claims[row] != UNDECIDED) & false_discoveries_kept_rare(evidence[going[row]])
            claim[going[row], sure] = claims[row, sure]
            after[going[row], sure] = count
    return Said(claim, after, cautioned)


def log_ratios(logs: Floats, effects: tuple[float, ...]) -> Floats:
    """Give the cells of a run from log speeds (axes: run, stack, block): the stacks with these effects, then A/A."""
    shifts = np.log1p(-np.array([*effects, 0.0]))
    ratios: Floats = logs[:, 1 : 2 + len(effects)] - logs[:, :1] + shifts[:, np.newaxis]
    return ratios if again_counts() else ratios[:, :-1]


@cache
def again_counts() -> bool:
    """Ask tare whether the baseline's second name is one of the cells that are told together.

    Five blocks can have evidence of 36 against there being no difference. One cell of one needs 20, one of two 40.
    """
    metric = Metric("speed", "Speed", "1/s", "higher")
    stacks = ("a", "b", "a-again")
    decisions = Decisions((WorkloadRecord("w", "w", "W", (metric,), None),), stacks, "a", "a-again", MARGIN)
    for block in range(5):
        for stack, value in zip(stacks, (1.0, 0.5 + block / 1e9, 1.0 + (-1) ** block / 50), strict=True):
            values = (Measured("speed", None, value, "1/s", "higher"),)
            decisions.learn(Trial(f"{stack}{block}", block, 0, "w", stack, "ok", "", 0.0, 1.0, values))
    return ("w", "b") not in decisions.decided()


def look(ratios: Floats) -> Comparison:
    """Compare log ratios (last axis: blocks) as the report does."""
    return compare(ratios, np.ones(ratios.shape, dtype=bool), MARGIN)


def claims_of(found: Comparison) -> Counts:
    """Tell what each interval says by itself, as `Comparison.at` does for one row."""
    alike = np.abs(found.mean) + found.half < found.limit
    different = np.abs(found.mean) > found.half
    return np.where(alike, ALIKE, np.where(different, np.where(found.mean > 0, MORE, LESS), UNDECIDED))


def right(effect: float) -> tuple[int, ...]:
    """Give what may truly be said of a stack that is slower by this share."""
    truths = [LESS] if effect else []
    return (*truths, ALIKE) if -np.log1p(-effect) < np.log1p(MARGIN) else tuple(truths)


@dataclass(frozen=True)
class Tally:
    """Shares of runs, and blocks until they ended."""

    false: float
    right: float
    undecided: float
    median: float
    most: float
    cautioned_false: float = 0.0


def tally(said: Said, effect: float, cell: int = 0) -> Tally:
    """Count what was said of one cell of each run."""
    claim, blocks = said.claim[:, cell], said.blocks[:, cell]
    good = np.isin(claim, right(effect))
    false = (claim != UNDECIDED) & ~good
    return Tally(
        false=float(false.mean()),
        right=float(good.mean()),
        undecided=float((claim == UNDECIDED).mean()),
        median=float(np.median(blocks)),
        most=float(np.percentile(blocks, 95)),
        cautioned_false=float(said.cautioned[false, cell].mean()) if false.any() else 0.0,
    )


@dataclass(frozen=True)
class Coverage:
    """After each block: the share of intervals that miss the truth now, that missed it once so far, and are widened.

    `student` is the share that missed it once so far of the interval of Student's t, which is meant for one look.
    """

    now: Floats
    so_far: Floats
    widened: Floats
    student: Floats


def coverage(ratios: Floats) -> Coverage:
    """Look at log ratios (axes: run, block) whose truth is 0, after every block."""
    missed, student = np.zeros(len(ratios), dtype=bool), np.zeros(len(ratios), dtype=bool)
    rows = []
    for count in range(2, ratios.shape[1] + 1):
        found = look(ratios[:, :count])
        misses = np.abs(found.mean) > found.half
        missed |= misses
        student |= np.abs(found.mean) > stats.t.ppf(0.975, count - 1) * found.deviation / np.sqrt(count)
        rows.append((misses.mean(), missed.mean(), found.widened.mean(), student.mean()))
    return Coverage(*np.array(rows).T)

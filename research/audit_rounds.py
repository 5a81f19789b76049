"""Runs that choose the number of rounds of a block from what they see: what it gains, and what it costs in truth.

One workload and nine stacks beside the baseline and A/A, decided after every block. Turns differ by 6 or 2 %, fresh
instances by a share of that; a block's starts take as long as so many rounds. Either every block has the workload's own
number of rounds, or as many as `tare.runner.loop` finds best.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from audit_runs import ALIKE, MARGIN, UNDECIDED, Floats, claims_of

from tare.runner.loop import BlockDuration, optimal_passes
from tare.statistics.anytime import MIN_VALUES, MIN_VALUES_EARLY, e_bh_with_control, evidence_needed
from tare.statistics.descriptive import centers
from tare.statistics.headlines import errors_of_rounds
from tare.statistics.planning import extra_blocks_needed, variance_components
from tare.statistics.ratios import BaselineRows, Moderation, RatioComparison, compare_together

RUNS = 60
SEED = 20261126
STACKS, OWN, BLOCKS = 9, 10, 40
WITHIN = 0.06  # standard deviation of the logarithm of a turn
QUIET = 0.02  # the same, where the first blocks decide
OWN_ROUNDS, CHOSEN = METHODS = ("its own", "chosen")


@dataclass(frozen=True)
class Case:
    """The deviation of fresh instances, in deviations of a turn, and the seconds of all starts, in those of a round."""

    between: float
    starting: float
    within: float = WITHIN


CASES = (
    *(Case(between, starting) for between in (0.0, 0.1, 0.3, 1.0) for starting in (5.0, 20.0, 80.0)),
    *(Case(0.3, starting, QUIET) for starting in (5.0, 20.0, 80.0)),
)


@dataclass(frozen=True)
class Studied:
    """By method: the share of false decisions among cells, of decided ones, and the median cost of a decision.

    The cost is of the time until a cell without effect is found equivalent, in blocks of a single pass.
    """

    case: Case
    false: dict[str, float]
    decided: dict[str, float]
    cost: dict[str, float]


def study(case: Case) -> Studied:
    """Decide runs without any effect, with either number of rounds."""
    found: dict[str, tuple[float, float, float]] = {}
    for method in METHODS:
        chance = np.random.default_rng([SEED, CASES.index(case)])
        claims, costs = zip(*(_run(case, method, chance) for _ in range(RUNS)), strict=True)
        claim, cost = np.stack(claims), np.stack(costs)
        false = float(((claim != UNDECIDED) & (claim != ALIKE)).mean())
        found[method] = false, float((claim != UNDECIDED).mean()), float(np.median(cost))
    return Studied(case, *({method: found[method][at] for method in METHODS} for at in range(3)))


def _run(case: Case, method: str, chance: np.random.Generator) -> tuple[Floats, Floats]:
    """Run until all is decided, or for the time of so many blocks; return claims and what each cell took by then."""
    rows, costs = STACKS + 2, BlockDuration(case.starting, float(OWN), OWN)
    claim, took = np.full(rows, UNDECIDED), np.full(rows, np.inf)
    blocks: list[Floats] = []
    usable: list[Floats] = []
    spent, passes, limit = 0.0, 1, BLOCKS * (case.starting + OWN)
    while spent < limit and len(blocks) < BLOCKS and (claim[1:-1] == UNDECIDED).any():
        rounds = passes * OWN
        instances = case.between * case.within * chance.standard_normal((rows, 1))
        blocks.append(instances + case.within * chance.standard_normal((rows, rounds)))
        going = claim == UNDECIDED
        going[[0, -1]] = True
        usable.append(np.repeat(going[:, np.newaxis], rounds, axis=1))
        spent += case.starting + rounds
        logs, both = _whole(blocks), _whole(usable).astype(bool)
        own, other = (centers(logs - logs[row], both & both[row]) for row in (0, -1))
        ratios = (own + other) / 2
        ratios[[0, -1]] = own[[0, -1]]
        reference = BaselineRows(0, rows - 1)
        moderation = Moderation(errors_of_rounds(logs, both, reference))
        compared = compare_together(ratios, np.asarray(both.any(axis=-1)), MARGIN, reference, moderation)
        if method == CHOSEN and (seen := variance_components(logs[:, np.newaxis], both[:, np.newaxis], np.ones(1), 0)):
            passes = 1 if _are_soon_decided(compared, claim, len(blocks)) else optimal_passes(seen, costs)
        if len(blocks) < MIN_VALUES_EARLY:
            continue
        sure = e_bh_with_control(compared.evidence[1:], np.arange(1, rows) == rows - 1)
        now = np.where(sure, claims_of(compared)[1:], UNDECIDED)
        took[1:] = np.where((claim[1:] == UNDECIDED) & (now != UNDECIDED), spent / (case.starting + OWN), took[1:])
        claim[1:] = np.where(claim[1:] == UNDECIDED, now, claim[1:])
    return claim[1:-1], took[1:-1]


def _are_soon_decided(compared: RatioComparison, claim: Floats, blocks: int) -> bool:
    """Return whether the first blocks are likely to decide all cells: then rounds are as many as the workload's own."""
    is_open = (claim == UNDECIDED)[1:-1]
    needed = evidence_needed(STACKS, int((~is_open).sum()) + 1)
    further = extra_blocks_needed(compared, needed)[1:-1][is_open]
    return blocks > 1 and bool((further <= max(1, MIN_VALUES - blocks)).all())


def _whole(blocks: list[Floats]) -> Floats:
    """Put blocks of several numbers of rounds into one array (axes: stack, block, round), with zeros after the last."""
    most = max(each.shape[1] for each in blocks)
    return np.stack([np.pad(each, ((0, 0), (0, most - each.shape[1]))) for each in blocks], axis=1)

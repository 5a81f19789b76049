"""Several stacks at once, told together: tare, and the papers' Tukey test after thirty runs of each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from audit_runs import COVERED, LESS, MORE, UNDECIDED, World, decide, log_ratios, make_world, right
from scipy import stats

EFFECTS = (0.0, 0.0, 0.01, 0.03, 0.05, 0.10, 0.30)
NOTHING = (0.0,) * 7
RUNS = 1000
SEED = 20170201
_PAPERS_RUNS = 30


@dataclass(frozen=True)
class Matrix:
    """What was decided in runs of many stacks: `any_false` is the share of runs with a false statement."""

    method: str
    kind: str
    effects: tuple[float, ...]
    any_false: float
    decided: float
    trials: float


def matrix() -> list[Matrix]:
    """Simulate runs of a baseline and seven stacks, with effects and without any."""
    found = []
    for kind in COVERED:
        for effects in (EFFECTS, NOTHING):
            world = make_world(kind, (RUNS, len(effects) + 2), SEED)
            found += [_tare(kind.name, world, effects), _tukey(kind.name, world, effects)]
    return found


def _tare(kind: str, world: World, effects: tuple[float, ...]) -> Matrix:
    said = decide(log_ratios(world.in_turn(), effects))
    stacks = slice(0, len(effects))
    trials = said.blocks.sum(axis=1) + said.blocks[:, stacks].max(axis=1)  # the baseline is measured in every block
    return _matrix("tare", kind, effects, (said.claim[:, stacks], trials.astype(float)))


def _tukey(kind: str, world: World, effects: tuple[float, ...]) -> Matrix:
    """Tukey, "The problem of multiple comparisons" (1953); only comparisons with the baseline count here."""
    count = len(effects) + 1
    logs = world.apart(_PAPERS_RUNS)[:, :count]
    speeds = np.exp(logs) * (1 - np.array([0.0, *effects]))[:, np.newaxis]
    pooled = speeds.var(axis=2, ddof=1).mean(axis=1)
    least = stats.studentized_range.ppf(0.95, count, count * (_PAPERS_RUNS - 1)) * np.sqrt(pooled / _PAPERS_RUNS)
    away = speeds[:, 1:].mean(axis=2) - speeds[:, :1].mean(axis=2)
    claim = np.where(np.abs(away) > least[:, np.newaxis], np.where(away > 0, MORE, LESS), UNDECIDED)
    return _matrix("papers: n = 30, Tukey", kind, effects, (claim, np.full(len(claim), 1.0 * count * _PAPERS_RUNS)))


def _matrix(method: str, kind: str, effects: tuple[float, ...], found: tuple[np.ndarray, np.ndarray]) -> Matrix:
    claim, trials = found
    made = claim != UNDECIDED
    good = np.stack([np.isin(claim[:, cell], right(effect)) for cell, effect in enumerate(effects)], axis=1)
    false = made & ~good
    return Matrix(method, kind, effects, false.any(axis=1).mean(), made.mean(), float(np.median(trials)))

"""How others decide, each as people use it, on the same simulated trials. A cost of n means n trials of each stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from audit_runs import LESS, MORE, UNDECIDED, Floats, Said, World
from scipy import stats

PAPERS_RUNS = 30
LEVEL = 0.05
_PERMUTATIONS = 499
_PERMUTED_RUNS = 1000


def with_effect(logs: Floats, effect: float) -> tuple[Floats, Floats]:
    """Return the speeds of the baseline and of the stack (axes: run, trial), which is slower by this share."""
    return np.exp(logs[:, 0]), (1 - effect) * np.exp(logs[:, 1])


def papers(world: World, effect: float) -> Said:
    """Thirty runs of one stack, thirty of the other, and Welch's t-test at the end (Biometrika 34 (1947), 28-35)."""
    baseline, stack = with_effect(world.apart(PAPERS_RUNS), effect)
    found = stats.ttest_ind(stack, baseline, axis=-1, equal_var=False)
    return _said(
        np.asarray(found.pvalue < LEVEL), stack.mean(axis=1) - baseline.mean(axis=1), np.full(len(stack), PAPERS_RUNS)
    )


def phoronix(world: World, effect: float, welch: bool) -> Said:
    """Phoronix Test Suite 10's dynamic run count, one stack after the other; then its error bars, or Welch's t-test.

    Three runs; more while their relative standard deviation is 3 % or more, or a value is three of them away, up to
    twelve; up to fifteen while it has not changed by half since the third run. It says mean ± standard error: where two
    of these do not overlap, a reader takes them for different.
    """
    moments = [_phoronix_moments(values) for values in with_effect(world.apart(15), effect)]
    (count, mean, error), (count_2, mean_2, error_2) = moments
    apart = np.abs(mean_2 - mean) > error + error_2
    if welch:
        squares = error**2 + error_2**2
        freedom = squares**2 / (error**4 / (count - 1) + error_2**4 / (count_2 - 1))
        apart = np.asarray(2 * stats.t.sf(np.abs(mean_2 - mean) / np.sqrt(squares), freedom) < LEVEL)
    return _said(apart, mean_2 - mean, (count + count_2) / 2)


def _phoronix_moments(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return how many runs it does of a series, and their mean and standard error."""
    ended = np.zeros(len(values), dtype=bool)
    count, mean, error = (np.zeros(len(values)) for _ in range(3))
    first = values[:, :3].std(axis=1, ddof=1) / values[:, :3].mean(axis=1)
    for number in range(3, 16):
        seen = values[:, :number]
        deviation, center = seen.std(axis=1, ddof=1), seen.mean(axis=1)
        wild = (np.abs(seen - center[:, np.newaxis]) > 3 * deviation[:, np.newaxis]).any(axis=1)
        noisy = (deviation / center >= 0.03) | wild
        unchanged = np.abs(first - deviation / center) < first / 2
        again = noisy & ((number < 12) | ((number < 15) & unchanged))
        ends = ~again & ~ended
        count[ends], mean[ends], error[ends] = number, center[ends], deviation[ends] / np.sqrt(number)
        ended |= ends
    return count, mean, error


def every_run(world: World, effect: float) -> Said:
    """Student's unpaired t-test after every run of both, from the third on, until it says p < 5 %."""
    baseline, stack = with_effect(world.in_turn(), effect)
    counts = np.arange(1, stack.shape[1] + 1)
    means = [values.cumsum(axis=1) / counts for values in (baseline, stack)]
    squares = [
        (values**2).cumsum(axis=1) - counts * mean**2 for values, mean in zip((baseline, stack), means, strict=True)
    ]
    pooled = np.sqrt((squares[0] + squares[1]) / np.maximum(2 * counts - 2, 1) * 2 / counts)
    away = means[1] - means[0]
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.abs(away) / pooled > stats.t.ppf(1 - LEVEL / 2, np.maximum(2 * counts - 2, 1))
    found[:, :2] = False
    at = np.where(found.any(axis=1), found.argmax(axis=1), stack.shape[1] - 1)
    return _said(found.any(axis=1), np.take_along_axis(away, at[:, np.newaxis], axis=1)[:, 0], at + 1.0)


def permuted(world: World, effect: float) -> Said:
    """Permute the difference of means after every run of both, from the fourth on, until p < 5 %.

    The fourth is the first that can: Fisher, The Design of Experiments (1935); Edgington, Randomization Tests (1980).
    """
    baseline, stack = (values[:_PERMUTED_RUNS] for values in with_effect(world.in_turn(), effect))
    chance = np.random.default_rng(1935)
    going, blocks = np.arange(len(stack)), stack.shape[1]
    apart, away, cost = np.zeros(len(stack), dtype=bool), np.zeros(len(stack)), np.full(len(stack), float(blocks))
    for count in range(4, blocks + 1):
        both = np.concatenate([stack[going, :count], baseline[going, :count]], axis=1)
        signs = np.repeat([1.0, -1.0], count)
        turned = chance.permuted(np.tile(signs, (_PERMUTATIONS, 1)), axis=1)
        seen = both @ signs
        as_far = np.abs(both @ turned.T) >= np.abs(seen)[:, np.newaxis] * (1 - 1e-9)
        ends = (1 + as_far.sum(axis=1)) / (1 + _PERMUTATIONS) < LEVEL
        apart[going[ends]], away[going[ends]], cost[going[ends]] = True, seen[ends], count
        going = going[~ends]
    return _said(apart, away, cost)


def _said(apart: np.ndarray, away: Floats, cost: np.ndarray) -> Said:
    claim = np.where(apart, np.where(away > 0, MORE, LESS), UNDECIDED)
    return Said(claim[:, np.newaxis], cost[:, np.newaxis], np.zeros((len(claim), 1)))


RIVALS: Mapping[str, Callable[[World, float], Said]] = {
    "papers: n = 30, Welch": papers,
    "Phoronix, error bars": partial(phoronix, welch=False),
    "Phoronix, Welch": partial(phoronix, welch=True),
    "t-test after every run": every_run,
    "permutation after every run": permuted,
}

"""Whole runs of 45 cells, decided after every block: what it brings that standard deviations borrow from each other.

One, four or ten stacks beside the baseline and A/A, and as many workloads as make about 45 cells, whose statements are
tested together. The noise is the same for all stacks, spread over them, or larger in the first of each workload.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast
from unittest import mock

import numpy as np
from audit_runs import ALIKE, BLOCKS, LESS, MARGIN, UNDECIDED, WITHIN, Counts, Floats, Held, Truths, log_ratios
from numpy.typing import NDArray

from tare.statistics.anytime import MIN_VALUES, MIN_VALUES_EARLY, e_bh_with_control
from tare.statistics.headlines import LogRatios
from tare.statistics.moderated_variance import (
    ModeratedVariance,
    VariancePrior,
    VarianceRatios,
    fit_prior,
    moderate_variances,
)
from tare.statistics.ratios import BaselineRows, Moderation, compare_together

CELLS = 45
RUNS = 40  # of each size and shape: some 1800 cells
SEED = 20261125
NO_EFFECT = (0.0,)
EFFECTS = (0.0, 0.0, 0.01, 0.03, 0.05, 0.10, 0.30)  # of the stacks of a workload, in turn
ALONE, BORROWED = METHODS = ("each stack alone", "borrowed")
STACKS = (1, 4, 10)


@dataclass(frozen=True)
class Shape:
    """The noise of stacks. `spread` is the standard deviation of the logarithms of their standard deviations.

    The first stack of each workload is `noisy` times as noisy. `tails` are the degrees of freedom of Student's t.
    `correlation` is that of a trial with the one before, `drift` the amplitude of a slow wave in each stack; in a share
    of the blocks all are four times as noisy (`bursts`), and the first stack stands still in some (`stalls`).
    """

    name: str
    spread: float = 0.0
    noisy: float = 1.0
    tails: int = 0
    correlation: float = 0.0
    drift: float = 0.0
    bursts: float = 0.0
    stalls: float = 0.0


SHAPES = (
    Shape("equal"),
    Shape("spread over stacks", spread=0.5),
    Shape("one 2 times as noisy", noisy=2),
    Shape("one 5 times as noisy", noisy=5),
    Shape("one 10 times as noisy", noisy=10),
    Shape("spread, one 3 times as noisy", spread=0.3, noisy=3),
    Shape("t, 3 degrees of freedom", tails=3),
    Shape("t, 4 degrees of freedom, one 5 times as noisy", tails=4, noisy=5),
    Shape("bursts in a fifth of the blocks", bursts=0.2),
    Shape("one stalls in a tenth of the blocks", stalls=0.1),
    Shape("AR(1), 0.3", correlation=0.3),
    Shape("AR(1), 0.5", correlation=0.5),
    Shape("drift of each stack", drift=1.0),
)


@dataclass(frozen=True)
class Found:
    """What one method decided under a shape: shares of cells, and the median of blocks until cells without effect.

    `noisy` is the share of false decisions among the first stacks of the workloads, `widened` that of cells whose
    interval is wider after five blocks because these resemble each other.
    """

    false: float
    noisy: float
    decided: float
    widened: float
    blocks: dict[float, float]


@dataclass(frozen=True)
class Studied:
    """What either method decided of runs of so many stacks, without any effect and with some."""

    shape: Shape
    stacks: int
    found: dict[tuple[str, str], Found]


def study(shape: Shape, stacks: int) -> Studied:
    """Decide runs without any effect, and runs with effects, with either method."""
    found: dict[tuple[str, str], Found] = {}
    for name, effects in (("none", NO_EFFECT), ("some", EFFECTS)):
        truths = np.array([effects[stack % len(effects)] for stack in range(stacks)])
        ratios = _ratios(shape, stacks, truths)
        for method in METHODS:
            with mock.patch(
                "tare.statistics.ratios.moderate_variances", own_variances if method == ALONE else moderate_variances
            ):
                found[method, name] = _tally(decide(ratios), truths)
    return Studied(shape, stacks, found)


def own_variances(deviation: Floats, count: Counts, *_: object) -> ModeratedVariance:
    """Take each stack's standard deviation from its own blocks."""
    return ModeratedVariance(deviation, np.zeros(count.shape))


def _ratios(shape: Shape, stacks: int, truths: Floats) -> Floats:
    """Draw log ratios (axes: run, workload, row, block)."""
    workloads = max(round(CELLS / stacks), 1)
    chance = np.random.default_rng([SEED, SHAPES.index(shape), stacks])
    size = (RUNS * workloads, stacks + 2, BLOCKS)
    noise = chance.standard_t(shape.tails, size) if shape.tails else chance.standard_normal(size)
    if shape.tails > 2:
        noise /= np.sqrt(shape.tails / (shape.tails - 2))
    for block in range(1, BLOCKS if shape.correlation else 0):
        noise[..., block] *= np.sqrt(1 - shape.correlation**2)
        noise[..., block] += shape.correlation * noise[..., block - 1]
    if shape.drift:
        waves, begins = 2 * chance.random((*size[:2], 1)), 2 * np.pi * chance.random((*size[:2], 1))
        noise += shape.drift * np.sin(2 * np.pi * waves * np.arange(BLOCKS) / BLOCKS + begins)
    scales = np.exp(shape.spread * chance.standard_normal((*size[:2], 1)))
    scales[:, [0, -1]] = 1.0
    scales[:, 1] *= shape.noisy
    noise *= scales * np.where(chance.random((len(noise), 1, BLOCKS)) < shape.bursts, 4.0, 1.0)
    if shape.stalls:
        noise[:, 1] -= np.where(chance.random((len(noise), BLOCKS)) < shape.stalls, 3.0, 0.0) - 3.0 * shape.stalls
    rows = log_ratios(noise * WITHIN / np.sqrt(2), tuple(truths))
    return rows.reshape(RUNS, workloads, stacks + 2, BLOCKS)


@dataclass(frozen=True)
class Decided:
    """What is said of each cell, and its number of blocks (axes: run, workload, stack).

    `widened` are the cells that were wide at five blocks, `tolerated_autocorrelation` is what decisions would tolerate.
    """

    claim: Counts
    blocks: Counts
    widened: NDArray[np.bool_]
    tolerated_autocorrelation: Floats


def decide(ratios: Floats, errors: Floats | None = None, earlier: VarianceRatios | None = None) -> Decided:
    """Look after every block, as `tare run` does. The errors are those that rounds explain, if there are any.

    What is decided is measured no more, A/A until its workload has no open cell. `earlier` are those of `moderation`.
    """
    runs, workloads, rows, blocks = ratios.shape
    logs = ratios.reshape(-1, rows, blocks).transpose(1, 0, 2)
    explained = None if errors is None else errors.reshape(-1, rows, blocks).transpose(1, 0, 2)
    present = np.zeros(logs.shape, dtype=bool)
    held, settled = Held.nothing((rows, runs * workloads)), np.zeros((rows, runs * workloads), dtype=bool)
    control, widened = np.tile(np.arange(1, rows) == rows - 1, workloads), np.zeros(held.claim.shape, dtype=bool)

    def e_bh(evidence: Floats) -> Truths:
        sure = e_bh_with_control(evidence[1:].T.reshape(runs, -1), control).reshape(runs * workloads, -1).T
        return np.concatenate([np.zeros_like(sure[:1]), sure])

    for count in range(1, blocks + 1):
        going = ~settled[1:-1].all(axis=0)
        if not going.any():
            break
        present[..., count - 1] = ~settled & going
        present[[0, -1], :, count - 1] = going
        if count < MIN_VALUES_EARLY:
            continue
        seen, there = logs[..., :count], present[..., :count]
        known = moderation(seen, there, None if explained is None else explained[..., :count], workloads, earlier)
        found = compare_together(seen, there, MARGIN, BaselineRows(0, rows - 1), known)
        held, settled = held.after(found, present[..., count - 1], e_bh)
        if count == MIN_VALUES:
            widened = found.widening > 1
    shape = (runs, workloads, rows - 2)
    return Decided(
        *(
            each[1:-1].T.reshape(shape)
            for each in (held.claim, present.sum(axis=-1), widened, held.tolerated_autocorrelation)
        )
    )


def moderation(
    logs: Floats, present: Truths, errors: Floats | None, workloads: int, earlier: VarianceRatios | None = None
) -> Moderation:
    """Return the moderation by rounds and by the other workloads of a run, as `tare.statistics.looks` has it.

    `earlier` are the cells of earlier runs, which tare does not use (axes: workload, cell, run). They count together
    with the other cells of their workload, with at most as many degrees of freedom as these.
    """
    if errors is None:
        return Moderation()
    ratios = LogRatios(logs, present, errors).variance_ratios()
    rows, runs = len(logs), logs.shape[1] // workloads

    def by_run(values: NDArray[Any]) -> NDArray[Any]:
        """Return cells of all workloads (first axis) by run."""
        return values.reshape(rows, runs, workloads).transpose(2, 0, 1).reshape(-1, runs)

    cells = VarianceRatios(*(by_run(each) for each in vars(ratios).values()))
    priors = []
    for workload in range(workloads):
        own = np.arange(workloads * rows) == (workload * rows + np.arange(rows))[:, np.newaxis]
        prior = fit_prior(cells, ~own, has_rounds=True)
        if earlier is not None:
            of_workload = slice(workload * rows, (workload + 1) * rows)
            prior = _better_prior(prior, _with_earlier(_part(cells, of_workload), _part(earlier, workload)))
        priors.append(prior)
    scale, freedom = (
        np.stack([getattr(each, name) for each in priors], axis=-1).reshape(rows, -1)
        for name in ("log_scale", "freedom")
    )
    return Moderation(errors, VariancePrior(scale, freedom))


def _part(ratios: VarianceRatios, at: slice | int) -> VarianceRatios:
    return VarianceRatios(*(each[at] for each in vars(ratios).values()))


def _with_earlier(cells: VarianceRatios, earlier: VarianceRatios) -> VariancePrior:
    """Return the prior for each cell of a workload by its other cells and those of earlier runs."""
    count, known = len(cells.logs), (cells.freedom * cells.lends).sum(axis=0).mean()
    weight = min(1.0, float(known / (earlier.freedom * earlier.lends).sum(axis=0).mean()))
    together = VarianceRatios(
        *(np.concatenate(pair) for pair in zip(vars(cells).values(), vars(earlier).values(), strict=True))
    )
    weights = np.hstack([1.0 - np.eye(count), np.full((count, len(earlier.logs)), weight)])
    return fit_prior(together, cast("Truths", weights), has_rounds=True)  # a mask whose parts count in part


def _better_prior(first: VariancePrior, second: VariancePrior) -> VariancePrior:
    """Return the prior that has more degrees of freedom, of each cell."""
    is_better = second.freedom > first.freedom
    return VariancePrior(
        *(
            np.where(is_better, of_second, of_first)
            for of_first, of_second in zip(vars(first).values(), vars(second).values(), strict=True)
        )
    )


def _tally(decided: Decided, truths: Floats) -> Found:
    logs, claim, blocks = -np.log1p(-truths), decided.claim, decided.blocks
    right: NDArray[np.bool_] = (claim == LESS) & (truths > 0) | (claim == ALIKE) & (logs < np.log1p(MARGIN))
    false = (claim != UNDECIDED) & ~right
    medians = {float(truth): float(np.median(blocks[..., truths == truth])) for truth in np.unique(truths)}
    return Found(
        false=float(false.mean()),
        noisy=float(false[..., 0].mean()),
        decided=float((claim != UNDECIDED).mean()),
        widened=float(decided.widened.mean()),
        blocks=medians,
    )

"""Runs in rounds whose noise within and between blocks differs: what the rounds of a block tell, and if it misleads.

A block has as many rounds as a workload of a few seconds. Its value is the median of the rounds, whose differences tell
an error. Fresh instances add more: none, equally much in all stacks, or in the first stack alone (instance luck), whose
rounds then agree while its blocks differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from unittest import mock

import numpy as np
from audit_runs import ALIKE, BLOCKS, LESS, MARGIN, UNDECIDED, Floats, log_ratios
from audit_stacks import ALONE, decide, own_variances
from tare_fake.noise import DRAWS, Shape, shaped

from tare.statistics.headlines import errors_of_rounds
from tare.statistics.moderated_variance import moderate_variances
from tare.statistics.ratios import BaselineRows, Moderation, compare_together

RUNS, LEAST_RUNS = 2000, 600  # of one stack and one workload, and of more
SEED = 20261128
ROUNDS = 20
OF_ROUNDS = 0.02  # standard deviation of a block's value because of its rounds
OF_TURNS = OF_ROUNDS / np.sqrt(
    1.5 * np.pi / 2 * 8 / 9 / ROUNDS
)  # of a normal turn: medians, to the mean of two baselines
NO_EFFECT, AT_MARGIN = 0.0, MARGIN / (1 + MARGIN)
EFFECTS = (NO_EFFECT, AT_MARGIN)
STACKS = (1, 2, 9)
LOOKED_AT = (3, 4, 5, 8)
ROUNDS_TOO = "rounds and other cells"
METHODS = (ALONE, ROUNDS_TOO)
TOLERATED = 0.5
_PAUSE = 8  # rounds that the starts of a block take
# Share of the variance of distant turns that is 1/f noise: the differences to the next turn, the 10th and the 100th
# then have deviations like 0.58, 0.81 and 1, as those of an integer loop on a small virtual machine.
_SMOOTH = 0.92


@dataclass(frozen=True)
class Within:
    """The noise of turns and instances.

    `luck` and `all_luck` are the variances between instances of the first stack and of all stacks, in those that rounds
    explain. With `modes`, an instance of the first stack is slow in one block of four, and else as fast as ever.
    `lasting` and `drifting` are those of AR(1), 0.5, and of a drift instead of independent instances.
    """

    name: str
    luck: float = 0.0
    all_luck: float = 0.0
    modes: bool = False
    lasting: bool = False
    drifting: bool = False
    flicker: bool = False
    tails: bool = False
    bursts: bool = False
    workloads: int = 1

    @property
    def is_lasting(self) -> bool:
        """Whether blocks depend on each other."""
        return self.lasting or self.drifting


SHAPES = (
    Within("equal instances"),
    Within("instances of all stacks differ as much as rounds explain", all_luck=1.0),
    Within("instances of all stacks differ ten times as much", all_luck=10.0),
    Within("instance luck of one stack, as much as rounds explain", luck=1.0),
    Within("instance luck of one stack, 3 times as much", luck=3.0),
    Within("instance luck of one stack, 8 times as much", luck=8.0),
    Within("instance luck of one stack, 25 times as much", luck=25.0),
    Within("instance luck of one stack, one start in four is slow", luck=12.0, modes=True),
    Within("instance luck of one stack in four workloads, 8 times as much", luck=8.0, workloads=4),
    Within("1/f noise", flicker=True),
    Within("1/f noise, instance luck of one stack, 8 times as much", flicker=True, luck=8.0),
    Within("turns of Student t, 3 degrees of freedom", tails=True),
    Within("bursts in a tenth of the turns", bursts=True),
    Within("AR(1), 0.5, of all instances, as much as rounds explain", all_luck=1.0, lasting=True),
    Within("drift of all instances, as much as rounds explain", all_luck=1.0, drifting=True),
)


@dataclass(frozen=True)
class Found:
    """Shares of decisions, and half widths of intervals in standard deviations of a block.

    `false` are the false decisions among all cells, `noisy` those of the first stack, each at the worse effect;
    `unsaid` are those of the first stack that are said to tolerate a correlation of 0.5. `missed` are the intervals of
    the first stack that missed the truth at any look. `blocks` is the median until a stack without effect is found
    equivalent. `widths` are medians by number of blocks, of the first stack and of A/A.
    """

    false: float
    noisy: float
    unsaid: float
    missed: float
    blocks: float
    widths: dict[int, tuple[float, float]]


@dataclass(frozen=True)
class Studied:
    """What was found of runs of so many stacks, with the standard deviations of a method."""

    shape: Within
    stacks: int
    found: dict[str, Found]


def study(shape: Within, stacks: int) -> Studied:
    """Decide runs without an effect, and runs of stacks that are slower by the margin, with either method."""
    chance = np.random.default_rng([SEED, SHAPES.index(shape), stacks])
    drawn = {effect: _rows(shape, stacks, effect, chance) for effect in EFFECTS}
    found = {}
    for method in METHODS:
        with mock.patch(
            "tare.statistics.ratios.moderate_variances", own_variances if method == ALONE else moderate_variances
        ):
            found[method] = _found(drawn)
    return Studied(shape, stacks, found)


def _found(drawn: dict[float, tuple[Floats, Floats]]) -> Found:
    false, unsaid, blocks = [], [], []
    for effect, (ratios, errors) in drawn.items():
        said = decide(ratios, errors)
        is_false = (said.claim != UNDECIDED) & (said.claim != (LESS if effect else ALIKE))
        false.append(is_false)
        unsaid.append(is_false & (said.tolerated_autocorrelation >= TOLERATED))
        blocks.append(said.blocks)
    missed, widths = _widths(*drawn[NO_EFFECT])
    return Found(
        false=max(float(each.mean()) for each in false),
        noisy=max(float(each[..., 0].mean()) for each in false),
        unsaid=max(float(each[..., 0].mean()) for each in unsaid),
        missed=missed,
        blocks=float(np.median(blocks[0])),
        widths=widths,
    )


def _rows(shape: Within, stacks: int, effect: float, chance: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw log ratios and the errors that rounds explain (axes: run, workload, row, block)."""
    runs = max(RUNS // (stacks * shape.workloads), LEAST_RUNS)
    size = (stacks + 2, runs * shape.workloads, BLOCKS)
    turns = _turns(shape, (*size, ROUNDS), chance)
    instances = np.zeros(size)
    kind: Shape = "correlated" if shape.lasting else "drift" if shape.drifting else "normal"
    if shape.all_luck:
        # A ratio to both baselines has one and a half times the variance of an instance.
        instances = np.sqrt(shape.all_luck / 1.5) * shaped(chance.standard_normal((*size, DRAWS)), kind)
    if shape.luck:
        lucky = chance.standard_normal(size[1:])
        if shape.modes:
            lucky = ((chance.random(size[1:]) < 0.75) - 0.75) / np.sqrt(0.75 * 0.25)
        instances[1] += np.sqrt(shape.luck) * lucky
    logs = (OF_TURNS * turns + OF_ROUNDS * instances[..., np.newaxis]).swapaxes(0, 1)
    ratios = log_ratios(logs, (effect,) * stacks)
    turns = logs.swapaxes(0, 1)  # back to stacks first
    errors = errors_of_rounds(turns, np.ones(turns.shape, dtype=bool), BaselineRows(0, stacks + 1))
    assert errors is not None
    shape_of = (runs, shape.workloads, stacks + 2, BLOCKS)
    return ratios.reshape(shape_of), errors.swapaxes(0, 1).reshape(shape_of)


def _turns(shape: Within, size: tuple[int, ...], chance: np.random.Generator) -> Floats:
    """Draw the noise of turns, with a variance of 1 between distant ones."""
    if shape.tails:
        return np.asarray(chance.standard_t(3, size) / np.sqrt(3))
    noise = chance.standard_normal(size)
    if shape.flicker:
        return np.asarray(np.sqrt(1 - _SMOOTH) * noise + np.sqrt(_SMOOTH) * _flicker(size, chance))
    if shape.bursts:
        noise -= np.where(chance.random(size) < 0.1, chance.uniform(5, 40, size), 0.0)
    return noise


def _flicker(size: tuple[int, ...], chance: np.random.Generator) -> Floats:
    """Draw 1/f noise of the machine along the time of a run, as the stacks see it in their turns, in random order.

    Its spectrum is that of the inverse of the frequency (Timmer and König, "On generating power law noise", Astronomy
    and Astrophysics 300 (1995), 707-710).
    """
    rows, runs, blocks, rounds = size
    lasts = rows * (rounds + _PAUSE)
    frequencies = np.fft.rfftfreq(blocks * lasts)[1:]
    found = np.empty((runs, blocks, rounds, rows))
    for run in range(runs):
        waves = chance.standard_normal((2, len(frequencies))) / np.sqrt(frequencies)
        along = np.fft.irfft(np.concatenate([[0], waves[0] + 1j * waves[1]]), blocks * lasts)
        found[run] = (along / along.std()).reshape(blocks, lasts)[:, : rows * rounds].reshape(blocks, rounds, rows)
    order = np.argsort(chance.random(found.shape), axis=-1)
    return np.take_along_axis(found, order, axis=-1).transpose(3, 0, 1, 2)


def _widths(ratios: Floats, errors: Floats) -> tuple[float, dict[int, tuple[float, float]]]:
    """Return how many intervals of the first stack missed 0 once, and the median half widths of it and A/A."""
    rows, blocks = ratios.shape[2:]
    logs, error = (each.reshape(-1, rows, blocks).transpose(1, 0, 2) for each in (ratios, errors))
    missed, widths = np.zeros(logs.shape[1], dtype=bool), {}
    for count in range(1, blocks + 1):
        seen = np.ones(logs[..., :count].shape, dtype=bool)
        found = compare_together(
            logs[..., :count], seen, MARGIN, BaselineRows(0, rows - 1), Moderation(error[..., :count])
        )
        half = found.half_widths
        missed |= np.abs(found.mean[1]) > half[1]
        if count in LOOKED_AT:
            of_stack, of_control = (float(np.median(half[row]) / logs[row].std()) for row in (1, -1))
            widths[count] = of_stack, of_control
    return float(missed.mean()), widths

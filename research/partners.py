"""Where the partner of a turn should be: orders of turns and estimators, simulated and on the turns of real runs.

Orders: random within each round, with both trials of the baseline (as tare does); mirrored, so that each second round
has the order of the one before reversed; or every turn of a stack between two turns of the baseline, by turns those of
either trial. All have the same number of turns, so that an order with more turns of the baseline has fewer of stacks.

Noise: white, 1/f and a random walk, which together make turns differ from the next one, the 10th and the 100th as they
were measured to. `alone` is a program that runs without a pause, `taking turns` are the turns of several stacks of a
run. Bursts slow turns down; a turn after one of another stack begins cold, which costs more after the first stack.

    PYTHONPATH=tests/plug_ins nice .venv/bin/python research/partners.py [RUN_FOLDER...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from audit_runs import Counts, Floats
from numpy.typing import NDArray
from partner_journals import TODAY, read_all, replay
from partner_pairings import CENTERS, PAIRINGS, Turns, value
from scipy.optimize import nnls

BLOCKS = 500
SEED = 19660201
ROUNDS = 40  # of a block in today's order
STACKS = (2, 4, 9)
_LAGS = np.array([1, 10, 100])
_PERIOD = 8192  # turns, after which the noise repeats
_EXPONENTS = (1, 2)  # of 1/f noise and a random walk
# A burst begins in so many turns, and slows down a few of them.
_BURSTS, _BURST_TURNS, _BURST_LOSS = 0.02, 2.0, 0.5
_COLD, _COLDEST = 0.01, 0.03  # what a turn loses after another stack, and after the first
_RANDOM, _MIRRORED, _BETWEEN = "random", "mirrored", "between"
_METHODS = (
    (_RANDOM, "in the round"),
    (_RANDOM, "interpolated"),
    (_RANDOM, "each interpolated"),
    (_RANDOM, "before and after"),
    (_MIRRORED, "in the round"),
    (_MIRRORED, "over two rounds"),
    (_MIRRORED, "interpolated"),
    (_BETWEEN, "interpolated"),
    (_BETWEEN, "before and after"),
)
_CENTERS = ("median", "trimmed")

Method = tuple[str, str, str]


@dataclass(frozen=True)
class Noise:
    """Noise by the standard deviations of the log ratio of a turn to the next one, the 10th and the 100th."""

    name: str
    apart: tuple[float, float, float]
    disturbed: bool = False


_ALONE = {
    "integers": (0.020, 0.030, 0.037),
    "memory": (0.070, 0.153, 0.206),
    "Redis, 50 connections": (0.068, 0.113, 0.205),
}
_TAKING_TURNS = {
    "integers": (0.024, 0.024, 0.032),
    "memory": (0.026, 0.036, 0.048),
    "Redis, 50 connections": (0.072, 0.076, 0.077),
}
NOISES = tuple(
    Noise(f"{name}, {how}{', bursts and cold turns' if disturbed else ''}", apart, disturbed)
    for disturbed in (False, True)
    for how, measured in (("alone", _ALONE), ("taking turns", _TAKING_TURNS))
    for name, apart in measured.items()
)


def random_order(stacks: int, turns: int, chance: np.random.Generator) -> Counts:
    """Return the rows of successive turns: each round has all rows in random order."""
    rounds = turns // (stacks + 2)
    return np.concatenate([chance.permutation(stacks + 2) for _ in range(rounds)])


def mirrored_order(stacks: int, turns: int, chance: np.random.Generator) -> Counts:
    """Return the same with each second round in the reversed order of the one before."""
    rounds = turns // (stacks + 2) // 2
    orders = [chance.permutation(stacks + 2) for _ in range(rounds)]
    return np.concatenate([each for order in orders for each in (order, order[::-1])])


def between_order(stacks: int, turns: int, chance: np.random.Generator) -> Counts:
    """Return stacks in random order in each round, each between the baseline and its control."""
    rounds = turns // (2 * stacks)
    order = np.concatenate([chance.permutation(stacks) + 1 for _ in range(rounds)])
    partners = np.where(np.arange(len(order)) % 2 == 0, 0, stacks + 1)
    return np.stack([partners, order], axis=1).ravel()


ORDERS: Mapping[str, Callable[[int, int, np.random.Generator], Counts]] = {
    _RANDOM: random_order,
    _MIRRORED: mirrored_order,
    _BETWEEN: between_order,
}


def spectra(apart: Sequence[float]) -> tuple[float, list[Floats]]:
    """Return the variance of white noise, and the power by frequency of 1/f noise and of a random walk.

    Together they have these standard deviations of differences to the next turn, the 10th and the 100th.
    """
    frequencies = np.fft.rfftfreq(_PERIOD)[1:]
    powers = [frequencies ** -float(exponent) for exponent in _EXPONENTS]
    waves = 2 * (1 - np.cos(2 * np.pi * np.outer(_LAGS, frequencies)))
    units = np.stack([np.full(len(_LAGS), 2.0), *(waves @ power for power in powers)], axis=1)
    measured = np.square(apart)
    # Relative to what was measured: short distances count as much as long ones.
    amounts, _ = nnls(units / measured[:, np.newaxis], np.ones(len(measured)))
    return float(amounts[0]), [amount * power for amount, power in zip(amounts[1:], powers, strict=True)]


def draw(noise: Noise, turns: int, chance: np.random.Generator) -> Iterator[Floats]:
    """Draw the log speeds of a block's turns along time, without cold starts."""
    white, (flicker, walk) = spectra(noise.apart)
    heights = np.sqrt(flicker + walk) * _PERIOD / 2
    while True:
        real, imaginary = chance.standard_normal((2, len(heights))) * heights
        along = np.fft.irfft(np.concatenate([[0], real + 1j * imaginary]), _PERIOD)[:turns]
        along += np.sqrt(white) * chance.standard_normal(turns)
        if noise.disturbed:
            along -= _bursts(turns, chance)
        yield along


def _bursts(turns: int, chance: np.random.Generator) -> Floats:
    """Draw what bursts take from the log speeds of turns."""
    lost = np.zeros(turns)
    for begin in np.flatnonzero(chance.random(turns) < _BURSTS):
        lost[begin : begin + chance.geometric(1 / _BURST_TURNS)] = chance.exponential(_BURST_LOSS)
    return lost


def cold_losses(order: NDArray[np.int64]) -> Floats:
    """Return what turns lose because of the stack that had the turn before."""
    before = np.concatenate([order[:1], order[:-1]])
    losses = np.where(before == order, 0.0, np.where(before == 1, _COLDEST, _COLD))
    return np.asarray(losses)


def study(noise: Noise, stacks: int) -> dict[Method, tuple[float, float]]:
    """Return the bias of the first stack and the standard deviation of all, by order, pairing and center."""
    chance = np.random.default_rng([SEED, NOISES.index(noise), stacks])
    turns = ROUNDS * (stacks + 2)
    drawn = draw(noise, turns, chance)
    methods = [(*method, center) for method in _METHODS for center in _CENTERS]
    found: dict[Method, list[list[float]]] = {method: [] for method in methods}
    for _ in range(BLOCKS):
        along = next(drawn)
        by_order = {name: _taken(make(stacks, turns, chance), along, noise) for name, make in ORDERS.items()}
        for order, pairing, center in methods:
            block, how = by_order[order], (PAIRINGS[pairing], CENTERS[center])
            found[order, pairing, center].append([value(block, row, *how) for row in range(1, stacks + 1)])
    values = {method: np.array(each) for method, each in found.items()}
    return {method: (float(each[:, 0].mean()), float(each.std(axis=0).mean())) for method, each in values.items()}


def _taken(order: Counts, along: Floats, noise: Noise) -> Turns:
    logs = along[: len(order)] - (cold_losses(order) if noise.disturbed else 0.0)
    rows = [np.flatnonzero(order == row) for row in range(int(order.max()) + 1)]
    return Turns(tuple(each.astype(np.float64) for each in rows), tuple(logs[each] for each in rows))


def simulate() -> str:
    """Return the tables of the simulation, a line for each noise and number of stacks."""
    titles = [f"{order}, {pairing}" for order, pairing in _METHODS]
    deviations = [f"| noise | stacks | SD today | {' | '.join(titles)} |", "| --- " * (3 + len(titles)) + "|"]
    biases = [f"| noise | stacks | {' | '.join(titles)} |", "| --- " * (2 + len(titles)) + "|"]
    relative: dict[Method, list[float]] = {}
    for noise in NOISES:
        for stacks in STACKS:
            found = study(noise, stacks)
            _, today = found[_RANDOM, *TODAY]
            cells = []
            for method in _METHODS:
                pair = [found[*method, center][1] / today for center in _CENTERS]
                cells.append(" ".join(f"{each:.2f}" for each in pair))
                for center, each in zip(_CENTERS, pair, strict=True):
                    relative.setdefault((*method, center), []).append(each)
            deviations.append(f"| {noise.name} | {stacks} | {100 * today:.2f} % | {' | '.join(cells)} |")
            shares = [" ".join(f"{100 * found[*each, center][0]:.1f}" for center in _CENTERS) for each in _METHODS]
            biases.append(f"| {noise.name} | {stacks} | {' | '.join(shares)} |")
    means = {method: float(np.exp(np.log(each).mean())) for method, each in relative.items()}
    cells = [" ".join(f"{means[*method, center]:.2f}" for center in _CENTERS) for method in _METHODS]
    deviations.append(f"| geometric mean | | | {' | '.join(cells)} |")
    return "\n".join((*deviations, "", *biases))


def main() -> None:
    """Print the tables of the simulation, and of the journals in run folders."""
    measured = read_all(Path(each) for each in sys.argv[1:])
    print("Standard deviation of a block's log ratio relative to today's, by the median and the trimmed mean (20 %);")
    print("then the bias of the first stack in percent:\n")
    print(simulate())
    if measured:
        print("\nDeviations of turns by distance, and of what should be 0; then these relative to today's:\n")
        print(replay(measured))


if __name__ == "__main__":
    main()

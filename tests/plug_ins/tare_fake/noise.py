"""The noise of fakes, in the shapes that measurements have: pure functions on arrays, so that thousands can be drawn.

All shapes have a mean of 0 and, in the long run, a standard deviation of 1. Each trial uses up four draws of the
standard normal distribution; what a trial gets depends on its own draws and those before it, never on later ones.
"""

from __future__ import annotations

import math
import random
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Shape = Literal["normal", "heavy", "drift", "correlated", "modes", "1/f"]
DRAWS = 4  # that a trial uses up
CORRELATION = 0.5
PERIOD = 100  # trials, in which a drift comes back to where it was
_SLOW = -0.8416  # of normal draws, one in five is below it
_APART = 3.0  # standard deviations of a mode, from one mode to the other
# Trials after which each part of 1/f noise has forgotten all but a third. Differences to the next trial, the 10th and
# the 100th then have deviations like 0.59, 0.82 and 1; on a small virtual machine 0.54, 0.81 and 1 were measured.
_MEMORIES = (0.4, 4.0, 25.0, 200.0)


def draws_of(seed: str, number: int) -> tuple[float, ...]:
    """Draw for the n-th trial: the same ones for the same seed."""
    chance = random.Random(f"{seed}/{number}")  # noqa: S311 - nothing secret
    return tuple(chance.gauss() for _ in range(DRAWS))


def shaped(draws: NDArray[np.float64], shape: Shape, correlation: float = CORRELATION) -> NDArray[np.float64]:
    """Return the noise of trials in turn (last axis but one of the draws: trials; last axis: the draws of one).

    `heavy` is Student's t with three degrees of freedom ("Student", "The probable error of a mean", Biometrika 6
    (1908), 1-25), whose standard deviation is √3; `modes` are a fast one and, for one trial in five, a slow one;
    `correlated` is a first-order autoregression; `drift` is half noise and half a wave with an unknown beginning; `1/f`
    is the sum of autoregressions with memories a factor apart (A. van der Ziel, "On the noise spectra of semi-conductor
    noise and of flicker effect", Physica 16 (1950), 359-372).
    """
    plain: NDArray[np.float64] = draws[..., 0]
    if shape == "heavy":
        return np.asarray(plain / np.sqrt((draws[..., 1:] ** 2).sum(axis=-1)))  # t / √3 = z / √χ²(3)
    if shape == "modes":
        slow = draws[..., 1] < _SLOW
        return (plain + _APART * (0.2 - slow)) / math.sqrt(1 + 0.2 * 0.8 * _APART**2)
    if shape == "drift":
        begins = np.arctan2(draws[..., :1, 1], draws[..., :1, 2])
        return math.sqrt(0.5) * plain + np.sin(2 * np.pi * np.arange(plain.shape[-1]) / PERIOD + begins)
    if shape == "correlated":
        return _autoregression(plain, correlation)
    if shape == "1/f":
        parts = [_autoregression(draws[..., at], math.exp(-1 / memory)) for at, memory in enumerate(_MEMORIES)]
        return np.asarray(sum(parts) / math.sqrt(len(parts)))
    return plain


def _autoregression(draws: NDArray[np.float64], correlation: float) -> NDArray[np.float64]:
    found, fresh = draws.copy(), math.sqrt(1 - correlation**2)
    for at in range(1, draws.shape[-1]):
        found[..., at] = correlation * found[..., at - 1] + fresh * draws[..., at]
    return found

"""What reference applications teach: how far bills were off, and what that means for the next one.

A reference application was measured in a stack, and has a bill. With x the logarithm of the predicted time over that
of bare metal and y that of the measured one, its *score* is

    z = (y - x) / s(x)        s(x) = 0.03 + |x|

so that what is off by the same share of the cost has the same score, and nobody is asked to be better than 3 %. The
correction is the mean of the scores, shrunk towards 0, which is "the bill is right", by two references' worth (ridge
regression on a constant: Hoerl and Kennard, Technometrics 12 (1970), 55-67):

    c = sum of z / (n + 2)        corrected: x + s(x) · c

Its interval is that of the jackknife+ on the scores (Barber, Candès, Ramdas and Tibshirani, "Predictive inference with
the jackknife+", The Annals of Statistics 49 (2021), 486-507). With c(-i) the correction without application i, and
r(i) = |z(i) - c(-i)|, it reaches from the floor(a (n + 1))-th smallest of c(-i) - r(i) to the ceil((1 - a)(n + 1))-th
smallest of c(-i) + r(i). Whatever the distribution is, it holds a new application of the same kind with a probability
of at least 1 - 2a, and in practice of about 1 - a. With a = 10 %, this needs nine applications.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tare.answers.bill import Estimate
from tare.statistics.redrawn import CONFIDENCE

LEAST = 9  # applications: ceil(0.9 (n + 1)) <= n
_FLOOR = 0.03
_PRIOR = 2.0  # references' worth of the belief that the bill is right


@dataclass(frozen=True)
class Reference:
    """A time over that of bare metal, of one application in one stack: predicted and measured."""

    predicted: float
    measured: float

    @property
    def score(self) -> float:
        """How far the prediction was off."""
        x = math.log(self.predicted)
        return (math.log(self.measured) - x) / _scale(x)


@dataclass(frozen=True)
class Correction:
    """What the references say of the next score: the estimate, and the ends of its interval."""

    center: float
    low: float
    high: float
    applications: int


def learn(references: Sequence[Reference]) -> Correction | None:
    """Return the correction of a stack; None for fewer than nine references."""
    scores = [each.score for each in references]
    many = len(scores)
    if many < LEAST:
        return None
    without = [_shrunken([*scores[:at], *scores[at + 1 :]]) for at in range(many)]
    residuals = [abs(score - center) for score, center in zip(scores, without, strict=True)]
    lower = sorted(center - residual for center, residual in zip(without, residuals, strict=True))
    upper = sorted(center + residual for center, residual in zip(without, residuals, strict=True))
    # Of two exact numbers in tenths: 0.1 (9 + 1) must not be 1.0000000000000002.
    outside = math.floor(round((1 - CONFIDENCE) * (many + 1), 9))
    return Correction(_shrunken(scores), lower[outside - 1], upper[many - outside], many)


def corrected(found: Estimate, correction: Correction) -> Estimate:
    """Correct a time over that of bare metal.

    Its interval has the doubt of the bill and that of the correction, independent of each other: the squares of their
    widths add up.
    """
    x = math.log(found.value)
    scale = _scale(x)
    center = x + scale * correction.center
    below = [scale * (correction.center - correction.low), x - math.log(found.low or found.value)]
    above = [scale * (correction.high - correction.center), math.log(found.high or found.value) - x]
    return Estimate(
        math.exp(center),
        math.exp(center - math.hypot(*(max(each, 0.0) for each in below))),
        math.exp(center + math.hypot(*(max(each, 0.0) for each in above))),
    )


def _shrunken(scores: Sequence[float]) -> float:
    return math.fsum(scores) / (len(scores) + _PRIOR)


def _scale(x: float) -> float:
    return _FLOOR + abs(x)

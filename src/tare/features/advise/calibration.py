"""What reference applications teach: how far bills were off, and what that means for the next one.

A reference application was measured in a stack, and has a bill. With x the logarithm of the predicted time over that
of bare metal, y that of the measured time, and e(x) and e(y) their standard errors, a quarter of the widths of their
intervals, its *score* is

    z = (y - x) / s        s² = 0.03² + (0.3 x)² + e(x)² + e(y)²

so that an error counts by what can be expected: nobody is asked to be better than 3 %, or than a third of the cost, or
than prices and measurement allow. For a new application, e(y) is the median of the references', so that its interval is
that of what a run like theirs would measure. Residuals over an expected error are those of normalized conformal
prediction (Lei, G'Sell, Rinaldo, Tibshirani and Wasserman, "Distribution-free predictive inference for regression",
Journal of the American Statistical Association 113 (2018), 1094-1111, section 5.2). The correction c is the median of
the scores and of half as many zeros, which are the belief that the bill is right: it is 0 unless three in four
references were off to the same side, and a single one that is far off does not move it. The corrected logarithm is f(x)
= x + 0.3 |x| c: what costs nothing is not corrected.

Its interval is that of the jackknife+ (Barber, Candès, Ramdas and Tibshirani, "Predictive inference with the
jackknife+", The Annals of Statistics 49 (2021), 486-507). With f(-i) corrected without application i, and
r(i) = |y(i) - f(-i)(x(i))| / s(i), it reaches from the floor(a (n + 1))-th smallest of f(-i)(x) - s r(i) to the
ceil((1 - a)(n + 1))-th smallest of f(-i)(x) + s r(i). Whatever the distribution is, it holds a new application of the
same kind with a probability of at least 1 - 2a, and in practice of about 1 - a. With a = 10 %, this needs nine
applications.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tare.features.advise.cost_model import CostEstimate
from tare.statistics.bootstrap import RESAMPLED_CONFIDENCE

MIN_REFERENCES = 9  # applications: ceil(0.9 (n + 1)) <= n
_ERROR_FLOOR = 0.03
_ERROR_SHARE = 0.3


@dataclass(frozen=True)
class ReferencePrediction:
    """A time over that of bare metal, of one application in one stack: predicted and measured."""

    predicted: CostEstimate
    measured: CostEstimate

    @property
    def score(self) -> float:
        """How far the prediction was off, over what can be expected."""
        return self.residual(0.0)

    def residual(self, center: float) -> float:
        """Return how far a corrected prediction was off, over what can be expected."""
        scale = math.hypot(_expected_error(self.predicted), _standard_error(self.measured))
        return (math.log(self.measured.value / self.predicted.value) - _log_shift(self.predicted, center)) / scale


@dataclass(frozen=True)
class Calibration:
    """What the references say of the next application.

    `leave_one_out` has for each of them the correction that the others teach, and its residual from that.
    `measurement_error` is the standard error of a measured logarithm.
    """

    center: float
    leave_one_out: tuple[tuple[float, float], ...]
    measurement_error: float = 0.0

    @property
    def reference_count(self) -> int:
        """The number of references."""
        return len(self.leave_one_out)


def fit_calibration(references: Sequence[ReferencePrediction]) -> Calibration | None:
    """Return the correction of a stack; None for fewer than nine references."""
    if len(references) < MIN_REFERENCES:
        return None
    scores = [each.score for each in references]
    centers = [_shrunken_median([*scores[:at], *scores[at + 1 :]]) for at in range(len(scores))]
    residuals = [abs(each.residual(center)) for each, center in zip(references, centers, strict=True)]
    noise = median(_standard_error(each.measured) for each in references)
    return Calibration(_shrunken_median(scores), tuple(zip(centers, residuals, strict=True)), noise)


def apply_calibration(prediction: CostEstimate, calibration: Calibration) -> CostEstimate:
    """Correct a time over that of bare metal, and give it the interval that the references teach."""
    scale, many = math.hypot(_expected_error(prediction), calibration.measurement_error), calibration.reference_count
    center = _log_shift(prediction, calibration.center)
    lower = sorted(_log_shift(prediction, other) - scale * residual for other, residual in calibration.leave_one_out)
    upper = sorted(_log_shift(prediction, other) + scale * residual for other, residual in calibration.leave_one_out)
    # Of two exact numbers in tenths: 0.1 (9 + 1) must not be 1.0000000000000002.
    outside = math.floor(round((1 - RESAMPLED_CONFIDENCE) * (many + 1), 9))
    ends = (center, min(lower[outside - 1], center), max(upper[many - outside], center))
    return CostEstimate(*(prediction.value * math.exp(end) for end in ends))


def _shrunken_median(scores: Sequence[float]) -> float:
    return median([*scores, *[0.0] * (len(scores) // 2)])


def _log_shift(prediction: CostEstimate, center: float) -> float:
    """Return what a correction adds to the logarithm of a prediction."""
    return _ERROR_SHARE * abs(math.log(prediction.value)) * center


def _expected_error(prediction: CostEstimate) -> float:
    """Return the error that can be expected of the logarithm of a prediction."""
    return math.hypot(_ERROR_FLOOR, _ERROR_SHARE * math.log(prediction.value), _standard_error(prediction))


def _standard_error(estimate: CostEstimate) -> float:
    """Return about the standard error of the logarithm; 0 without an interval."""
    return math.log(estimate.high / estimate.low) / 4 if estimate.low and estimate.high else 0.0

"""Calibration on reference applications: correction and interval of a prediction from past errors.

A reference application was predicted and measured in a stack. Let x be the logarithm of the predicted time relative to
bare metal, y that of the measured time, and e(x) and e(y) their standard errors, a quarter of the widths of their
intervals. The *score* of the reference is

    z = (y - x) / s        s² = 0.03² + (0.3 x)² + e(x)² + e(y)²

so that errors are relative to the expected error: 3 %, a third of the cost, and noise of unit costs and measurement.
For a new application, e(y) is the median of the references', so that the interval is that of a measurement by a run
like theirs. Residuals over an expected error are those of normalized conformal prediction (Lei, G'Sell, Rinaldo,
Tibshirani and Wasserman, "Distribution-free predictive inference for regression", Journal of the American Statistical
Association 113 (2018), 1094-1111, section 5.2). The correction c is the median of the scores and of half as many zeros,
which stand for the prior belief that the prediction is right: c is 0 unless three in four references were off to the
same side, and a single outlier does not move it. The corrected logarithm is f(x) = x + 0.3 |x| c: a predicted cost of
zero is not corrected.

The interval is that of the jackknife+ (Barber, Candès, Ramdas and Tibshirani, "Predictive inference with the
jackknife+", The Annals of Statistics 49 (2021), 486-507). With f(-i) corrected without application i, and
r(i) = |y(i) - f(-i)(x(i))| / s(i), it reaches from the floor(a (n + 1))-th smallest of f(-i)(x) - s r(i) to the
ceil((1 - a)(n + 1))-th smallest of f(-i)(x) + s r(i). For any distribution of errors, it holds a new application of the
same kind with a probability of at least 1 - 2a, and in practice of about 1 - a. With a = 10 %, it needs nine
references.
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
    """Predicted and measured time of a reference application in a stack, both relative to bare metal."""

    predicted: CostEstimate
    measured: CostEstimate

    @property
    def score(self) -> float:
        """Error of the prediction over its expected error (z in the module's docstring)."""
        return self.residual(0.0)

    def residual(self, center: float) -> float:
        """Return the error of the prediction, corrected by `center`, over its expected error."""
        scale = math.hypot(_expected_error(self.predicted), _standard_error(self.measured))
        return (math.log(self.measured.value / self.predicted.value) - _log_shift(self.predicted, center)) / scale


@dataclass(frozen=True)
class Calibration:
    """Calibration of a stack: the correction `center`, and the errors that give an interval.

    `leave_one_out` has a pair for each reference: the correction fitted without it, and its residual from that.
    `measurement_error` is the standard error of the logarithm of a measured time.
    """

    center: float
    leave_one_out: tuple[tuple[float, float], ...]
    measurement_error: float = 0.0

    @property
    def reference_count(self) -> int:
        """The number of references."""
        return len(self.leave_one_out)


def fit_calibration(references: Sequence[ReferencePrediction]) -> Calibration | None:
    """Return the calibration of a stack; None with fewer than nine references."""
    if len(references) < MIN_REFERENCES:
        return None
    scores = [each.score for each in references]
    centers = [_shrunken_median([*scores[:at], *scores[at + 1 :]]) for at in range(len(scores))]
    residuals = [abs(each.residual(center)) for each, center in zip(references, centers, strict=True)]
    noise = median(_standard_error(each.measured) for each in references)
    return Calibration(_shrunken_median(scores), tuple(zip(centers, residuals, strict=True)), noise)


def apply_calibration(prediction: CostEstimate, calibration: Calibration) -> CostEstimate:
    """Return the corrected prediction with its jackknife+ interval."""
    scale, count = math.hypot(_expected_error(prediction), calibration.measurement_error), calibration.reference_count
    center = _log_shift(prediction, calibration.center)
    lower = sorted(_log_shift(prediction, other) - scale * residual for other, residual in calibration.leave_one_out)
    upper = sorted(_log_shift(prediction, other) + scale * residual for other, residual in calibration.leave_one_out)
    # Rounded, because (1 - 0.9) · (9 + 1) is 0.9999999999999998 in binary, which floor would make 0.
    outside = math.floor(round((1 - RESAMPLED_CONFIDENCE) * (count + 1), 9))
    logs = (center, min(lower[outside - 1], center), max(upper[count - outside], center))
    return CostEstimate(*(prediction.value * math.exp(log) for log in logs))


def _shrunken_median(scores: Sequence[float]) -> float:
    return median([*scores, *[0.0] * (len(scores) // 2)])


def _log_shift(prediction: CostEstimate, center: float) -> float:
    """Return the change of a prediction's logarithm by the correction `center`."""
    return _ERROR_SHARE * abs(math.log(prediction.value)) * center


def _expected_error(prediction: CostEstimate) -> float:
    """Return the expected error of a prediction's logarithm."""
    return math.hypot(_ERROR_FLOOR, _ERROR_SHARE * math.log(prediction.value), _standard_error(prediction))


def _standard_error(estimate: CostEstimate) -> float:
    """Return the standard error of the logarithm, about a quarter of the interval; 0 without an interval."""
    return math.log(estimate.high / estimate.low) / 4 if estimate.low and estimate.high else 0.0

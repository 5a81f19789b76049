"""Change points: where a series of runs changed its level, with an error rate that holds at all looks together.

The values of runs are modeled as independent draws of a normal distribution with unknown mean and variance. For each
position, the evidence that the level changed there is the two-sample Bayes factor of Gönen, Johnson, Lu and Westfall
("The Bayesian two-sample t test", The American Statistician 59 (2005), 252-257), with the right Haar prior on level and
scale, and a normal prior on the change. As long as the level is constant, the expectation of the evidence is 1 under
any stopping rule (Hendriksen, de Heide and Grünwald, "Optional stopping with Bayes factors", Bayesian Analysis 16
(2021), 961-989). The position is unknown: the weights of all positions add up to 1, so that by Ville's inequality
(1939) evidence times weight ever reaches 1/a at any position with a probability of at most a.

A level has at least three runs, so that two outliers are no change; positions that are left out only lower the
evidence. The standard errors of runs, from their blocks, are a lower bound of the variance: smaller differences between
runs are chance. After a change point, the search starts again at its position. Each additional change point of a series
needs more evidence: the error rates a/(1·2), a/(2·3), … add up to a.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from tare.statistics.anytime import CONFIDENCE
from tare.statistics.cells import AUDITED_AUTOCORRELATION

MIN_RUNS_PER_LEVEL = 3  # runs on either side of a change
# Variance of the prior on the change, in variances of a run. Steps that people look for are larger than the noise; of
# the variances tried, this one finds those of 3 to 10 standard deviations soonest (docs/compare.md: simulations).
_PRIOR_VARIANCE_RATIO = 10.0
_ROUNDING = 1e-12  # smaller differences of logarithms are rounding errors
_LIKELY_WEIGHT = 0.95  # share of the evidence that the interval of positions holds
# An autocorrelation of r multiplies the variance of a mean by this factor: 3 for r = 0.5.
_AUTOCORRELATED_VARIANCE_FACTOR = (1 + AUDITED_AUTOCORRELATION) / (1 - AUDITED_AUTOCORRELATION)


@dataclass(frozen=True)
class ChangePoint:
    """Change of level in a series of logarithms; positions are indexes of runs.

    `at` is the first run of the new level. The runs from `earliest` to `latest` are other likely positions, and have
    95 % of the evidence. `detected_at` is the run at which the change was detected. `log_change` is the difference of
    the two levels, and `half_width` half the width of its interval, which holds at all looks together; it may be
    infinite. From the run `robust_from` on, the evidence suffices even at an autocorrelation of 0.5
    (`AUDITED_AUTOCORRELATION`); None if it does not yet.
    """

    at: int
    earliest: int
    latest: int
    detected_at: int
    log_change: float
    half_width: float
    robust_from: int | None


@dataclass(frozen=True)
class _SplitPoints:
    """Possible positions of a change in a piece of the series, as arrays over positions.

    `at` is the first run after the position. `counts` is the effective number of runs, `squares` the sum of squared
    deviations from the two levels, and `total` the number of runs in the piece.
    """

    at: NDArray[np.int64]
    log_change: NDArray[np.float64]
    counts: NDArray[np.float64]
    squares: NDArray[np.float64]
    log_weight: NDArray[np.float64]
    total: int

    @property
    def shrinkage(self) -> NDArray[np.float64]:
        """The share of the sampling variance in the variance of the observed change under the prior."""
        return np.asarray(1 / (1 + self.counts * _PRIOR_VARIANCE_RATIO))

    @property
    def evidence(self) -> NDArray[np.float64]:
        """The logarithm of the evidence for a change at each position, times the position's weight."""
        between = self.counts * self.log_change**2
        without_change, with_change = self.squares + between, self.squares + self.shrinkage * between
        has_variance = without_change > 0  # equal values have no evidence: avoid 0/0
        gain = np.log(np.where(has_variance, without_change, 1.0) / np.where(has_variance, with_change, 1.0))
        return np.asarray(self.log_weight + np.log(self.shrinkage) / 2 + (self.total - 1) / 2 * gain)

    def half_width(self, index: int, required_evidence: float) -> float:
        """Return half the width of the interval: all changes with less than `required_evidence` against them."""
        shrinkage = self.shrinkage[index]
        growth = np.exp((2 * (required_evidence - self.log_weight[index]) - np.log(shrinkage)) / (self.total - 1))
        room = 1 - shrinkage * growth
        if room <= 0:  # no change of any size has that much evidence against it: too few runs
            return float("inf")
        return float(np.sqrt(self.squares[index] * (growth - 1) / (room * self.counts[index])))


def change_points(values: NDArray[np.float64], errors: NDArray[np.float64], series: int = 1) -> tuple[ChangePoint, ...]:
    """Return the change points of `values`, which are logarithms of runs' values in order of time.

    `errors` are standard errors of `values`. The probability of any false change point is at most 5 % for all of the
    `series` (their number) and all looks together. A change point stays when runs are added.
    """
    first, starts, detections = 0, [0], list[int]()
    # Replay the series run by run, so that the result does not depend on how often a user looked.
    for end in range(2 * MIN_RUNS_PER_LEVEL, len(values) + 1):
        splits = _split_points(values, errors, first, end)
        if splits is None:
            continue
        best = int(np.argmax(splits.evidence))
        if splits.evidence[best] >= evidence_needed(series, len(starts)):
            first = int(splits.at[best])
            starts.append(first)
            detections.append(end - 1)
    return tuple(_to_change_points(values, errors, series, starts, detections))


def evidence_needed(series: int, number: int) -> float:
    """Return the logarithm of the evidence that change point `number` (from 1) needs in one of `series` series."""
    return float(np.log(series * number * (number + 1) / (1 - CONFIDENCE)))


def _split_points(
    values: NDArray[np.float64], errors: NDArray[np.float64], first: int, end: int
) -> _SplitPoints | None:
    """Return the split points of the piece from `first` to before `end`; None if it is too short for two levels."""
    piece = values[first:end] - values[first]  # shifted, so that cumulated squares lose no digits
    total = len(piece)
    before = np.arange(MIN_RUNS_PER_LEVEL, total - MIN_RUNS_PER_LEVEL + 1)
    if not before.size:
        return None
    sums, squares = np.cumsum(piece), np.cumsum(piece**2)
    after, sum_before = total - before, sums[before - 1]
    means = sum_before / before, (sums[-1] - sum_before) / after
    rest = squares[-1] - before * means[0] ** 2 - after * means[1] ** 2
    floor = (total - 2) / total * float(np.sum(errors[first:end] ** 2))
    step = means[1] - means[0]
    return _SplitPoints(
        at=first + before,
        log_change=np.where(np.abs(step) < _ROUNDING, 0.0, step),
        counts=before * after / total,
        squares=np.maximum(np.where(rest < _ROUNDING**2 * total, 0.0, rest), floor),
        log_weight=-np.log((before - MIN_RUNS_PER_LEVEL + 1.0) * (before - MIN_RUNS_PER_LEVEL + 2.0)),
        total=total,
    )


def _to_change_points(
    values: NDArray[np.float64],
    errors: NDArray[np.float64],
    series: int,
    starts: Sequence[int],
    detections: Sequence[int],
) -> Sequence[ChangePoint]:
    """Return the change points, estimated from all runs of the levels before and after."""
    bounds, made = [*starts, len(values)], []
    for number, detected in enumerate(detections, start=1):
        first, at, end = bounds[number - 1 : number + 2]
        splits = _split_points(values, errors, first, max(end, at + MIN_RUNS_PER_LEVEL))
        if splits is None:  # impossible: the change was detected in this piece or a shorter one
            continue
        index = int(np.flatnonzero(splits.at == at)[0])
        weights = np.exp(splits.evidence - splits.evidence.max())
        order = np.argsort(-weights, kind="stable")
        likely = order[: int(np.searchsorted(np.cumsum(weights[order]), _LIKELY_WEIGHT * weights.sum())) + 1]
        needed = evidence_needed(series, number)
        made.append(
            ChangePoint(
                at=at,
                earliest=min(at, int(splits.at[likely].min())),
                latest=max(at, int(splits.at[likely].max())),
                detected_at=detected,
                log_change=float(splits.log_change[index]),
                half_width=splits.half_width(index, needed),
                robust_from=_find_robust_run(
                    values[first:end], errors[first:end], (at - first, detected - first), needed, first
                ),
            )
        )
    return made


def _find_robust_run(
    values: NDArray[np.float64],
    errors: NDArray[np.float64],
    change: tuple[int, int],
    required_evidence: float,
    first: int,
) -> int | None:
    """Return the first run at which a change is robust, None if there is none yet.

    `change` is the position of the change and of its detection, within the piece that starts at `first`.
    """
    at, detected = change
    for end in range(detected + 1, len(values) + 1):
        splits = _split_points(values, errors, 0, end)
        if splits is not None:
            wider = replace(splits, squares=_AUTOCORRELATED_VARIANCE_FACTOR * splits.squares)
            if wider.evidence[splits.at == at].max(initial=0.0) >= required_evidence:
                return first + end - 1
    return None


def estimate_autocorrelation(pieces: Sequence[NDArray[np.float64]], series: int) -> tuple[float, float]:
    """Return the pooled correlation of neighboring runs, and the correlation that chance explains (95 %).

    `pieces` are values between changes of `series` series. The series may be moved by a common cause, their baseline,
    so they count as one for the bound of chance. The estimate is unbiased: the correlation of n independent values is
    expected to be -1/n (Moran, "Some theorems on time series. II", Biometrika 35 (1948), 255-260).
    """
    residuals = [piece - piece.mean() for piece in pieces if len(piece) > MIN_RUNS_PER_LEVEL]
    squares = sum(float((each**2).sum()) for each in residuals)
    count = sum(len(each) for each in residuals)
    if squares <= 0:
        return 0.0, 1.0
    products = sum(float((each[1:] * each[:-1]).sum()) for each in residuals)
    return products / squares + len(residuals) / count, 2 / float(np.sqrt(count / series))

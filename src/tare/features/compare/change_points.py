"""Where a series of runs has changed its level, told so that it holds however often one looks.

The values are those of runs, one after the other, taken as independent draws of a normal distribution whose mean and
variance nobody knows. For each place, the evidence that the level changed there is the two-sample Bayes factor of
Gönen, Johnson, Lu and Westfall ("The Bayesian two-sample t test", The American Statistician 59 (2005), 252-257), with
the right Haar prior on level and scale, and a normal prior on the change. While the level is one, its expectation is 1
at whatever run one stops (Hendriksen, de Heide and Grünwald, "Optional stopping with Bayes factors", Bayesian Analysis
16 (2021), 961-989). The place is unknown: the weights of all places add up to 1, so that by Ville's inequality (1939)
the evidence for any of them, times its weight, ever reaches 1/a with a probability of at most a.

Three runs are needed on either side, so that two bad ones are no change: what is left out only lowers the evidence. A
run's value has an error of its own, from its blocks; that runs differ by less than these is taken to be chance. After a
change that was found, the search begins anew at its place. Each further one of a series needs more: the chances of all
together, a/(1·2), a/(2·3), …, add up to a.
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
_ROUNDING = 1e-12
_LIKELY_WEIGHT = 0.95  # of the weight of all places
_AUTOCORRELATED_VARIANCE_FACTOR = (1 + AUDITED_AUTOCORRELATION) / (1 - AUDITED_AUTOCORRELATION)


@dataclass(frozen=True)
class ChangePoint:
    """A change of level in a series of logarithms.

    `at` is the index of the first run of the new level. It may also be any from `earliest` to `latest`, which have 95 %
    of the evidence. `detected_at` is the run that brought it to light. `log_change` is the change, as a logarithm, by
    all runs of the two levels, and `half_width` half the width of its interval, which holds at all looks together; it
    may be infinite. From the run `robust_from` on, the evidence would do even if each run kept half of what moved the
    one before (`AUDITED_AUTOCORRELATION`), which triples the variance of a mean; None if that is not so yet.
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
    """All places of a piece at which its level may have changed: the first run after each, and what speaks for it."""

    at: NDArray[np.int64]
    log_change: NDArray[np.float64]
    counts: NDArray[np.float64]
    squares: NDArray[np.float64]
    log_weight: NDArray[np.float64]
    total: int

    @property
    def shrinkage(self) -> NDArray[np.float64]:
        """The share of the prior's variance in that of the observed change."""
        return np.asarray(1 / (1 + self.counts * _PRIOR_VARIANCE_RATIO))

    @property
    def evidence(self) -> NDArray[np.float64]:
        """The logarithm of the evidence for a change at each place, times the place's weight."""
        apart = self.counts * self.log_change**2
        any_of = self.squares + apart > 0
        above, below = self.squares + apart, self.squares + self.shrinkage * apart
        grown = np.log(np.where(any_of, above, 1.0) / np.where(any_of, below, 1.0))
        return np.asarray(self.log_weight + np.log(self.shrinkage) / 2 + (self.total - 1) / 2 * grown)

    def half_width(self, index: int, required_evidence: float) -> float:
        """Return half the width of the interval of the change: values with less than `required_evidence` against."""
        shrunk = self.shrinkage[index]
        growth = np.exp((2 * (required_evidence - self.log_weight[index]) - np.log(shrunk)) / (self.total - 1))
        room = 1 - shrunk * growth
        if room <= 0:
            return float("inf")
        return float(np.sqrt(self.squares[index] * (growth - 1) / (room * self.counts[index])))


def change_points(values: NDArray[np.float64], errors: NDArray[np.float64], series: int = 1) -> tuple[ChangePoint, ...]:
    """Return the changes of level in `values`, the logarithms of what runs had, in the order of time.

    `errors` are their standard errors. Of `series` that are looked at together, as often as one likes, one that does
    not change is ever said to with a probability of at most 5 %. What was found stays found when runs are added.
    """
    first, starts, founds = 0, [0], list[int]()
    for end in range(2 * MIN_RUNS_PER_LEVEL, len(values) + 1):
        places = _split_points(values, errors, first, end)
        if places is None:
            continue
        best = int(np.argmax(places.evidence))
        if places.evidence[best] >= evidence_needed(series, len(starts)):
            first = int(places.at[best])
            starts.append(first)
            founds.append(end - 1)
    return tuple(_to_change_points(values, errors, series, starts, founds))


def evidence_needed(series: int, number: int) -> float:
    """Return the logarithm of the evidence that the change of this number needs, in one of so many series."""
    return float(np.log(series * number * (number + 1) / (1 - CONFIDENCE)))


def _split_points(
    values: NDArray[np.float64], errors: NDArray[np.float64], first: int, end: int
) -> _SplitPoints | None:
    """Look at a piece of the series; None where it is too short to have changed."""
    own = values[first:end] - values[first]
    total = len(own)
    before = np.arange(MIN_RUNS_PER_LEVEL, total - MIN_RUNS_PER_LEVEL + 1)
    if not before.size:
        return None
    sums, squares = np.cumsum(own), np.cumsum(own**2)
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
    """Describe the changes by all runs of the levels that they lie between."""
    bounds, made = [*starts, len(values)], []
    for number, found in enumerate(detections, start=1):
        first, at, end = bounds[number - 1 : number + 2]
        places = _split_points(values, errors, first, max(end, at + MIN_RUNS_PER_LEVEL))
        if places is None:  # which cannot be, as it was found in this piece or a shorter one
            continue
        index = int(np.flatnonzero(places.at == at)[0])
        weights = np.exp(places.evidence - places.evidence.max())
        order = np.argsort(-weights, kind="stable")
        likely = order[: int(np.searchsorted(np.cumsum(weights[order]), _LIKELY_WEIGHT * weights.sum())) + 1]
        needed = evidence_needed(series, number)
        made.append(
            ChangePoint(
                at=at,
                earliest=min(at, int(places.at[likely].min())),
                latest=max(at, int(places.at[likely].max())),
                detected_at=found,
                log_change=float(places.log_change[index]),
                half_width=places.half_width(index, needed),
                robust_from=_find_robust_run(
                    values[first:end], errors[first:end], (at - first, found - first), needed, first
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
    """Return the first run at which a change is firm; `change` is its place and the run that found it, in the piece."""
    at, found = change
    for end in range(found + 1, len(values) + 1):
        places = _split_points(values, errors, 0, end)
        if places is not None:
            wider = replace(places, squares=_AUTOCORRELATED_VARIANCE_FACTOR * places.squares)
            if wider.evidence[places.at == at].max(initial=0.0) >= required_evidence:
                return first + end - 1
    return None


def estimate_autocorrelation(pieces: Sequence[NDArray[np.float64]], series: int) -> tuple[float, float]:
    """Return the correlation of each run with the one before it, pooled, and how much of it chance explains (95 %).

    `pieces` are the values between changes, of so many series, which may all be moved by the same: their baseline.
    Without bias: the correlation of n independent values is expected to be -1/n (Moran, "Some theorems on time series.
    II", Biometrika 35 (1948), 255-260).
    """
    away = [piece - piece.mean() for piece in pieces if len(piece) > MIN_RUNS_PER_LEVEL]
    squares = sum(float((each**2).sum()) for each in away)
    count = sum(len(each) for each in away)
    if squares <= 0:
        return 0.0, 1.0
    products = sum(float((each[1:] * each[:-1]).sum()) for each in away)
    return products / squares + len(away) / count, 2 / float(np.sqrt(count / series))

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
from tare.statistics.cells import LASTING

LEAST = 3  # runs on either side of a change
# Variance of the prior on the change, in variances of a run. Steps that people look for are larger than the noise; of
# the variances tried, this one finds those of 3 to 10 standard deviations soonest (docs/history.md: simulations).
_SPREAD = 10.0
_ROUNDING = 1e-12
_LIKELY = 0.95  # of the weight of all places
_TRIPLED = (1 + LASTING) / (1 - LASTING)


@dataclass(frozen=True)
class ChangePoint:
    """A change of level in a series of logarithms.

    `at` is the index of the first run of the new level. It may also be any from `earliest` to `latest`, which have 95 %
    of the evidence. `found` is the run that brought it to light. `step` is the change, as a logarithm, by all runs of
    the two levels, and `half` half the width of its interval, which holds at all looks together; it may be infinite.
    From the run `firm` on, the evidence would do even if each run kept half of what moved the one before (`LASTING`),
    which triples the variance of a mean; None if that is not so yet.
    """

    at: int
    earliest: int
    latest: int
    found: int
    step: float
    half: float
    firm: int | None


@dataclass(frozen=True)
class _Places:
    """All places of a piece at which its level may have changed: the first run after each, and what speaks for it."""

    at: NDArray[np.int64]
    step: NDArray[np.float64]
    counts: NDArray[np.float64]
    squares: NDArray[np.float64]
    log_weight: NDArray[np.float64]
    total: int

    @property
    def shrunk(self) -> NDArray[np.float64]:
        """The share of the prior's variance in that of the observed change."""
        return np.asarray(1 / (1 + self.counts * _SPREAD))

    @property
    def evidence(self) -> NDArray[np.float64]:
        """The logarithm of the evidence for a change at each place, times the place's weight."""
        apart = self.counts * self.step**2
        any_of = self.squares + apart > 0
        above, below = self.squares + apart, self.squares + self.shrunk * apart
        grown = np.log(np.where(any_of, above, 1.0) / np.where(any_of, below, 1.0))
        return np.asarray(self.log_weight + np.log(self.shrunk) / 2 + (self.total - 1) / 2 * grown)

    def half(self, index: int, needed: float) -> float:
        """Return half the width of the interval of the change there: all against which there is less than `needed`."""
        shrunk = self.shrunk[index]
        growth = np.exp((2 * (needed - self.log_weight[index]) - np.log(shrunk)) / (self.total - 1))
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
    for end in range(2 * LEAST, len(values) + 1):
        places = _places(values, errors, first, end)
        if places is None:
            continue
        best = int(np.argmax(places.evidence))
        if places.evidence[best] >= evidence_needed(series, len(starts)):
            first = int(places.at[best])
            starts.append(first)
            founds.append(end - 1)
    return tuple(_described(values, errors, series, starts, founds))


def evidence_needed(series: int, number: int) -> float:
    """Return the logarithm of the evidence that the change of this number needs, in one of so many series."""
    return float(np.log(series * number * (number + 1) / (1 - CONFIDENCE)))


def _places(values: NDArray[np.float64], errors: NDArray[np.float64], first: int, end: int) -> _Places | None:
    """Look at a piece of the series; None where it is too short to have changed."""
    own = values[first:end] - values[first]
    total = len(own)
    before = np.arange(LEAST, total - LEAST + 1)
    if not before.size:
        return None
    sums, squares = np.cumsum(own), np.cumsum(own**2)
    after, sum_before = total - before, sums[before - 1]
    means = sum_before / before, (sums[-1] - sum_before) / after
    rest = squares[-1] - before * means[0] ** 2 - after * means[1] ** 2
    floor = (total - 2) / total * float(np.sum(errors[first:end] ** 2))
    step = means[1] - means[0]
    return _Places(
        at=first + before,
        step=np.where(np.abs(step) < _ROUNDING, 0.0, step),
        counts=before * after / total,
        squares=np.maximum(np.where(rest < _ROUNDING**2 * total, 0.0, rest), floor),
        log_weight=-np.log((before - LEAST + 1.0) * (before - LEAST + 2.0)),
        total=total,
    )


def _described(
    values: NDArray[np.float64],
    errors: NDArray[np.float64],
    series: int,
    starts: Sequence[int],
    founds: Sequence[int],
) -> Sequence[ChangePoint]:
    """Describe the changes by all runs of the levels that they lie between."""
    bounds, made = [*starts, len(values)], []
    for number, found in enumerate(founds, start=1):
        first, at, end = bounds[number - 1 : number + 2]
        places = _places(values, errors, first, max(end, at + LEAST))
        if places is None:  # which cannot be, as it was found in this piece or a shorter one
            continue
        index = int(np.flatnonzero(places.at == at)[0])
        weights = np.exp(places.evidence - places.evidence.max())
        order = np.argsort(-weights, kind="stable")
        likely = order[: int(np.searchsorted(np.cumsum(weights[order]), _LIKELY * weights.sum())) + 1]
        needed = evidence_needed(series, number)
        made.append(
            ChangePoint(
                at=at,
                earliest=min(at, int(places.at[likely].min())),
                latest=max(at, int(places.at[likely].max())),
                found=found,
                step=float(places.step[index]),
                half=places.half(index, needed),
                firm=_firm(values[first:end], errors[first:end], (at - first, found - first), needed, first),
            )
        )
    return made


def _firm(
    values: NDArray[np.float64], errors: NDArray[np.float64], change: tuple[int, int], needed: float, first: int
) -> int | None:
    """Return the first run at which a change is firm; `change` is its place and the run that found it, in the piece."""
    at, found = change
    for end in range(found + 1, len(values) + 1):
        places = _places(values, errors, 0, end)
        if places is not None:
            wider = replace(places, squares=_TRIPLED * places.squares)
            if wider.evidence[places.at == at].max(initial=0.0) >= needed:
                return first + end - 1
    return None


def lasting(pieces: Sequence[NDArray[np.float64]], series: int) -> tuple[float, float]:
    """Return the correlation of each run with the one before it, pooled, and how much of it chance explains (95 %).

    `pieces` are the values between changes, of so many series, which may all be moved by the same: their baseline.
    Without bias: the correlation of n independent values is expected to be -1/n (Moran, "Some theorems on time series.
    II", Biometrika 35 (1948), 255-260).
    """
    away = [piece - piece.mean() for piece in pieces if len(piece) > LEAST]
    squares = sum(float((each**2).sum()) for each in away)
    count = sum(len(each) for each in away)
    if squares <= 0:
        return 0.0, 1.0
    products = sum(float((each[1:] * each[:-1]).sum()) for each in away)
    return products / squares + len(away) / count, 2 / float(np.sqrt(count / series))

"""How often `tare history` says that a level has changed which has not, and how soon it finds one that has.

A history has ten series of 52 runs, and is looked at after each of them. The noise is between runs, in standard
deviations of a run. A change comes with the thirteenth run, in one of the series.

    PYTHONPATH=tests/support python research/audit_history.py [--histories 2000]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tare.features.compare.change_points import change_points

_SERIES, _RUNS, _CHANGED = 10, 52, 12
_SEED = 20261127
_STEPS = (2.0, 3.0, 5.0, 10.0)
Noise = Callable[[np.random.Generator], NDArray[np.float64]]


def normal(chance: np.random.Generator) -> NDArray[np.float64]:
    """Independent runs."""
    return chance.normal(0, 1, _RUNS)


def with_bad_nights(chance: np.random.Generator) -> NDArray[np.float64]:
    """One run in twenty is off by ten standard deviations."""
    return normal(chance) + np.where(chance.random(_RUNS) < 0.05, -10.0, 0.0)


def unlike(chance: np.random.Generator) -> NDArray[np.float64]:
    """The standard deviation of each run is another one, from half to twice the usual."""
    return normal(chance) * np.exp(chance.uniform(-np.log(2), np.log(2), _RUNS))


def correlated(correlation: float) -> Noise:
    """Each run keeps a share of what moved the one before."""

    def draw(chance: np.random.Generator) -> NDArray[np.float64]:
        values = normal(chance)
        for at in range(1, _RUNS):
            values[at] = correlation * values[at - 1] + np.sqrt(1 - correlation**2) * values[at]
        return values

    return draw


NOISE: Mapping[str, Noise] = {
    "independent, normal": normal,
    "one night in twenty is off by ten SD": with_bad_nights,
    "each night has another SD, half to twice": unlike,
    "nights correlate by 0.3": correlated(0.3),
    "nights correlate by 0.5": correlated(0.5),
}


@dataclass(frozen=True)
class Found:
    """Shares of histories: with a false change, with a firm one, and with the change found by the end; of those, with
    it at its place, and with it covered.

    `delay` is the median number of runs from the change on until it was found, `firm_delay` until it was firm.
    """

    false: float
    firm: float = 0.0
    found: float = 0.0
    delay: float = 0.0
    firm_delay: float = 0.0
    exact: float = 0.0
    covered: float = 0.0


def without_change(noise: Noise, histories: int) -> Found:
    """Count histories in which some series is said to have changed."""
    chance = np.random.default_rng(_SEED)
    false = firm = 0
    for _ in range(histories):
        points = [each for _ in range(_SERIES) for each in change_points(noise(chance), np.zeros(_RUNS), _SERIES)]
        false += bool(points)
        firm += any(each.robust_from is not None for each in points)
    return Found(false / histories, firm / histories)


def with_change(step: float, histories: int) -> Found:
    """Count what is found of one series that changes, among ten."""
    chance = np.random.default_rng(_SEED)
    delays, firm_delays, exact, covered, false = [], [], 0, 0, 0
    for _ in range(histories):
        values = normal(chance)
        values[_CHANGED:] += step
        points = change_points(values, np.zeros(_RUNS), _SERIES)
        right = [each for each in points if each.detected_at >= _CHANGED and each.earliest <= _CHANGED <= each.latest]
        false += len(points) > len(right[:1])
        if right:
            delays.append(right[0].detected_at - _CHANGED + 1)
            firm_delays.append(_RUNS if right[0].robust_from is None else right[0].robust_from - _CHANGED + 1)
            exact += right[0].at == _CHANGED
            covered += abs(right[0].log_change - step) <= right[0].half_width
    count = max(len(delays), 1)
    delay, firm_delay = (float(np.median(each)) if each else float("nan") for each in (delays, firm_delays))
    return Found(false / histories, 0.0, len(delays) / histories, delay, firm_delay, exact / count, covered / count)


def _runs(count: float) -> str:
    return f"{count:g} runs" if count < _RUNS - _CHANGED else "not by the end"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def main() -> None:
    """Print two Markdown tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--histories", type=int, default=2000)
    histories: int = parser.parse_args().histories
    print("| nothing changes; between runs | histories with a false change | with a firm one |\n| --- | --- | --- |")
    for name, noise in NOISE.items():
        each = without_change(noise, histories)
        print(f"| {name} | {_percent(each.false)} | {_percent(each.firm)} |", flush=True)
    head = (
        "one of ten series changes by",
        "found",
        "after, median",
        "firm after",
        "at its run",
        "covered",
        "another change",
    )
    print(f"\n| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for step in _STEPS:
        each = with_change(step, histories)
        cells = (
            _percent(each.found),
            _runs(each.delay),
            _runs(each.firm_delay),
            *map(_percent, (each.exact, each.covered, each.false)),
        )
        print(f"| {step:g} SD | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

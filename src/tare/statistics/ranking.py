"""Which stack is the cheapest over several workloads, and which cannot be told from it.

A stack's speed is the geometric mean, over workloads, of its headlines relative to a reference's; where lower is
better, the inverse counts. The workloads' blocks are independent, so the variances of their mean log ratios add, and
the degrees of freedom are Satterthwaite's ("An approximate distribution of estimates of variance components",
Biometrics Bulletin 2 (1946), 110-114).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tare.statistics.cells import Overall, Standing, Verdict
from tare.statistics.describe import moments
from tare.statistics.headlines import Headline
from tare.statistics.interval import quantiles
from tare.statistics.ratios import ROUNDING, backwards, log_differences


@dataclass(frozen=True)
class Speeds:
    """Mean log speed of each stack relative to a reference, half the width of its interval, and where each is known."""

    mean: NDArray[np.float64]
    half: NDArray[np.float64]
    known: NDArray[np.bool_]
    spread: NDArray[np.bool_]


def rank(stacks: tuple[str, ...], headlines: Sequence[Headline], baseline: str) -> Overall:
    """Rank the stacks that have a value in every one of these workloads against the baseline."""
    workloads = tuple(headline.rule.workload for headline in headlines)
    if baseline not in stacks or not headlines:
        return Overall(workloads, (), (), ())
    speeds = relative_speeds(headlines, stacks.index(baseline))
    others = [index for index, stack in enumerate(stacks) if stack != baseline]
    order = sorted((index for index in others if speeds.known[index]), key=lambda index: -speeds.mean[index])
    standings = tuple(_standing(stacks[index], speeds, index) for index in order)
    missing = tuple(stacks[index] for index in others if not speeds.known[index])
    tied: tuple[str, ...] = ()
    if order:
        nearest = relative_speeds(headlines, order[0])
        tied = tuple(
            stacks[index]
            for index in order[1:]
            if _verdict(nearest, index) in ("cannot be separated", "too few blocks")
        )
    return Overall(workloads, standings, tied, missing)


def relative_speeds(headlines: Sequence[Headline], reference: int) -> Speeds:
    """Combine the workloads' mean log ratios to a reference stack into one for each stack."""
    means, variances, counts = [], [], []
    for headline in headlines:
        found = moments(*log_differences(headline.logs, headline.usable, reference))
        means.append(found.mean if headline.rule.better == "higher" else -found.mean)
        variances.append(found.deviation**2 / np.maximum(found.count, 1))
        counts.append(found.count)
    count, variance = np.array(counts), np.array(variances)
    total = variance.sum(axis=0)
    squares = (variance**2 / np.maximum(count - 1, 1)).sum(axis=0)
    freedom = np.where(squares > 0, total**2 / np.where(squares > 0, squares, 1.0), 1.0)
    half = quantiles(freedom) * np.sqrt(total) / len(headlines)
    return Speeds(np.mean(means, axis=0), half, np.all(count >= 1, axis=0), np.all(count >= 2, axis=0))


def _standing(stack: str, speeds: Speeds, index: int) -> Standing:
    mean, half = float(speeds.mean[index]), float(speeds.half[index])
    low, high = (backwards(mean - half), backwards(mean + half)) if speeds.spread[index] else (None, None)
    return Standing(stack, backwards(mean), low, high, _verdict(speeds, index))


def _verdict(speeds: Speeds, index: int) -> Verdict:
    if not speeds.known[index]:
        return "no value"
    if not speeds.spread[index]:
        return "too few blocks"
    if abs(speeds.mean[index]) <= speeds.half[index] + ROUNDING:
        return "cannot be separated"
    return "better" if speeds.mean[index] > 0 else "worse"

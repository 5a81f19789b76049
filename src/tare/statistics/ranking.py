"""Which stack is the cheapest over several workloads, and which cannot be distinguished from it.

A stack's speed is the geometric mean, over workloads, of its headlines relative to a reference's; where lower is
better, the inverse counts. The first blocks of all workloads make one value, the second ones the next, and so on as far
as every workload has them: the workloads are independent of each other, so these values are as good as blocks of a
single workload, and are compared like them (`tare.statistics.ratios`).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tare.statistics.anytime import least_count
from tare.statistics.cells import Overall, Standing, Verdict, in_words
from tare.statistics.headlines import Headline
from tare.statistics.ratios import Comparison, Reference, compare_together
from tare.statistics.rounds import Differences


def rank(stacks: tuple[str, ...], headlines: Sequence[Headline], reference: Reference | None, margin: float) -> Overall:
    """Rank the stacks that have an interval over all of these headlines that have intervals at all.

    The `reference` is the baseline, None where the run has none; its control is not ranked. A headline in which no
    stack has enough blocks for an interval says nothing yet, and would take the intervals of the others away.
    """
    if reference is None:
        return Overall((), (), (), ())
    others = [row for row in range(len(stacks)) if row not in (reference.row, reference.control)]
    found = [(head, head.differences(reference)) for head in headlines]
    found = [(head, own) for head, own in found if own.both.sum(axis=1)[others].max(initial=0) >= least_count()]
    headlines = [head for head, _ in found]
    workloads = tuple(head.rule.name for head in headlines)
    if not headlines:
        return Overall((), (), (), ())
    speeds = _together(found, reference, margin)
    known = [index for index in others if speeds.count[index] >= least_count()]
    order = sorted(known, key=lambda index: -speeds.mean[index])
    standings = tuple(_standing(stacks[index], speeds, index) for index in order)
    missing = tuple(stacks[index] for index in others if index not in known)
    tied: tuple[str, ...] = ()
    if order:
        nearest = relative_speeds(headlines, Reference(order[0]), margin)
        tied = tuple(stacks[index] for index in order[1:] if _verdict(nearest, index) != "worse")
    return Overall(workloads, standings, tied, missing)


def relative_speeds(headlines: Sequence[Headline], reference: Reference, margin: float) -> Comparison:
    """Compare the speed of every stack, over all these headlines, with that of a reference stack."""
    return _together([(head, head.differences(reference)) for head in headlines], reference, margin)


def _together(found: Sequence[tuple[Headline, Differences]], reference: Reference, margin: float) -> Comparison:
    series = [_in_turn(own.logs, own.both) for _, own in found]
    length = min(values.shape[1] for values, _ in series)
    signs = [1.0 if head.rule.better == "higher" else -1.0 for head, _ in found]
    values = [sign * own[:, :length] for sign, (own, _) in zip(signs, series, strict=True)]
    present = np.all([there[:, :length] for _, there in series], axis=0)
    return compare_together(np.mean(values, axis=0), present, margin, reference)


def _in_turn(values: NDArray[np.float64], present: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Close the gaps of each row: its first value is its first, whatever block that was."""
    order = np.argsort(~present, axis=1, kind="stable")
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(present, order, axis=1)


def _standing(stack: str, speeds: Comparison, index: int) -> Standing:
    speed = speeds.at((index,))
    assert speed is not None  # noqa: S101 - only asked for stacks that are known
    return Standing(stack, speed.ratio, speed.low, speed.high, _verdict(speeds, index))


def _verdict(speeds: Comparison, index: int) -> Verdict:
    speed = speeds.at((index,))
    return "no value" if speed is None else in_words(speed.side, "higher")

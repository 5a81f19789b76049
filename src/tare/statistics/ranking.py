"""Which stack is the cheapest over several workloads, and which cannot be told from it.

A stack's speed is the geometric mean, over workloads, of its headlines relative to a reference's; where lower is
better, the inverse counts. The first blocks of all workloads make one value, the second ones the next, and so on as far
as every workload has them: the workloads are independent of each other, so these values are as good as blocks of a
single workload, and are compared like them (`tare.statistics.ratios`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tare.statistics.anytime import least_count
from tare.statistics.cells import Overall, Standing, Verdict, in_words
from tare.statistics.headlines import Headline
from tare.statistics.ratios import Comparison, Differences, compare_together, log_differences


@dataclass(frozen=True)
class Reference:
    """The row of the stack that others are compared with and, if it has one, of its A/A control."""

    row: int
    control: int | None = None


def rank(stacks: tuple[str, ...], headlines: Sequence[Headline], reference: Reference | None, margin: float) -> Overall:
    """Rank the stacks that have an interval over all of these headlines that have intervals at all.

    The `reference` is the baseline, None where the run has none; its control is not ranked. A headline in which no
    stack has enough blocks for an interval says nothing yet, and would take the intervals of the others away.
    """
    if reference is None:
        return Overall((), (), (), ())
    others = [row for row in range(len(stacks)) if row not in (reference.row, reference.control)]
    headlines = [head for head in headlines if _pairs(head, reference.row)[others].max(initial=0) >= least_count()]
    workloads = tuple(head.rule.name for head in headlines)
    if not headlines:
        return Overall((), (), (), ())
    speeds = relative_speeds(headlines, reference, margin)
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
    series = [_in_turn(log_differences(headline.logs, headline.usable, reference.row)) for headline in headlines]
    length = min(each.logs.shape[1] for each in series)
    signs = [1.0 if headline.rule.better == "higher" else -1.0 for headline in headlines]
    logs = [sign * each.logs[:, :length] for sign, each in zip(signs, series, strict=True)]
    present = np.all([each.present[:, :length] for each in series], axis=0)
    return compare_together(np.mean(logs, axis=0), present, margin, reference.control)


def _pairs(head: Headline, reference: int) -> NDArray[np.int64]:
    """Count the blocks in which each stack and the reference have the headline."""
    return np.asarray((head.usable & head.usable[reference]).sum(axis=1))


def _in_turn(differences: Differences) -> Differences:
    """Close the gaps of each row: its first value is its first, whatever block that was."""
    order = np.argsort(~differences.present, axis=1, kind="stable")
    logs = np.take_along_axis(differences.logs, order, axis=1)
    return Differences(logs, np.take_along_axis(differences.present, order, axis=1))


def _standing(stack: str, speeds: Comparison, index: int) -> Standing:
    speed = speeds.at((index,))
    assert speed is not None  # noqa: S101 - only asked for stacks that are known
    return Standing(stack, speed.ratio, speed.low, speed.high, _verdict(speeds, index))


def _verdict(speeds: Comparison, index: int) -> Verdict:
    speed = speeds.at((index,))
    return "no value" if speed is None else in_words(speed.claim, "higher")

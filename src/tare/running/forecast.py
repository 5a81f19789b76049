"""What a suite's margin takes, if its blocks vary as those of a finished run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tare.running.pace import Pace
from tare.statistics.cells import Cell
from tare.statistics.planning import blocks_needed, margin_reached
from tare.statistics.summary import Summary
from tare.suites.plan import estimate, to_run
from tare.suites.suite import Suite


@dataclass(frozen=True)
class Forecast:
    """What the margin takes for a stack whose ratios to the baseline have this standard deviation (of their logs).

    `blocks` is None where it takes more than can be predicted, `resolves` where the suite's blocks give no interval.
    """

    stack: str
    deviation: float
    blocks: int | None
    seconds: float
    resolves: float | None


def forecasts(summary: Summary, suite: Suite, pace: Pace) -> Mapping[str, Sequence[Forecast]]:
    """Return by workload the forecasts of its median and of its noisiest stack; none without two blocks."""
    # The A/A control, which varies more, has to be decided only where it is alone.
    stacks = {stack.name for stack in suite.stacks} - {suite.baseline} or {suite.control}
    cells = [cell for cell in summary.headlines if cell.stack in stacks and len(cell.ratios) > 1]
    seconds = {block.workload: estimate((block,), pace.seconds_of) for block in to_run(suite) if block.index == 0}
    return {
        planned.name: [
            _forecast(deviation, stack, suite, seconds[planned.name])
            for deviation, stack in _median_and_noisiest([cell for cell in cells if cell.workload == planned.name])
        ]
        for planned in suite.workloads
    }


def _median_and_noisiest(cells: Sequence[Cell]) -> list[tuple[float, str]]:
    known = sorted((statistics.stdev(map(math.log, cell.ratios)), cell.stack) for cell in cells)
    return sorted({known[(len(known) - 1) // 2], known[-1]}) if known else []


def _forecast(deviation: float, stack: str, suite: Suite, seconds: float) -> Forecast:
    blocks = blocks_needed(deviation, suite.margin)
    return Forecast(stack, deviation, blocks, seconds * (blocks or 0), margin_reached(deviation, suite.blocks))

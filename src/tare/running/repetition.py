"""How often the workload of a block is measured: as often as tells most for its time.

A block costs its starts, and then its turns. Where rounds differ more than fresh instances do, further rounds tell more
than further blocks. The number of rounds that makes an answer cheapest is

    sqrt(seconds of all starts / seconds of a round * variance within / variance between)

(Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM 2013, 63-74, section 6). The first block has the
workload's own number, later ones a multiple of it: a workload is measured once more as a whole, in a further pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tare.running.pace import Pace
from tare.statistics.components import Components
from tare.suites.plan import Block

_MOST = 10  # passes: beyond it, the variance between blocks is known too badly to go on


@dataclass(frozen=True)
class Costs:
    """What a block takes: seconds of all its starts, and of a pass, which has so many rounds."""

    starting: float
    once: float
    rounds: int

    @property
    def seconds(self) -> float:
        """What a block of one pass takes."""
        return self.starting + self.once


def costs_of(block: Block, pace: Pace) -> Costs:
    """Estimate what a block takes."""
    return Costs(
        sum(pace.starting_seconds_of(step) for step in block.steps),
        sum(pace.pass_seconds_of(step) for step in block.steps),
        pace.workloads[block.workload].rounds,
    )


def best_passes(found: Components, costs: Costs, seconds: float = math.inf) -> int:
    """Return the number of passes of a block that may take so many seconds."""
    if not costs.once > 0:
        return 1
    per_round = costs.once / costs.rounds
    rounds = math.sqrt(costs.starting / per_round * found.within / found.between)
    fitting = (seconds - costs.starting) / costs.once
    return max(1, min(_MOST, round(rounds / costs.rounds), int(min(fitting, _MOST))))

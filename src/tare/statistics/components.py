"""How much of what differs between blocks comes from their rounds, and how much from the instances themselves.

The variance of a block's value has two components: that of its rounds, which more rounds lower, and that between fresh
instances, which only more blocks lower (Kalibera and Jones, "Rigorous benchmarking in reasonable time", ISMM 2013,
63-74, section 6).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tare.statistics.borrowed import bias_of_log
from tare.statistics.center import center
from tare.statistics.headlines import Headline
from tare.statistics.ratios import Reference
from tare.statistics.rounds import logs_of_turns

_OF_MEDIAN = np.pi / 2  # the variance of a median of normal values, in variances of their mean
_PER_DEVIATION = 1.4826  # a normal deviation, in median absolute deviations
_LEAST_ROUNDS = 3
# Until blocks have shown it, fresh instances are taken to differ by a quarter of what rounds do, and that counts for as
# many degrees of freedom.
_USUAL_SHARE, _USUAL_FREEDOM = 1 / 16, 10.0


@dataclass(frozen=True)
class Components:
    """Variances of log ratios to the baseline: of rounds within a block, and of blocks beyond what rounds explain."""

    within: float
    between: float


def components_of(head: Headline, reference: Reference) -> Components | None:
    """Estimate the components of a workload's headline; see `components`."""
    return components(*logs_of_turns(head.grid, head.keys), head.weights, reference.row) if head.keys else None


def components(
    logs: NDArray[np.float64], usable: NDArray[np.bool_], weights: NDArray[np.float64], row: int
) -> Components | None:
    """Estimate the components from the logarithms of the turns of all stacks; None where rounds say nothing.

    The axes are stack, key, block and round; `weights` are of the keys, `row` is that of the baseline. They are those
    of a typical stack: the logarithms of variances are averaged, so that a noisy stack counts no more than others.
    """
    both = usable & usable[row]
    counts = both.sum(axis=-1)
    present = (counts >= _LEAST_ROUNDS).all(axis=1)
    present[row] = False
    if not present.any():
        return None
    ratios = logs - logs[row]
    middle = center(ratios, both)
    scale = _PER_DEVIATION * center(np.abs(ratios - middle[..., np.newaxis]), both)
    of_round, rounds = scale**2 * _OF_MEDIAN, np.maximum(counts, 1)
    within, explained = (
        _typical(np.einsum("skb,k->sb", each, weights**2)[present], rounds.min(axis=1)[present] - 1.0)
        for each in (of_round, of_round / rounds)
    )
    if not within:
        return None
    blocks = present.sum(axis=1)
    several = np.flatnonzero(blocks > 1)
    freedom = float((blocks[several] - 1).sum())
    values = np.einsum("skb,k->sb", middle, weights)
    seen = np.array([np.var(values[stack][present[stack]], ddof=1) for stack in several])
    beyond = max(0.0, _typical(seen, blocks[several] - 1.0) - explained)
    between = (_USUAL_FREEDOM * _USUAL_SHARE * within + freedom * beyond) / (_USUAL_FREEDOM + freedom)
    return Components(within, between)


def _typical(variances: NDArray[np.float64], freedom: NDArray[np.float64]) -> float:
    """Return the geometric mean of estimated variances, without the bias that their logarithms have."""
    own = variances > 0
    if not own.any():
        return 0.0
    return float(np.exp(np.mean(np.log(variances[own]) - bias_of_log(freedom[own]))))

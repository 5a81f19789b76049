"""How often what is said of a kind of machine is false, and how often a machine that was not measured lies outside.

A world has ten stacks on some machines with ten blocks each; the standard deviation of a block's ratio on any machine
is 2 %, of whose variance a share is between machines. Half of the stacks are equal to the baseline, half cost 10 %. A
decision is false where it says better or worse of equal stacks, equivalent of those that cost 10 %, or takes the wrong
side. Each interval is asked for the true value of one more machine of the kind.

    PYTHONPATH=tests/support python research/audit_fleets.py [--worlds 2000]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tare.features.fleet.comparison import false_share_per_cell
from tare.features.fleet.random_effects import estimate_variance, half_width, summarize_machine
from tare.statistics.ratios import classify_side

_STACKS, _BLOCKS, _SD, _COST, _MARGIN = 10, 10, 0.02, 0.10, 0.03
_SEED = 20261127
_MACHINES, _SHARES = (2, 5, 20), (0.0, 0.2, 0.8)
_LEFT = 2  # blocks of a machine that died


@dataclass
class Tally:
    """Counts over worlds: decisions, false ones, intervals and those that miss, effects of 10 % and those decided."""

    decided: int = 0
    false: int = 0
    intervals: int = 0
    missed: int = 0
    effects: int = 0
    found: int = 0
    share: float = 0.0


def study(machines: int, share: float, worlds: int, *, dies: bool) -> Tally:
    """Simulate worlds; where one `dies`, a machine has a fifth of its blocks, and the others have the rest."""
    chance, tally, limit = np.random.default_rng(_SEED), Tally(), math.log1p(_MARGIN)
    between, within = _SD * math.sqrt(share), _SD * math.sqrt(1 - share)
    blocks = [_BLOCKS] * machines
    if dies:
        blocks = [_LEFT] + [_BLOCKS + (_BLOCKS - _LEFT) // (machines - 1)] * (machines - 1)
    truths = [0.0] * (_STACKS // 2) + [-math.log1p(_COST)] * (_STACKS - _STACKS // 2)
    shares = []
    for _ in range(worlds):
        logs = [_machines(chance, truth, (between, within), blocks) for truth in truths]
        means = [np.array([each.mean() for each in own]) for own in logs]
        level = false_share_per_cell(means, _MARGIN)
        for truth, own in zip(truths, means, strict=True):
            half = half_width(own, level)
            side = classify_side(float(own.mean()), half, limit)
            another = truth + chance.normal(0, between)
            tally.intervals += 1
            tally.missed += abs(another - own.mean()) > half
            tally.effects += truth < 0
            if side in ("more", "less", "equivalent"):
                tally.decided += 1
                tally.false += side != ("less" if truth < 0 else "equivalent")
                tally.found += truth < 0 and side == "less"
        found = estimate_variance([*map(summarize_machine, logs[0])])
        shares.append(found.share or 0.0 if found else 0.0)
    tally.share = float(np.mean(shares))
    return tally


def _machines(
    chance: np.random.Generator, truth: float, deviations: tuple[float, float], blocks: Sequence[int]
) -> list[NDArray[np.float64]]:
    between, within = deviations
    return [truth + chance.normal(0, between) + chance.normal(0, within, count) for count in blocks]


def main() -> None:
    """Print a Markdown table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--worlds", type=int, default=2000)
    worlds: int = parser.parse_args().worlds
    head = ("machines", "variance between", "estimated", "false decisions", "another machine outside", "10 % found")
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for dies in (False, True):
        for machines in _MACHINES:
            for share in _SHARES:
                each = study(machines, share, worlds, dies=dies)
                cells = (
                    f"{machines}, one of which died" if dies else str(machines),
                    f"{100 * (share):.0f} %",
                    f"{100 * (each.share):.0f} %",
                    f"{100 * (each.false / max(each.decided, 1)):.1f} %",
                    f"{100 * (each.missed / each.intervals):.1f} %",
                    f"{100 * (each.found / each.effects):.0f} %",
                )
                print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()

"""Noise that looks like an effect, in runs of one stack and of several: what is said falsely, and with what caution."""

from __future__ import annotations

from dataclasses import dataclass, replace

from audit_runs import COVERED, KINDS, NORMAL, Kind, decide, log_ratios, make_world

RUNS = 2000
SEED = 19540403
_STACKS = (1, 4, 10)
_EACH = tuple(kind for kind in KINDS if kind not in COVERED)
_ALONE = tuple(replace(kind, name=kind.name.replace("each stack", "one stack alone"), alone=True) for kind in _EACH)
# The longest first, so that no process waits for the other in the end.
BREAKS = tuple((kind, stacks) for stacks in reversed(_STACKS) for kind in (NORMAL, *_EACH, *_ALONE))


@dataclass(frozen=True)
class Broken:
    """What was said of stacks without any effect, as shares of the cells that have the noise.

    `unsaid` are the false decisions that are said to tolerate the correlation that the noise has, `to_the_end` the
    false ones after all blocks.
    """

    kind: Kind
    stacks: int
    false: float
    unsaid: float
    to_the_end: float


def broken(of: tuple[Kind, int]) -> Broken:
    """Simulate runs of a baseline, its second name and so many stacks."""
    kind, stacks = of
    world = make_world(kind, (RUNS, stacks + 2), SEED + stacks)
    ratios = log_ratios(world.in_turn(), (0.0,) * stacks)
    found, to_the_end = decide(ratios), decide(ratios, all_blocks=True)
    cells = slice(0, 1 if kind.alone else stacks)
    return Broken(
        kind=kind,
        stacks=stacks,
        false=float(found.false(0.0)[:, cells].mean()),
        unsaid=float(found.false(0.0, kind.correlation)[:, cells].mean()),
        to_the_end=float(to_the_end.false(0.0)[:, cells].mean()),
    )

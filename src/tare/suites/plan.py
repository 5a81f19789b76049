"""What a suite comes to: blocks of trials in random order, the same ones for the same seed.

A block has one trial of every stack for one workload, and a second one of the baseline (A/A), close together in time,
so that what drifts on the machine meets all stacks alike (a randomized complete block design: R. A. Fisher, The Design
of Experiments, 1935). Rounds go over all workloads, so that a run that ends early has about as many blocks of each.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace

from tare.suites.suite import Suite


@dataclass(frozen=True)
class Step:
    """One trial that is planned: `block` counts the blocks of its workload from 0, `order` the trials of its block."""

    trial: str
    workload: str
    stack: str
    block: int
    order: int


@dataclass(frozen=True)
class Block:
    """One trial of every stack for one workload, in the order in which they run."""

    workload: str
    index: int
    steps: tuple[Step, ...]


def plan(suite: Suite) -> tuple[Block, ...]:
    """Plan all blocks of a suite, in the order in which they run."""
    return tuple(_block(suite, planned.name, index) for index in range(suite.blocks) for planned in suite.workloads)


def remaining(blocks: Iterable[Block], done: Collection[str]) -> tuple[Block, ...]:
    """Leave out the trials that are done, and the blocks of which nothing is left."""
    names = frozenset(done)
    left = (replace(block, steps=tuple(step for step in block.steps if step.trial not in names)) for block in blocks)
    return tuple(block for block in left if block.steps)


def estimate(blocks: Iterable[Block], seconds_of: Callable[[Step], float]) -> float:
    """Give the seconds that all trials take, by the seconds of each."""
    return sum(seconds_of(step) for block in blocks for step in block.steps)


def _block(suite: Suite, workload: str, index: int) -> Block:
    stacks = [stack.name for stack in suite.stacks]
    # Each block has a generator of its own: another workload in the suite leaves the order of this one as it is.
    chance = random.Random(f"{suite.seed}/{workload}/{index}")  # noqa: S311 - nothing secret
    chance.shuffle(stacks)
    stacks.insert(chance.randrange(len(stacks) + 1), suite.control)
    steps = (
        Step(_trial(workload, index, order, stack), workload, stack, index, order) for order, stack in enumerate(stacks)
    )
    return Block(workload, index, tuple(steps))


def _trial(workload: str, block: int, order: int, stack: str) -> str:
    """Name a trial, so that the name can be that of a file; up to 1000 blocks, names sort as the trials run."""
    return f"{workload}-{block:03d}-{order:02d}-{stack.replace('/', '+')}"

"""The plan of a suite: blocks of trials in random order, the same for the same seed.

A block has one trial of every stack for one workload, and a second one of the baseline (A/A), close together in time,
so that drift of the machine affects all stacks alike (a randomized complete block design: R. A. Fisher, The Design of
Experiments, 1935). Rounds go over all workloads, so that a run that ends early has about as many blocks of each.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from tare.suites.suite import Suite


@dataclass(frozen=True)
class PlannedTrial:
    """A planned trial: `block` counts the blocks of its workload from 0, `order` the trials of its block."""

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
    trials: tuple[PlannedTrial, ...]

    @property
    def name(self) -> str:
        """Its name, with which those of its trials begin."""
        return f"{self.workload}-{self.index:03d}"

    def with_steps(self, steps: Iterable[PlannedTrial]) -> Block:
        """Return the block with these of its steps."""
        return Block(self.workload, self.index, tuple(steps))


def plan(suite: Suite) -> tuple[Block, ...]:
    """Plan the blocks of a suite, in the order in which they run."""
    numbers = range(suite.blocks) if suite.only_blocks is None else sorted(suite.only_blocks)
    return tuple(_plan_block(suite, planned.name, index) for index in numbers for planned in suite.workloads)


def plan_to_run(suite: Suite) -> tuple[Block, ...]:
    """Plan all blocks of a suite without the trials that it excludes."""
    return tuple(
        block.with_steps(step for step in block.trials if not suite.excludes(step.workload, step.stack))
        for block in plan(suite)
    )


def select_remaining(blocks: Iterable[Block], done: Collection[str]) -> tuple[Block, ...]:
    """Leave out the trials that are done, and blocks without a trial."""
    names = frozenset(done)
    left = (block.with_steps(step for step in block.trials if step.trial not in names) for block in blocks)
    return tuple(block for block in left if block.trials)


def estimate_total_seconds(blocks: Iterable[Block], seconds_of: Callable[[PlannedTrial], float]) -> float:
    """Return the estimated seconds of all trials; `seconds_of` estimates one."""
    return sum(seconds_of(step) for block in blocks for step in block.trials)


def _plan_block(suite: Suite, workload: str, index: int) -> Block:
    stacks = [stack.name for stack in suite.stacks]
    # Each block has a generator of its own, so that another workload in the suite does not change this one's order.
    chance = random.Random(f"{suite.seed}/{workload}/{index}")  # noqa: S311 - nothing secret
    chance.shuffle(stacks)
    stacks.insert(chance.randrange(len(stacks) + 1), suite.control)
    block = Block(workload, index, ())
    return block.with_steps(
        PlannedTrial(_trial_name(block.name, order, stack), workload, stack, index, order)
        for order, stack in enumerate(stacks)
    )


def _trial_name(block: str, order: int, stack: str) -> str:
    """Return a trial's name, which is valid in a file's name. Names of up to 1000 blocks sort as the trials run."""
    return f"{block}-{order:02d}-{stack.replace('/', '+')}"

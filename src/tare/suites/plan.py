"""Plan of a suite: blocks of trials in random order, reproducible by the seed.

A block has one trial of every stack for one workload, and a second trial of the baseline (A/A), close together in time.
So a drift of the machine affects all stacks equally (a randomized complete block design: R. A. Fisher, The Design of
Experiments, 1935). The workloads take turns by block, so that a run that ends early has similar numbers of blocks.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from tare.suites.suite import Suite


@dataclass(frozen=True)
class PlannedTrial:
    """Planned trial: `block` counts the blocks of its workload from 0, `order` the trials of its block."""

    trial: str
    workload: str
    stack: str
    block: int
    order: int


@dataclass(frozen=True)
class Block:
    """Trials of every stack for one workload, in the order in which they run."""

    workload: str
    index: int
    trials: tuple[PlannedTrial, ...]

    @property
    def name(self) -> str:
        """Name of the block, with which the names of its trials begin."""
        return f"{self.workload}-{self.index:03d}"

    def with_steps(self, steps: Iterable[PlannedTrial]) -> Block:
        """Return the block with only these steps."""
        return Block(self.workload, self.index, tuple(steps))


def plan(suite: Suite) -> tuple[Block, ...]:
    """Return the blocks of a suite, in the order in which they run."""
    numbers = range(suite.blocks) if suite.only_blocks is None else sorted(suite.only_blocks)
    return tuple(_plan_block(suite, planned.name, index) for index in numbers for planned in suite.workloads)


def plan_to_run(suite: Suite) -> tuple[Block, ...]:
    """Return the blocks of a suite without the trials that it excludes.

    The trials are left out of complete blocks, so that the order of all others does not depend on `exclude`.
    """
    return tuple(
        block.with_steps(step for step in block.trials if not suite.excludes(step.workload, step.stack))
        for block in plan(suite)
    )


def select_remaining(blocks: Iterable[Block], done: Collection[str]) -> tuple[Block, ...]:
    """Return the blocks without the trials that are done, and without empty blocks."""
    names = frozenset(done)
    left = (block.with_steps(step for step in block.trials if step.trial not in names) for block in blocks)
    return tuple(block for block in left if block.trials)


def estimate_total_seconds(blocks: Iterable[Block], seconds_of: Callable[[PlannedTrial], float]) -> float:
    """Return the estimated seconds of all trials; `seconds_of` estimates a single trial."""
    return sum(seconds_of(step) for block in blocks for step in block.trials)


def _plan_block(suite: Suite, workload: str, index: int) -> Block:
    stacks = [stack.name for stack in suite.stacks]
    # Each block has a separate generator, so that adding a workload to the suite does not change the order of others.
    generator = random.Random(f"{suite.seed}/{workload}/{index}")  # noqa: S311 - nothing secret
    generator.shuffle(stacks)
    stacks.insert(generator.randrange(len(stacks) + 1), suite.control)
    block = Block(workload, index, ())
    return block.with_steps(
        PlannedTrial(_trial_name(block.name, order, stack), workload, stack, index, order)
        for order, stack in enumerate(stacks)
    )


def _trial_name(block: str, order: int, stack: str) -> str:
    """Return a trial's name, which is a valid file name. Names of up to 1000 blocks sort in the order of the run."""
    return f"{block}-{order:02d}-{stack.replace('/', '+')}"

"""A unikernel, which has no inside, takes turns beside stacks that have one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from fakes import planned_of
from whole_runs import assert_in_turns

from plug_ins import in_contract
from tare.guests.unikernel import Unikernel
from tare.images.micro import UNIKERNELS
from tare.runner.block import BlockRunner
from tare.runner.context import RunContext
from tare.runner.events import ignore_event
from tare.suites.plan import Block, Step
from tare.technologies.native import Native
from tare.workloads.micro_redis import MicroRedis

pytestmark = pytest.mark.machine

BUILT = [found() for found in in_contract() if issubclass(found, Unikernel)]
WORKLOAD = MicroRedis(("GET",), (5,), duration=0.2)


@pytest.mark.parametrize("technology", BUILT, ids=lambda each: each.name)
def test_it_has_its_turns_side_by_side_with_the_others(
    technology: Unikernel, testbed: RunContext, nothing_left: Callable[[], AbstractContextManager[None]]
) -> None:
    UNIKERNELS.built(print)
    stacks = {"native": (Native(),), technology.name: (technology,), "native-again": (Native(),)}
    steps = tuple(Step(name, WORKLOAD.name, name, 0, order) for order, name in enumerate(stacks))
    rounds = BlockRunner(testbed, stacks, ("native", "native-again"), seed=1)
    with nothing_left():
        planned = planned_of(WORKLOAD)
        trials = [trial for trial, _ in rounds.run(Block(WORKLOAD.name, 0, steps), planned, ignore_event)]
    assert [(trial.stack, trial.status, trial.reason) for trial in trials] == [(name, "ok", "") for name in stacks]
    assert_in_turns(trials)

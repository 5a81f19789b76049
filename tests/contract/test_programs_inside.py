"""Programs of the image that workloads run inside, on bare metal: each turn of each has its value."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from own_testbed import spec_of

from tare.plugins.instance import Instance
from tare.plugins.workload import MeasurementContext, Workload
from tare.runner.context import RunContext
from tare.runner.layers import start_stack
from tare.runner.trial_log import TrialLog
from tare.runner.values import read_values
from tare.technologies.native import Native
from tare.workloads.context_switch import ContextSwitch
from tare.workloads.hackbench import Hackbench
from tare.workloads.sysbench import Sysbench
from tare.workloads.sysbench_memory import SysbenchMemory
from tare.workloads.system_calls import SystemCalls

pytestmark = pytest.mark.machine

SHORT = (
    Hackbench(groups=(1, 2), loops=10, repetitions=1),
    ContextSwitch(loops=1000, repetitions=2),
    SystemCalls(duration=0.1),
    Sysbench(duration=0.1),
    SysbenchMemory(duration=0.1, operation="read"),
)


@pytest.fixture(scope="module")
def bare_metal(testbed: RunContext) -> Iterator[Instance]:
    with start_stack(testbed, spec_of(testbed, Native()), TrialLog()) as (part,):
        yield part.instance


@pytest.mark.parametrize("workload", SHORT, ids=lambda each: each.name)
def test_a_program_runs_inside_in_turns(testbed: RunContext, bare_metal: Instance, workload: Workload) -> None:
    found = read_values(workload, tuple(workload.measure(MeasurementContext(bare_metal, testbed.client, ()))))
    assert {value.metric for value in found} == {metric.name for metric in workload.all_metrics}
    assert {value.point for value in found} == ({1.0, 2.0} if workload.sweep else {None})
    assert {len(value.turns) or 1 for value in found} == {workload.rounds}
    assert all(value.value > 0 for value in found)

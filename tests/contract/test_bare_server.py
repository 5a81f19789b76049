"""The unikernels' server on bare metal: the same program. No other instance may have the address meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from own_testbed import spec_of

from tare.contracts.workloads import MeasurementContext, Workload
from tare.errors import TrialFailed
from tare.runner.context import RunContext
from tare.runner.layers import start_stack
from tare.runner.service import start_service
from tare.runner.trial_log import TrialLog
from tare.runner.values import read_values
from tare.technologies.native import Native
from tare.workloads.micro_http import MicroHttp
from tare.workloads.micro_redis import MicroRedis

pytestmark = pytest.mark.machine

SMALL = (MicroHttp(clients=(1, 50)), MicroRedis(clients=(1, 50), duration=0.2))


@pytest.mark.parametrize("workload", SMALL, ids=lambda each: each.name)
def test_the_same_server_serves_on_bare_metal(testbed: RunContext, workload: Workload) -> None:
    with (
        start_stack(testbed, spec_of(testbed, Native(), port=workload.port), TrialLog()) as (part,),
        start_service(part.instance, workload) as server,
    ):
        server.await_answer(testbed.client)
        values = read_values(workload, tuple(workload.measure(MeasurementContext(part.instance, testbed.client, ()))))
    assert {value.point for value in values} == {1.0, 50.0}
    assert {len(value.turns) for value in values} == {10}
    assert all(value.value > 10 for value in values)


@dataclass(frozen=True)
class Larger(MicroHttp):
    """A page that is larger than the server's."""

    @property
    def page_bytes(self) -> int:
        return 4096


def test_a_page_of_another_size_fails_the_trial_with_what_wrk_counted(testbed: RunContext) -> None:
    workload = Larger(clients=(5,), duration=0.1, keep_alive=False)
    with (
        start_stack(testbed, spec_of(testbed, Native(), port=workload.port), TrialLog()) as (part,),
        start_service(part.instance, workload) as server,
    ):
        server.await_answer(testbed.client)
        with pytest.raises(TrialFailed, match=r"wrk with 5 clients read 1\d\d\d bytes an answer; the page has 4096"):
            tuple(workload.measure(MeasurementContext(part.instance, testbed.client, ())))

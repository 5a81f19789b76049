"""The unikernels' server on bare metal: the same program. No other instance may have the address meanwhile."""

from __future__ import annotations

import pytest

from tare.contracts import Setup, Workload
from tare.running.layers import Notes, Testbed, started
from tare.running.service import served
from tare.running.values import read_values
from tare.technologies.native import Native
from tare.workloads.micro_http import MicroHttp
from tare.workloads.micro_redis import MicroRedis

pytestmark = pytest.mark.machine

SMALL = (MicroHttp(clients=(1, 50)), MicroRedis(clients=(1, 50), duration=0.2))


@pytest.mark.parametrize("workload", SMALL, ids=lambda each: each.name)
def test_the_same_server_serves_on_bare_metal(testbed: Testbed, workload: Workload) -> None:
    with (
        started(testbed, (Native(),), workload.port, Notes()) as (part,),
        served(testbed, part.instance, workload, []),
    ):
        values = read_values(workload, tuple(workload.measure(Setup(part.instance, testbed.client, ()))))
    assert {value.point for value in values} == {1.0, 50.0}
    assert all(value.value > 10 for value in values)

from __future__ import annotations

from pathlib import Path

import pytest

from tare.loads.pressure import UnderPressure
from tare.workloads.nginx import Nginx
from tare.workloads.nginx_memory import NginxMemory
from tare.workloads.redis import Redis
from tare.workloads.redis_memory import RedisMemory

SAMPLES = Path(__file__).parents[2] / "samples"


def test_the_load_of_redis_is_one_operation_with_one_number_of_clients() -> None:
    assert RedisMemory().load == Redis(("SET",), (50,), duration=0.5)
    assert RedisMemory(operation="GET", clients=7, duration=2.0).load == Redis(("GET",), (7,), duration=2.0)


def test_the_load_of_nginx_is_the_file_with_one_number_of_clients() -> None:
    assert NginxMemory().load == Nginx((50,), 0.5, size=1024)
    assert NginxMemory(clients=7, size=4096, duration=2.0).load == Nginx((7,), 2.0, size=4096)


@pytest.mark.parametrize(("workload", "of"), [(RedisMemory(), Redis()), (NginxMemory(), Nginx())])
def test_the_server_is_that_of_the_workload_that_is_pressed(workload: UnderPressure, of: Redis | Nginx) -> None:
    assert (workload.server, workload.port, workload.usual_port) == (of.name, of.port, of.usual_port)
    assert (workload.packages, workload.client_packages) == (of.packages, of.client_packages)
    assert workload.service("0.0.0.0") == of.service("0.0.0.0")  # noqa: S104 - nothing listens
    assert workload.rounds == 1

from __future__ import annotations

import pytest

from tare.contracts.workloads import Workload
from tare.workloads.apache import Apache
from tare.workloads.apache_memory import ApacheMemory
from tare.workloads.lighttpd import Lighttpd
from tare.workloads.lighttpd_memory import LighttpdMemory
from tare.workloads.loads.memory_search import AtRate
from tare.workloads.nginx import Nginx
from tare.workloads.nginx_memory import NginxMemory
from tare.workloads.redis import Redis
from tare.workloads.redis_density import RedisDensity
from tare.workloads.redis_memory import RedisMemory


def test_the_load_of_redis_is_one_operation_with_one_number_of_clients() -> None:
    assert RedisMemory().load == Redis(("SET",), (50,), duration=0.5)
    assert RedisMemory(operation="GET", clients=7, duration=2.0).load == Redis(("GET",), (7,), duration=2.0)


def test_the_load_of_nginx_is_the_file_with_one_number_of_clients() -> None:
    assert NginxMemory().load == Nginx((50,), 0.5, size=1024)
    assert NginxMemory(clients=7, size=4096, duration=2.0).load == Nginx((7,), 2.0, size=4096)


def test_the_load_of_the_papers_servers_is_their_page_at_the_papers_rate_in_runs_that_take_the_duration() -> None:
    assert ApacheMemory(goal=0.75).load == AtRate(Apache(duration=0.2, tolerance=0.25), 4000)
    set_otherwise = LighttpdMemory(rate=500, duration=10.0, size=4096, timeout=0.3, goal=0.5)
    assert set_otherwise.load == AtRate(Lighttpd(duration=2.0, tolerance=0.5, timeout=0.3, size=4096), 500)


@pytest.mark.parametrize(
    ("workload", "of"),
    [
        (RedisMemory(), Redis()),
        (NginxMemory(), Nginx()),
        (ApacheMemory(), Apache()),
        (LighttpdMemory(), Lighttpd()),
        (RedisDensity(), Redis()),
    ],
)
def test_the_server_is_that_of_the_workload_that_drives_it(workload: Workload, of: Workload) -> None:
    assert (workload.server, workload.port, workload.usual_port) == (of.name, of.port, of.usual_port)
    assert (workload.packages, workload.client_packages, workload.paths) == (of.packages, of.client_packages, of.paths)
    assert workload.service("0.0.0.0") == of.service("0.0.0.0")  # noqa: S104 - nothing listens
    assert workload.rounds == 1

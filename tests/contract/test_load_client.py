"""tare's load client against the real nginx and Redis on bare metal, in turns with wrk and redis-benchmark.

The figures are printed: `pytest -s -m slow`.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median
from typing import Literal

import pytest
from begun import answering

from tare.loads.client_load import server_address
from tare.loads.http import Request
from tare.loads.load_client import ClosedLoop, read_turn_rate
from tare.loads.user_load import ClosedLoopHttpLoad
from tare.plugins.workload import MeasurementContext, Workload
from tare.runner.context import RunContext
from tare.workloads.nginx import Nginx
from tare.workloads.redis import Redis
from tare.workloads.service import UserServer

pytestmark = [pytest.mark.machine, pytest.mark.slow]

CLIENTS = 50
PAIRS = 30
BOUND = 9  # of 30 ordered values, the tenth from either end bounds the median with 95 %
LARGEST_DIFFERENCE = 0.03
LONG = 40.0  # seconds; of 200 turns, each is as long as those of wrk
PATH = "/srv/tare-large-file"
COMPRESSED = Request("/file", headers={"Accept-Encoding": "gzip"})
CONFIGURATION = f"""\
daemon off;
user root;
pid /srv/tare-nginx.pid;
error_log stderr;
worker_processes 1;
events {{ worker_connections 4000; }}
http {{
    access_log off;
    gzip on;
    gzip_comp_level 9;
    gzip_types *;
    keepalive_requests 1000000000;
    server {{ listen {{listen}}:{{port}}; location = /file {{ alias {PATH}; }} }}
}}
"""
# Takes about a millisecond for each request, so that neither client is the bottleneck.
COMPRESSING = UserServer(
    command="nginx -e stderr -c /srv/tare-large.conf",
    files={"/srv/tare-large.conf": CONFIGURATION, PATH: "".join(f"{number * number}\n" for number in range(2_000))},
    port=18081,
)
# GET takes the server less time than redis-benchmark, which is then the bottleneck.
SLOW_COMMAND = ("EVAL", "local i = 0 while i < 20000 do i = i + 1 end return i", "0")
SLOW_REQUESTS = 2000


def encode_command(*words: str) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word.encode()) for word in words)


def closed_loop(load: Literal["tare", "wrk"], duration: float) -> ClosedLoopHttpLoad:
    """Return a load whose turns take 0.2 s."""
    return ClosedLoopHttpLoad((CLIENTS,), duration, load=load, requests_to_send=(COMPRESSED,), port=COMPRESSING.port)


def rates(workload: Workload, setup: MeasurementContext) -> Iterator[float]:
    """Yield the rate of each turn of the only point."""
    for raw in workload.measure(setup):
        if not raw.warm_up:
            (value,) = workload.parse([raw])
            yield value.value


def compare(name: str, ours: Callable[[], float], theirs: Callable[[], float]) -> tuple[float, float]:
    """Alternate turns; return the bounds of the median of the ratios of neighbors, which holds it with 95 %."""
    pairs = [(ours(), theirs()) if number % 2 else (theirs(), ours())[::-1] for number in range(PAIRS)]
    ratios = sorted(one / other for one, other in pairs)
    low, high = ratios[BOUND], ratios[-1 - BOUND]
    middle = tuple(round(median(each)) for each in zip(*pairs, strict=True))
    sys.stdout.write(
        f"{name}: medians {middle[0]} and {middle[1]} requests/s, ratio {median(ratios):.3f} [{low:.3f}, {high:.3f}]\n"
    )
    return low, high


def test_http_agrees_with_wrk_where_the_server_is_the_bottleneck(testbed: RunContext) -> None:
    with answering(testbed, COMPRESSING) as setup:
        ours = rates(closed_loop("tare", LONG), setup)
        theirs = rates(closed_loop("wrk", 0.2 * PAIRS), setup)
        low, high = compare("nginx that compresses, load_client and wrk", ours.__next__, theirs.__next__)
    assert low <= 1 + LARGEST_DIFFERENCE
    assert high >= 1 - LARGEST_DIFFERENCE


def test_redis_agrees_with_redis_benchmark_if_the_server_is_the_limit(testbed: RunContext) -> None:
    workload = Redis()
    with answering(testbed, workload) as setup:
        load = ClosedLoop("redis", workload.port, (encode_command(*SLOW_COMMAND),), LONG, CLIENTS)
        turns = (read_turn_rate(raw.text, raw.label) for raw in load.run_point(setup, "EVAL", CLIENTS))
        next(turns)  # warms up

        def run_benchmark() -> float:
            where = ("-h", server_address(setup), "-p", str(workload.port))
            how = ("-n", str(SLOW_REQUESTS), "-c", str(CLIENTS), "--csv")
            output = setup.client.run("redis-benchmark", *where, *how, *SLOW_COMMAND, timeout=60)
            _, row = csv.reader(output.text.splitlines())
            return float(row[1])

        low, high = compare("Redis, load_client and redis-benchmark", turns.__next__, run_benchmark)
    assert low <= 1 + LARGEST_DIFFERENCE
    assert high >= 1 - LARGEST_DIFFERENCE


def test_the_tools_of_the_field_are_no_faster_with_quick_servers(testbed: RunContext) -> None:
    """redis-benchmark is the bottleneck, and wrk does not poll (docs/decisions/loads.md)."""
    with answering(testbed, Redis()) as setup:
        tuple(Redis(operations=("SET",), clients=(1,), duration=0.01).measure(setup))  # the key
        get = Redis(operations=("GET",), clients=(CLIENTS,), duration=LONG)
        theirs = rates(replace(get, duration=0.2 * PAIRS, load="redis-benchmark"), setup)
        _, redis = compare("Redis GET, load_client and redis-benchmark", rates(get, setup).__next__, theirs.__next__)
    page = Nginx(clients=(CLIENTS,), duration=LONG)
    with answering(testbed, page) as setup:
        theirs = rates(replace(page, duration=0.2 * PAIRS, load="wrk"), setup)
        _, nginx = compare("nginx, load_client and wrk", rates(page, setup).__next__, theirs.__next__)
    assert min(redis, nginx) >= 1 - LARGEST_DIFFERENCE

"""The suites of the papers have the papers' own parameters: each one with its place in the paper."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tare.suites.suite import Suite, parse_suite

EXAMPLES = Path(__file__).parents[3] / "examples"
STEPS_OF_100 = (1, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000)  # 1 takes the place of 0, which asks for nothing
ALL_KINDS = {"integer", "float", "mmx", "sse", "mmx-nt", "sse-nt"}


@cache
def suite(name: str) -> Suite:
    return parse_suite((EXAMPLES / f"{name}.toml").read_text(), name)


def setting(name: str, workload: str, key: str) -> Any:
    """Return what the workload is measured with, when the suite's bounds have been applied."""
    (planned,) = (each for each in suite(name).workloads if each.name == workload)
    return getattr(planned.workload, key)


@pytest.mark.parametrize(
    ("workload", "key", "value"),
    [
        # Table 2: Dhrystone 2147483627; section 4.1: 5 times.
        ("dhrystone", "passes", 2_147_483_627),
        ("dhrystone", "repetitions", 5),
        # Table 2, and section 4.1: a fixed number of passes.
        ("whetstone", "passes", 5_000_000),
        # Section 4.1: Kcbench compiles the kernel three times.
        ("kernel-build", "builds", 3),
        # Table 2: -b 1...19 -g 32 -l 5.
        ("ramspeed", "bytes_per_pass", 32 << 30),
        ("ramspeed", "passes", 5),
        # Table 2: -O 10 -t 180, and the second line's -b 1000000000, in bits.
        ("iperf3", "duration", 180.0),
        ("iperf3", "omit", 10.0),
        ("iperf3", "cap", 1_000_000_000 / 8),
        # Table 2: -r 16000 -z 1580230295 -x 3 -n 2500.
        ("bonnie", "memory", 16_000 << 20),
        ("bonnie", "seed", 1_580_230_295),
        ("bonnie", "runs", 3),
        ("bonnie", "files", 2500),
        # Table 2: -t 180 1/2/4/8, plain, -F and -s; -D for a volume.
        ("dbench", "processes", (1, 2, 4, 8)),
        ("dbench", "duration", 180.0),
        ("dbench", "modes", ("plain", "fsync", "sync")),
        ("dbench", "place", "root"),
        ("dbench-volume", "processes", (1, 2, 4, 8)),
        ("dbench-volume", "duration", 180.0),
        ("dbench-volume", "modes", ("plain", "fsync", "sync")),
        ("dbench-volume", "place", "volume"),
    ],
)
def test_vtmark_has_the_options_of_its_table_2(workload: str, key: str, value: object) -> None:
    assert setting("vtmark-2021", workload, key) == value


def test_vtmark_has_all_kinds_of_ramspeed_and_the_ways_of_iperf3() -> None:
    assert set(setting("vtmark-2021", "ramspeed", "kinds")) == ALL_KINDS  # Table 2: -b 1...19
    assert {"tcp", "tcp-capped", "udp"} <= set(setting("vtmark-2021", "iperf3", "modes"))  # Table 2: its three lines


def test_nothing_of_vtmark_is_lowered_by_the_bounds_of_its_suite() -> None:
    assert [planned.name for planned in suite("vtmark-2021").workloads if planned.lowered] == []


@pytest.mark.parametrize("workload", ["nginx", "redis", "micro-http", "micro-redis"])
def test_lightweight_has_0_to_1000_clients_in_steps_of_100_with_keep_alive(workload: str) -> None:
    assert setting("lightweight-2017", workload, "clients") == STEPS_OF_100  # section V
    assert setting("lightweight-2017", workload, "keep_alive") is True  # sections V-A and V-B


def test_lightweight_asks_redis_for_get_and_set_in_a_pipeline() -> None:
    assert setting("lightweight-2017", "redis", "operations") == ("GET", "SET")  # section V-B
    assert setting("lightweight-2017", "redis", "pipeline") > 1  # section V-B, without a number


def test_lightweight_has_30_repetitions() -> None:
    assert suite("lightweight-2017").blocks == 30  # section VI


def test_osv_asks_bind_at_rates_from_1000_a_second_on() -> None:
    rates = setting("osv-2015", "bind", "rates")
    assert rates[0] == 1000  # section 3.1
    assert rates[-1] > 28_000  # section 3.1: what OSv sustained


@pytest.mark.parametrize("workload", ["lighttpd", "apache"])
def test_osv_asks_for_pages_for_ten_seconds_at_rates_over_5000_a_second(workload: str) -> None:
    assert setting("osv-2015", workload, "duration") == 10.0  # section 3.2
    assert setting("osv-2015", workload, "rates")[-1] > 5000  # section 3.2: the most that the paper could test


@pytest.mark.parametrize("workload", ["lighttpd-memory", "apache-memory"])
def test_osv_looks_for_the_least_memory_at_4000_requests_a_second(workload: str) -> None:
    assert setting("osv-2015", workload, "rate") == 4000  # section 3.3


def test_osv_has_instances_of_one_cpu_and_1_gib() -> None:
    limits = tomllib.loads((EXAMPLES / "osv-2015.toml").read_text())["limits"]
    assert limits == {"cpus": 1, "memory": "1GiB"}  # section 2

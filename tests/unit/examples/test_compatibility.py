"""The suite of compatibility: it has every workload, so that none is forgotten in the table of what does not work."""

from __future__ import annotations

from pathlib import Path

from plug_ins import own
from tare.suites.suite import read_suite

SUITE = Path(__file__).parents[3] / "examples" / "compatibility.toml"


def test_every_workload_is_in_the_suite_of_compatibility() -> None:
    planned = read_suite(SUITE).workloads
    missing = own("workloads").keys() - {each.use for each in planned}
    tables = "\n".join(f'[[workloads]]\nuse = "{name}"' for name in sorted(missing))
    assert not missing, f"add to {SUITE.name}, with the smallest settings:\n{tables}"


def test_a_workload_of_the_suite_takes_seconds_unless_it_cannot() -> None:
    long = {each.name for each in read_suite(SUITE).workloads if each.workload.estimate_seconds() > 30}
    assert long <= {"bonnie", "kernel-build", "apache-memory", "lighttpd-memory", "nginx-memory", "redis-memory"}

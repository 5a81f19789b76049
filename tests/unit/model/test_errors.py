"""The hint for an unknown name: the known one that was probably meant, and none for nonsense."""

from __future__ import annotations

import pytest

from tare.model.errors import SuiteError, UsageError, did_you_mean, find_nearest
from tare.plugins import registry
from tare.suites.suite import parse_suite

KNOWN = ("context-switch", "iperf3", "nginx", "nginx-latency", "redis", "redis-memory", "sysbench")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("rediss", "redis"),
        ("nginx-latncy", "nginx-latency"),
        ("ngnix-throughput", "nginx"),
        ("throughput-of-ngnix", "nginx"),
        ("latency-ngnix", "nginx-latency"),  # both of its parts, and not nginx alone
        ("redsi-get-and-set", "redis"),
    ],
)
def test_the_name_that_was_meant_is_found_as_a_whole_or_by_its_parts(name: str, meant: str) -> None:
    assert find_nearest(name, KNOWN) == meant
    assert did_you_mean(name, KNOWN, "look there") == f'did you mean "{meant}"?'


@pytest.mark.parametrize(
    "name",
    [
        "nonsense",
        "entirely-other-words",
        "switch-off-all-lights",  # one part of a name is not the name
        "perl-of-wisdom",  # perl and iperf3: near enough for a whole name, not for a part of one
        "-",
        "",
    ],
)
def test_nonsense_gets_no_suggestion(name: str) -> None:
    assert did_you_mean(name, KNOWN, "look there") == "look there"


def test_a_mistyped_workload_gets_a_suggestion_in_a_suite_and_as_argument() -> None:
    text = '[suite]\nstacks = ["native"]\n[[workloads]]\nuse = "ngnix-throughput"\n'
    with pytest.raises(SuiteError) as in_suite:
        parse_suite(text, "mine.toml")
    assert [fault.hint for fault in in_suite.value.faults] == ['did you mean "nginx"?']
    with pytest.raises(UsageError) as on_command_line:
        registry.find("workloads", "ngnix-throughput")
    assert on_command_line.value.hint == 'did you mean "nginx"?'

"""Weights of workloads in a session, and its title."""

from __future__ import annotations

from pathlib import Path

import pytest

from tare.model.errors import SuiteError
from tare.suites.suite import Suite, parse_suite, read_suite

ROOT = Path(__file__).parents[3]
SUITE = """
[suite]
stacks = ["native", "docker"]
{suite}
[[workloads]]
use = "{use}"
{workload}
"""


def parse(workload: str = "", use: str = "startup", suite: str = "") -> Suite:
    return parse_suite(SUITE.format(use=use, workload=workload, suite=suite), "mine.toml")


def faults(workload: str = "", use: str = "startup", suite: str = "") -> list[tuple[str, str]]:
    with pytest.raises(SuiteError) as caught:
        parse(workload, use, suite)
    return [(fault.message, fault.hint) for fault in caught.value.faults]


def test_a_weight_is_a_number_and_none_without_it() -> None:
    assert [parse(text).workloads[0].weight for text in ("", "weight = 0", "weight = 3", "weight = 0.5")] == [
        0,
        0,
        3,
        0.5,
    ]
    assert parse("weight = 2", "command").workloads[0].weight == 2
    assert parse("weight = 1_000_000").workloads[0].weight == 1e6


@pytest.mark.parametrize(
    ("weight", "what", "hint"),
    [
        ("-1", "-1 is too small", "write 0 or more"),
        ("2e6", "2000000.0 is too large", "write 1,000,000 or less"),
        ('"often"', '"often" is not a number', "write a number, without quotes"),
        ("true", "true is not a number", "write a number, without quotes"),
        ("nan", '"nan" is not a number', "write a number, without quotes"),
        ("[1]", "a list is not a number", "write a number, without quotes"),
    ],
)
def test_another_weight_is_a_fault(weight: str, what: str, hint: str) -> None:
    assert faults(f"weight = {weight}") == [(f"mine.toml: workloads[0].weight: {what}", hint)]


def test_a_misspelt_weight_is_unknown() -> None:
    assert faults("wieght = 1") == [("mine.toml: workloads[0].wieght: unknown key", 'did you mean "weight"?')]


@pytest.mark.parametrize("use", ["dhrystone", "redis", "idle", "nginx-latency"])
def test_a_workload_without_the_time_of_one_run_has_no_weight(use: str) -> None:
    ((what, hint),) = faults("weight = 1", use)
    assert what == "mine.toml: workloads[0].weight: the workload has no single time of one run"
    assert hint == "leave weight out here: it counts the runs of workloads such as command, startup and kernel-build"


def test_the_hint_names_workloads_that_can_have_a_weight() -> None:
    assert [parse("weight = 1", use).workloads[0].weight for use in ("command", "startup", "kernel-build")] == [1, 1, 1]


def test_a_session_has_a_title_of_one_line() -> None:
    assert parse().session == "One session"
    assert parse(suite='session = "One agent session"').session == "One agent session"
    for title in ("", "  ", "a\\nb", "x" * 61):
        ((what, hint),) = faults(suite=f'session = "{title}"')
        assert what.startswith("mine.toml: suite.session: ")
        assert what.endswith(" cannot be used")
        assert hint == "write a title of one line, up to 60 characters"


@pytest.mark.parametrize("name", ["agent", "agent-browser"])
def test_the_suites_of_an_agent_have_a_session_and_their_files(name: str) -> None:
    suite = read_suite(ROOT / "examples" / f"{name}.toml")
    assert suite.session != "One session"
    assert sum(each.weight > 0 for each in suite.workloads) >= 2
    assert all(Path(source).exists() for _, source in suite.image.files)

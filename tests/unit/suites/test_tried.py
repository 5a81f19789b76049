from __future__ import annotations

from dataclasses import replace

import pytest

from tare.errors import SuiteError, UsageError
from tare.model.sources import Source
from tare.suites.suite import parse_suite
from tare.suites.tried import Tried, parse_options
from tare.workloads.command import Command

LEAST = Tried(("sysbench", "cpu", "run"), ("native", "crun"))
WHOLE = Tried(
    command=("/opt/App 2/Bench_x", "--say", 'it\'s "quoted"\t\\ ü\x7f', ""),
    stacks=("native", "docker/qemu-tcg"),
    packages=("sysbench", "libc6"),
    metrics=(
        r"events per second: +([0-9.]+)",
        r"^events per\s+second: ([0-9.]+)",
        "total -> time: ([0-9.]+) s -> total s lower",
        "/jobs/0/read/iops -> iops",
        "([0-9]+) -> lower",
        "total time: +{number}s -> lower",
    ),
    prepare="sync -f /tmp",
    warm_up=0,
    timeout="5m",
    budget="90s",
    margin="1%",
)


def test_the_least_is_a_suite_with_the_command_alone() -> None:
    assert LEAST.suite() == (
        '[suite]\nname = "try-sysbench"\nstacks = ["native", "crun"]\n\n'
        '[[workloads]]\nuse = "command"\nname = "sysbench"\ncommand = ["sysbench", "cpu", "run"]\nduration = "500ms"\n'
    )


def test_an_image_of_others_is_the_suites_image() -> None:
    suite = parse_suite(replace(LEAST, source="docker-archive:/app.tar").suite(), "try")
    assert suite.image.source == Source("docker-archive:", "/app.tar")
    with pytest.raises(SuiteError, match=r"image.from: .* is no kind of image"):
        parse_suite(replace(LEAST, source="nginx:1").suite(), "try")


def test_all_that_is_said_is_in_the_suite_and_every_word_is_as_it_was() -> None:
    suite = parse_suite(WHOLE.suite(), "try")
    (planned,) = suite.workloads
    workload = planned.workload
    assert isinstance(workload, Command)
    assert (suite.name, planned.name) == ("try-bench-x", "bench-x")
    assert [stack.name for stack in suite.stacks] == ["native", "docker/qemu-tcg"]
    assert (suite.budget_seconds, suite.margin) == (90.0, 0.01)
    assert (workload.command, workload.packages, workload.prepare) == (WHOLE.command, WHOLE.packages, WHOLE.prepare)
    assert (workload.warm_up, workload.timeout) == (0, 300.0)
    assert [(each.name, each.unit, each.better, each.pattern or each.pointer) for each in workload.metrics] == [
        ("events-per-second", "", "higher", r"events per second: +([0-9.]+)"),
        ("events-per-second-2", "", "higher", r"^events per\s+second: ([0-9.]+)"),
        ("total", "s", "lower", "total -> time: ([0-9.]+) s"),
        ("iops", "", "higher", "/jobs/0/read/iops"),
        ("metric", "", "lower", "([0-9]+)"),
        ("total-time-s", "", "lower", "total time: +{number}s"),
    ]


@pytest.mark.parametrize("metric", [" -> rate", "([0-9]+) -> the rate of events", "([0-9]+) -> rate higher events/s x"])
def test_a_metric_that_cannot_be_read_is_refused(metric: str) -> None:
    with pytest.raises(UsageError, match="after the arrow come a name, a unit, and higher or lower"):
        Tried(("true",), ("native",), metrics=(metric,)).suite()


def test_a_word_that_is_no_text_is_refused() -> None:
    with pytest.raises(UsageError, match="not UTF-8 text"):
        Tried(("cat", "\udcff"), ("native",)).suite()


@pytest.mark.parametrize(
    ("tried", "what"),
    [
        (Tried(("true",), ("native", "dokcer")), '--on: no stack named "dokcer"'),
        (Tried(("true",), ("native",), budget="90"), '--budget: "90" cannot be used'),
        (Tried(("true",), ("native",), margin="3"), '--margin: "3" cannot be used'),
        (Tried(("true",), ("native",), timeout="0s"), '--timeout: "0s" is too small'),
        (Tried(("true",), ("native",), warm_up=-1), "--warm-up: -1 is too small"),
        (Tried(("true",), ("native",), source="a:b"), '--from: "a:b": "a:" is no kind of image'),
        (Tried(("true",), ("native",), packages=("a,b",)), '--package: "a,b" cannot be used'),
        (Tried(("true",), ("native",), metrics=("rate",)), '--metric: "rate" cannot be used'),
        (Tried(("true",), ("native",), prepare="a | b"), '--prepare: "a | b" cannot be used'),
        (Tried(("",), ("native",)), "COMMAND: a list cannot be used"),
    ],
)
def test_an_error_names_the_option_in_place_of_the_suites_key(tried: Tried, what: str) -> None:
    with pytest.raises(SuiteError) as refused:
        parse_options(tried.suite(), "tare try")
    assert [fault.what for fault in refused.value.faults] == [what]

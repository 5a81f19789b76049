from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tare.contracts import Instance, Setup, Workload
from tare.errors import TrialFailed
from tare.hosts.local import LocalHost
from tare.model import Mark, Raw, Value
from tare.workloads.startup import Startup

SAMPLE = (Path(__file__).parents[2] / "samples/startup/timeline.json").read_text()


def parse(text: str) -> tuple[Value, ...]:
    return tuple(Startup().parse([Raw("timeline", (), text, 0.0)]))


def measured(*marks: Mark, cold_read_bytes: int | None = None) -> tuple[Raw, ...]:
    instance = Instance(name="tare-x", inside=None, address=None, path="none", processes=tuple)
    return tuple(Startup().measure(Setup(instance, LocalHost(), marks, cold_read_bytes=cold_read_bytes)))


def test_a_captured_timeline_gives_the_seconds_from_requested_to_ready() -> None:
    (value,) = parse(SAMPLE)
    assert (value.metric, value.point) == ("total", None)
    assert value.value == pytest.approx(0.032446014, abs=1e-9)


def test_a_captured_timeline_of_a_guest_has_its_kernel_and_user_space_too() -> None:
    text = (Path(__file__).parents[2] / "samples/startup/timeline-of-a-guest.json").read_text()
    assert "kernel" in text
    (value,) = parse(text)
    assert value.value == pytest.approx(4199.460093963 - 4197.217729491, abs=1e-9)


def test_the_value_is_that_of_the_declared_metric() -> None:
    workload: Workload = Startup()
    assert [(metric.name, metric.unit, metric.better) for metric in workload.metrics] == [
        ("total", "s", "lower"),
        ("read", "bytes", "lower"),
    ]


def test_a_timeline_is_kept_with_all_its_digits_and_can_be_parsed() -> None:
    marks = (
        Mark("requested", 100.1),
        Mark("started", 100.2),
        Mark("userspace", 100.30000000000001),
        Mark("ready", 102.6),
    )
    (raw,) = measured(*marks)
    assert raw.text == (
        '[["requested", 100.1], ["started", 100.2], ["userspace", 100.30000000000001], ["ready", 102.6]]\n'
    )
    assert Startup().parse([raw]) == (Value("total", None, 2.5),)


@pytest.mark.parametrize(
    "marks",
    [
        (),
        (Mark("requested", 1.0),),
        (Mark("ready", 1.0),),
        (Mark("requested", 1.0), Mark("ready", 2.0), Mark("ready", 3.0)),
        (Mark("requested", 1.0), Mark("requested", 1.5), Mark("ready", 3.0)),
        (Mark("requested", 1.0), Mark("ready", float("inf"))),
        (Mark("requested", float("nan")), Mark("ready", 2.0)),
    ],
)
def test_a_timeline_without_one_beginning_and_one_end_fails_the_trial(marks: tuple[Mark, ...]) -> None:
    with pytest.raises(TrialFailed, match="expected one moment"):
        Startup().parse(measured(*marks))


@pytest.mark.parametrize("ready", [1.0, 0.5])
def test_an_answer_that_did_not_come_after_the_request_fails_the_trial(ready: float) -> None:
    with pytest.raises(TrialFailed, match="not after it was requested"):
        Startup().parse(measured(Mark("requested", 1.0), Mark("ready", ready)))


@pytest.mark.parametrize(
    "text", ["", "garbage", "null", "{}", "[1]", '[["ready"]]', '[["ready", "1"]]', '[["ready", true]]', SAMPLE[:40]]
)
def test_a_text_that_is_no_timeline_fails_the_trial_and_is_quoted(text: str) -> None:
    with pytest.raises(TrialFailed, match="expected a timeline") as failure:
        parse(text)
    assert repr(text) in str(failure.value)


@pytest.mark.parametrize("labels", [[], ["redis"], ["timeline", "timeline"]])
def test_outputs_of_other_commands_fail_the_trial(labels: list[str]) -> None:
    with pytest.raises(TrialFailed, match="expected outputs of"):
        Startup().parse([Raw(label, (), SAMPLE, 0.0) for label in labels])


MARKS = (Mark("requested", 100.0), Mark("ready", 102.5))


def test_a_cold_start_tells_what_the_disks_have_read() -> None:
    raw = measured(*MARKS, cold_read_bytes=4096)
    assert Startup("cold").parse(raw) == (Value("total", None, 2.5), Value("read", None, 4096))


@pytest.mark.parametrize("text", ["0\n", "", "4096", "-1\n", "nan\n", "4096\n4096\n", "9" * 99 + "\n"])
def test_a_cold_start_of_which_the_disks_saw_nothing_is_none(text: str) -> None:
    timeline, read = measured(*MARKS, cold_read_bytes=4096)
    with pytest.raises(TrialFailed, match="read nothing while the instance started cold"):
        Startup("cold").parse([timeline, replace(read, text=text)])


def test_outputs_of_a_warm_start_are_none_of_a_cold_one_and_the_other_way_round() -> None:
    with pytest.raises(TrialFailed, match="expected outputs of"):
        Startup("cold").parse(measured(*MARKS))
    with pytest.raises(TrialFailed, match="expected outputs of"):
        Startup("warm").parse(measured(*MARKS, cold_read_bytes=4096))


def test_only_a_cold_start_has_the_caches_dropped_before() -> None:
    assert Startup("cold").starts_cold
    assert not Startup().starts_cold


def test_it_serves_nothing_and_takes_no_time_of_its_own() -> None:
    workload: Workload = Startup()
    assert workload.port is None
    assert workload.service("127.0.0.1") is None
    assert workload.seconds() == 0.0

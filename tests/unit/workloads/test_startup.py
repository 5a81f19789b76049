from __future__ import annotations

from dataclasses import replace

import pytest
from setups import running_in

from tare.model.errors import TrialFailed
from tare.model.trial import Mark, RawOutput, Value
from tare.workloads.startup import Startup


def measured(*marks: Mark, cold_read_bytes: int | None = None) -> tuple[RawOutput, ...]:
    setup = replace(running_in(None), timeline=marks, cold_read_bytes=cold_read_bytes)
    return tuple(Startup().measure(setup))


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
    ],
)
def test_a_timeline_without_one_beginning_and_one_end_fails_the_trial(marks: tuple[Mark, ...]) -> None:
    with pytest.raises(TrialFailed, match="expected one moment"):
        Startup().parse(measured(*marks))


@pytest.mark.parametrize("ready", [1.0, 0.5])
def test_an_answer_that_did_not_come_after_the_request_fails_the_trial(ready: float) -> None:
    with pytest.raises(TrialFailed, match="not after it was requested"):
        Startup().parse(measured(Mark("requested", 1.0), Mark("ready", ready)))


@pytest.mark.parametrize("text", ["garbage", "[1]", '[["ready"]]', '[["ready", Infinity]]', '[["ready", NaN]]'])
def test_a_text_that_is_no_timeline_fails_the_trial_and_is_quoted(text: str) -> None:
    with pytest.raises(TrialFailed, match="expected a timeline") as failure:
        Startup().parse([RawOutput("timeline", (), text, 0.0)])
    assert repr(text) in str(failure.value)


MARKS = (Mark("requested", 100.0), Mark("ready", 102.5))


def test_a_cold_start_reports_what_the_disks_have_read() -> None:
    raw = measured(*MARKS, cold_read_bytes=4096)
    assert Startup("cold").parse(raw) == (Value("total", None, 2.5), Value("read", None, 4096))


@pytest.mark.parametrize("text", ["0\n", "", "4096", "-1\n", "nan\n", "4096\n4096\n", "9" * 99 + "\n"])
def test_a_cold_start_of_which_the_disks_saw_nothing_is_none(text: str) -> None:
    timeline, read = measured(*MARKS, cold_read_bytes=4096)
    with pytest.raises(TrialFailed, match="read nothing while the instance started cold"):
        Startup("cold").parse([timeline, replace(read, text=text)])


def test_only_a_cold_start_has_the_caches_dropped_before() -> None:
    assert Startup("cold").starts_cold
    assert not Startup().starts_cold

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from tare.contracts import Workload
from tare.errors import TrialFailed
from tare.model import Raw, Value
from tare.workloads.whetstone import Whetstone

SAMPLE = (Path(__file__).parents[2] / "samples/whetstone/one-second.txt").read_text()
SPEED_LINE = "mwips: 5834.729\n"
MODULE_LINE = "seconds_procedure_calls: 0.103101953\n"


def parse(text: str) -> Value:
    (value,) = Whetstone().parse((Raw("whetstone", ("whetstone",), text, 1.5),))
    return value


def test_a_captured_run_gives_whetstone_instructions_a_second() -> None:
    assert parse(SAMPLE) == Value("speed", None, 5834729000.0)


def test_a_captured_run_of_a_number_of_passes_is_read_and_must_have_that_number() -> None:
    raw = Raw("whetstone", (), (Path(__file__).parents[2] / "samples/whetstone/2000-passes.txt").read_text(), 0.4)
    assert Whetstone(passes=2000).parse([raw]) == (Value("speed", None, 6124981000.0),)
    with pytest.raises(TrialFailed, match="no verified speed"):
        Whetstone(passes=5_000_000).parse([raw])


def test_the_values_are_those_of_the_declared_metric() -> None:
    workload: Workload = Whetstone()
    assert [(metric.name, metric.unit, metric.better) for metric in workload.metrics] == [
        ("speed", "whetstones/s", "higher")
    ]
    assert parse(SAMPLE).metric == "speed"


@pytest.mark.parametrize("number", ["0.000", "-5834.729", "nan", "inf", "", "fast", "1e400", "9" * 400 + ".0"])
def test_a_speed_that_is_no_positive_number_fails_the_trial_and_is_quoted(number: str) -> None:
    text = SAMPLE.replace("5834.729", number)
    with pytest.raises(TrialFailed, match="no verified speed") as failure:
        parse(text)
    assert repr(f"mwips: {number}\nverified: yes\n"[-60:])[1:] in str(failure.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Segmentation fault\n",
        SAMPLE.replace(SPEED_LINE, ""),
        SAMPLE.replace(SPEED_LINE, 2 * SPEED_LINE),
        SAMPLE.replace(MODULE_LINE, ""),
        SAMPLE.replace("verified: yes\n", ""),
        SAMPLE.replace("verified: yes\n", "verified: no\n"),
        SAMPLE.replace("program: whetstone double precision\n", ""),
        SAMPLE.replace("program: whetstone double precision\n", "program: dhrystone 2.1\n"),
        SAMPLE + SAMPLE,
        SAMPLE + "Killed\n",
        SAMPLE[:60],
    ],
)
def test_an_output_that_is_not_one_whole_verified_result_fails_the_trial_with_what_was_found(text: str) -> None:
    with pytest.raises(TrialFailed) as failure:
        parse(text)
    assert repr(text[:60])[1:-1] in str(failure.value)
    assert failure.value.hint


@pytest.mark.parametrize("labels", [[], ["dhrystone"], ["whetstone", "whetstone"]])
def test_outputs_of_other_commands_fail_the_trial(labels: list[str]) -> None:
    with pytest.raises(TrialFailed, match="expected one output of whetstone"):
        Whetstone().parse([Raw(label, (), SAMPLE, 1.0) for label in labels])


def test_it_serves_nothing() -> None:
    workload: Workload = Whetstone()
    assert workload.port is None
    assert workload.service("127.0.0.1") is None


def test_the_duration_of_a_suite_carries_its_unit() -> None:
    settings = TypeAdapter(Whetstone)
    assert settings.validate_python({"duration": "2s"}).duration == 2.0
    for wrong in ("2", 2, "0s", "2h"):
        with pytest.raises(ValidationError):
            settings.validate_python({"duration": wrong})


def test_the_estimate_counts_the_stretches_before_the_one_that_counts() -> None:
    assert Whetstone(duration=10.0).seconds() == pytest.approx(13.1)

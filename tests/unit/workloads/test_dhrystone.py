from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from tare.contracts import Workload
from tare.errors import TrialFailed
from tare.model import Raw, Value
from tare.workloads.dhrystone import Dhrystone

SAMPLE = (Path(__file__).parents[2] / "samples/dhrystone/one-second.txt").read_text()
SPEED_LINE = "dhrystones_per_second: 34978047.164\n"


def parse(text: str) -> Value:
    (value,) = Dhrystone().parse((Raw("dhrystone", ("dhrystone",), text, 1.5),))
    return value


def test_a_captured_run_gives_passes_a_second() -> None:
    assert parse(SAMPLE) == Value("speed", None, 34978047.164)


def test_a_captured_turn_in_a_container_gives_passes_a_second() -> None:
    text = (Path(__file__).parents[2] / "samples/dhrystone/one-turn-in-crun.txt").read_text()
    assert parse(text) == Value("speed", None, 46997664.418)


def test_the_values_are_those_of_the_declared_metric() -> None:
    workload: Workload = Dhrystone()
    assert [(metric.name, metric.unit, metric.better) for metric in workload.metrics] == [
        ("speed", "dhrystones/s", "higher")
    ]
    assert parse(SAMPLE).metric == "speed"


@pytest.mark.parametrize("number", ["0.000", "-34978047.164", "nan", "inf", "", "fast", "1e400", "9" * 400 + ".0"])
def test_a_speed_that_is_no_positive_number_fails_the_trial_and_is_quoted(number: str) -> None:
    text = SAMPLE.replace("34978047.164", number)
    with pytest.raises(TrialFailed, match="no verified speed") as failure:
        parse(text)
    assert f"dhrystones_per_second: {number}"[:60] in str(failure.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Segmentation fault\n",
        SAMPLE.replace(SPEED_LINE, ""),
        SAMPLE.replace(SPEED_LINE, 2 * SPEED_LINE),
        SAMPLE.replace("verified: yes\n", ""),
        SAMPLE.replace("verified: yes\n", "verified: no\n"),
        SAMPLE.replace("program: dhrystone 2.1\n", ""),
        SAMPLE.replace("program: dhrystone 2.1\n", "program: whetstone\n"),
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


@pytest.mark.parametrize("labels", [[], ["whetstone"], ["dhrystone", "dhrystone"]])
def test_outputs_of_other_commands_fail_the_trial(labels: list[str]) -> None:
    with pytest.raises(TrialFailed, match="expected one output of dhrystone"):
        Dhrystone().parse([Raw(label, (), SAMPLE, 1.0) for label in labels])


def test_it_serves_nothing() -> None:
    workload: Workload = Dhrystone()
    assert workload.port is None
    assert workload.service("127.0.0.1") is None


def test_the_duration_of_a_suite_carries_its_unit() -> None:
    settings = TypeAdapter(Dhrystone)
    assert settings.validate_python({"duration": "2s"}).duration == 2.0
    for wrong in ("2", 2, "0s", "2h"):
        with pytest.raises(ValidationError):
            settings.validate_python({"duration": wrong})


def test_the_estimate_counts_the_stretches_before_the_one_that_counts() -> None:
    assert Dhrystone(duration=10.0).seconds() == pytest.approx(13.1)

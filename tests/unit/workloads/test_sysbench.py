"""sysbench's CPU test: what version 1.0.20 of Debian 12 printed, whole and damaged."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError
from tare_fake.technology import FakeHost

from tare.contracts import Instance, Setup
from tare.errors import TrialFailed
from tare.model import Limits, Output, Raw, Value
from tare.workloads.sysbench import Sysbench

SAMPLES = Path(__file__).parents[2] / "samples/sysbench"
SAMPLE = (SAMPLES / "one-thread.txt").read_text()
RATE = "    events per second:  1759.65\n"


def parse(text: str, workload: Sysbench | None = None) -> Value:
    (value,) = (workload or Sysbench()).parse((Raw("sysbench", ("sysbench",), text, 1.0),))
    return value


def test_a_captured_run_gives_events_a_second() -> None:
    assert parse(SAMPLE) == Value("rate", None, 1759.65)


def test_several_threads_and_a_higher_limit_are_read() -> None:
    text = (SAMPLES / "four-threads.txt").read_text()
    assert parse(text, Sysbench(threads=4, max_prime=20_000)) == Value("rate", None, 1331.85)


@pytest.mark.parametrize("workload", [Sysbench(threads=2), Sysbench(max_prime=20_000)])
def test_a_result_with_other_settings_fails_the_trial(workload: Sysbench) -> None:
    with pytest.raises(TrialFailed, match="no rate as asked"):
        parse(SAMPLE, workload)


@pytest.mark.parametrize(
    "text",
    [
        "",
        (SAMPLES / "interrupted.txt").read_text(),
        (SAMPLES / "no-threads.txt").read_text(),
        SAMPLE.replace(RATE, ""),
        SAMPLE.replace(RATE, 2 * RATE),
        SAMPLE.replace("1759.65", "0.00"),
        SAMPLE.replace("1759.65", "nan"),
        SAMPLE.replace("1759.65", "9" * 400 + ".0"),
        SAMPLE.replace("sysbench 1.", "sysbench 2."),
        SAMPLE + SAMPLE,
        SAMPLE + "Killed\n",
        SAMPLE[:-40],
    ],
)
def test_an_output_that_is_not_one_whole_result_fails_the_trial_with_what_was_found(text: str) -> None:
    with pytest.raises(TrialFailed) as failure:
        parse(text)
    assert repr(text[:60])[1:-1] in str(failure.value)


@pytest.mark.parametrize("labels", [(), ("other",), ("sysbench", "sysbench")])
def test_other_outputs_than_one_fail_the_trial(labels: tuple[str, ...]) -> None:
    with pytest.raises(TrialFailed, match="expected one output of sysbench"):
        Sysbench().parse(tuple(Raw(label, (), SAMPLE, 1.0) for label in labels))


@pytest.mark.parametrize("settings", [{"duration": "0s"}, {"threads": 0}, {"threads": 1025}, {"max_prime": 2}])
def test_settings_that_cannot_be_measured_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Sysbench).validate_python(settings)


def test_its_package_is_in_the_image_and_it_has_no_load() -> None:
    assert (Sysbench.packages, Sysbench.client_packages, Sysbench().port) == (("sysbench",), (), None)


class Answering(FakeHost):
    """A host that answers with the sample whatever is run."""

    def run(self, *argv: str, timeout: float, **_: object) -> Output:
        return Output(argv, 0, SAMPLE.encode(), b"", timeout)


def instance(inside: FakeHost | None) -> Instance:
    return Instance("one", inside, None, "none", processes=lambda: ())


def test_it_runs_whole_seconds_with_all_settings() -> None:
    host = Answering(1.0, "", Limits((0,), 1 << 29, 4096))
    (raw,) = Sysbench(1.2, 4, 20_000).measure(Setup(instance(host), host, ()))
    assert raw.argv == ("sysbench", "cpu", "--threads=4", "--time=2", "--cpu-max-prime=20000", "run")
    assert (raw.label, raw.text, raw.seconds) == ("sysbench", SAMPLE, 80.0)
    assert Sysbench(1.2).seconds() == pytest.approx(2.1)


def test_without_an_inside_it_fails() -> None:
    host = Answering(1.0, "", Limits((0,), 1 << 29, 4096))
    with pytest.raises(TrialFailed, match="sysbench runs inside"):
        Sysbench().measure(Setup(instance(None), host, ()))

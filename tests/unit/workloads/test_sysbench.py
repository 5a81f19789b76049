"""sysbench's CPU test: what version 1.0.20 of Debian 12 printed, whole and damaged."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError
from tare_fake.technology import FakeHost

from tare.contracts import Instance, Setup
from tare.errors import TrialFailed
from tare.model import Limits, Output, Raw, Value
from tare.running.values import read_values
from tare.workloads.sysbench import Sysbench

SAMPLES = Path(__file__).parents[2] / "samples/sysbench"
SAMPLE = (SAMPLES / "one-thread.txt").read_text()
WORKED = "         sum:                                 1002.33\n"


def parse(text: str, workload: Sysbench | None = None) -> Value:
    (value,) = (workload or Sysbench()).parse((Raw("sysbench", ("sysbench",), text, 1.0),))
    return value


def test_a_captured_run_gives_events_a_second() -> None:
    value = parse(SAMPLE)
    assert (value.metric, value.point) == ("rate", None)
    assert value.value == pytest.approx(1769 / 1.00233)


def test_a_captured_turn_is_read_without_the_start_of_sysbench() -> None:
    text = (SAMPLES / "one-turn.txt").read_text()
    assert "    events per second:   996.13\n" in text
    assert parse(text).value == pytest.approx(150 / 0.14284)


def test_several_threads_and_a_higher_limit_are_read() -> None:
    text = (SAMPLES / "four-threads.txt").read_text()
    assert parse(text, Sysbench(threads=4, max_prime=20_000)).value == pytest.approx(4 * 2676 / 8.00047)


@pytest.mark.parametrize("workload", [Sysbench(threads=2), Sysbench(max_prime=20_000)])
def test_a_result_with_other_settings_fails_the_trial(workload: Sysbench) -> None:
    with pytest.raises(TrialFailed, match="no result as asked"):
        parse(SAMPLE, workload)


@pytest.mark.parametrize(
    "text",
    [
        "",
        (SAMPLES / "interrupted.txt").read_text(),
        (SAMPLES / "no-threads.txt").read_text(),
        SAMPLE.replace(WORKED, ""),
        SAMPLE.replace(WORKED, 2 * WORKED),
        SAMPLE.replace("1002.33", "0.00"),
        SAMPLE.replace("1002.33", "nan"),
        SAMPLE.replace("1002.33", "9" * 400 + ".0"),
        SAMPLE.replace(" 1769", " 0"),
        SAMPLE.replace(" 1769", " " + "9" * 400),
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
    assert (Sysbench.packages, Sysbench().client_packages, Sysbench().port) == (("sysbench",), (), None)


@dataclass(frozen=True)
class Answering(FakeHost):
    """A host whose sysbench finds primes at a given rate. It notes what it is asked for."""

    rate: float = 1000.0
    calls: list[tuple[str, ...]] = field(default_factory=list)
    limits_seconds: list[float] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, **_: object) -> Output:
        self.calls.append(argv)
        self.limits_seconds.append(timeout)
        worked = self.events(-1) / self.rate * 1000
        text = SAMPLE.replace(" 1769\n", f" {self.events(-1)}\n").replace("1002.33", f"{worked:.2f}")
        return Output(argv, 0, text.encode(), b"", timeout)

    def events(self, call: int) -> int:
        return int(self.calls[call][3].removeprefix("--events="))


def host(rate: float) -> Answering:
    return Answering(1.0, "", Limits((0,), 1 << 29, 4096), rate)


def instance(inside: FakeHost | None) -> Instance:
    return Instance("one", inside, None, "none", processes=lambda: ())


def test_it_is_run_for_each_turn_with_all_settings() -> None:
    inside = host(1000.0)
    raw = tuple(Sysbench(0.5).measure(Setup(instance(inside), inside, ())))
    assert raw[-1].argv == ("sysbench", "cpu", "--threads=1", "--events=50", "--time=0", "--cpu-max-prime=10000", "run")
    assert [(each.label, each.warm_up) for each in raw] == [("sysbench", number == 0) for number in range(11)]
    assert read_values(Sysbench(0.5), raw)[0].turns == pytest.approx(10 * (1000.0,))


@pytest.mark.parametrize("rate", [2.0, 60.0, 1000.0, 700_000.0])
def test_a_turn_has_as_many_events_as_fill_it_whatever_the_stack_does(rate: float) -> None:
    inside = host(rate)
    raw = tuple(Sysbench(1.0).measure(Setup(instance(inside), inside, ())))
    assert sum(each.warm_up for each in raw) == 1
    assert [inside.events(call) for call in range(-10, 0)] == 10 * [pytest.approx(max(1, 0.1 * rate), rel=0.01)]
    assert len(inside.calls) <= 14


@pytest.mark.parametrize(("rate", "limit_seconds"), [(2.0, 630.0), (1000.0, 32.0)])
def test_the_limit_is_that_of_a_turn_unless_one_event_takes_longer(rate: float, limit_seconds: float) -> None:
    inside = host(rate)
    tuple(Sysbench(60.0).measure(Setup(instance(inside), inside, ())))
    assert (inside.limits_seconds[0], inside.limits_seconds[-1]) == (630.0, limit_seconds)


def test_every_thread_has_an_event_at_least() -> None:
    inside = host(1.0)
    with pytest.raises(TrialFailed, match="no result as asked"):  # the sample has one thread
        tuple(Sysbench(1.0, threads=4, max_prime=20_000).measure(Setup(instance(inside), inside, ())))
    assert inside.calls[0][2:4] == ("--threads=4", "--events=4")


@pytest.mark.parametrize(("duration", "rounds"), [(0.1, 5), (1.0, 10), (4.0, 20)])
def test_a_measurement_is_divided_into_turns(duration: float, rounds: int) -> None:
    assert Sysbench(duration).rounds == rounds
    assert Sysbench(duration).seconds() == pytest.approx(0.1 + 1.1 * duration + duration / rounds + 0.01 * rounds)


def test_without_an_inside_it_fails() -> None:
    with pytest.raises(TrialFailed, match="sysbench runs inside"):
        tuple(Sysbench().measure(Setup(instance(None), host(1.0), ())))

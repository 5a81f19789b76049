"""System calls: how many a turn has."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from setups import running_in
from tare_fake.technology import FakeHost

from tare.errors import TrialFailed
from tare.model.trials import Output, Raw, Value
from tare.runner.values import read_values
from tare.workloads.system_calls import SystemCalls

SAMPLES = Path(__file__).parents[2] / "samples/system-calls"
SAMPLE = (SAMPLES / "500000.txt").read_text()
NO_TIME = (SAMPLES / "no-time.txt").read_text()  # its rate is no number of calls


def parse(text: str, loops: object = 500_000) -> Value:
    argv = ("perf", "bench", "syscall", "basic", "-l", str(loops))
    (value,) = SystemCalls().parse([Raw("rate", argv, text, 1.0)])
    return value


@pytest.mark.parametrize("loops", [400_000, 0, "many"])
def test_another_number_of_calls_than_was_asked_for_fails_the_trial(loops: object) -> None:
    with pytest.raises(TrialFailed, match="no result as asked"):
        parse(SAMPLE, loops)


def test_what_perf_prints_for_no_calls_at_all_is_no_result() -> None:
    text = (SAMPLES / "0.txt").read_text()
    assert "-nan usecs/op" in text
    with pytest.raises(TrialFailed, match="no result as asked"):
        parse(text, 0)


@dataclass(frozen=True)
class Answering(FakeHost):
    """A host with a given rate of system calls, and a clock of microseconds."""

    rate: float = 1e7
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, **_: object) -> Output:
        self.calls.append(argv)
        loops = int(argv[-1])
        microseconds = int(loops / self.rate * 1e6)
        text = SAMPLE.replace("500000", str(loops)).replace("0.093060", f"{microseconds / loops:.6f}")
        if not microseconds:
            text = NO_TIME.replace("Executed 1 ", f"Executed {loops} ")
        return Output(argv, 0, text.encode(), b"", timeout)


@pytest.mark.parametrize("rate", [1e5, 1e7, 1e9])
def test_a_turn_has_as_many_calls_as_fill_it_whatever_the_stack_does(rate: float) -> None:
    inside = Answering(rate=rate)
    raw = tuple(SystemCalls(1.0).measure(running_in(inside)))
    assert [(each.label, each.warm_up) for each in raw] == [("rate", number == 0) for number in range(11)]
    assert inside.calls[-1][:-1] == ("perf", "bench", "syscall", "basic", "-l")
    assert [int(call[-1]) for call in inside.calls[-10:]] == 10 * [pytest.approx(0.1 * rate, rel=0.01)]
    assert len(inside.calls) <= 14
    assert read_values(SystemCalls(1.0), raw)[0].turns == pytest.approx(10 * (rate,), rel=0.01)


def test_more_calls_than_perf_can_count_are_never_asked_for() -> None:
    inside = Answering(rate=1e12)
    measuring = iter(SystemCalls(3600.0).measure(running_in(inside)))
    for _ in range(3):
        next(measuring)
    assert max(int(call[-1]) for call in inside.calls) == 2**31 - 1

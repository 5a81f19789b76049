"""sysbench: how many events, or blocks of memory, a turn has."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from setups import running_in
from tare_fake.technology import FakeHost

from tare.errors import TrialFailed
from tare.model.trials import Output
from tare.runner.values import read_values
from tare.workloads.sysbench import Sysbench
from tare.workloads.sysbench_memory import SysbenchMemory

SAMPLES = Path(__file__).parents[2] / "samples"
PRIMES, BLOCKS = ((SAMPLES / name).read_text() for name in ("sysbench/one-thread.txt", "sysbench-memory/write.txt"))


def test_its_package_is_in_the_image_and_it_has_no_load() -> None:
    assert (Sysbench.packages, Sysbench().client_packages, Sysbench().port) == (("sysbench",), (), None)


@dataclass(frozen=True)
class Answering(FakeHost):
    """A host whose sysbench works on events at a given rate. It notes what it is asked for."""

    rate: float = 1000.0
    sample: str = PRIMES
    calls: list[tuple[str, ...]] = field(default_factory=list)
    limits_seconds: list[float] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, **_: object) -> Output:
        self.calls.append(argv)
        self.limits_seconds.append(timeout)
        worked = self.events(-1) / self.rate * 1000
        text = re.sub(r"(number of events: +)\d+", rf"\g<1>{self.events(-1)}", self.sample)
        text = re.sub(r"( sum: +)[0-9.]+", rf"\g<1>{worked:.2f}", text)
        return Output(argv, 0, text.encode(), b"", timeout)

    def events(self, call: int) -> int:
        return int(self.calls[call][3].removeprefix("--events="))


def test_it_is_run_for_each_turn_with_all_settings() -> None:
    inside = Answering(rate=1000.0)
    raw = tuple(Sysbench(0.5).measure(running_in(inside)))
    assert raw[-1].argv == ("sysbench", "cpu", "--threads=1", "--events=50", "--time=0", "--cpu-max-prime=10000", "run")
    assert [(each.label, each.warm_up) for each in raw] == [("sysbench", number == 0) for number in range(11)]
    assert read_values(Sysbench(0.5), raw)[0].turns == pytest.approx(10 * (1000.0,))


def test_each_turn_moves_as_many_blocks_of_memory_as_fill_it() -> None:
    inside = Answering(rate=10_000.0, sample=BLOCKS)
    raw = tuple(SysbenchMemory(0.5).measure(running_in(inside)))
    assert inside.calls[-1] == (
        *("sysbench", "memory", "--threads=1", "--events=500", "--time=0"),
        *("--memory-block-size=1048576", f"--memory-total-size={500 << 20}", "--memory-oper=write"),
        *("--memory-access-mode=seq", "--memory-scope=global", "run"),
    )
    assert [(each.label, each.warm_up) for each in raw] == [("sysbench-memory", number == 0) for number in range(11)]
    assert read_values(SysbenchMemory(0.5), raw)[0].turns == pytest.approx(10 * (10_000 * 2.0**20,))


@pytest.mark.parametrize("rate", [2.0, 60.0, 1000.0, 700_000.0])
def test_a_turn_has_as_many_events_as_fill_it_whatever_the_stack_does(rate: float) -> None:
    inside = Answering(rate=rate)
    raw = tuple(Sysbench(1.0).measure(running_in(inside)))
    assert sum(each.warm_up for each in raw) == 1
    assert [inside.events(call) for call in range(-10, 0)] == 10 * [pytest.approx(max(1, 0.1 * rate), rel=0.01)]
    assert len(inside.calls) <= 14


@pytest.mark.parametrize(("rate", "limit_seconds"), [(2.0, 630.0), (1000.0, 32.0)])
def test_the_limit_is_that_of_a_turn_unless_one_event_takes_longer(rate: float, limit_seconds: float) -> None:
    inside = Answering(rate=rate)
    tuple(Sysbench(60.0).measure(running_in(inside)))
    assert (inside.limits_seconds[0], inside.limits_seconds[-1]) == (630.0, limit_seconds)


def test_every_thread_has_an_event_at_least() -> None:
    inside = Answering(rate=1.0)
    with pytest.raises(TrialFailed, match="no result as asked"):  # the sample has one thread
        tuple(Sysbench(1.0, threads=4, max_prime=20_000).measure(running_in(inside)))
    assert inside.calls[0][2:4] == ("--threads=4", "--events=4")


@pytest.mark.parametrize(("duration", "rounds"), [(0.1, 5), (1.0, 10), (4.0, 20)])
def test_a_measurement_is_divided_into_turns(duration: float, rounds: int) -> None:
    assert Sysbench(duration).rounds == rounds
    assert Sysbench(duration).seconds() == pytest.approx(0.1 + 1.1 * duration + duration / rounds + 0.01 * rounds)

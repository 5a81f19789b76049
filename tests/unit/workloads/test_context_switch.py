"""Context switches: on which CPU, and how many."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from setups import running_in
from tare_fake.technology import FakeHost

from tare.contracts.workloads import MeasurementContext
from tare.errors import TrialFailed
from tare.model.trials import Output
from tare.runner.values import read_values
from tare.workloads.context_switch import ContextSwitch

SAMPLES = Path(__file__).parents[2] / "samples/context-switch"
SAMPLE = (SAMPLES / "5000.txt").read_text()
AFFINITY = "pid 27191's current affinity list: {}\n"


@dataclass(frozen=True)
class Answering(FakeHost):
    """A host that switches every microsecond, on CPUs that taskset tells; the second process takes a time to start."""

    affinity: str = AFFINITY.format("0")
    start_seconds: float = 0.0
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, **_: object) -> Output:
        if argv[0] == "sh":
            return Output(argv, 0, self.affinity.encode(), b"", timeout)
        self.calls.append(argv)
        each = 2 + self.start_seconds * 1e6 / int(argv[-1])
        text = SAMPLE.replace("5000 pipe", f"{argv[-1]} pipe").replace("2.286800", f"{each:.6f}")
        return Output(argv, 0, text.encode(), b"", timeout)


def setup_of(affinity: str, start_seconds: float = 0.0) -> tuple[Answering, MeasurementContext]:
    inside = Answering(affinity=affinity, start_seconds=start_seconds)
    return inside, running_in(inside)


@pytest.mark.parametrize(("cpus", "first"), [("0", "0"), ("3", "3"), ("1-3", "1"), ("2,5-7", "2")])
def test_both_processes_are_kept_on_the_first_cpu_that_the_instance_may_use(cpus: str, first: str) -> None:
    inside, setup = setup_of(AFFINITY.format(cpus))
    raw = tuple(ContextSwitch().measure(setup))
    assert inside.calls[-1] == ("taskset", "--cpu-list", first, "perf", "bench", "sched", "pipe", "-l", "20000")
    assert read_values(ContextSwitch(), raw)[0].turns == pytest.approx(10 * (1e6,))


@pytest.mark.parametrize("start_seconds", [0.0, 0.03, 1.0])
def test_every_stack_makes_the_same_trips_however_long_a_process_takes_to_start(start_seconds: float) -> None:
    inside, setup = setup_of(AFFINITY.format("0"), start_seconds)
    raw = tuple(ContextSwitch(repetitions=3).measure(setup))
    assert [int(call[-1]) for call in inside.calls] == [1, *4 * [20_000]]
    assert [each.warm_up for each in raw] == [True, False, False, False]


@pytest.mark.parametrize("text", ["", "taskset: failed to get pid 1's affinity\n", AFFINITY.format("")])
def test_cpus_that_are_not_reported_fail_the_trial(text: str) -> None:
    _, setup = setup_of(text)
    with pytest.raises(TrialFailed, match="taskset did not print the CPUs"):
        tuple(ContextSwitch().measure(setup))

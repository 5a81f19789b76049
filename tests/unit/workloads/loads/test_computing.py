"""A program that computes does a number of passes, as in VTmark, or fills a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from setups import running_in
from tare_fake.technology import FakeHost

from tare.contracts.workloads import MeasurementContext
from tare.model.trials import Output
from tare.runner.values import read_values
from tare.workloads.dhrystone import Dhrystone
from tare.workloads.loads.computing import Computing
from tare.workloads.whetstone import Whetstone

SAMPLES = Path(__file__).parents[3] / "samples"
DHRYSTONE, WHETSTONE = ((SAMPLES / f"{name}/one-second.txt").read_text() for name in ("dhrystone", "whetstone"))


@dataclass(frozen=True)
class Computer(FakeHost):
    """A host whose programs print a text, whatever they are told to do."""

    text: str = ""
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, **_: object) -> Output:
        self.calls.append(argv)
        return Output(argv, 0, self.text.encode(), b"", timeout)


def setup_of(text: str) -> tuple[Computer, MeasurementContext]:
    inside = Computer(text=text)
    return inside, running_in(inside)


@pytest.mark.parametrize(
    ("workload", "text", "work"),
    [
        (Dhrystone(passes=37566844), DHRYSTONE, ("--runs", "37566844")),
        (Whetstone(passes=7054), WHETSTONE, ("--passes", "7054")),
        (Dhrystone(duration=2.0), DHRYSTONE, ("--seconds", "0.2")),
    ],
)
def test_it_repeats_the_passes_or_fills_the_time(workload: Computing, text: str, work: tuple[str, ...]) -> None:
    inside, setup = setup_of(text)
    found = tuple(workload.measure(setup))
    assert inside.calls == workload.rounds * [(f"/usr/lib/tare/{workload.name}", *work)]
    assert workload.rounds == (5 if workload.passes else 10)
    (value,) = read_values(workload, found)
    assert len(value.turns) == workload.rounds


def test_the_counts_of_vtmark_can_be_asked_for() -> None:
    assert TypeAdapter(Dhrystone).validate_python({"passes": 2_147_483_627}).repetitions == 5
    assert TypeAdapter(Whetstone).validate_python({"passes": 5_000_000}).seconds() > 1000


@pytest.mark.parametrize("workload", [Dhrystone(duration=10.0), Whetstone(duration=10.0)])
def test_the_estimate_counts_the_stretches_before_the_one_that_counts(workload: Computing) -> None:
    assert workload.seconds() == pytest.approx(13.1)

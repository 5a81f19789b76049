"""hackbench: how many loops, and in which turns."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from setups import running_in
from tare_fake.technology import FakeHost

from tare.contracts.workloads import MeasurementContext
from tare.errors import TrialFailed
from tare.model.trials import Output, Raw
from tare.runner.values import read_values
from tare.workloads.hackbench import Hackbench

SAMPLES = Path(__file__).parents[2] / "samples/hackbench"
SOCKETS = (SAMPLES / "sockets-1.txt").read_text()
ONE = Hackbench(kinds=("sockets",), groups=(1,))


def raw(label: str, text: str, loops: object = 50) -> Raw:
    return Raw(label, ("perf", "bench", "sched", "messaging", "-g", "1", "-l", str(loops)), text, 1.0)


@pytest.mark.parametrize("loops", ["0", "-1", "many", ""])
def test_a_command_without_a_number_of_loops_is_no_result(loops: str) -> None:
    with pytest.raises(TrialFailed, match="no result as asked"):
        ONE.parse([raw("sockets 1", SOCKETS, loops)])


@dataclass(frozen=True)
class Answering(FakeHost):
    """A host whose groups exchange a million messages a second and take a time to end; its clock shows milliseconds."""

    end_seconds: float = 0.0
    errors: str = ""
    calls: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, **_: object) -> Output:
        self.calls.append(argv)
        groups, loops = int(argv[argv.index("-g") + 1]), int(argv[-1])
        text = SOCKETS.replace("1 groups == 40", f"{groups} groups == {groups * 40}")
        text = text.replace("0.040", f"{self.end_seconds + loops * groups * 400 / 1e6:.3f}")
        return Output(argv, 0, text.encode(), self.errors.encode(), timeout)


def answering(end_seconds: float = 0.0, errors: str = "") -> tuple[Answering, MeasurementContext]:
    inside = Answering(end_seconds=end_seconds, errors=errors)
    return inside, running_in(inside)


def test_each_kind_and_number_of_groups_has_its_turns() -> None:
    inside, setup = answering()
    workload = Hackbench(groups=(1, 4), repetitions=3)
    found = tuple(workload.measure(setup))
    labels = ["sockets 1", "sockets 4", "pipes 1", "pipes 4"]
    assert [each.label for each in found if not each.warm_up] == 3 * labels
    assert [each.label for each in found if each.warm_up] == labels
    assert inside.calls[-2:] == [
        ("perf", "bench", "sched", "messaging", "-p", "-g", "1", "-l", "100"),
        ("perf", "bench", "sched", "messaging", "-p", "-g", "4", "-l", "100"),
    ]
    values = {(value.metric, value.point): value.turns for value in read_values(workload, found)}
    assert values.keys() == {(kind, groups) for kind in ("sockets", "pipes") for groups in (1.0, 4.0)}
    assert all(turns == pytest.approx(3 * (1e6,)) for turns in values.values())


@pytest.mark.parametrize("end_seconds", [0.0, 0.4, 30.0])
def test_every_stack_makes_the_same_loops_however_long_its_processes_take_to_end(end_seconds: float) -> None:
    inside, setup = answering(end_seconds)
    assert len(tuple(ONE.measure(setup))) == 11
    assert [int(call[-1]) for call in inside.calls] == [1, *11 * [100]]


def test_what_perf_complains_of_is_part_of_the_output() -> None:
    _, setup = answering(errors="perf: SERVER: read: Connection reset by peer\n")
    with pytest.raises(TrialFailed, match="SERVER: read: Connection reset by peer"):
        tuple(ONE.measure(setup))

"""hackbench: what perf 6.1 of Debian 12 printed with several settings, whole and damaged."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError
from tare_fake.technology import FakeHost

from tare.contracts import Instance, Setup
from tare.errors import TrialFailed
from tare.model import Limits, Output, Raw
from tare.running.values import read_values
from tare.workloads.hackbench import Hackbench

SAMPLES = Path(__file__).parents[2] / "samples/hackbench"
SOCKETS, PIPES = ((SAMPLES / name).read_text() for name in ("sockets-1.txt", "pipes-4.txt"))
ONE = Hackbench(kinds=("sockets",), groups=(1,))
SECONDS = "     Total time: 0.040 [sec]\n"


def raw(label: str, text: str, loops: object = 50) -> Raw:
    return Raw(label, ("perf", "bench", "sched", "messaging", "-g", "1", "-l", str(loops)), text, 1.0)


def test_captured_runs_give_messages_a_second_by_what_carries_them_and_the_number_of_groups() -> None:
    (sockets,) = ONE.parse([raw("sockets 1", SOCKETS)])
    assert (sockets.metric, sockets.point) == ("sockets", 1.0)
    assert sockets.value == pytest.approx(50 * 20 * 20 / 0.040)
    (pipes,) = Hackbench(kinds=("pipes",), groups=(4,)).parse([raw("pipes 4", PIPES, 30)])
    assert (pipes.metric, pipes.point) == ("pipes", 4.0)
    assert pipes.value == pytest.approx(30 * 4 * 20 * 20 / 0.108)


@pytest.mark.parametrize(
    "text",
    [
        "",
        (SAMPLES / "no-process.txt").read_text(),
        (SAMPLES / "killed-process.txt").read_text(),
        PIPES,
        SOCKETS.replace("20 sender", "19 sender"),
        SOCKETS.replace("1 groups == 40", "1 groups == 39"),
        SOCKETS.replace("processes", "threads"),
        SOCKETS.replace("0.040", "0.000"),
        SOCKETS.replace("0.040", "-0.040"),
        SOCKETS.replace("0.040", "nan"),
        SOCKETS.replace("0.040", "9" * 400 + ".040"),
        SOCKETS.replace(SECONDS, ""),
        SOCKETS.replace(SECONDS, 2 * SECONDS),
        "".join(reversed(SOCKETS.splitlines(keepends=True))),
        SOCKETS + SOCKETS,
        SOCKETS[:-10],
    ],
)
def test_an_output_that_is_not_one_whole_result_fails_the_trial_with_what_was_found(text: str) -> None:
    with pytest.raises(TrialFailed) as failure:
        ONE.parse([raw("sockets 1", text)])
    assert repr(text[:60])[1:-1] in str(failure.value)


def test_a_sender_that_failed_made_the_others_end_early_which_is_no_result() -> None:
    with pytest.raises(TrialFailed, match="SENDER: write: Broken pipe"):
        ONE.parse([raw("sockets 1", SOCKETS + "perf: SENDER: write: Broken pipe\n")])


@pytest.mark.parametrize("loops", ["0", "-1", "many", ""])
def test_a_command_without_a_number_of_loops_is_no_result(loops: str) -> None:
    with pytest.raises(TrialFailed, match="no result as asked"):
        ONE.parse([raw("sockets 1", SOCKETS, loops)])


@pytest.mark.parametrize("labels", [(), ("pipes 1",), ("sockets 1", "sockets 1")])
def test_other_outputs_than_those_of_the_settings_fail_the_trial(labels: tuple[str, ...]) -> None:
    with pytest.raises(TrialFailed, match="expected outputs of"):
        ONE.parse([raw(label, SOCKETS) for label in labels])


@pytest.mark.parametrize(
    "settings",
    [
        {"groups": []},
        {"groups": [0]},
        {"groups": [4, 1]},
        {"groups": [1, 1]},
        {"groups": [51]},
        {"kinds": []},
        {"kinds": ["pipes", "pipes"]},
        {"kinds": ["files"]},
        {"loops": 1},
        {"repetitions": 0},
    ],
)
def test_settings_that_cannot_be_measured_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        TypeAdapter(Hackbench).validate_python(settings)


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


def answering(end_seconds: float = 0.0, errors: str = "") -> tuple[Answering, Setup]:
    inside = Answering(1.0, "", Limits((0,), 1 << 29, 4096), end_seconds, errors)
    return inside, Setup(Instance("one", inside, None, "none", processes=lambda: ()), inside, ())


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


def test_without_an_inside_it_fails() -> None:
    inside, _ = answering()
    with pytest.raises(TrialFailed, match="perf runs inside"):
        tuple(ONE.measure(Setup(Instance("one", None, None, "none", processes=lambda: ()), inside, ())))

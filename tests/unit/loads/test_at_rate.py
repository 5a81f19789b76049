"""A server at one rate: what is a round, and what ends the measurement."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from setups import serving

from tare.hosts.local import LocalHost
from tare.loads.memory_search import AtRate
from tare.model.errors import TimedOut, TrialFailed
from tare.model.trial import Raw, Value
from tare.plugins.workload import MeasurementContext
from tare.workloads.lighttpd import Lighttpd

SAMPLES = Path(__file__).parents[2] / "samples/httperf"
SETUP = serving(LocalHost())
GOOD, PORTS = ("rate-1000", 0.5), ("ports", 0.5)  # captured outputs, and how long httperf was told to run
SILENT, REFUSED = ("no-answer", 0.2), ("refused", 0.2)


@dataclass(frozen=True)
class Replayed(Lighttpd):
    """Its load gives captured outputs, one after the other; the last one for ever."""

    outputs: list[str] = field(default_factory=list)

    def load(self, setup: MeasurementContext, rate: int) -> Raw:  # noqa: ARG002 - nothing is asked
        name = self.outputs.pop(0) if len(self.outputs) > 1 else self.outputs[0]
        text = (SAMPLES / f"{name}.txt").read_text(encoding="utf-8")
        return Raw(f"rate {rate}", ("httperf",), f"{text}client: ports 64512, of which wait 0\n", 0.5)


def at_rate(*outputs: tuple[str, float]) -> AtRate:
    return AtRate(Replayed(outputs=[name for name, _ in outputs], duration=outputs[0][1]), 1000)


def test_the_first_run_warms_up_and_each_other_one_is_a_round_with_its_answers_a_second() -> None:
    workload = at_rate(GOOD)
    raw = list(workload.measure(SETUP))
    assert [each.warm_up for each in raw] == [True, *workload.rounds * [False]]
    assert [workload.parse([each]) for each in raw[1:]] == workload.rounds * [(Value("answered", 1000.0, 1000.0),)]


@pytest.mark.parametrize("failures", [1, 4])
def test_a_run_that_the_client_fails_in_is_repeated(failures: int) -> None:
    workload = at_rate(GOOD, *failures * [PORTS], GOOD)
    raw = list(workload.measure(SETUP))
    assert len(raw) == 1 + workload.rounds
    assert {workload.parse([each])[0].value for each in raw} == {1000.0}


def test_a_client_that_fails_five_times_on_end_is_no_slow_server() -> None:
    with pytest.raises(TrialFailed, match=r"^at 1000/s, the client could not open connections \(other 400\)$") as found:
        list(at_rate(GOOD, PORTS).measure(SETUP))
    assert found.value.hint == "set a lower rate"
    assert found.value.output is not None
    assert b"Errors: total" in found.value.output.stdout


def test_a_server_that_is_silent_five_times_on_end_is_late() -> None:
    with pytest.raises(TimedOut, match=r"^the server gave no good answer at all at 1000/s; "):
        list(at_rate(SILENT).measure(SETUP))


def test_a_server_that_refuses_every_connection_is_not_late() -> None:
    with pytest.raises(TrialFailed, match=r"^the server gave no good answer at all at 1000/s; ") as failure:
        list(at_rate(REFUSED).measure(SETUP))
    assert type(failure.value) is TrialFailed


def test_server_port_and_name_are_those_of_the_workload_whose_load_it_is() -> None:
    of = Lighttpd(duration=0.5)
    workload = AtRate(of, 1000)
    assert (workload.server, workload.port, workload.service("127.0.0.1")) == (
        "lighttpd",
        of.port,
        of.service("127.0.0.1"),
    )
    assert replace(workload, rate=2000).seconds() == workload.seconds() == pytest.approx(6 * 0.6)

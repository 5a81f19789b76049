from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from busy import SPIN
from compiled import compiled
from pydantic import TypeAdapter, ValidationError
from setups import serving
from waiting import ENOUGH_SECONDS as SECONDS

from tare.hosts.exec import ExecHost, ensure_resident
from tare.hosts.host import Host
from tare.hosts.local import LocalHost
from tare.loads.client_load import count_client_cpus, relate_to_sending, run_load, server_address
from tare.loads.memory_at_rate import FixedRateLoad
from tare.loads.parsing import EachOnce, check_unique, rising_check
from tare.model.errors import TimedOut, TrialFailed
from tare.model.trial import RawOutput, Value
from tare.plugins.workload import MeasurementContext
from tare.workloads.lighttpd import Lighttpd

BUSY = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done; echo done; echo a warning >&2"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A client on this machine, with a resident process as in a run."""
    host = ExecHost(LocalHost())
    host.supervisor = str(compiled(tmp_path_factory.mktemp("programs"), "supervise") / "supervise")
    with ensure_resident(host):
        yield host


def test_a_load_gives_its_standard_output_alone_and_how_busy_it_was(client: Host) -> None:
    raw = run_load(client, "GET 50", "sh", "-c", BUSY, timeout=SECONDS)
    assert (raw.label, raw.argv, raw.text) == ("GET 50", ("sh", "-c", BUSY), "done\n")
    assert raw.client_cpu is not None
    assert 0 < raw.client_cpu <= 1


def test_a_load_that_only_waits_uses_next_to_no_cpu(client: Host) -> None:
    raw = run_load(client, "idle", "sleep", "0.3", timeout=SECONDS)
    busy = run_load(client, "busy", sys.executable, "-c", SPIN, timeout=SECONDS)
    assert raw.seconds >= 0.3
    assert raw.client_cpu is not None
    assert raw.client_cpu * raw.seconds < 0.2 * float(busy.text)


def test_the_share_of_a_threaded_load_is_that_of_the_cpus_that_it_can_use(client: Host) -> None:
    for cpus in (1, 4):
        raw = run_load(client, "x", sys.executable, "-c", SPIN, timeout=SECONDS, cpus=cpus)
        assert raw.client_cpu is not None
        assert raw.client_cpu <= 1 / cpus
        own_seconds = float(raw.text)
        # It uses some more at its end, and tare sees it start before it starts.
        assert 0.9 * own_seconds <= raw.client_cpu * raw.seconds * cpus <= 1.5 * own_seconds


def test_a_client_has_the_cpus_that_it_is_pinned_to() -> None:
    assert count_client_cpus(LocalHost()) == len(os.sched_getaffinity(0))


def test_a_client_that_does_not_report_cpu_time_gives_no_share() -> None:
    assert run_load(LocalHost(), "x", "true", timeout=SECONDS).client_cpu is None


def test_arguments_reach_the_load_as_they_are(client: Host) -> None:
    words = ("two words", "'quotes\"", "line\nline", "$HOME", "")
    assert run_load(client, "x", "printf", "<%s>", *words, timeout=SECONDS).text == "".join(f"<{w}>" for w in words)


def test_a_load_that_fails_fails_the_trial_in_its_own_words(client: Host) -> None:
    with pytest.raises(TrialFailed, match=r"sh: exit code 7: no such server$"):
        run_load(client, "x", "sh", "-c", "echo no such server >&2; exit 7", timeout=SECONDS)


def test_a_load_that_does_not_end_fails_the_trial(client: Host) -> None:
    with pytest.raises(TimedOut):
        run_load(client, "x", "sleep", "60", timeout=0.2)


def test_cpu_time_is_relative_to_the_sending_time_and_excludes_the_start() -> None:
    raw = RawOutput("GET 1000", (), "", 2.0, 0.4)
    assert relate_to_sending(raw, 0.0, 1.0).client_cpu == pytest.approx(0.8)
    assert relate_to_sending(raw, 0.3, 1.0).client_cpu == pytest.approx(0.5)
    assert relate_to_sending(raw, 0.0, 0.5).client_cpu == 1.0
    assert relate_to_sending(raw, 0.9, 0.5).client_cpu == 0.0
    assert relate_to_sending(RawOutput("GET 1000", (), "", 2.0), 0.1, 1.0).client_cpu is None


def test_an_instance_without_a_network_cannot_serve() -> None:
    assert server_address(serving(LocalHost(), "198.18.0.10")) == "198.18.0.10"
    with pytest.raises(TrialFailed, match="tare-x: it has no network") as failure:
        server_address(serving(LocalHost(), None))
    assert failure.value.hint


# --- settings


def test_values_that_are_given_once_are_taken_in_their_order() -> None:
    assert check_unique(("SET", "GET")) == ("SET", "GET")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((), "give at least one value"),
        (("GET", "SET", "GET"), "GET is given twice: give each value once"),
        ((4096, 4096), "4096 is given twice: give each value once"),
    ],
)
def test_no_value_and_a_value_given_twice_are_refused(values: tuple[object, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        check_unique(values)


def test_a_setting_of_values_that_are_given_once_checks_their_type_too() -> None:
    setting = TypeAdapter[tuple[int, ...]](EachOnce[int])
    assert setting.validate_python([2, 1]) == (2, 1)
    for wrong in ([1, 1], ["a"], []):
        with pytest.raises(ValidationError):
            setting.validate_python(wrong)


@pytest.mark.parametrize("numbers", [(1,), (50,), (1, 4, 50), tuple(range(1, 51))])
def test_numbers_that_rise_within_the_bounds_are_taken(numbers: tuple[int, ...]) -> None:
    assert rising_check("numbers of groups", 1, 50)(numbers) == numbers


@pytest.mark.parametrize("numbers", [(), (0,), (-5, 1), (51,), (4, 1), (4, 4), (1, 20, 5), (1, 500, 20)])
def test_other_numbers_are_refused_with_the_bounds(numbers: tuple[int, ...]) -> None:
    message = r"^give numbers of groups that rise, from 1 to 50, for example \[1, 2\]$"
    with pytest.raises(ValueError, match=message):
        rising_check("numbers of groups", 1, 50)(numbers)


# --- at a rate

SAMPLES = Path(__file__).parents[2] / "samples/httperf"
SETUP = serving(LocalHost())
GOOD, PORTS = ("rate-1000", 0.5), ("ports", 0.5)  # captured outputs, and how long httperf was told to run
SILENT, REFUSED = ("no-answer", 0.2), ("refused", 0.2)


@dataclass(frozen=True)
class Replayed(Lighttpd):
    """Its load gives captured outputs, one after the other; the last one for ever."""

    outputs: list[str] = field(default_factory=list)

    def run_rate(self, setup: MeasurementContext, rate: int) -> RawOutput:  # noqa: ARG002 - nothing is asked
        name = self.outputs.pop(0) if len(self.outputs) > 1 else self.outputs[0]
        text = (SAMPLES / f"{name}.txt").read_text(encoding="utf-8")
        return RawOutput(f"rate {rate}", ("httperf",), f"{text}client: ports 64512, of which wait 0\n", 0.5)


def at_rate(*outputs: tuple[str, float]) -> FixedRateLoad:
    return FixedRateLoad(Replayed(outputs=[name for name, _ in outputs], duration=outputs[0][1]), 1000)


def test_the_first_run_warms_up_and_each_later_one_is_a_round() -> None:
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
    workload = FixedRateLoad(of, 1000)
    assert (workload.service_name, workload.port, workload.service("127.0.0.1")) == (
        "lighttpd",
        of.port,
        of.service("127.0.0.1"),
    )
    assert replace(workload, rate=2000).estimate_seconds() == workload.estimate_seconds() == pytest.approx(6 * 0.6)

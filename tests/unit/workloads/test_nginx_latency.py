from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from setups import serving
from wrk import PretendedWrk, WrkClient

from tare.errors import TrialFailed
from tare.model.trials import Raw
from tare.runner.sanity_checks import client_cautions
from tare.runner.values import read_values
from tare.workloads.nginx import Nginx
from tare.workloads.nginx_latency import NginxLatency

SAMPLES = Path(__file__).parents[2] / "samples"
TWO = NginxLatency(rates=(500, 1000), duration=2.0, connections=16)  # turns of two seconds


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.txt").read_text()


def captured(rate: int, name: str = "") -> Raw:
    return Raw(f"rate {rate}", ("wrk",), sample(f"nginx-latency/{name or f'rate-{rate}'}"), 1.0)


def parsed(text: str) -> list[float]:
    workload = NginxLatency(rates=(500,), duration=2.0)
    return [value.value for value in workload.parse([replace(captured(500), text=text)])]


@dataclass
class Wrk(PretendedWrk):
    """A wrk on the schedule, which prints what was captured, as if for the lines that it gets. It notes those."""

    late: str = ""

    def send(self, text: str) -> None:
        self.told.append(text)
        name = (
            self.end
            if text == "end\n"
            else "nginx-latency/rate-500"
            if len(self.told) > 2
            else "nginx-latency/first-turn"
        )
        asked = text.rsplit(maxsplit=1)[-1]
        text = (
            sample(name)
            .replace("requests: 1000\n", f"requests: {asked}\n")
            .replace("late: 124\n", f"late: {self.late}\n")
        )
        self.lines += text.splitlines()


@dataclass
class Client(WrkClient):
    """A client with wrk, which sends so many requests of a turn too late."""

    end: str = "nginx-latency/end"
    late: int = 0

    def wrk(self, argv: tuple[str, ...]) -> Wrk:
        return Wrk(argv, self.end, late=str(self.late))


# --- parse


def test_a_quarter_of_a_second_without_an_answer_in_two_is_in_the_percentiles_of_all_that_was_due() -> None:
    """The server was stopped for 0.5 s of 2 s: a quarter of the requests waited, evenly spread, up to 0.5 s."""
    _, p90, p99, p999, answered = parsed(sample("nginx-latency/stalled-server"))
    assert (p90, p99, p999) == pytest.approx((0.3, 0.48, 0.498), rel=0.03)
    assert answered == pytest.approx(500, rel=0.01)


# --- measure


def test_one_wrk_with_a_thread_for_each_connection_is_signaled_at_each_turn() -> None:
    client = Client()
    raw = tuple(replace(TWO, duration=4.0).measure(serving(client)))
    (wrk,) = client.started
    how = ("wrk", "-t16", "-c16", "-d24h", "--timeout", "1s", "-s", "/srv/tare-schedule.lua")
    assert wrk.argv == (*how, "http://198.18.0.10:18080/file", "16")
    assert client.files == [("schedule.lua", "/srv/tare-schedule.lua")]
    assert wrk.told == ["500 100\n", "1000 200\n", *(2 * ["500 1000\n", "1000 2000\n"]), "end\n"]
    assert [(each.label, each.warm_up) for each in raw] == [
        (f"rate {rate}", number == 0) for number in range(3) for rate in (500, 1000)
    ]


def test_what_was_measured_can_be_parsed_round_by_round() -> None:
    workload = replace(TWO, duration=4.0)
    values = read_values(workload, tuple(workload.measure(serving(Client()))))
    assert {len(value.turns) for value in values} == {2}
    assert [value.value for value in values if value.metric == "p99"] == 2 * [0.030687176]


def test_each_turn_says_how_busy_its_load_was_and_the_first_does_not() -> None:
    raw = tuple(TWO.measure(serving(Client())))
    assert [each.client_cpu for each in raw] == [None, None, *(2 * [pytest.approx(0.10502151 / 1.998192268)])]


@pytest.mark.parametrize("server_busy", [None, 0.5, 1.0])
def test_a_client_behind_its_schedule_is_reported_whatever_the_server_does(server_busy: float | None) -> None:
    raw = tuple(replace(TWO, duration=4.0).measure(serving(Client(late=11))))
    cautions = client_cautions(raw, server_busy)
    assert [(each.kind, each.text) for each in cautions] == [
        ("client-bound", "at 500/s, the client itself sent 1.1 % of the requests over 1 ms late")
    ]


def test_a_client_that_is_seldom_late_is_no_caution() -> None:
    raw = tuple(TWO.measure(serving(Client(late=10))))
    assert client_cautions(raw, 0.5) == ()


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("end-not-found", "connect 0, read 0, write 0, status 8866"),
        ("end-broken-connections", "connect 0, read 39, write 0, status 0"),
    ],
)
def test_the_latency_of_an_error_answer_is_none(name: str, counts: str) -> None:
    with pytest.raises(TrialFailed) as failure:
        tuple(TWO.measure(serving(Client(end=f"nginx/{name}"))))
    assert str(failure.value) == f"wrk with 16 clients counted errors: {counts}"


@pytest.mark.parametrize(
    ("rates", "duration", "rounds"),
    [((1000,), 5.0, 5), ((500, 9000), 5.0, 3), ((100_000,), 1.0, 10), ((1000,), 1.0, 1)],
)
def test_every_turn_has_a_thousand_requests_at_least(rates: tuple[int, ...], duration: float, rounds: int) -> None:
    workload = NginxLatency(rates=rates, duration=duration)
    assert workload.rounds == rounds
    assert workload._requests(rates[0]) >= 1000


# --- service and settings


def test_the_server_and_its_file_are_those_of_nginx() -> None:
    assert NginxLatency().service("198.18.0.10") == Nginx(size=1024).service("198.18.0.10")
    assert (NginxLatency().port, NginxLatency.paths) == (Nginx().port, Nginx.paths)


def test_a_duration_that_is_too_short_for_a_percentile_is_refused_with_the_one_that_is_not() -> None:
    with pytest.raises(ValueError, match="100 requests a second need a duration of 10s"):
        NginxLatency(rates=(100,), duration=9.0)


def test_rates_of_which_a_turn_would_fill_the_memory_are_refused() -> None:
    assert NginxLatency(rates=(1000, 1_000_000), duration=1.0)
    with pytest.raises(ValueError, match="rates of 100 and 1000000 are too far apart"):
        NginxLatency(rates=(100, 1_000_000), duration=10.0)


def test_the_estimate_counts_a_tenth_of_a_turn_before() -> None:
    assert TWO.seconds() == pytest.approx(0.2 + 2 * (2.0 + 0.2 + 0.02))

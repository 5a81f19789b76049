"""wrk in turns: without a pause, on a schedule, and shared by several clients. Its outputs were captured."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace

import pytest
from setups import LoadHost, sample, serving

from tare.hosts.facts import Clock
from tare.loads.client_load import SharedLoad, common_share, split_client_texts, split_evenly
from tare.loads.http import WrkLoad, check_end
from tare.model.errors import TrialFailed
from tare.model.trial import Caution, RawOutput
from tare.runner.sanity_checks import client_cautions
from tare.runner.values import read_values
from tare.workloads.micro_http import MicroHttp
from tare.workloads.nginx import Nginx
from tare.workloads.nginx_latency import NginxLatency

AHEAD = (100.0, 7000.0)
ONE = Nginx(clients=(50,), duration=0.1, load="wrk")
TWO = NginxLatency(rates=(500, 1000), duration=2.0, connections=16)  # turns of two seconds


def clients_50(number: int, _line: str) -> str:
    return sample(f"nginx/{'clients-50' if number > 1 else 'first-turn'}.txt")


@dataclass
class Client(LoadHost):
    """A client with wrk, which prints a captured text at its end."""

    prints: Callable[[int, str], str] = clients_50
    end: str = "nginx/end.txt"

    def answer(self, number: int, line: str) -> str:
        return sample(self.end) if line == "end\n" else super().answer(number, line)


def on_schedule(late: int = 0, end: str = "nginx-latency/end.txt") -> Client:
    """Return a client whose wrk sends so many requests of a turn too late."""

    def prints(number: int, line: str) -> str:
        text = sample(f"nginx-latency/{'rate-500' if number > 2 else 'first-turn'}.txt")
        text = text.replace("requests: 1000\n", f"requests: {line.rsplit(maxsplit=1)[-1]}\n")
        return text.replace("late: 124\n", f"late: {late}\n")

    return Client(prints=prints, end=end)


def measure(load: WrkLoad, *clients: Client) -> tuple[RawOutput, ...]:
    return tuple(load.measure(replace(serving(clients[0]), extra_clients=clients[1:])))


# --- without a pause


def test_wrk_is_started_once_per_client_count_and_signaled_at_each_turn() -> None:
    client = Client()
    raw = measure(Nginx(clients=(1, 50), duration=0.1, load="wrk"), client)
    how = ("wrk", "-t1", "-c50", "-d24h", "--timeout", "1s", "-s", "/srv/tare-turns.lua")
    assert [each.argv[2] for each in client.started] == ["-c1", "-c50"]
    assert client.started[1].argv == (*how, "http://198.18.0.10:18080/file", "50")
    assert [each.told for each in client.started] == 2 * [[*(6 * ["0.02\n"]), "end\n"]]
    assert [(each.label, each.warm_up) for each in raw] == [
        (label, number == 0) for label in ("clients 1", "clients 50") for number in range(6)
    ]
    assert [each[:2] for each in client.files] == [("turns.lua", "/srv/tare-turns.lua")]
    assert client.running == 0


def test_without_keep_alive_every_request_says_that_its_connection_ends() -> None:
    measure(replace(ONE, keep_alive=False), client := Client())
    assert client.started[0].argv[-4:] == ("-H", "Connection: close", "http://198.18.0.10:18080/file", "50")


def test_an_instance_that_serves_it_is_asked_at_its_own_port() -> None:
    setup = serving(client := Client())
    tuple(
        MicroHttp(duration=0.1, load="wrk").measure(
            replace(setup, instance=replace(setup.instance, served_ports={"micro-http": 8080}))
        )
    )
    assert client.started[0].argv[-2:] == ("http://198.18.0.10:8080/file", "1")


@pytest.mark.parametrize(
    ("load", "client", "turns", "share"),
    [(ONE, Client(), 5, 0.010280771 / 0.050001541), (TWO, on_schedule(), 2, 0.10502151 / 1.998192268)],
)
def test_each_turn_says_how_busy_its_load_was_and_the_first_does_not(
    load: WrkLoad, client: Client, turns: int, share: float
) -> None:
    raw = measure(load, client)
    assert [each.client_cpu for each in raw if not each.warm_up] == turns * [pytest.approx(share)]
    assert {each.client_cpu for each in raw if each.warm_up} == {None}


def test_what_was_measured_can_be_parsed_round_by_round() -> None:
    load = Nginx(clients=(1, 50), duration=0.1, load="wrk")
    values = read_values(load, measure(load, Client()))
    assert [(value.point, len(value.turns)) for value in values] == [(1.0, 5), (50.0, 5)]
    assert values[1].value == pytest.approx(1254 / 0.050001541)
    two = replace(TWO, duration=4.0)
    values = read_values(two, measure(two, on_schedule()))
    assert {len(value.turns) for value in values} == {2}
    assert [value.value for value in values if value.metric == "p99"] == 2 * [0.030687176]


@pytest.mark.parametrize(("load", "clients"), [(ONE, 50), (TWO, 16)])
@pytest.mark.parametrize(
    ("name", "counts", "hint"),
    [
        ("end-not-found", "connect 0, read 0, write 0, status 8866", "`tare show` has the whole output"),
        ("end-broken-connections", "connect 0, read 39, write 0, status 0", "a server that closes idle connections"),
    ],
)
def test_errors_that_wrk_counted_fail_the_trial_and_are_quoted(
    load: WrkLoad, clients: int, name: str, counts: str, hint: str
) -> None:
    client = replace(Client() if load is ONE else on_schedule(), end=f"nginx/{name}.txt")
    with pytest.raises(TrialFailed) as failure:
        measure(load, client)
    assert str(failure.value) == f"wrk with {clients} clients counted errors: {counts}"
    assert failure.value.hint.startswith(hint)
    assert failure.value.output is not None
    assert failure.value.output.text == sample(f"nginx/{name}.txt")


@pytest.mark.parametrize(("size", "told"), [(6144, "1264 bytes an answer; the page has 6144"), (128, "has 128")])
def test_a_page_of_another_size_is_not_compared_as_if_it_were_the_suites(size: int, told: str) -> None:
    with pytest.raises(TrialFailed, match=told) as failure:
        measure(replace(ONE, size=size), Client())
    assert f"/file of {size} bytes" in failure.value.hint


def test_parts_of_pages_at_the_end_count_as_no_other_size() -> None:
    page = 16 << 20
    end = sample("nginx/end.txt").replace("answers: 6471\nbytes: 8179344", f"answers: 60\nbytes: {100 * page}")
    output = RawOutput("end", ("wrk",), end, 0.1)
    check_end(output, 50, page)
    with pytest.raises(TrialFailed, match="the page has"):
        check_end(output, 30, page)


def test_a_wrk_that_says_nothing_of_errors_at_its_end_fails_the_trial() -> None:
    with pytest.raises(TrialFailed, match="did not end as it should"):
        measure(ONE, Client(end="nginx/clients-50.txt"))


def test_a_wrk_that_ends_in_a_turn_fails_the_trial_with_its_last_words() -> None:
    with pytest.raises(TrialFailed, match="ended; it printed") as failure:
        measure(ONE, Client(end="nginx/whole-second.txt"))
    assert failure.value.output is not None
    assert failure.value.output.stderr == b"Too many open files"


def test_wrk_ends_with_a_measurement_that_is_broken_off() -> None:
    measuring = ONE.measure(serving(client := Client()))
    assert isinstance(measuring, Generator)
    assert [next(measuring).warm_up for _ in range(3)] == [True, False, False]
    assert client.running == 1
    measuring.close()
    assert client.running == 0


# --- on a schedule


def test_one_wrk_with_a_thread_per_connection_is_signaled_at_each_turn() -> None:
    client = on_schedule()
    raw = measure(replace(TWO, duration=4.0), client)
    (wrk,) = client.started
    how = ("wrk", "-t16", "-c16", "-d24h", "--timeout", "1s", "-s", "/srv/tare-schedule.lua")
    assert wrk.argv == (*how, "http://198.18.0.10:18080/file", "16")
    assert [each[:2] for each in client.files] == [("schedule.lua", "/srv/tare-schedule.lua")]
    assert wrk.told == ["500 100\n", "1000 200\n", *(2 * ["500 1000\n", "1000 2000\n"]), "end\n"]
    assert [(each.label, each.warm_up) for each in raw] == [
        (f"rate {rate}", number == 0) for number in range(3) for rate in (500, 1000)
    ]


def test_a_stall_for_a_quarter_of_the_time_is_in_the_percentiles() -> None:
    """The server was stopped for 0.5 s of 2 s: a quarter of the requests waited, evenly spread, up to 0.5 s."""
    raw = RawOutput("rate 500", ("wrk",), sample("nginx-latency/stalled-server.txt"), 1.0)
    _, p90, p99, p999, answered = (each.value for each in NginxLatency(rates=(500,), duration=2.0).parse([raw]))
    assert (p90, p99, p999) == pytest.approx((0.3, 0.48, 0.498), rel=0.03)
    assert answered == pytest.approx(500, rel=0.01)


@pytest.mark.parametrize("server_busy", [None, 0.5, 1.0])
def test_a_client_behind_its_schedule_is_reported_whatever_the_server_does(server_busy: float | None) -> None:
    cautions = client_cautions(measure(replace(TWO, duration=4.0), on_schedule(late=11)), server_busy)
    assert [(each.kind, each.text) for each in cautions] == [
        ("client-bound", "at 500/s, the client itself sent 1.1 % of the requests over 1 ms late")
    ]


def test_a_client_that_is_seldom_late_is_no_caution() -> None:
    assert client_cautions(measure(TWO, on_schedule(late=10)), 0.5) == ()


@pytest.mark.parametrize(
    ("rates", "duration", "said"),
    [
        ((100,), 9.0, "100 requests a second need a duration of 10s"),  # for a percentile
        ((100, 1_000_000), 10.0, "rates of 100 and 1000000 are too far apart"),  # a turn would fill the memory
    ],
)
def test_rates_that_cannot_be_measured_within_the_duration_are_refused(
    rates: tuple[int, ...], duration: float, said: str
) -> None:
    assert NginxLatency(rates=(1000, 1_000_000), duration=1.0)
    with pytest.raises(ValueError, match=said):
        NginxLatency(rates=rates, duration=duration)


# --- shared by several clients


def turn(requests: int, seconds: float = 0.02, behind: float = 0.0) -> str:
    return f"requests: {requests}\nseconds: {seconds:.9f}\ncpu_seconds: 0.010000000\nbehind: {behind:.9f}\nturn: done\n"


def late_turn(requests: int, classes: str) -> str:
    percentiles = "".join(f"p{name}: 0.100000000\n" for name in ("50", "90", "99", "99.9"))
    return (
        f"requests: {requests}\nseconds: 1.000000000\n{percentiles}late: 0\nusual_delay: 0.000010000\n"
        f"cpu_seconds: 0.100000000\ncpus: 2\nbehind: 0.000000000\nclasses:{classes}\nturn: done\n"
    )


def of_two(first: str, second: str) -> str:
    return f"client 1 of 2\n{first}client 2 of 2\n{second}"


def two_clients(*texts: str) -> list[Client]:
    """Return clients whose wrk prints the same in each turn."""
    return [Client(prints=lambda _number, _line, text=text: text) for text in texts]  # type: ignore[misc] # bound here


@pytest.fixture
def _clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = iter(AHEAD)
    monkeypatch.setattr("tare.loads.client_load.read_clock", lambda *_: Clock(next(ahead), 0.0001))
    monkeypatch.setattr("tare.loads.http.check_end", lambda *_: None)


def test_a_number_is_divided_as_evenly_as_integers_allow() -> None:
    found = [split_evenly(whole, 3) for whole in (1, 2, 3, 10, 11)]
    assert found == [(1, 0, 0), (1, 1, 0), (1, 1, 1), (4, 3, 3), (4, 4, 3)]


@pytest.mark.usefixtures("_clocks")
def test_each_client_has_its_part_and_the_same_start_on_its_local_clock() -> None:
    clients = two_clients(turn(30), turn(40, behind=0.0005))
    raw = measure(Nginx(clients=(5,), duration=0.1, load="wrk"), *clients)
    assert [each.started[0].argv[2] for each in clients] == ["-c3", "-c2"]
    lines = list(zip(*(each.started[0].told for each in clients), strict=True))
    assert lines[-1] == ("end\n", "end\n")
    for first, second in lines[:-1]:
        assert first.split()[0] == second.split()[0] == "0.02"
        assert float(second.split()[1]) - float(first.split()[1]) == pytest.approx(AHEAD[1] - AHEAD[0], abs=1e-6)
    (value,) = Nginx(clients=(5,)).parse(raw[-1:])
    assert value.value == pytest.approx(70 / 0.0205)
    assert (raw[-1].client_cpu, raw[-1].clients_cpu) == (0.5, (0.5, 0.5))
    assert raw[-1].client_limit == ""


@pytest.mark.usefixtures("_clocks")
def test_a_schedule_is_divided_and_its_clients_take_turns_in_it() -> None:
    clients = two_clients(*2 * [late_turn(1000, " 0:1000")])
    measure(NginxLatency(rates=(2000,), connections=5, duration=1.0), *clients)
    first, second = (each.started[0].told[1].split()[:3] for each in clients)
    assert (first, second) == (["1000", "500", "0.000000000"], ["1000", "500", "0.000500000"])
    assert [each.started[0].argv[1:3] for each in clients] == [("-t3", "-c3"), ("-t2", "-c2")]


def test_percentiles_are_those_of_all_requests_and_not_the_mean_of_clients() -> None:
    quick, slow = " -7000:500", " -2000:480 -1000:20"
    raw = RawOutput("rate 1000", ("wrk",), of_two(late_turn(500, quick), late_turn(500, slow)), 1.0)
    values = {each.metric: each.value for each in NginxLatency(rates=(1000,), duration=1.0).parse([raw])}
    assert values["p50"] == pytest.approx(1.001**-6999.5)
    assert values["p90"] == pytest.approx(1.001**-1999.5)
    assert values["p99"] == values["p999"] == pytest.approx(1.001**-999.5)
    assert values["answered"] == 1000


@pytest.mark.parametrize(
    "text",
    [
        f"client 1 of 2\n{turn(30)}",
        of_two(turn(30), turn(40).replace("behind: 0.000000000\n", "")),
        of_two(turn(30), ""),
        of_two(turn(30), "client 3 of 3\n"),
    ],
)
def test_a_turn_that_not_all_clients_have_told_fails_the_trial(text: str) -> None:
    with pytest.raises(TrialFailed, match="the load gave no rate for 5 clients"):
        Nginx(clients=(5,)).parse([RawOutput("clients 5", ("wrk",), text, 1.0)])


def test_distant_windows_share_little_and_clock_errors_reduce_the_overlap() -> None:
    assert common_share([(0.0, 1.0), (0.0, 1.0)], 0.0) == 1.0
    assert common_share([(0.0, 1.0), (0.2, 1.2)], 0.0) == pytest.approx(0.8 / 1.2)
    assert common_share([(0.0, 1.0), (0.0, 1.0)], 0.1) == pytest.approx(0.9 / 1.1)
    assert common_share([(0.0, 1.0), (1.5, 2.5)], 0.0) == 0.0
    assert common_share([], 0.0) == 0.0


@pytest.mark.usefixtures("_clocks")
def test_clients_that_did_not_ask_at_the_same_time_are_a_doubt() -> None:
    *_, last = measure(Nginx(clients=(2,), duration=0.1, load="wrk"), *two_clients(turn(30), turn(40, behind=0.004)))
    assert last.client_limit == "at clients 2, the clients asked together for 65% of a turn"


def test_clients_that_hardly_asked_together_fail_the_trial() -> None:
    load = SharedLoad((), {"clients 2": [0.9, 0.4, 0.3]})
    with pytest.raises(TrialFailed, match=re.escape("at clients 2, the clients asked together for 40% of a turn")):
        load.describe_overlap_caution(RawOutput("clients 2", ("wrk",), "", 1.0))


def test_the_client_that_was_the_bottleneck_is_named() -> None:
    both = [RawOutput("clients 5", (), "", 1.0, client_cpu=1.0, clients_cpu=(0.2, share)) for share in (0.97, 1.0)]
    alone = RawOutput("clients 1", (), "", 1.0, client_cpu=1.0)
    assert client_cautions([alone, *both], 0.5) == (
        Caution("client-bound", "the load had no CPU time to spare at clients 1"),
        Caution("client-bound", "the load of client 2 had no CPU time to spare at clients 5"),
    )
    assert client_cautions(both, 0.99) == ()
    unknown = replace(both[0], clients_cpu=(None, 0.3))
    assert client_cautions([unknown], 0.5) == ()


def test_what_one_client_has_printed_alone_is_whole() -> None:
    assert split_client_texts("requests: 1\n") == ["requests: 1\n"]
    assert split_client_texts(of_two("a\n", "b\n")) == ["a\n", "b\n"]

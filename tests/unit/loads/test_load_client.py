"""tare's load client in turns: what it is told, what its answers mean, and which of them fail a trial."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from setups import LoadHost, serving

from tare.hosts.facts import Clock
from tare.loads.load_client import plan_turns
from tare.model.errors import TimedOut, TrialFailed
from tare.model.trial import Caution, RawOutput
from tare.model.turn_length import TurnLength, TurnProbe
from tare.plugins.workload import Workload
from tare.runner.sanity_checks import client_cautions
from tare.runner.values import read_values
from tare.workloads.dhrystone import Dhrystone
from tare.workloads.micro_http import MicroHttp
from tare.workloads.nginx import Nginx
from tare.workloads.redis import Redis
from tare.workloads.service import UserServer

NO_ERRORS = "connect 0, read 0, status 0, short 0"
GET = b"GET /file HTTP/1.1\r\nHost: 198.18.0.10:18080\r\n\r\n"


def turn(
    requests: int = 300, seconds: float = 0.005, closes: int = 0, errors: str = NO_ERRORS, behind: float | None = None
) -> str:
    before = "discarded_seconds: 0.001100000\ndiscarded_rate: 50000.000\n"
    late = "" if behind is None else f"behind: {behind:.9f}\n"
    first = "" if errors == NO_ERRORS else "error: Connection refused\n"
    return (
        f"requests: {requests}\nseconds: {seconds:.9f}\ncpu_seconds: 0.002000000\n{before}{late}bytes: 9\n"
        f"closes: {closes}\nerrors: {errors}\n{first}turn: done\n"
    )


def client_that_prints(text: str = "") -> LoadHost:
    """Return a client whose load prints this text for each line, or a usual turn."""
    return LoadHost(lambda *_: text or turn())


def measure(workload: Workload, *clients: LoadHost) -> tuple[RawOutput, ...]:
    return tuple(workload.measure(replace(serving(clients[0]), extra_clients=clients[1:])))


def words(client: LoadHost, number: int = 0) -> str:
    return " ".join(client.started[number].argv)


# --- what it is told


def test_http_has_a_program_per_point_and_a_line_per_turn() -> None:
    raw = measure(Nginx(clients=(1, 50), duration=0.1, size=4096), client := client_that_prints())
    where = "/usr/lib/tare/load_client http 198.18.0.10 18080"
    assert words(client) == f"{where} 1 /srv/tare-load-requests --body 4096 --poll 50 --patience 31"
    assert words(client, 1).startswith(f"{where} 50 ")
    assert [each.told for each in client.started] == 2 * [21 * ["go 0.005 0.005\n"]]
    assert [each[1:] for each in client.files] == 2 * [("/srv/tare-load-requests", b"%d\n%b" % (len(GET), GET))]
    assert [(each.label, each.warm_up) for each in raw] == [
        (f"clients {clients}", number == 0) for clients in (1, 50) for number in range(21)
    ]
    assert client.running == 0


def test_without_keep_alive_server_and_client_both_know() -> None:
    measure(Nginx(clients=(1,), duration=0.1, keep_alive=False), client := client_that_prints())
    assert " --close " in words(client)
    assert b"Connection: close\r\n" in client.files[0][2]


def test_an_instance_that_serves_it_is_asked_at_its_port() -> None:
    setup = serving(client := client_that_prints())
    instance = replace(setup.instance, served_ports={"micro-http": 8080})
    tuple(MicroHttp(clients=(1,), duration=0.1).measure(replace(setup, instance=instance)))
    assert " 198.18.0.10 8080 1 " in words(client)
    assert b"Host: 198.18.0.10:8080\r\n" in client.files[0][2]


def test_redis_sets_its_key_before_the_first_point() -> None:
    raw = measure(Redis(clients=(1, 50), pipeline=16, keep_alive=False, duration=0.01), client := client_that_prints())
    labels = ["fill", "GET 1", "GET 50", "SET 1", "SET 50"]
    assert [each.label for each in raw if not each.warm_up] == [label for label in labels[1:] for _ in range(2)]
    assert list(dict.fromkeys(each.label for each in raw)) == labels
    where = "/usr/lib/tare/load_client redis 198.18.0.10 16379"
    assert words(client, 2) == f"{where} 50 /srv/tare-load-requests --pipeline 16 --close --poll 50 --patience 31"
    key, put, get = b"$16\r\nkey:__rand_int__\r\n", b"*3\r\n$3\r\nSET\r\n", b"*2\r\n$3\r\nGET\r\n"
    requests = [text.partition(b"\n")[2] for *_, text in client.files]
    assert requests == [put + key + b"$3\r\nxxx\r\n", *(2 * [get + key]), *(2 * [put + key + b"$3\r\nxxx\r\n"])]


def test_the_requests_of_a_user_are_sent_in_turns_of_the_usual_length() -> None:
    measure(UserServer(clients=(7,), duration=0.4), client := client_that_prints())
    assert client.started[0].told == 11 * ["go 0.02 0.04\n"]
    assert "--body" not in words(client)


def test_probes_have_the_requested_lengths_at_the_middle_point() -> None:
    lengths = (TurnLength(0.002, 0.01), TurnLength(0.0005, 0.02))
    probes = tuple(Nginx(clients=(1, 50, 200)).probe_turns(serving(client := client_that_prints()), lengths))
    assert " 50 /srv/tare-load-requests " in words(client)
    told = ["go 0.005 0.008\n", "go 0.002 0.01\n", "go 0.001 0.02\n"]  # connections need at least 1 ms
    assert [each.told for each in client.started] == [["go 0.005 0.008\n", *told[1:]]]
    assert probes == 2 * (TurnProbe(0.0011, 50000.0, 0.005, 60000.0),)


def test_probes_of_redis_find_their_key() -> None:
    probes = tuple(
        Redis(clients=(50,)).probe_turns(serving(client := client_that_prints()), (TurnLength(0.002, 0.01),))
    )
    assert len(probes) == 1
    assert [b"SET" in text for *_, text in client.files] == [True, False]


def test_several_clients_take_no_probes() -> None:
    setup = replace(serving(client := client_that_prints()), extra_clients=(client_that_prints(),))
    assert tuple(Nginx().probe_turns(setup, (TurnLength(0.002, 0.01),))) == ()
    assert client.started == []


@pytest.mark.parametrize(
    ("workload", "measures"),
    [
        (Nginx(duration=0.02), ()),
        (Nginx(duration=0.1, clients=(1,)), (0.005, 0.01)),
        (Nginx(duration=1.0, clients=(1,)), (0.005, 0.01, 0.02, 0.05)),
        (Redis(duration=1.0, clients=(1, 200)), (0.01, 0.02, 0.05)),
        (Redis(duration=20.0), ()),
        (Nginx(duration=1.0, turn=0.005), ()),
        (Nginx(duration=1.0, load="wrk"), ()),
        (UserServer(duration=1.0), ()),
        (Dhrystone(duration=0.2), (0.01, 0.02)),
        (Dhrystone(passes=1000), ()),
    ],
)
def test_a_length_can_be_chosen_that_gives_10_to_200_turns(workload: Workload, measures: tuple[float, ...]) -> None:
    assert tuple(dict.fromkeys(each.measure_seconds for each in workload.turn_lengths)) == measures


def test_the_first_part_is_never_shorter_than_the_usual_one() -> None:
    assert {each.discard_seconds for each in Nginx().turn_lengths} == {0.005, 0.01}
    assert {each.discard_seconds for each in Dhrystone().turn_lengths} == {0.01}


def test_a_chosen_length_sets_turns_and_rounds() -> None:
    workload = Redis(clients=(1,), duration=0.2).with_turn_length(TurnLength(0.002, 0.02))
    assert (workload.rounds, workload.turn_length) == (19, TurnLength(0.002, 0.02))  # as long as 40 of 10 ms
    measure(workload, client := client_that_prints())
    assert client.started[-1].told == 20 * ["go 0.002 0.02\n"]
    dhrystone = Dhrystone(turn=0.02)
    assert (dhrystone.rounds, dhrystone.turn_length) == (10, TurnLength(0.01, 0.02))


@pytest.mark.parametrize(
    ("create", "reason"),
    [
        (lambda: Dhrystone(discard=0.001), "discard is the first part of a turn: give turn, too"),
        (lambda: Dhrystone(passes=1, turn=0.01), "turn is of programs that stay resident"),
        (lambda: Nginx(load="wrk", turn=0.01), "turn is of programs that stay resident"),
        (lambda: Redis(load="redis-benchmark", turn=0.01), "turn is of programs that stay resident"),
    ],
)
def test_settings_of_turns_without_short_turns_are_rejected(create: Callable[[], Workload], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        create()


@pytest.mark.parametrize(
    ("duration", "clients", "discarded", "measured", "rounds"),
    [
        (0.002, 1, 0.005, 0.002, 1),
        (0.1, 1, 0.005, 0.005, 20),
        (1.0, 50, 0.005, 0.005, 200),
        (10.0, 50, 0.005, 0.05, 200),
        # At least a response that does not count, and two that do, on each connection.
        (1.0, 200, 0.005, 0.008, 125),
        (1.0, 1000, 0.02, 0.04, 25),
    ],
)
def test_turns_measure_for_the_duration_together(
    duration: float, clients: int, discarded: float, measured: float, rounds: int
) -> None:
    plan = plan_turns(duration, clients)
    assert plan.discard_seconds(clients) == pytest.approx(discarded)
    assert plan.discard_seconds(1) == 0.005
    assert plan.measure_seconds == pytest.approx(measured)
    assert plan.rounds == rounds


def test_tare_waits_longer_than_the_program_does() -> None:
    measure(Redis(operations=("GET",), clients=(1,), duration=0.01), client := client_that_prints())
    patience = int(client.started[-1].argv[-1])
    assert min(client.started[-1].timeouts) > patience


# --- what it answers


def test_each_turn_has_its_rate_and_how_busy_the_load_was() -> None:
    workload = Nginx(clients=(1, 50), duration=0.1)
    raw = measure(workload, client_that_prints())
    values = read_values(workload, raw)
    assert [(value.point, len(value.turns)) for value in values] == [(1.0, 20), (50.0, 20)]
    assert [value.value for value in values] == pytest.approx([60_000, 60_000])
    assert [each.client_cpu for each in raw if not each.warm_up] == 40 * [pytest.approx(0.4)]
    assert {each.client_cpu for each in raw if each.warm_up} == {None}
    assert {each.client_limit for each in raw} == {""}


@pytest.mark.parametrize("workload", [Nginx(clients=(5,), duration=0.1), Redis(("GET",), (5,), duration=0.1)])
@pytest.mark.parametrize(
    ("errors", "hint"),
    [
        ("connect 1, read 0, status 0, short 0", "`tare show` has the whole output"),
        ("connect 0, read 1, status 0, short 0", "`tare show` has the whole output"),
        ("connect 0, read 0, status 7, short 0", "`tare show` has the whole output"),
        ("connect 0, read 0, status 0, short 7", "a user-supplied image has to serve a /file of"),
    ],
)
def test_errors_fail_the_trial_in_their_turn(workload: Workload, errors: str, hint: str) -> None:
    with pytest.raises(TrialFailed) as failure:
        measure(workload, client := client_that_prints(turn(errors=errors)))
    assert str(failure.value).endswith(f": {errors}; the first: Connection refused")
    assert failure.value.hint.startswith(hint)
    assert failure.value.output is not None
    assert len(client.started[0].told) == 1


def test_a_server_that_hangs_is_a_time_out_which_may_end_the_workload() -> None:
    refused = turn(errors="connect 0, read 1, status 0, short 0")
    hung = refused.replace("Connection refused", "the server did not answer all requests in time")
    with pytest.raises(TimedOut, match=r"read 1, .* did not answer all requests in time"):
        measure(Nginx(clients=(5,), duration=0.1), client_that_prints(hung))


def test_a_load_without_cpu_time_to_spare_is_a_caution() -> None:
    raw = measure(Nginx(clients=(5,), duration=0.01), client_that_prints(turn(seconds=0.0021)))
    text = "the load had no CPU time to spare at clients 5"
    assert client_cautions(raw, server_busy=0.5) == (Caution("client-bound", text),)
    assert client_cautions(measure(Nginx(clients=(5,), duration=0.01), client_that_prints()), server_busy=0.5) == ()


def test_connections_that_the_server_closed_are_a_caution() -> None:
    *_, last = measure(Nginx(clients=(5,), duration=0.01), client_that_prints(turn(closes=4)))
    assert last.client_limit == (
        "at clients 5, the server closed 12 connections that were to stay open: the load opened new ones"
    )


@pytest.mark.parametrize("text", ["turn: done\n", "requests: 1\nturn: done\n", turn().replace("errors", "error")])
def test_an_incomplete_turn_fails_the_trial(text: str) -> None:
    with pytest.raises(TrialFailed, match="load_client did not end its turn"):
        measure(Nginx(clients=(5,), duration=0.1), client_that_prints(text))


def test_a_program_that_ends_fails_the_trial_with_its_errors() -> None:
    with pytest.raises(TrialFailed, match="load_client: ended") as failure:
        measure(Nginx(clients=(5,), duration=0.1), client_that_prints("requests: 1\n"))
    assert failure.value.output is not None
    assert b"Too many open files" in failure.value.output.stderr


# --- several clients


@pytest.fixture
def _clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = iter((100.0, 7000.0))
    monkeypatch.setattr("tare.loads.client_load.read_clock", lambda *_: Clock(next(ahead), 0.0001))


@pytest.mark.usefixtures("_clocks")
def test_several_clients_share_the_connections_and_begin_together() -> None:
    clients = [client_that_prints(turn(seconds=0.02, behind=late)) for late in (0.0, 0.0005)]
    workload = Nginx(clients=(5,), duration=0.1)
    raw = measure(workload, *clients)
    assert [each.started[0].argv[4] for each in clients] == ["3", "2"]
    first, second = (each.started[0].told for each in clients)
    assert len(first) == len(second) == 1 + 5  # longer than the milliseconds by which clocks differ
    for one, other in zip(first, second, strict=True):
        assert one.split()[:3] == other.split()[:3] == ["go", "0.02", "0.02"]
        assert float(other.split()[3]) - float(one.split()[3]) == pytest.approx(6900)
    (value,) = workload.parse(raw[-1:])
    assert value.value == pytest.approx(600 / 0.0205)
    assert raw[-1].clients_cpu == pytest.approx((0.1, 0.1))


@pytest.mark.usefixtures("_clocks")
def test_the_errors_of_one_of_several_clients_fail_the_trial() -> None:
    broken = turn(behind=0.0, errors="connect 0, read 1, status 0, short 0")
    clients = client_that_prints(turn(behind=0.0)), client_that_prints(broken)
    with pytest.raises(TrialFailed, match="read 1"):
        measure(Nginx(clients=(5,), duration=0.1), *clients)

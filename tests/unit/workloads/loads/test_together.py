"""A load that several clients share, without machines: how it is divided, and what comes of what they print."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from setups import serving
from wrk import PretendedWrk, WrkClient

from tare.errors import TrialFailed
from tare.hosts.clocks import Clock
from tare.model.trials import Caution, Raw
from tare.runner.sanity_checks import client_cautions
from tare.workloads.loads import together
from tare.workloads.loads.together import Together, common_share, shares, texts_in
from tare.workloads.nginx import Nginx
from tare.workloads.nginx_latency import NginxLatency

END = (Path(__file__).parents[3] / "samples/nginx/end.txt").read_text()
AHEAD = (100.0, 7000.0)


def turn(requests: int, seconds: float, behind: float, cpu: float = 0.01) -> str:
    return f"requests: {requests}\nseconds: {seconds:.9f}\ncpu_seconds: {cpu:.9f}\nbehind: {behind:.9f}\nturn: done\n"


def late_turn(requests: int, classes: str, behind: float = 0.0) -> str:
    percentiles = "".join(f"p{name}: 0.100000000\n" for name in ("50", "90", "99", "99.9"))
    return (
        f"requests: {requests}\nseconds: 1.000000000\n{percentiles}late: 0\nusual_delay: 0.000010000\n"
        f"cpu_seconds: 0.100000000\ncpus: 2\nbehind: {behind:.9f}\nclasses:{classes}\nturn: done\n"
    )


def of_two(first: str, second: str) -> str:
    return f"client 1 of 2\n{first}client 2 of 2\n{second}"


class Wrk(PretendedWrk):
    """A wrk that did the same in each turn."""

    def send(self, text: str) -> None:
        self.told.append(text)
        self.lines += (END if text == "end\n" else self.end).splitlines()


@dataclass
class Client(WrkClient):
    """A client whose wrk prints this in a turn."""

    prints: str = ""

    def wrk(self, argv: tuple[str, ...]) -> Wrk:
        return Wrk(argv, self.prints)


@pytest.fixture
def _clocks(monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = iter(AHEAD)
    monkeypatch.setattr(together, "read_clock", lambda *_: Clock(next(ahead), 0.0001))
    monkeypatch.setattr("tare.workloads.loads.http.check_end", lambda *_: None)


def test_a_number_is_divided_as_evenly_as_integers_allow() -> None:
    assert [shares(whole, 3) for whole in (1, 2, 3, 10, 11)] == [
        (1, 0, 0), (1, 1, 0), (1, 1, 1), (4, 3, 3), (4, 4, 3),
    ]  # fmt: skip


@pytest.mark.usefixtures("_clocks")
def test_each_client_has_its_part_and_is_told_the_same_moment_on_its_own_clock() -> None:
    clients = Client(prints=turn(30, 0.02, 0.0)), Client(prints=turn(40, 0.02, 0.0005))
    setup = replace(serving(clients[0]), further_clients=clients[1:])
    raw = tuple(Nginx(clients=(5,), duration=0.1).measure(setup))
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
    clients = Client(prints=late_turn(1000, " 0:1000")), Client(prints=late_turn(1000, " 0:1000"))
    setup = replace(serving(clients[0]), further_clients=clients[1:])
    tuple(NginxLatency(rates=(2000,), connections=5, duration=1.0).measure(setup))
    first, second = (each.started[0].told[1].split()[:3] for each in clients)
    assert (first, second) == (["1000", "500", "0.000000000"], ["1000", "500", "0.000500000"])
    assert [each.started[0].argv[1:3] for each in clients] == [("-t3", "-c3"), ("-t2", "-c2")]


def test_percentiles_are_those_of_all_requests_together_and_not_the_mean_of_the_clients() -> None:
    quick, slow = " -7000:500", " -2000:480 -1000:20"
    raw = Raw("rate 1000", ("wrk",), of_two(late_turn(500, quick), late_turn(500, slow)), 1.0)
    values = {each.metric: each.value for each in NginxLatency(rates=(1000,), duration=1.0).parse([raw])}
    assert values["p50"] == pytest.approx(1.001**-6999.5)
    assert values["p90"] == pytest.approx(1.001**-1999.5)
    assert values["p99"] == values["p999"] == pytest.approx(1.001**-999.5)
    assert values["answered"] == 1000


@pytest.mark.parametrize(
    "text",
    [
        f"client 1 of 2\n{turn(30, 0.02, 0.0)}",
        of_two(turn(30, 0.02, 0.0), turn(40, 0.02, 0.0).replace("behind: 0.000000000\n", "")),
        of_two(turn(30, 0.02, 0.0), ""),
        of_two(turn(30, 0.02, 0.0), "client 3 of 3\n"),
    ],
)
def test_a_turn_that_not_all_clients_have_told_fails_the_trial(text: str) -> None:
    with pytest.raises(TrialFailed, match="wrk gave no rate for 5 clients"):
        Nginx(clients=(5,)).parse([Raw("clients 5", ("wrk",), text, 1.0)])


def test_windows_that_are_apart_have_little_in_common_and_clocks_may_be_wrong() -> None:
    assert common_share([(0.0, 1.0), (0.0, 1.0)], 0.0) == 1.0
    assert common_share([(0.0, 1.0), (0.2, 1.2)], 0.0) == pytest.approx(0.8 / 1.2)
    assert common_share([(0.0, 1.0), (0.0, 1.0)], 0.1) == pytest.approx(0.9 / 1.1)
    assert common_share([(0.0, 1.0), (1.5, 2.5)], 0.0) == 0.0
    assert common_share([], 0.0) == 0.0


@pytest.mark.usefixtures("_clocks")
def test_clients_that_did_not_ask_at_the_same_time_are_a_doubt() -> None:
    clients = Client(prints=turn(30, 0.02, 0.0)), Client(prints=turn(40, 0.02, 0.004))
    setup = replace(serving(clients[0]), further_clients=clients[1:])
    *_, last = Nginx(clients=(2,), duration=0.1).measure(setup)
    assert last.client_limit == "at clients 2, the clients asked together for 65% of a turn"


def test_clients_that_hardly_asked_together_fail_the_trial() -> None:
    load = Together((), {"clients 2": [0.9, 0.4, 0.3]})
    with pytest.raises(TrialFailed, match=re.escape("at clients 2, the clients asked together for 40% of a turn")):
        load.doubt(Raw("clients 2", ("wrk",), "", 1.0))


def test_the_client_that_was_the_bottleneck_is_named() -> None:
    both = [Raw("clients 5", (), "", 1.0, client_cpu=1.0, clients_cpu=(0.2, share)) for share in (0.97, 1.0)]
    alone = Raw("clients 1", (), "", 1.0, client_cpu=1.0)
    assert client_cautions([alone, *both], 0.5) == (
        Caution("client-bound", "the load had no CPU time to spare at clients 1"),
        Caution("client-bound", "the load of client 2 had no CPU time to spare at clients 5"),
    )
    assert client_cautions(both, 0.99) == ()
    unknown = replace(both[0], clients_cpu=(None, 0.3))
    assert client_cautions([unknown], 0.5) == ()


def test_what_one_client_has_printed_alone_is_whole() -> None:
    assert texts_in("requests: 1\n") == ["requests: 1\n"]
    assert texts_in(of_two("a\n", "b\n")) == ["a\n", "b\n"]

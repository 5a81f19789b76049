from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import pytest
from setups import serving
from wrk import PretendedWrk, WrkClient

from tare.errors import TrialFailed
from tare.model.trials import Raw
from tare.runner.values import read_values
from tare.workloads.loads.http import check_end
from tare.workloads.nginx import Nginx

SAMPLES = Path(__file__).parents[2] / "samples/nginx"


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.txt").read_text()


class Wrk(PretendedWrk):
    """A wrk in turns, which prints what was captured with 50 clients. It notes the lines that it gets."""

    def send(self, text: str) -> None:
        self.told.append(text)
        name = self.end if text == "end\n" else "clients-50" if len(self.told) > 1 else "first-turn"
        self.lines += sample(name).splitlines()


@dataclass
class Client(WrkClient):
    """A client with wrk in turns."""

    end: str = "end"

    def wrk(self, argv: tuple[str, ...]) -> Wrk:
        return Wrk(argv, self.end)


# --- measure


def test_wrk_is_started_once_for_each_number_of_clients_and_signaled_at_each_turn() -> None:
    client = Client()
    raw = tuple(Nginx(clients=(1, 50), duration=0.1).measure(serving(client)))
    how = ("wrk", "-t1", "-c50", "-d24h", "--timeout", "1s", "-s", "/srv/tare-turns.lua")
    assert [each.argv[2] for each in client.started] == ["-c1", "-c50"]
    assert client.started[1].argv == (*how, "http://198.18.0.10:18080/file", "50")
    assert [each.told for each in client.started] == 2 * [[*(6 * ["0.02\n"]), "end\n"]]
    assert [(each.label, each.warm_up) for each in raw] == [
        (label, number == 0) for label in ("clients 1", "clients 50") for number in range(6)
    ]
    assert client.files == [("turns.lua", "/srv/tare-turns.lua")]
    assert client.running == 0


def test_each_turn_says_how_busy_its_load_was_and_the_first_does_not() -> None:
    raw = tuple(Nginx(clients=(50,), duration=0.1).measure(serving(Client())))
    assert [each.client_cpu for each in raw] == [None, *(5 * [pytest.approx(0.010280771 / 0.050001541)])]


def test_what_was_measured_can_be_parsed_round_by_round() -> None:
    workload = Nginx(clients=(1, 50), duration=0.1)
    values = read_values(workload, tuple(workload.measure(serving(Client()))))
    assert [(value.point, len(value.turns)) for value in values] == [(1.0, 5), (50.0, 5)]
    assert values[1].value == pytest.approx(1254 / 0.050001541)


@pytest.mark.parametrize(
    ("name", "counts", "hint"),
    [
        ("end-not-found", "connect 0, read 0, write 0, status 8866", "`tare show` has the whole output"),
        ("end-broken-connections", "connect 0, read 39, write 0, status 0", "a server that closes idle connections"),
    ],
)
def test_errors_that_wrk_counted_fail_the_trial_and_are_quoted(name: str, counts: str, hint: str) -> None:
    with pytest.raises(TrialFailed) as failure:
        tuple(Nginx(clients=(50,)).measure(serving(Client(end=name))))
    assert str(failure.value) == f"wrk with 50 clients counted errors: {counts}"
    assert failure.value.hint.startswith(hint)
    assert failure.value.output is not None
    assert failure.value.output.text == sample(name)


@pytest.mark.parametrize(("size", "told"), [(6144, "1264 bytes an answer; the page has 6144"), (128, "has 128")])
def test_a_page_of_another_size_is_not_compared_as_if_it_were_the_suites(size: int, told: str) -> None:
    with pytest.raises(TrialFailed, match=told) as failure:
        tuple(Nginx(clients=(50,), size=size).measure(serving(Client())))
    assert failure.value.hint
    assert f"/file of {size} bytes" in failure.value.hint


def test_parts_of_pages_at_the_end_count_as_no_other_size() -> None:
    page = 16 << 20
    end = sample("end").replace("answers: 6471\nbytes: 8179344", f"answers: 60\nbytes: {100 * page}")
    output = Raw("end", ("wrk",), end, 0.1)
    check_end(output, 50, page)
    with pytest.raises(TrialFailed, match="the page has"):
        check_end(output, 30, page)


def test_a_wrk_that_says_nothing_of_errors_at_its_end_fails_the_trial() -> None:
    with pytest.raises(TrialFailed, match="did not end as it should"):
        tuple(Nginx(clients=(50,)).measure(serving(Client(end="clients-50"))))


def test_a_wrk_that_ends_in_a_turn_fails_the_trial_with_its_last_words() -> None:
    with pytest.raises(TrialFailed, match="ended; it printed") as failure:
        tuple(Nginx(clients=(50,)).measure(serving(Client(end="whole-second"))))
    assert failure.value.output is not None
    assert failure.value.output.stderr == b"unable to connect"


def test_wrk_ends_with_a_measurement_that_is_broken_off() -> None:
    client = Client()
    measuring = Nginx(clients=(50,)).measure(serving(client))
    assert isinstance(measuring, Generator)
    assert [next(measuring).warm_up for _ in range(3)] == [True, False, False]
    assert client.running == 1
    measuring.close()
    assert client.running == 0


def test_without_keep_alive_every_request_says_that_its_connection_ends() -> None:
    client = Client()
    tuple(Nginx(clients=(50,), keep_alive=False).measure(serving(client)))
    assert client.started[0].argv[-4:] == ("-H", "Connection: close", "http://198.18.0.10:18080/file", "50")


@pytest.mark.parametrize(("duration", "rounds"), [(0.1, 5), (0.4, 10), (1.0, 10), (2.0, 10), (3.0, 15)])
def test_a_measurement_is_divided_into_turns_of_20_to_200_milliseconds(duration: float, rounds: int) -> None:
    assert Nginx(duration=duration).rounds == rounds


# --- service and settings


@pytest.mark.parametrize("size", [1, 5, 1024, 65537])
def test_the_server_listens_on_the_given_address_and_serves_a_file_of_the_size(size: int) -> None:
    service = Nginx(size=size).service("198.18.0.10")
    (configuration_path, configuration), (file_path, content) = service.files
    assert service.argv[-2:] == ("-c", configuration_path)
    assert "listen 198.18.0.10:18080 " in configuration
    assert f"alias {file_path};" in configuration
    assert len(content.encode()) == size
    assert service.port == Nginx().port == 18080


def test_the_estimate_counts_a_first_turn_of_each_point_and_the_lead_of_each_turn() -> None:
    assert Nginx().seconds() == pytest.approx(3 * (0.1 + 11 * (0.1 + 0.02)))
    assert Nginx(clients=(1,), duration=3.0).seconds() == pytest.approx(0.1 + 16 * (0.2 + 0.02))

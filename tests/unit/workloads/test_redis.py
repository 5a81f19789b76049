from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from setups import serving

from tare.hosts.local import LocalHost
from tare.model.trials import Output, Raw
from tare.runner.values import read_values
from tare.workloads.redis import Redis

SAMPLES = Path(__file__).parents[2] / "samples/redis"
LABELS = ("GET 1", "GET 50", "GET 200", "SET 1", "SET 50", "SET 200")
HEAD = (SAMPLES / "get-1.csv").read_text().splitlines()[0]


CLOCK_SECONDS = 0.001  # redis-benchmark's


def captured(label: str) -> Raw:
    return Raw(label, ("redis-benchmark",), (SAMPLES / f"{label.lower().replace(' ', '-')}.csv").read_text(), 1.0)


@dataclass
class Client(LocalHost):
    """A client whose redis-benchmark meets a server of a given speed. It notes the calls and how long each sends.

    Its start takes 0.5 s, in which it works for 0.2 s, and half of its CPU while it sends.
    """

    requests_per_second: float
    calls: list[tuple[str, ...]] = field(default_factory=list)
    limits_seconds: set[float] = field(default_factory=set)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        self.limits_seconds.add(timeout)
        assert not input
        assert check
        self.calls.append(argv)
        operation = self.option("-t", -1).upper()
        rate = "inf" if self.sending_seconds(-1) < CLOCK_SECONDS else f"{self.requests_per_second:.2f}"
        row = f'"{operation}","{rate}"' + 6 * ',"0.100"'
        seconds = 0.5 + self.sending_seconds(-1)
        cpu_seconds = 0.2 + self.sending_seconds(-1) / 2
        return Output(argv, 0, f"{HEAD}\n{row}\n".encode(), b"", seconds, cpu_seconds)

    def option(self, name: str, call: int) -> str:
        return self.calls[call][self.calls[call].index(name) + 1]

    def sending_seconds(self, call: int) -> float:
        return int(self.option("-n", call)) / self.requests_per_second


def measure(workload: Redis, client: Client) -> Sequence[Raw]:
    return tuple(workload.measure(serving(client)))


# --- measure


@pytest.mark.parametrize("requests_per_second", [150_000.0, 3_000.0, 400.0])
def test_a_turn_takes_a_tenth_of_the_duration_whatever_the_server_does(requests_per_second: float) -> None:
    client = Client(requests_per_second)
    raw = [each for each in measure(Redis(clients=(1, 2)), client) if not each.warm_up]
    assert len(raw) == 10 * 4
    for each in raw:
        assert int(each.argv[each.argv.index("-n") + 1]) / requests_per_second == pytest.approx(0.1, rel=0.03)
    assert max(client.sending_seconds(call) for call in range(len(client.calls))) <= 0.7


def test_a_call_has_the_time_limit_of_a_turn_however_many_there_are() -> None:
    client = Client(150_000.0)
    measure(Redis(duration=60.0), client)
    assert client.limits_seconds == {32.0}


def test_the_turns_of_all_points_follow_one_another_in_each_round() -> None:
    raw = measure(Redis(clients=(1, 50), duration=0.06), Client(3_000.0))
    warming = ["fill", "probe GET 1", "probe GET 50", "probe SET 1", "probe SET 50"]
    assert [each.label for each in raw] == warming + 3 * ["GET 1", "GET 50", "SET 1", "SET 50"]
    assert [each.warm_up for each in raw] == 5 * [True] + 12 * [False]


@pytest.mark.parametrize("requests_per_second", [1_000_000.0, 150_000.0, 3_000.0, 40.0])
def test_a_stack_of_any_speed_has_as_many_turns_before_its_first_round(requests_per_second: float) -> None:
    raw = measure(Redis(operations=("GET",)), Client(requests_per_second))
    assert sum(each.warm_up for each in raw) == 4


def test_a_probe_is_repeated_until_it_takes_half_a_turn_and_the_next_point_begins_with_what_is_known() -> None:
    client = Client(150_000.0)
    measure(Redis(operations=("GET",), clients=(1, 50)), client)
    assert [client.option("-n", call) for call in range(5)] == ["1", "250", "15000", "15000", "15000"]


def test_a_probe_too_short_for_the_clock_of_redis_benchmark_is_followed_by_a_longer_one() -> None:
    client = Client(1_000_000.0)
    raw = measure(Redis(operations=("GET",), clients=(50,)), client)
    assert [client.option("-n", call) for call in range(4)] == ["1", "250", "25000", "100000"]
    assert '"inf"' in raw[0].text
    assert '"inf"' not in "".join(each.text for each in raw[1:])


def test_a_server_that_becomes_faster_gets_more_requests_in_the_next_turn() -> None:
    client = Client(1_000.0)
    for raw in Redis(operations=("GET",), clients=(1,)).measure(serving(client)):
        client.requests_per_second = 1_000.0 if raw.warm_up else 2_000.0
    assert [client.option("-n", call) for call in (-10, -9, -8)] == ["100", "100", "200"]


def test_what_was_measured_can_be_parsed_round_by_round() -> None:
    workload = Redis(clients=(1, 50))
    values = read_values(workload, measure(workload, Client(3_000.0)))
    assert [(value.value, value.turns) for value in values] == 4 * [(3000.0, 10 * (3000.0,))]


@pytest.mark.parametrize(
    ("clients", "duration", "rounds"),
    [((1, 50), 1.0, 10), ((63,), 0.4, 10), ((200,), 1.0, 7), ((1000,), 3.0, 4), ((1000,), 0.5, 1), ((1,), 0.01, 1)],
)
def test_no_turn_connects_for_longer_than_it_measures(clients: tuple[int, ...], duration: float, rounds: int) -> None:
    assert Redis(clients=clients, duration=duration).rounds == rounds


def test_every_client_sends_five_times_at_least() -> None:
    client = Client(1_000.0)
    measure(Redis(operations=("GET",), clients=(1000,), pipeline=2), client)
    assert client.option("-n", -1) == "10000"


@pytest.mark.parametrize("requests_per_second", [40.0, 3_001.0, 150_000.0])
def test_requests_are_whole_pipelines_or_redis_benchmark_may_take_the_end_for_a_lost_connection(
    requests_per_second: float,
) -> None:
    client = Client(requests_per_second)
    measure(Redis(operations=("GET",), clients=(1, 50), pipeline=16), client)
    assert [int(client.option("-n", call)) % 16 for call in range(len(client.calls))] == [0] * len(client.calls)


def test_the_settings_reach_redis_benchmark() -> None:
    client = Client(3_000.0)
    measure(Redis(operations=("SET",), clients=(7,), pipeline=16, keep_alive=False), client)
    command = ("redis-benchmark", "-h", "198.18.0.10", "-p", "16379", "-t", "set")
    assert client.calls[-1] == (*command, "-n", "560", "-c", "7", "-P", "16", "-k", "0", "--csv")


def test_a_key_is_set_before_anything_is_read() -> None:
    client = Client(3_000.0)
    assert measure(Redis(operations=("GET",)), client)[0].label == "fill"
    assert client.option("-t", 0) == "set"


def test_the_share_of_the_clients_cpu_is_that_of_the_time_of_sending_without_its_start() -> None:
    raw = measure(Redis(operations=("GET",), clients=(1,)), Client(3_000.0))
    assert {each.client_cpu for each in raw if each.warm_up} == {None}
    assert [each.client_cpu for each in raw if not each.warm_up] == pytest.approx(10 * [0.5], abs=0.01)


# --- service and settings


def test_the_server_listens_on_the_given_address_and_keeps_nothing_on_disk() -> None:
    service = Redis().service("198.18.0.10")
    words = service.argv
    assert (service.port, Redis().port, service.files) == (16379, 16379, ())
    assert [words[words.index(option) + 1] for option in ("--bind", "--port", "--save", "--appendonly")] == [
        "198.18.0.10",
        "16379",
        "",
        "no",
    ]


def test_the_estimate_counts_probes_and_connecting() -> None:
    assert Redis(clients=(1, 50)).seconds() == pytest.approx(0.1 + 4 * 1.1 + 2 * 12 * 0.06)
    assert Redis(operations=("GET",), clients=(1000,), duration=3.0).seconds() == pytest.approx(0.1 + 3.75 + 6 * 0.78)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from tare.contracts import Instance, Setup, Workload
from tare.errors import TrialFailed
from tare.hosts.local import LocalHost
from tare.model import Output, Raw, Value
from tare.workloads.nginx import Nginx

SAMPLES = Path(__file__).parents[2] / "samples/nginx"
CLIENTS = (1, 50, 200)
RATE_LINE = "Requests/sec:  49301.24\n"


def sample(name: str) -> str:
    return (SAMPLES / f"{name}.txt").read_text()


def captured(clients: int) -> Raw:
    return Raw(f"clients {clients}", ("wrk",), sample(f"clients-{clients}"), 1.0)


def fifty_clients_printed(text: str) -> list[Raw]:
    return [replace(captured(clients), text=text) if clients == 50 else captured(clients) for clients in CLIENTS]


@dataclass
class Client(LocalHost):
    """A client whose wrk prints what was captured for 50 clients. It notes the calls."""

    calls: list[tuple[str, ...]] = field(default_factory=list)

    def run(self, *argv: str, timeout: float, input: bytes | Path = b"", check: bool = True) -> Output:  # noqa: A002
        assert timeout > 0
        assert not input
        assert check
        self.calls.append(argv)
        return Output(argv, 0, sample("clients-50").encode(), b"", 1.0, 0.5)


def setup_at(address: str | None, client: Client) -> Setup:
    return Setup(Instance(name="tare-x", inside=None, address=address, path="bridge", processes=tuple), client, ())


# --- parse


def test_a_captured_run_gives_requests_a_second_for_each_number_of_clients() -> None:
    workload = Nginx(clients=(1, 50, 200, 1000))
    assert workload.parse([captured(clients) for clients in workload.clients]) == (
        Value("throughput", 1.0, 28530.59),
        Value("throughput", 50.0, 49301.24),
        Value("throughput", 200.0, 42880.27),
        Value("throughput", 1000.0, 42681.21),
    )


def test_a_captured_run_without_keep_alive_has_no_errors_either() -> None:
    raw = Raw("clients 50", ("wrk",), sample("clients-50-without-keep-alive"), 1.0)
    assert Nginx(clients=(50,), keep_alive=False).parse([raw]) == (Value("throughput", 50.0, 23855.93),)


def test_the_value_is_that_of_the_declared_metric() -> None:
    workload: Workload = Nginx()
    assert [(metric.name, metric.unit, metric.better) for metric in workload.metrics] == [
        ("throughput", "requests/s", "higher")
    ]
    assert workload.sweep is not None
    assert workload.sweep.name == "clients"


@pytest.mark.parametrize(
    ("name", "trouble"),
    [
        ("not-found", "Non-2xx or 3xx responses: 104852"),
        ("broken-connections", "Socket errors: connect 0, read 50, write 0, timeout 0"),
        ("overdue-answers", "Socket errors: connect 0, read 0, write 0, timeout 50"),
    ],
)
def test_errors_that_wrk_counted_fail_the_trial_and_are_quoted(name: str, trouble: str) -> None:
    with pytest.raises(TrialFailed) as failure:
        Nginx().parse(fifty_clients_printed(sample(name)))
    assert str(failure.value) == f"wrk with 50 clients: {trouble}"
    assert failure.value.hint


@pytest.mark.parametrize(("size", "told"), [(6144, "1264 bytes an answer; the page has 6144"), (128, "128")])
def test_a_page_of_another_size_is_not_compared_as_if_it_were_the_suites(size: int, told: str) -> None:
    with pytest.raises(TrialFailed, match=told) as failure:
        Nginx(size=size).parse([captured(clients) for clients in CLIENTS])
    assert failure.value.hint
    assert f"/file of {size} bytes" in failure.value.hint


def test_the_parts_of_pages_at_the_end_count_as_no_other_size() -> None:
    text = sample("clients-50").replace("49339 requests in 1.00s, 59.48MB", "60 requests in 1.00s, 1.62GB")
    workload = Nginx(clients=(50,), size=16 << 20)
    assert workload.parse([replace(captured(50), text=text)]) == (Value("throughput", 50.0, 49301.24),)


@pytest.mark.parametrize("number", ["0.00", "-1.00", "nan", "-nan", "inf", "", "fast", "1e400", "9" * 400 + ".0"])
def test_a_rate_that_is_no_positive_number_fails_the_trial_and_is_quoted(number: str) -> None:
    text = sample("clients-50").replace("49301.24", number)
    with pytest.raises(TrialFailed, match="no rate for 50 clients") as failure:
        Nginx().parse(fifty_clients_printed(text))
    assert f"Requests/sec:  {number}"[:60] in str(failure.value)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "unable to connect to 198.18.0.10:18080 Connection refused\n",
        sample("clients-200"),
        sample("clients-50").replace(RATE_LINE, ""),
        sample("clients-50").replace(RATE_LINE, 2 * RATE_LINE),
        sample("clients-50").replace("Running", "Ran"),
        sample("clients-50") + "Killed\n",
        2 * sample("clients-50"),
        sample("clients-50")[:60],
    ],
)
def test_an_output_that_is_not_one_whole_result_fails_the_trial_with_what_was_found(text: str) -> None:
    with pytest.raises(TrialFailed, match="no rate for 50 clients") as failure:
        Nginx().parse(fifty_clients_printed(text))
    assert repr(text[:50])[1:-1] in str(failure.value)


@pytest.mark.parametrize("clients", [(), (1, 50), (1, 50, 200, 1000), (200, 50, 1)])
def test_a_missing_or_surplus_point_fails_the_trial(clients: Sequence[int]) -> None:
    with pytest.raises(TrialFailed, match="expected outputs of"):
        Nginx().parse([captured(each) for each in clients])


# --- measure


def test_wrk_runs_once_for_each_number_of_clients_for_whole_seconds() -> None:
    client = Client()
    raw = tuple(Nginx(clients=(1, 50), duration=1.2).measure(setup_at("198.18.0.10", client)))
    command = ("wrk", "-t1", "-c50", "-d2s", "--timeout", "10s", "http://198.18.0.10:18080/file")
    assert [each.argv for each in raw] == client.calls
    assert client.calls[1] == command
    assert [each.label for each in raw] == ["clients 1", "clients 50"]
    assert [each.client_cpu for each in raw] == pytest.approx([0.5, 0.5])


def test_what_was_measured_can_be_parsed() -> None:
    workload = Nginx(clients=(50,))
    assert workload.parse(tuple(workload.measure(setup_at("198.18.0.10", Client())))) == (
        Value("throughput", 50.0, 49301.24),
    )


def test_without_keep_alive_every_request_says_that_its_connection_ends() -> None:
    client = Client()
    tuple(Nginx(clients=(50,), keep_alive=False).measure(setup_at("198.18.0.10", client)))
    assert client.calls[0][-3:] == ("-H", "Connection: close", "http://198.18.0.10:18080/file")


def test_an_instance_without_a_network_fails_the_trial() -> None:
    with pytest.raises(TrialFailed, match="has no network"):
        tuple(Nginx().measure(setup_at(None, Client())))


# --- service and settings


@pytest.mark.parametrize("size", [1, 5, 1024, 65537])
def test_the_server_listens_where_it_is_told_and_serves_a_file_of_the_size(size: int) -> None:
    service = Nginx(size=size).service("198.18.0.10")
    (configuration_path, configuration), (file_path, content) = service.files
    assert service.argv[-2:] == ("-c", configuration_path)
    assert "listen 198.18.0.10:18080 " in configuration
    assert f"alias {file_path};" in configuration
    assert len(content.encode()) == size
    assert service.port == Nginx().port == 18080


def test_the_settings_of_a_suite_are_read() -> None:
    wanted = {"clients": [1, 1000], "duration": "2s", "keep_alive": False, "size": "4KiB"}
    expected = Nginx(clients=(1, 1000), duration=2.0, keep_alive=False, size=4096)
    assert TypeAdapter(Nginx).validate_python(wanted) == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"clients": []},
        {"clients": [0]},
        {"clients": [50, 1]},
        {"clients": [1001]},
        {"duration": 1},
        {"duration": "0s"},
        {"size": "0B"},
        {"size": 1024},
        {"size": "1GiB"},
    ],
)
def test_settings_that_cannot_be_measured_are_refused_at_their_key(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as refusal:
        TypeAdapter(Nginx).validate_python(wrong)
    assert refusal.value.errors()[0]["loc"][0] in wrong


def test_wrong_settings_are_refused_in_python_too() -> None:
    with pytest.raises(ValueError, match="from 1 to 1000"):
        Nginx(clients=(1001,))
    with pytest.raises(ValueError, match="from 1B to 16MiB"):
        Nginx(size=0)


def test_the_estimate_counts_whole_seconds() -> None:
    assert Nginx().seconds() == pytest.approx(3.3)
    assert Nginx(clients=(1,), duration=1.5).seconds() == pytest.approx(2.1)

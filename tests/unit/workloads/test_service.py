"""A server of the user's: what its settings make of the server, of the load and of the metrics."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from tare.loads.http import HttpLoad, Request
from tare.loads.latency import LatencyLoad
from tare.loads.user_load import UserLoad, UserMetric
from tare.model.errors import SuiteError
from tare.model.image import Image
from tare.model.trial import Service, Sweep
from tare.suites.suite import parse_suite
from tare.workloads.service import UserServer

RATE = UserMetric(name="rate", unit="requests/s", better="higher", pattern="rate: ([0-9.]+)")
OWN = UserServer(load="wrk http://{address}:{port}", load_packages=("wrk",), metrics=(RATE,))
SUITE = '[suite]\nstacks = ["native"]\n[[workloads]]\nuse = "service"\n'


def in_suite(text: str) -> UserServer:
    workload = parse_suite(SUITE + text, "mine.toml").workloads[0].workload
    assert isinstance(workload, UserServer)
    return workload


# --- the server


def test_the_server_gets_its_address_in_its_command_and_in_its_files() -> None:
    workload = UserServer(
        command=("app", "--listen={listen}:{port}", "{other}", "--config", "/srv/app.conf"),
        port=8080,
        files={"/srv/app.conf": "listen {listen}:{port}; location / { return 204; }"},
    )
    service = workload.service("198.18.0.10")
    assert service.argv == ("app", "--listen=198.18.0.10:8080", "{other}", "--config", "/srv/app.conf")
    assert service.files == (("/srv/app.conf", "listen 198.18.0.10:8080; location / { return 204; }"),)
    assert service.port == workload.port == 8080


def test_a_server_takes_datagrams_on_its_port_only_if_the_suite_says_so() -> None:
    assert not in_suite("").datagrams
    assert in_suite("datagrams = true\n").datagrams


def test_a_line_is_split_into_words_that_no_shell_sees() -> None:
    service = UserServer(command="app --title 'two words' $HOME --on {listen}").service("::1")
    assert service.argv == ("app", "--title", "two words", "$HOME", "--on", "::1")


def test_the_server_is_the_users_and_may_be_the_images_own_command() -> None:
    service = in_suite('command = ""\n').service("::1")
    assert (service.argv, UserServer.has_user_server) == ((), True)
    assert in_suite('command = ""\n').programs == ()


HERE = Path("/image")
IMAGE = Image("0" * 64, HERE, HERE, HERE, HERE, HERE, "")
OTHERS = replace(IMAGE, start_command=("/usr/lib/tare/entrypoint",), ports=(80,))


def test_an_external_image_gives_command_and_port_unless_the_suite_does() -> None:
    server = in_suite("").adapt_to_image(OTHERS)
    assert (server.service("::1").argv, server.service("::1").port, server.port) == ((), 80, 80)
    assert in_suite('command = "--quick"\n').adapt_to_image(OTHERS).port == 80
    assert in_suite("port = 18080\n").adapt_to_image(OTHERS).port == 18080
    assert in_suite('command = "--port={port}"\n').adapt_to_image(OTHERS).port == 18080
    assert in_suite('files = { "/a" = "{port}" }\n').adapt_to_image(OTHERS).port == 18080
    assert in_suite("").adapt_to_image(replace(OTHERS, ports=())).port == 18080
    assert in_suite("").adapt_to_image(IMAGE) == in_suite("")


def test_an_image_that_exposes_several_ports_needs_one_in_the_suite() -> None:
    image = replace(OTHERS, ports=(80, 443))
    with pytest.raises(SuiteError, match="port: missing: the image exposes 80 and 443"):
        in_suite("").adapt_to_image(image)
    assert in_suite("port = 443\n").adapt_to_image(image).port == 443


@pytest.mark.parametrize(
    "settings",
    [
        'port = 18090\ncommand = "app --port {port}"\n',
        'port = 18090\ncommand = "app --on={listen}:18090"\n',
        'port = 18090\ncommand = "app"\n[workloads.files]\n"/srv/app.conf" = "listen {listen}:{port}"\n',
        'port = 18090\ncommand = "app"\n[workloads.files]\n"/srv/app.conf" = "listen 18090;"\n',
        'port = 18090\ncommand = "app"\n[image]\nfrom = "docker://registry.example/app:1"\n',
        'port = 18090\ncommand = "app"\n[image]\nfiles = { "/srv/app" = "app" }\n',
        'command = "app"\n',
    ],
)
def test_a_server_that_gets_its_port_or_may_have_its_own_is_taken(settings: str) -> None:
    assert in_suite(settings).port in {18080, 18090}


def test_it_is_ready_when_it_takes_connections_unless_it_has_a_path() -> None:
    assert UserServer(command="app").service("::1") == Service(("app",), 18080)
    workload = in_suite('ready = "/health"\nready_status = 204\nready_within = "2m"\n')
    service = workload.service("::1")
    assert (service.ready_path, service.ready_status, service.ready_seconds) == ("/health", 204, 120.0)


def test_the_image_has_its_packages_and_is_asked_for_its_program() -> None:
    workload = in_suite('command = ["python3", "-m", "http.server"]\npackages = ["python3"]\n')
    assert (workload.packages, workload.programs) == (("python3",), ("python3",))


# --- the load


def test_without_more_wrk_asks_for_the_first_page_without_a_pause() -> None:
    driver = UserServer(clients=(5,), duration=0.5, port=81).driver
    assert isinstance(driver, HttpLoad)
    assert (driver.requests_to_send, driver.clients, driver.duration, driver.port) == ((Request("/"),), (5,), 0.5, 81)
    assert driver.page_bytes == 0  # answers of any size


def test_with_rates_wrk_asks_on_a_schedule() -> None:
    workload = in_suite('rates = [2000, 4000]\nconnections = 20\nrequests = [{path = "/a"}, {path = "/b"}]\n')
    assert isinstance(workload.driver, LatencyLoad)
    assert (workload.driver.rates, workload.driver.connections) == ((2000, 4000), 20)
    assert workload.driver.requests_to_send == (Request("/a"), Request("/b"))
    assert workload.driver.page_bytes == 0
    assert workload.sweep == Sweep("rate", "requests/s")


def test_a_load_of_the_users_has_the_users_metrics_and_packages() -> None:
    assert isinstance(OWN.driver, UserLoad)
    assert OWN.driver.argv == ("wrk", "http://{address}:{port}")
    assert [(metric.name, metric.unit, metric.better) for metric in OWN.all_metrics] == [
        ("rate", "requests/s", "higher")
    ]
    assert (OWN.sweep, set(OWN.client_packages)) == (None, {"wrk", "curl"})


@pytest.mark.parametrize("workload", [UserServer(), UserServer(rates=(2000,)), OWN])
def test_what_the_plan_asks_is_asked_of_the_load(workload: UserServer) -> None:
    driver = workload.driver
    assert (workload.rounds, workload.estimate_seconds()) == (driver.rounds, driver.estimate_seconds())
    assert workload.all_metrics == driver.all_metrics
    assert workload.service_name == driver.service_name == "service"


# --- settings


def test_a_request_file_is_read_with_the_suite(tmp_path: Path) -> None:
    (tmp_path / "requests.jsonl").write_text('{"path": "/a"}\n{"path": "/b", "method": "PUT", "body": "x"}\n')
    workload = in_suite(f"requests = {json.dumps(str(tmp_path / 'requests.jsonl'))}\n")
    assert workload.requests == (Request("/a"), Request("/b", "PUT", {}, "x"))


def test_a_request_file_that_is_not_there_is_refused_at_its_key() -> None:
    with pytest.raises(SuiteError, match=r'workloads\[0\]\.requests: "none" cannot be used'):
        in_suite('requests = "none"\n')


def test_metrics_of_a_suite_are_read() -> None:
    text = 'load = "hey http://{address}:{port}/"\n[[workloads.metrics]]\nname = "rate"\nunit = "requests/s"\n'
    workload = in_suite(text + 'better = "higher"\npattern = "rate: ([0-9.]+)"\n')
    assert workload.metrics == (RATE,)


def test_settings_of_two_loads_at_once_are_refused() -> None:
    with pytest.raises(ValueError, match="requests and rates are of tare's loads"):
        UserServer(load="x", metrics=(RATE,), rates=(2000,))
    with pytest.raises(ValueError, match="requests and rates are of tare's loads"):
        UserServer(load="x", metrics=(RATE,), requests=(Request("/"),))
    with pytest.raises(ValueError, match="load and metrics belong together"):
        UserServer(metrics=(RATE,))
    with pytest.raises(ValueError, match="there are two metrics named rate"):
        UserServer(load="x", metrics=(RATE, RATE))


def test_requests_in_python_are_taken_as_they_are() -> None:
    adapter = TypeAdapter(UserServer)
    assert adapter.validate_python({"requests": (Request("/a"),)}).requests == (Request("/a"),)
    with pytest.raises(ValidationError):
        adapter.validate_python({"requests": ("/a",)})

"""A server of the user's with the real loads: what is asked for arrives, and what goes wrong is told."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter
from dataclasses import replace
from statistics import fmean

import pytest
from begun import answering, begun, whole_trial
from own_testbed import spec_of

from tare.hosts.local import LocalHost
from tare.images.micro import SERVER
from tare.loads.application import Application, ApplicationLoad, UserService
from tare.loads.http import HTTP_PORT, Request
from tare.loads.user_load import UserMetric
from tare.model.errors import TimedOut, TrialFailed
from tare.model.image import ImageSpec
from tare.plugins import registry
from tare.plugins.workload import MeasurementContext
from tare.runner.context import RunContext
from tare.runner.layers import start_stack
from tare.runner.sanity_checks import _IDLE_CPUS
from tare.runner.service import start_service
from tare.runner.trial import TrialRun
from tare.runner.trial_log import TrialLog
from tare.runner.values import read_values
from tare.suites.plan import PlannedTrial
from tare.technologies.native import Native
from tare.workloads.application import ApplicationWorkload
from tare.workloads.service import UserServer

pytestmark = pytest.mark.machine

LOG = "/srv/tare-app.log"
CONFIGURATION = """\
daemon off;
user root;
pid /srv/tare-app.pid;
error_log stderr;
worker_processes 1;
events { worker_connections 400; }
http {
    log_format plain "$request_method $request_uri $http_x_word $content_length";
    access_log /srv/tare-app.log plain;
    server {
        listen {listen}:{port};
        location = /health { access_log off; return 204; }
        location = /lost { return 404; }
        location / { return 200 "tare\\n"; }
    }
}
"""
REQUESTS = (
    Request("/"),
    Request("/search?q=%22x%22", "POST", {"X-Word": 'a "b" \\'}, "café"),
    Request("/item", "DELETE", {"X-Word": "c"}),
)
LINES = ["GET / - -", "POST /search?q=%22x%22 a \\x22b\\x22 \\x5C 5", "DELETE /item c -"]  # as nginx escapes quotes
NGINX = UserServer(
    command="nginx -e stderr -c /srv/tare-app.conf",
    files={"/srv/tare-app.conf": CONFIGURATION},
    port=18081,
    ready="/health",
    ready_status=204,
    requests=REQUESTS,
    clients=(1,),
    duration=0.1,
)


CLOSING = replace(NGINX, files={"/srv/tare-app.conf": CONFIGURATION.replace("http {", "http { keepalive_timeout 0;")})


# It takes one connection at a time, and sleeps for 40 ms before each answer.
SLEEPER = r"""
use IO::Socket::INET;
my $server = IO::Socket::INET->new(LocalAddr => "{listen}", LocalPort => {port}, Listen => 9, ReuseAddr => 1) or die;
while (my $client = $server->accept) {
    while (defined(my $line = <$client>)) {
        next unless $line =~ /^\r?\n/;
        select(undef, undef, undef, 0.04);
        print $client "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    }
}
"""
SLOW = UserServer(command="perl /srv/sleeper", files={"/srv/sleeper": SLEEPER}, clients=(1,), duration=2.0)
QUIET_WITHIN_SECONDS = 30.0
LITTLE = 0.05  # of a CPU, which other work and a server that sleeps use together on a machine that rests


def asked_for(setup: MeasurementContext) -> list[str]:
    """What nginx has noted of each request."""
    assert setup.instance.inside is not None
    return setup.instance.inside.read(LOG).splitlines()


def test_a_server_that_closes_each_connection_is_measured_with_a_caution(testbed: RunContext) -> None:
    trial, _ = whole_trial(testbed, (Native(),), CLOSING)
    assert (trial.status, trial.reason) == ("ok", "")
    (text,) = (each.text for each in trial.cautions if "were to stay open" in each.text)
    found = re.fullmatch(r"at clients 1, the server closed (\d+) connections that .* opened new ones", text)
    assert found is not None
    assert int(found[1]) > CLOSING.rounds


@pytest.mark.parametrize("technology", ["native", "crun"])
def test_requests_arrive_verbatim_in_order_and_are_repeated(testbed: RunContext, technology: str) -> None:
    with answering(testbed, NGINX, registry.find("technologies", technology)()) as setup:
        values = read_values(NGINX, tuple(NGINX.measure(setup)))
        lines = asked_for(setup)
    assert [(value.metric, value.point, len(value.turns)) for value in values] == [("throughput", 1.0, 5)]
    assert len(lines) > 30
    assert [line for number, line in enumerate(lines) if line != LINES[number % 3]] == []


@pytest.mark.parametrize(
    ("workload", "waits"),
    [pytest.param(SLOW, True, marks=pytest.mark.slow), (UserServer(clients=(1,), duration=0.5), False)],
)
def test_only_a_server_that_sleeps_before_each_answer_gets_a_caution(
    testbed: RunContext, workload: UserServer, waits: bool
) -> None:
    until = time.monotonic() + QUIET_WITHIN_SECONDS
    while True:
        step = PlannedTrial("service-0", "service", "native", 0, 0)
        with TrialRun(testbed, step, testbed.create_spec(Native()), workload) as attempt:
            attempt.start()
            attempt.measure_from(0)
            while attempt.run_turn(0, time.monotonic()):
                pass
            busy_cpus = fmean(attempt.log.busy_cpus["clients 1"])
            attempt.end()
            trial, _ = attempt.to_finished_trial()
        assert trial.status == "ok", trial.reason
        told = "waiting" in {caution.kind for caution in trial.cautions}
        if told or not waits or busy_cpus < LITTLE or time.monotonic() > until:
            break
    assert told <= waits
    assert not told or busy_cpus < _IDLE_CPUS
    # Where other programs keep the server's CPU busy all the time, nobody can see who waits.
    assert told or not waits or busy_cpus >= LITTLE


def test_a_schedule_has_as_many_of_each_request(testbed: RunContext) -> None:
    workload = replace(NGINX, rates=(1000,), connections=4, duration=1.0)
    with answering(testbed, workload) as setup:
        values = read_values(workload, tuple(workload.measure(setup)))
        asked = Counter(asked_for(setup))
    assert {value.metric for value in values} == {"p50", "p90", "p99", "p999", "answered"}
    # 100 warm up; with the last ones, which end wrk, each connection may send the first request once more.
    assert (asked[LINES[1]], asked[LINES[2]]) == (367, 366)
    assert 367 <= asked[LINES[0]] <= 371


def test_a_load_of_the_users_drives_the_server_from_the_client(testbed: RunContext) -> None:
    seconds = UserMetric(name="answer", unit="s", better="lower", pattern="^took ([0-9.]+)$")
    load = ("curl", "--silent", "--output", "/dev/null", "--write-out", "took %{time_total}\n", "{address}:{port}/own")
    workload = replace(NGINX, requests=(), load=load, metrics=(seconds,))
    with answering(testbed, workload) as setup:
        raw = tuple(workload.measure(setup))
        asked = asked_for(setup)
    (value,) = read_values(workload, raw)
    assert set(asked) == {"GET /own - -"}
    assert len(asked) == len(raw) == 1 + max(1, len(value.turns))
    assert all(each.client_cpu is not None for each in raw)


def test_an_answer_with_another_status_fails_the_trial(testbed: RunContext) -> None:
    workload = replace(NGINX, requests=(*REQUESTS, Request("/lost")))
    with (
        answering(testbed, workload) as setup,
        pytest.raises(TrialFailed, match=r"counted errors at clients 1: connect 0, read 0, status [1-9]"),
    ):
        tuple(workload.measure(setup))


@pytest.mark.parametrize(
    ("ready", "told"),
    [("/lost", "does not answer /lost with status 204 within 0.3 s; the last answer: status 404"), ("/", "status 200")],
)
def test_a_server_that_answers_otherwise_is_never_ready(testbed: RunContext, ready: str, told: str) -> None:
    with (
        begun(testbed, replace(NGINX, ready=ready, ready_within=0.3)) as (server, _),
        pytest.raises(TimedOut, match=re.escape(told)),
    ):
        server.await_ready(testbed.client)


def test_a_server_whose_port_is_in_use_never_becomes_ready(testbed: RunContext) -> None:
    workload = UserServer(ready="/")
    with answering(testbed, workload) as setup, start_service(setup.instance, workload) as second:
        process = second.process
        assert process is not None
        while process.is_running():
            time.sleep(0.05)
        with pytest.raises(TrialFailed, match="does not answer"):
            second.await_ready(testbed.client)
        assert "in use" in second.failure_reason()


ELSEWHERE = "import socket, time; s = socket.create_server(('', {port})); print('ready', flush=True); time.sleep(600)"


def test_on_the_machines_own_network_only_the_instances_server_may_answer(testbed: RunContext) -> None:
    with (
        LocalHost().spawn(sys.executable, "-c", ELSEWHERE.replace("{port}", "18092")) as other,
        start_stack(testbed, spec_of(testbed, Native(network="host")), TrialLog()) as (part,),
    ):
        other.read_line(60)
        absent, present = replace(NGINX, command="sleep 600", port=18092), NGINX
        with (
            start_service(part.instance, absent, host=part.host) as server,
            pytest.raises(TrialFailed, match=rf"port 18092: python\S* \(process {other.pid}\), which is not the inst"),
        ):
            server.await_ready(testbed.client)
        with start_service(part.instance, present, host=part.host) as server:
            server.await_ready(testbed.client)


# --- an application on real instances: the service under test finds those beside it by name, and the load ---


PROXY = """\
daemon off;
user root;
pid /srv/tare-web.pid;
error_log stderr;
worker_processes 1;
events { worker_connections 64; }
http {
    access_log off;
    server {
        listen 18081;
        location / { proxy_pass http://stock:18080; }
    }
}
"""
# nginx looks the name up when it starts, and ends if it does not find it.
WRITTEN = 'printf %s "$1" > /srv/tare-web.conf && exec nginx -e stderr -c /srv/tare-web.conf'
SHOP = Application(
    name="shop",
    under_test=UserService("web", ImageSpec(), ("sh", "-c", WRITTEN, "sh", PROXY), 18081, ready="/"),
    beside=(UserService("stock", ImageSpec(), (SERVER, "--listen", "{listen}"), HTTP_PORT, ready="/"),),
    load=ApplicationLoad(
        ("curl", "--silent", "--output", "/dev/null", "--write-out", "status %{http_code}\n", "{address}:{port}/"),
        (UserMetric(name="status", better="higher", pattern="^status ([0-9]+)$"),),
    ),
)


@pytest.mark.parametrize("technology", ["native", "crun", "docker", "qemu-tcg"])
def test_the_service_under_test_finds_the_one_beside_it_by_its_name(testbed: RunContext, technology: str) -> None:
    here = replace(testbed, images=replace(testbed.images, sidecars={ImageSpec(): testbed.images.main}))
    trial, _ = whole_trial(here, (registry.find("technologies", technology)(),), ApplicationWorkload(SHOP))
    assert (trial.reason, trial.status) == ("", "ok")
    status, ready = trial.values
    assert (status.metric, status.value, ready.metric) == ("status", 200.0, "service-ready")
    assert testbed.live_instances == []

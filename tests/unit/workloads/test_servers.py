"""The servers of workloads: their commands and files, whose load drives them, and how long that takes."""

from __future__ import annotations

from dataclasses import fields
from functools import partial

import pytest

from tare.loads.memory_at_rate import FixedRateLoad
from tare.plugins.workload import Workload
from tare.workloads.apache import Apache
from tare.workloads.apache_memory import ApacheMemory
from tare.workloads.bind import Bind
from tare.workloads.bonnie import Bonnie
from tare.workloads.dbench import Dbench
from tare.workloads.dhrystone import Dhrystone
from tare.workloads.iperf3 import Iperf3
from tare.workloads.kernel_build import KernelBuild
from tare.workloads.lighttpd import Lighttpd
from tare.workloads.lighttpd_memory import LighttpdMemory
from tare.workloads.micro_http import MicroHttp
from tare.workloads.micro_redis import MicroRedis
from tare.workloads.nginx import Nginx
from tare.workloads.nginx_latency import NginxLatency
from tare.workloads.nginx_memory import NginxMemory
from tare.workloads.pgbench import Pgbench
from tare.workloads.ramspeed import Ramspeed
from tare.workloads.redis import Redis
from tare.workloads.redis_density import RedisDensity
from tare.workloads.redis_memory import RedisMemory
from tare.workloads.service import UserServer
from tare.workloads.startup import Startup
from tare.workloads.sysbench import Sysbench
from tare.workloads.whetstone import Whetstone

MIB = 1 << 20
redis_benchmark = partial(Redis, load="redis-benchmark")


@pytest.mark.parametrize(
    ("workload", "line", "written"),
    [
        (
            Apache(),
            "/usr/sbin/apache2 -D FOREGROUND -f /srv/tare-apache.conf",
            {
                "/srv/tare-apache.conf": (
                    "\nListen 198.18.0.10:18080\n",
                    "\nIncludeOptional mods-enabled/*.load\nIncludeOptional mods-enabled/*.conf\n",
                    "\nAlias /file /srv/tare-apache-file\n",
                    '\nLogFormat "%h %l %u %t \\"%r\\" %>s %O \\"%{Referer}i\\" \\"%{User-Agent}i\\"" combined\n',
                    "\nCustomLog /dev/null combined\n",  # a log would fill the instance's disk
                )
            },
        ),
        (
            Bind(),
            "/usr/sbin/named -g -c /srv/tare-named.conf",
            {
                "/srv/tare-named.conf": (
                    "listen-on port 15353 { 198.18.0.10; };",
                    'zone "tare.test" { type primary; file "/srv/tare-zone"; };',
                    "recursion no;",
                ),
                "/srv/tare-zone": ("www IN A 192.0.2.2",),
            },
        ),
        (
            Lighttpd(),
            "/usr/sbin/lighttpd -D -f /srv/tare-lighttpd.conf",
            {
                "/srv/tare-lighttpd.conf": (
                    'server.bind = "198.18.0.10"\nserver.port = 18080\n',
                    'alias.url = ("/file" => "/srv/tare-lighttpd-file")',
                )
            },
        ),
        (
            Nginx(),
            "/usr/sbin/nginx -e stderr -c /srv/tare-nginx.conf",
            {"/srv/tare-nginx.conf": ("listen 198.18.0.10:18080 ", "alias /srv/tare-nginx-file;")},
        ),
        (
            Redis(),
            (
                "/usr/bin/redis-server --port 16379 --bind 198.18.0.10 --protected-mode no --tcp-backlog 1024 --save  "
                "--appendonly no --maxclients 4000 --daemonize no"
            ),
            {},
        ),
        (
            Pgbench(),
            "/bin/sh /srv/tare-postgres.sh 198.18.0.10 15432 /srv/tare-files",
            {"/srv/tare-postgres.sh": ("--reuid=postgres", 'initdb" --pgdata="$3"', '-D "$3"')},
        ),
        (Pgbench(place="volume"), "/bin/sh /srv/tare-postgres.sh 198.18.0.10 15432 /srv/tare-volume/files", {}),
        *((each, "/usr/lib/tare/micro --listen 198.18.0.10", {}) for each in (MicroHttp(), MicroRedis())),
    ],
)
def test_a_server_is_started_on_the_given_address_with_its_files(
    workload: Workload, line: str, written: dict[str, tuple[str, ...]]
) -> None:
    service = workload.service("198.18.0.10")
    assert service is not None
    files = dict(service.files)
    assert " ".join(service.argv) == line
    for path, texts in written.items():
        assert all(text in files[path] for text in texts)
    assert "fsync" not in "".join(files.values()), "every server has its usual one"


@pytest.mark.parametrize("size", [1, 5, 1024, 65537])
@pytest.mark.parametrize("kind", [Apache, Lighttpd, Nginx])
def test_a_server_of_a_page_has_a_file_of_its_size(kind: type[Apache | Lighttpd | Nginx], size: int) -> None:
    (path,) = kind.paths
    assert len(dict(kind(size=size).service("198.18.0.10").files)[path].encode()) == size


def test_bind_listens_on_every_address_for_its_one_name_and_over_udp() -> None:
    (_, configuration), _ = Bind().service("0.0.0.0").files  # noqa: S104 - as in an instance
    assert "listen-on port 15353 { any; };" in configuration
    assert (Bind.question, Bind.datagrams, Bind.usual_port) == ("www.tare.test A", True, 53)


# --- workloads that drive the server of another one


def test_micro_servers_have_the_usual_load_and_a_page_without_a_size() -> None:
    http, redis = MicroHttp(), MicroRedis()
    assert {each.name for each in fields(Nginx)} - {each.name for each in fields(http)} == {"size"}
    assert [each.name for each in fields(Redis)] == [each.name for each in fields(redis)]
    assert (http.metrics, http.sweep, http.estimate_seconds()) == (
        Nginx.metrics,
        Nginx.sweep,
        Nginx().estimate_seconds(),
    )
    assert (redis.metrics, redis.sweep, redis.estimate_seconds()) == (
        Redis.metrics,
        Redis.sweep,
        Redis().estimate_seconds(),
    )


@pytest.mark.parametrize(
    ("workload", "load"),
    [
        (RedisMemory(), redis_benchmark(operations=("SET",), clients=(50,), duration=0.5)),
        (
            RedisMemory(operation="GET", clients=7, duration=2.0),
            redis_benchmark(operations=("GET",), clients=(7,), duration=2.0),
        ),
        (NginxMemory(), Nginx((50,), 0.5, size=1024, load="wrk")),
        (NginxMemory(clients=7, size=4096, duration=2.0), Nginx((7,), 2.0, size=4096, load="wrk")),
        # The papers' page at the papers' rate, in runs that take the duration together.
        (ApacheMemory(goal=0.75), FixedRateLoad(Apache(duration=0.2, tolerance=0.25), 4000)),
        (
            LighttpdMemory(rate=500, duration=10.0, size=4096, timeout=0.3, goal=0.5),
            FixedRateLoad(Lighttpd(duration=2.0, tolerance=0.5, timeout=0.3, size=4096), 500),
        ),
    ],
)
def test_the_load_that_looks_for_the_smallest_memory_has_its_settings(
    workload: RedisMemory | NginxMemory | ApacheMemory | LighttpdMemory, load: Workload
) -> None:
    assert workload.load == load


@pytest.mark.parametrize(
    ("workload", "of"),
    [
        (RedisMemory(), Redis()),
        (NginxMemory(), Nginx()),
        (ApacheMemory(), Apache()),
        (LighttpdMemory(), Lighttpd()),
        (RedisDensity(), Redis()),
    ],
)
def test_the_server_is_that_of_the_workload_that_drives_it(workload: Workload, of: Workload) -> None:
    assert (workload.service_name, workload.port, workload.usual_port) == (of.name, of.port, of.usual_port)
    assert (workload.packages, workload.client_packages, workload.paths) == (of.packages, of.client_packages, of.paths)
    assert workload.service("0.0.0.0") == of.service("0.0.0.0")  # noqa: S104 - nothing listens


def test_the_latency_of_nginx_is_that_of_its_server_and_its_file() -> None:
    assert NginxLatency().service("198.18.0.10") == Nginx(size=1024).service("198.18.0.10")
    assert (NginxLatency().port, NginxLatency.paths) == (Nginx().port, Nginx.paths)


# --- turns and estimates


@pytest.mark.parametrize(
    ("workload", "rounds"),
    [
        # Turns of 20 to 200 milliseconds.
        *(
            (Nginx(duration=seconds, load="wrk"), rounds)
            for seconds, rounds in ((0.1, 5), (0.4, 10), (2.0, 10), (3.0, 15))
        ),
        *((Sysbench(seconds), rounds) for seconds, rounds in ((0.1, 5), (1.0, 10), (4.0, 20))),
        (Iperf3(duration=180.0, omit=10.0), 900),
        # Turns of 5 milliseconds, longer with more than 125 clients, and at most 200.
        *((Nginx(duration=seconds), rounds) for seconds, rounds in ((0.004, 1), (0.1, 13), (1.0, 125), (60.0, 200))),
        *((Redis(clients=clients, duration=0.5), rounds) for clients, rounds in (((1, 50), 100), ((1, 1000), 13))),
        # A user-supplied server may be slow.
        (UserServer(duration=0.4), 10),
        # No turn connects for longer than it measures.
        *((redis_benchmark(clients=clients), rounds) for clients, rounds in (((1, 50), 10), ((200,), 7))),
        (redis_benchmark(clients=(63,), duration=0.4), 10),
        (redis_benchmark(clients=(1000,), duration=3.0), 4),
        (redis_benchmark(clients=(1000,), duration=0.5), 1),
        (redis_benchmark(clients=(1,), duration=0.01), 1),
        # Every turn has a thousand requests at least.
        (NginxLatency(rates=(1000,), duration=5.0), 5),
        (NginxLatency(rates=(500, 9000), duration=5.0), 3),
        (NginxLatency(rates=(100_000,), duration=1.0), 10),
        (NginxLatency(rates=(1000,), duration=1.0), 1),
        # One stack after the other.
        *((each, 1) for each in (Bonnie(), Dbench(), KernelBuild(), RedisMemory(), RedisDensity(), ApacheMemory())),
    ],
)
def test_a_measurement_is_divided_into_turns(workload: Workload, rounds: int) -> None:
    assert workload.rounds == rounds


@pytest.mark.parametrize(
    ("workload", "seconds"),
    [
        (Nginx(load="wrk"), 3 * (0.1 + 11 * (0.1 + 0.02))),  # a first turn of each point, and the lead of each turn
        (Nginx(clients=(1,), duration=3.0, load="wrk"), 0.1 + 16 * (0.2 + 0.02)),
        (NginxLatency(rates=(500, 1000), duration=2.0), 0.2 + 2 * (2.0 + 0.2 + 0.02)),  # a tenth of a turn before
        # What is discarded, what counts, and the rest until all responses have arrived.
        (Nginx(clients=(1, 50)), 2 * 0.05 + 201 * (0.01102 + 0.012)),
        (Redis(clients=(1, 200), duration=0.1), 0.1 + 2 * (2 * 0.05 + 14 * (0.01402 + 0.018))),
        (redis_benchmark(clients=(1, 50)), 0.1 + 4 * 1.1 + 2 * 12 * 0.06),  # probes and connecting
        (redis_benchmark(operations=("GET",), clients=(1000,), duration=3.0), 0.1 + 3.75 + 6 * 0.78),
        (Pgbench(), 8 * 1.0 + 4 * 12 * (0.05 + 0.2)),  # filling, probes and connecting
        (Iperf3(duration=180.0, omit=10.0), 0.05 + 3 * (2 + 50 + 900) * 0.23),
        *((Sysbench(seconds), 0.1 + 1.1 * seconds + seconds / 10 + 0.01 * 10) for seconds in (1.0, 2.0)),
        *((kind(duration=10.0), 20.1) for kind in (Dhrystone, Whetstone)),  # with what does not count of each turn
        (Ramspeed(("sse",), (), 128_000_000, bytes_per_pass=1500 * 128, passes=10), 0.3 + 10 * 4 * 384_000_000 / 6e9),
        (Bonnie(runs=2), 2 * (5 + 8 * 512 * MIB / 300e6 + 20 * MIB / 4e6)),
        (Dbench(), 12 * 6.5),  # with the warm-ups
        (Startup(), 0.0),  # every trial's estimate includes the start
    ],
)
def test_the_estimate_counts_all_that_a_measurement_takes(workload: Workload, seconds: float) -> None:
    assert workload.estimate_seconds() == pytest.approx(seconds)

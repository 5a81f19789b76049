"""Loads that two clients over SSH share: what they count, their schedule, and one that is lost."""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from calls import Begin
from ssh_machines import Lab, suite_on
from waiting import ENOUGH_SECONDS as SECONDS
from waiting import wait_until, wait_with
from whole_runs import IMAGE

from tare.hosts.exec import SUPERVISE
from tare.hosts.host import Host
from tare.hosts.ledger import Ledger
from tare.hosts.local import LocalHost
from tare.hosts.network import Network
from tare.hosts.ssh import connect_machine
from tare.images.image import copy_to_host, ensure_image
from tare.images.recipes import client_recipe
from tare.loads.client_load import split_client_texts
from tare.loads.user_load import ClosedLoopHttpLoad, ConstantRateHttpLoad
from tare.model.errors import TareError, TimedOut
from tare.model.files import read_text
from tare.model.image import Image
from tare.model.machine import Hosts, SshTarget
from tare.model.run_folder import load_raw, load_run
from tare.model.trial import RawOutput
from tare.plugins.instance import Instance
from tare.plugins.workload import MeasurementContext
from tare.runner.machines import connect_machines, create_client

pytestmark = [pytest.mark.machine, pytest.mark.ssh]

ADDRESS = "198.19.242.1"  # of the server, as both clients see it
ANSWER_BYTES = len("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ntare\n")
COUNTING = """
import asyncio, sys
answered = 0
class Server(asyncio.Protocol):
    def connection_made(self, transport):
        self.transport = transport
    def data_received(self, data):
        global answered
        count = data.count(b"\\r\\n\\r\\n")
        answered += count
        self.transport.write(count * b"HTTP/1.1 200 OK\\r\\nContent-Length: 5\\r\\n\\r\\ntare\\n")
async def main():
    loop = asyncio.get_running_loop()
    await loop.create_server(Server, sys.argv[1], 18080)
    print("up", flush=True)
    await loop.run_in_executor(None, sys.stdin.readline)
    print(answered, flush=True)
asyncio.run(main())
"""
SHARED = f"""\
[suite]
stacks = ["native"]
blocks = 3
until = "blocks"
{IMAGE}
[[workloads]]
use = "nginx"
clients = [4]
duration = "1s"
"""
# All connections to a machine end, but its SSH server does not: that is its first process.
CUT = 'for process in $(pidof sshd); do [ "$process" = 1 ] || kill -KILL "$process"; done'


@pytest.fixture(scope="module")
def clients(there: Lab, suite_images: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, ...]]:
    """Both of them as hosts, with the load generators."""
    assert suite_images
    loads, folder = ensure_image(lambda _: None, client_recipe()), tmp_path_factory.mktemp("ledgers")
    with ExitStack() as stack:
        yield tuple(stack.enter_context(_client(each, loads, folder / each.ssh)) for each in there.clients)


@contextmanager
def _client(target: SshTarget, loads: Image, folder: Path) -> Iterator[Host]:
    with connect_machine(LocalHost(), target, f"/run/{target.ssh}.ssh", loads.root / SUPERVISE[1:]) as host:
        ledger, place = Ledger(folder / "ledger.jsonl", host, target), Path("/var/lib/tare/instances")
        host.run("mkdir", "-p", str(place), timeout=SECONDS)
        root = copy_to_host(host, loads)
        network = Network("tare-test", ipaddress.IPv4Network("198.18.0.0/24"), ledger, client_is_local=False)
        with (
            ledger.open_setup_helper(root.root),
            create_client(ledger, network, root, (0,), place / "tare-test-client") as client,
        ):
            yield client


@contextmanager
def _counting() -> Iterator[Callable[[], int]]:
    """Run a server that counts its answers on the server; yield what ends it and says how many there were."""
    enter = ("ip", "netns", "exec", "tare-test-server")
    with LocalHost().spawn(*enter, sys.executable, "-c", COUNTING, ADDRESS) as process:
        assert process.read_line(SECONDS).text == "up"

        def answered() -> int:
            process.send("end\n")
            return int(process.read_line(SECONDS).text)

        yield answered


def _setup(clients: tuple[Host, ...], patience_seconds: float = 30.0) -> MeasurementContext:
    first, *further = clients
    instance = Instance("tare-x", None, ADDRESS, "bridge", processes=tuple)
    return MeasurementContext(
        instance, first, (), timeout_margin_seconds=patience_seconds, extra_clients=tuple(further)
    )


def _numbers(name: str, raw: RawOutput) -> list[float]:
    """Return the numbers that each client has printed under a name."""
    found = [re.search(rf"^{name}: (\S+)$", text, re.MULTILINE) for text in split_client_texts(raw.text)]
    return [float(each[1]) for each in found if each]


def test_what_both_clients_count_is_what_the_server_has_answered(
    clients: tuple[Host, ...],
) -> None:
    workload = ClosedLoopHttpLoad(clients=(1, 5), duration=0.5)
    with _counting() as answered:
        raw = tuple(workload.measure(_setup(clients)))
        # A turn ends when all its requests are answered, so that the server has answered no others.
        assert sum(sum(_numbers("bytes", each)) for each in raw) == ANSWER_BYTES * answered()
    alone, shared = ([each for each in raw if each.label == f"clients {n}" and not each.warm_up] for n in (1, 5))
    assert len(alone) == len(shared) == workload.rounds
    assert all(len(split_client_texts(each.text)) == 1 and each.clients_cpu == () for each in alone)
    for each in shared:
        requests, seconds = _numbers("requests", each), _numbers("seconds", each)
        assert len(requests) == len(_numbers("behind", each)) == len(each.clients_cpu) == 2
        (value,) = ClosedLoopHttpLoad(clients=(5,), duration=0.5).parse([each])
        # Never more than both have seen by their own clocks.
        assert 0 < value.value <= 1.000001 * sum(n / s for n, s in zip(requests, seconds, strict=True))


def test_both_clients_share_a_schedule_and_percentiles_cover_all_requests(
    clients: tuple[Host, ...],
) -> None:
    workload = ConstantRateHttpLoad(rates=(1000,), connections=20, duration=1.0)
    with _counting():
        *_, raw = workload.measure(_setup(clients))
    values = {value.metric: value.value for value in workload.parse([raw])}
    assert _numbers("requests", raw) == [500, 500]
    # The way to one client takes 4 ms longer than to the other: half of all requests do.
    (far, near), (slow, quick) = _numbers("p50", raw), _numbers("p90", raw)
    assert min(near, far) <= 1.001 * values["p50"] <= 1.002 * max(near, far)
    assert values["p90"] <= 1.001 * max(slow, quick)
    assert far >= 0.004


def test_a_client_that_stands_still_fails_the_load_by_its_number(there: Lab, clients: tuple[Host, ...]) -> None:
    workload = ClosedLoopHttpLoad(clients=(4,), duration=0.2)
    with _counting(), ExitStack() as stack:
        turns = workload.measure(_setup(clients, patience_seconds=1.0))
        stack.callback(turns.close)  # type: ignore[attr-defined] # it is a generator
        assert next(iter(turns)).warm_up
        there.on("client-2", "kill -STOP $(pidof load_client)")
        with pytest.raises(TimedOut, match=r"^client 2: /usr/lib/tare/load_client: printed nothing for "):
            tuple(turns)
    wait_until(lambda: "load_client" not in there.programs("client-2"))


@pytest.mark.slow
@pytest.mark.usefixtures("ready_home")
def test_a_client_that_is_lost_costs_a_block_and_not_the_run(begin: Begin, tmp_path: Path, there: Lab) -> None:
    path, before = suite_on(tmp_path, SHARED, there.clients, server=there.server), there.left()
    with begin("run", path, "--out", tmp_path / "run") as process:

        def has_come() -> bool:
            is_second = "block 1 of 3" in read_text(str(tmp_path / "said"))
            return is_second and "load_client" in there.programs("client-2")

        wait_with(process, has_come)
        there.on("client-2", CUT)
        process.wait(180)
    run = load_run(tmp_path / "run")
    assert [trial.status for trial in run.trials] == [*["ok"] * 2, *["failed"] * 2, *["ok"] * 2]
    reasons = [trial.reason for trial in run.trials[2:4]]
    assert [reason for reason in reasons if not reason.startswith("client 2: SSH to tare-test-client-2: ")] == []
    assert sorted(run.record.machines) == ["client", "client 2", "controller", "server"]
    last = load_raw(tmp_path / "run", run.trials[-1].trial)
    assert {len(split_client_texts(each.text)) for each in last} == {2}
    assert there.left() == before


def test_two_names_of_one_machine_are_refused(there: Lab, tmp_path: Path) -> None:
    config = tmp_path / "ssh_config"
    text = there.ssh_config.read_text()
    config.write_text(f"{text}{text.replace('tare-test-client-2', 'tare-test-another')}")
    first, second = there.clients
    named = [replace(each, ssh_config=str(config)) for each in (second, replace(second, ssh="tare-test-another"))]
    loads = ensure_image(lambda _: None, client_recipe())
    with (
        pytest.raises(TareError, match=r"^tare-test-another: \[hosts\] names this machine twice$"),
        connect_machines(Hosts(there.server, first, tuple(named)), (loads,), 1),
    ):
        pytest.fail("they are one machine")

"""Machines over SSH: server and clients elsewhere, loads that two clients share, and connections that are cut."""

from __future__ import annotations

import ipaddress
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

import duckdb
import pytest
from ssh_machines import Lab
from waiting import ENOUGH_SECONDS as SECONDS
from waiting import wait_until
from whole_runs import IMAGE, assert_in_turns

from tare.contracts.technologies import START_SECONDS
from tare.contracts.workloads import Instance, Setup
from tare.errors import TareError, TimedOut
from tare.hosts.exec import RUN
from tare.hosts.host import Host
from tare.hosts.ledger import Ledger
from tare.hosts.local import LocalHost, read_text
from tare.hosts.network import Network
from tare.hosts.ssh import machine
from tare.images.image import built_image, carried
from tare.images.recipes import client_recipe
from tare.journal import load, load_raw
from tare.model.machines import Hosts, Machine
from tare.model.trials import Image, Raw, Trial
from tare.running.client import client_of
from tare.running.machines import connected_machines
from tare.telemetry.edges import Edges
from tare.telemetry.quiet import Quiet
from tare.telemetry.spent import Spent
from tare.workloads.loads import http
from tare.workloads.loads.own_load import AtRates, WithoutPause
from tare.workloads.loads.together import texts_in

pytestmark = [pytest.mark.machine, pytest.mark.ssh]

Call = Callable[..., subprocess.CompletedProcess[str]]
Begin = Callable[..., AbstractContextManager[subprocess.Popen[str]]]
NothingLeft = Callable[[], AbstractContextManager[None]]
WORKLOADS = f"""{IMAGE}
[[workloads]]
use = "redis"
clients = [10]
operations = ["GET"]
duration = "200ms"

[[workloads]]
use = "startup"
"""

THREE_BLOCKS = """\
[suite]
stacks = ["native", "crun"]
blocks = 3
until = "blocks"

[[workloads]]
use = "dhrystone"
duration = "1s"
"""


ADDRESS = "198.19.242.1"  # of the server, as both clients see it
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

# The machine's kernel seems to bring 50 pages a second back from swap, until the script has been told to end.
SWAPPING = """
printf 'pswpin 00000000\\npswpout 0\\n' > /run/vmstat
mount --bind /run/vmstat /proc/vmstat
while n=$((n + 1)); sleep 0.02; do printf 'pswpin %08d\\n' $n 1<> /run/vmstat; done &
echo swapping
read line
kill $!
umount /proc/vmstat
"""


def _suite(folder: Path, text: str, clients: Sequence[Machine] = (), **hosts: Machine) -> Path:
    several = [("[[hosts.client]]", each) for each in clients]
    for table, which in (*((f"[hosts.{name}]", each) for name, each in hosts.items()), *several):
        text += f'\n{table}\nssh = "{which.ssh}"\nssh_config = "{which.ssh_config}"\n'
        text += f'address = "{which.address}"\n' if which.address else ""
    path = folder / "suite.toml"
    path.write_text(text)
    return path


def _ok(trials: tuple[Trial, ...]) -> list[tuple[str, str, str, str]]:
    said = [(trial, f"{trial.status} {trial.reason}".strip()) for trial in trials]
    return sorted((trial.workload, trial.stack, outcome, trial.path) for trial, outcome in said)


def _not_sampled(run: Path, trials: tuple[Trial, ...]) -> list[tuple[str, str]]:
    """Return the trials without the CPU time of host and instance at the beginning and at the end."""
    used = "arg_max(cpu_user + cpu_system, seconds) is not null and count(*) >= 2"
    with duckdb.connect() as connection:
        rows = connection.read_parquet(str(run / "telemetry" / "*.parquet"), filename=True)
        files = {file for file, well in rows.filter("scope = 'host'").aggregate(f"filename, {used}").fetchall() if well}
        series = rows.filter("scope = 'instance'").aggregate(f"trial, filename, {used}").fetchall()
    sampled = {trial for trial, file, well in series if well and file in files}
    return [(trial.workload, trial.stack) for trial in trials if trial.trial not in sampled]


@contextmanager
def _swapping(there: Lab) -> Iterator[None]:
    reach = ("ssh", "-F", str(there.ssh_config), "tare-test-server", SWAPPING)
    with subprocess.Popen(reach, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "swapping\n"
        try:
            yield
        finally:
            process.communicate("\n", timeout=SECONDS)


@pytest.mark.usefixtures("ready_home")
def test_server_and_client_on_two_machines_as_in_the_papers(tare: Call, tmp_path: Path, there: Lab) -> None:
    suite = '[suite]\nstacks = ["native", "crun", "lxc"]\nblocks = 1\n' + WORKLOADS
    path = _suite(tmp_path, suite, server=there.server, client=there.client)
    done = tare("run", path, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    run = load(tmp_path / "run")
    stacks = ("crun", "lxc", "native", "native-again")
    expected = [(use, stack, "ok", "bridge") for use in ("redis", "startup") for stack in stacks]
    assert _ok(run.trials) == expected
    # 2 ms each way: ten clients wait for at least 4 ms each.
    rates = [value.value for trial in run.trials for value in trial.values if value.metric == "get"]
    assert rates
    assert all(0 < rate <= 10 / 0.004 for rate in rates)
    assert all(trial.footprint and trial.footprint.memory_bytes for trial in run.trials)
    assert _not_sampled(tmp_path / "run", run.trials) == []
    # Every start is told in the order of its moments, though two clocks have taken part.
    for trial in run.trials:
        moments = {mark.name: mark.seconds for mark in trial.timeline}
        assert 0 <= moments["started"] <= moments["ready"] < START_SECONDS
    assert there.left() == ""


@pytest.mark.lab
@pytest.mark.usefixtures("ready_home")
def test_the_server_alone_on_another_machine(tare: Call, tmp_path: Path, there: Lab, nothing_left: NothingLeft) -> None:
    suite = '[suite]\nstacks = ["native", "crun"]\nblocks = 1\n' + WORKLOADS
    with nothing_left(), _swapping(there):
        done = tare("run", _suite(tmp_path, suite, server=there.server_from_here), "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    trials = load(tmp_path / "run").trials
    assert [trial.status for trial in trials] == ["ok"] * 6
    # What happens to the machine over there becomes doubts of the trials.
    assert _not_sampled(tmp_path / "run", trials) == []
    doubts = [[caution.text for caution in trial.cautions if caution.kind == "swap"] for trial in trials]
    assert all(text.endswith(" pages came back from swap while the trial ran") for (text,) in doubts)
    assert there.left() == ""


@pytest.mark.usefixtures("ready_home")
def test_no_round_trip_to_the_machine_of_the_instances_is_in_a_turn(tare: Call, tmp_path: Path, there: Lab) -> None:
    suite = '[suite]\nstacks = ["native", "crun"]\nblocks = 1\n'
    suite += '[[workloads]]\nuse = "command"\ncommand = "sleep 0.02"\nruns = 8\n'
    suite += '[[workloads]]\nuse = "dhrystone"\nduration = "200ms"\n'
    done = tare("run", _suite(tmp_path, suite, server=there.server_by_slow_link), "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    run = load(tmp_path / "run")
    assert [(trial.status, trial.reason) for trial in run.trials] == [("ok", "")] * 6
    for trial in run.of("command"):
        slept, *_ = trial.values
        waited = [turn.seconds for turn in trial.turns if not turn.warm_up]
        assert min(slept.turns) >= 0.02
        # The word goes there, and the answer comes back, 2 ms each, and neither is in what it took by its own clock.
        assert all(there - own >= 0.004 for there, own in zip(waited, slept.turns, strict=True))
    assert_in_turns(run.of("command"))
    assert_in_turns(run.of("dhrystone"))
    assert there.left() == ""


def test_what_does_not_rest_on_another_machine_is_paused_between_its_turns(there: Lab, image: Image) -> None:
    supervisor = image.root / RUN[1:]
    socket = str(there.folder / "turns.ssh")
    with (
        machine(LocalHost(), there.server_from_here, socket, supervisor) as host,
        host.spawn("sh", "-c", "echo $$; while :; do :; done") as process,
    ):
        pid = int(process.read_line(SECONDS).text)
        quiet = Quiet(host, lambda: (pid,))
        edges, states = Edges(host, Spent((0,)), quiet), []
        deadline = time.monotonic() + SECONDS
        while "T" not in states and time.monotonic() < deadline:  # a busy machine gives it its CPU late
            edges.begin()
            time.sleep(0.1)
            edges.end(0.0)
            states.append(host.read(f"/proc/{pid}/stat").split()[2])
            time.sleep(0.1)
        edges.resume()
        assert host.read(f"/proc/{pid}/stat").split()[2] == "R"
    assert (states[0], states[-1]) == ("R", "T")
    assert [caution.kind for caution in (quiet.caution(),) if caution] == ["busy-when-idle"]
    assert edges.spent.busy_share is not None


@pytest.mark.usefixtures("ready_home")
def test_server_and_client_on_one_other_machine(tare: Call, tmp_path: Path, there: Lab) -> None:
    suite = '[suite]\nstacks = ["native", "crun"]\nblocks = 1\n' + WORKLOADS
    path = _suite(tmp_path, suite, server=there.server_from_here, client=there.server_from_here)
    done = tare("run", path, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    assert [trial.status for trial in load(tmp_path / "run").trials] == ["ok"] * 6
    assert there.left() == ""


@pytest.mark.usefixtures("ready_home")
def test_a_connection_that_is_cut_costs_a_block_and_not_the_run(begin: Begin, tmp_path: Path, there: Lab) -> None:
    path = _suite(tmp_path, THREE_BLOCKS, server=there.server_from_here, client=there.server_from_here)
    with begin("run", path, "--out", tmp_path / "run") as process:
        _wait_for_second_block(process, tmp_path, there)
        there.to_server.set("down")
        _wait(lambda: read_text(str(tmp_path / "run/trials.jsonl")).count("\n") == 6, process)
        there.to_server.set("up")
        process.wait(180)
    trials = load(tmp_path / "run").trials
    assert [trial.status for trial in trials] == [*["ok"] * 3, *["failed"] * 3, *["ok"] * 3]
    # Also the one that had its turn when the connection was cut.
    reasons = [trial.reason for trial in trials[3:6]]
    assert [reason for reason in reasons if not reason.startswith("SSH to tare-test-server: ")] == []
    assert _not_sampled(tmp_path / "run", trials[-3:]) == []
    assert there.left() == ""


def _wait_for_second_block(process: subprocess.Popen[str], folder: Path, there: Lab) -> None:
    """Wait until a program measures in the turns of the second block."""
    _wait(lambda: "block 1 of 3" in read_text(str(folder / "said")), process)
    _wait(lambda: "dhrystone" in _programs(there, "server"), process)


@pytest.mark.usefixtures("ready_home")
def test_a_machine_that_reboots_costs_a_block_and_not_the_run(begin: Begin, tmp_path: Path, there: Lab) -> None:
    path = _suite(tmp_path, THREE_BLOCKS, server=there.server_from_here, client=there.server_from_here)
    with begin("run", path, "--out", tmp_path / "run") as process:
        _wait_for_second_block(process, tmp_path, there)
        there.reboot("server")
        process.wait(180)
    trials = load(tmp_path / "run").trials
    assert [trial.status for trial in trials] == [*["ok"] * 3, *["failed"] * 3, *["ok"] * 3]
    reasons = [trial.reason for trial in trials[3:6]]
    assert [reason for reason in reasons if not reason.startswith("SSH to tare-test-server: ")] == []
    assert "tare-test-server was rebooted: what was made there is made again" in read_text(str(tmp_path / "said"))
    assert there.left() == ""


@pytest.mark.usefixtures("ready_home")
def test_the_load_of_a_killed_run_on_another_machine_ends_with_clean(
    begin: Begin, tare: Call, tmp_path: Path, there: Lab
) -> None:
    suite = f'[suite]\nstacks = ["crun"]\nbaseline = "crun"\n{IMAGE}'
    suite += '[[workloads]]\nuse = "redis"\nclients = [10]\noperations = ["GET"]\nduration = "50s"\n'
    path = _suite(tmp_path, suite, server=there.server, client=there.client)
    with begin("run", path, "--out", tmp_path / "run") as process:
        _wait(lambda: "redis-benchmark" in _programs(there, "client"), process)
        assert "redis-server" in _programs(there, "server")
        process.kill()
        process.wait(SECONDS)
    cleaned = tare("clean")
    assert (cleaned.returncode, cleaned.stderr.splitlines()[-1]) == (0, "clean"), cleaned.stderr
    assert _programs(there, "client") & {"redis-benchmark", "run"} == set()
    assert _programs(there, "server") & {"redis-server", "run"} == set()
    assert there.left() == ""


def _programs(there: Lab, name: str) -> set[str]:
    """Name the programs that run on `server` or `client`."""
    return set(there.on(name, "cat /proc/[0-9]*/comm 2>/dev/null").split())


@pytest.mark.usefixtures("ready_home")
def test_a_machine_that_is_not_there_ends_the_run_before_it_begins(tare: Call, tmp_path: Path, there: Lab) -> None:
    nowhere = Machine("tare-test-nowhere.invalid", str(there.ssh_config))
    suite = '[suite]\nstacks = ["native"]\n' + WORKLOADS
    done = tare("run", _suite(tmp_path, suite, server=nowhere), "--out", tmp_path / "run")
    assert done.returncode == 3
    error, hint = done.stderr.strip().splitlines()[-2:]
    assert error == "error: SSH to tare-test-nowhere.invalid: Could not resolve hostname"
    assert hint.startswith("hint: write the name as `ssh` knows it")
    assert not (tmp_path / "run").exists()


# --- several clients


@pytest.fixture(scope="module")
def clients(there: Lab, suite_images: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, ...]]:
    """Both of them as hosts, with the load generators."""
    assert suite_images
    loads, folder = built_image(lambda _: None, client_recipe()), tmp_path_factory.mktemp("ledgers")
    with ExitStack() as stack:
        yield tuple(stack.enter_context(_client(each, loads, folder / each.ssh)) for each in there.clients)


@contextmanager
def _client(target: Machine, loads: Image, folder: Path) -> Iterator[Host]:
    with machine(LocalHost(), target, f"/run/{target.ssh}.ssh", loads.root / RUN[1:]) as host:
        ledger, place = Ledger(folder / "ledger.jsonl", host, target), Path("/var/lib/tare/instances")
        host.run("mkdir", "-p", str(place), timeout=SECONDS)
        root = carried(host, loads)
        network = Network("tare-test", ipaddress.IPv4Network("198.18.0.0/24"), ledger, near=False)
        with ledger.making(root.root), client_of(ledger, network, root, (0,), place / "tare-test-client") as client:
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


def _setup(clients: tuple[Host, ...], patience_seconds: float = 30.0) -> Setup:
    first, *further = clients
    instance = Instance("tare-x", None, ADDRESS, "bridge", processes=tuple)
    return Setup(instance, first, (), patience_seconds=patience_seconds, further_clients=tuple(further))


def _numbers(name: str, raw: Raw) -> list[float]:
    """Return the numbers that each client has printed under a name."""
    found = [re.search(rf"^{name}: (\S+)$", text, re.MULTILINE) for text in texts_in(raw.text)]
    return [float(each[1]) for each in found if each]


def test_what_both_clients_count_is_what_the_server_has_answered(
    clients: tuple[Host, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    ends: list[tuple[Raw, int]] = []
    monkeypatch.setattr(http, "check_end", lambda raw, own, _: ends.append((raw, own)))
    workload = WithoutPause(clients=(1, 5), duration=0.5)
    with _counting() as answered:
        raw = tuple(workload.measure(_setup(clients)))
        told = sum(number for end, _ in ends for number in _numbers("answers", end))
        # What was under way at the end, one request on each connection, only the server knows.
        assert told <= answered() <= told + 1 + 5
    # One connection cannot be divided, and five are three and two.
    assert [own for _, own in ends] == [1, 3, 2]
    alone, shared = ([each for each in raw if each.label == f"clients {n}" and not each.warm_up] for n in (1, 5))
    assert len(alone) == len(shared) == workload.rounds
    assert all(len(texts_in(each.text)) == 1 and each.clients_cpu == () for each in alone)
    for each in shared:
        requests, seconds = _numbers("requests", each), _numbers("seconds", each)
        assert len(requests) == len(_numbers("behind", each)) == len(each.clients_cpu) == 2
        (value,) = WithoutPause(clients=(5,), duration=0.5).parse([each])
        # Never more than both have seen by their own clocks.
        assert 0 < value.value <= 1.000001 * sum(n / s for n, s in zip(requests, seconds, strict=True))


def test_both_clients_keep_one_schedule_and_the_percentiles_are_those_of_all_requests(
    clients: tuple[Host, ...],
) -> None:
    workload = AtRates(rates=(1000,), connections=20, duration=1.0)
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
    workload = WithoutPause(clients=(4,), duration=0.2)
    with _counting(), ExitStack() as stack:
        turns = workload.measure(_setup(clients, patience_seconds=1.0))
        stack.callback(turns.close)  # type: ignore[attr-defined] # it is a generator
        assert next(iter(turns)).warm_up
        there.on("client-2", "kill -STOP $(pidof wrk)")
        with pytest.raises(TimedOut, match=r"^client 2: wrk: printed nothing for "):
            tuple(turns)
    wait_until(lambda: "wrk" not in _programs(there, "client-2"))


@pytest.mark.lab
@pytest.mark.usefixtures("ready_home")
def test_a_client_that_is_lost_costs_a_block_and_not_the_run(begin: Begin, tmp_path: Path, there: Lab) -> None:
    path, before = _suite(tmp_path, SHARED, there.clients, server=there.server), there.left()
    with begin("run", path, "--out", tmp_path / "run") as process:

        def has_come() -> bool:
            is_second = "block 1 of 3" in read_text(str(tmp_path / "said"))
            return is_second and "wrk" in _programs(there, "client-2")

        _wait(has_come, process)
        there.on("client-2", CUT)
        process.wait(180)
    run = load(tmp_path / "run")
    assert [trial.status for trial in run.trials] == [*["ok"] * 2, *["failed"] * 2, *["ok"] * 2]
    reasons = [trial.reason for trial in run.trials[2:4]]
    assert [reason for reason in reasons if not reason.startswith("client 2: SSH to tare-test-client-2: ")] == []
    assert sorted(run.record.machines) == ["client", "client 2", "controller", "server"]
    last = load_raw(tmp_path / "run", run.trials[-1].trial)
    assert {len(texts_in(each.text)) for each in last} == {2}
    assert there.left() == before


def test_two_names_of_one_machine_are_refused(there: Lab, tmp_path: Path) -> None:
    config = tmp_path / "ssh_config"
    text = there.ssh_config.read_text()
    config.write_text(f"{text}{text.replace('tare-test-client-2', 'tare-test-another')}")
    first, second = there.clients
    named = [replace(each, ssh_config=str(config)) for each in (second, replace(second, ssh="tare-test-another"))]
    loads = built_image(lambda _: None, client_recipe())
    with (
        pytest.raises(TareError, match=r"^tare-test-another is a machine that \[hosts\] has under another name$"),
        connected_machines(Hosts(there.server, first, tuple(named)), loads),
    ):
        pytest.fail("they are one machine")


def _wait(until: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    def has_come() -> bool:
        if until():
            return True
        assert process.poll() is None
        return False

    wait_until(has_come)

"""Whole runs in servers of a cloud: the cloud stands in for OpenStack, its server is a real machine over SSH."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import duckdb
import openstack_stand_in as stand_in
import pytest
from calls import Begin, Call, NothingLeft
from openstack_stand_in import KEYS, Json, State
from ssh_machines import Lab
from waiting import ENOUGH_SECONDS

from tare.hosts.local import LocalHost
from tare.model.run_folder import load_run
from tare.model.trial import Trial

pytest.importorskip("openstack", reason="openstacksdk is an extra: pip install tare-bench[openstack]")
pytestmark = [pytest.mark.machine, pytest.mark.ssh]

DHRYSTONE = """
[[workloads]]
use = "dhrystone"
duration = "200ms"
"""
WORKLOADS = f"""{DHRYSTONE}
[[workloads]]
use = "startup"
"""


@pytest.fixture
def cloud(there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> Iterator[State]:
    """A cloud whose servers are all the lab's one machine, which lets in the key that was made for the server."""

    def started(server: Json) -> None:
        there.on("server", f"echo '{server['public_key']}' >> /run/key.pub")

    host_key = (there.folder / "host_key.pub").read_text(encoding="ascii").strip()
    state = State(address="198.19.240.2", console=KEYS.format(f"{host_key} root@server\n"), started=started)
    with stand_in.running(state) as url:
        configuration = tmp_path / "clouds.yaml"
        configuration.write_text(stand_in.CLOUDS.format(url, stand_in.PASSWORD), encoding="ascii")
        monkeypatch.setitem(environment, "OS_CLIENT_CONFIG_FILE", str(configuration))
        yield state


def _stack(name: str, layers: str, flavor: str = "metal.large") -> str:
    settings = f'cloud = "stand-in"\nflavor = "{flavor}"\nimage = "debian-12"\nnetwork = "private"\nuser = "root"\n'
    return f'[stacks.{name}]\nstack = "{layers}"\n[stacks.{name}.openstack]\n{settings}timeout = "30s"\n'


def _suite(folder: Path, *stacks: str, workloads: str = WORKLOADS) -> Path:
    """A suite of bare metal here and of these stacks."""
    names = ["native", *(stack.partition("]")[0].removeprefix("[stacks.") for stack in stacks)]
    listed = ", ".join(f'"{name}"' for name in names)
    path = folder / "suite.toml"
    path.write_text(f"[suite]\nstacks = [{listed}]\nblocks = 1\n{''.join(stacks)}{workloads}", encoding="ascii")
    return path


def _by_name(run: Path) -> dict[tuple[str, str], Trial]:
    return {(trial.stack, trial.workload): trial for trial in load_run(run).trials}


@pytest.mark.usefixtures("ready_home")
def test_stacks_run_in_servers_that_are_deleted_afterwards(
    tare: Call, tmp_path: Path, there: Lab, cloud: State, nothing_left: NothingLeft
) -> None:
    path = _suite(tmp_path, _stack("metal", "native/openstack"), _stack("crun-metal", "crun/openstack"))
    with nothing_left():
        done = tare("run", path, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    trials = _by_name(tmp_path / "run")
    assert {name: trial.reason for name, trial in trials.items() if trial.status != "ok"} == {}
    assert len(trials) == 8
    assert len([path for method, path, _ in cloud.seen if (method, path) == ("POST", "/compute/v2.1/servers")]) == 2
    assert cloud.left == []
    assert there.left() == ""
    with duckdb.connect() as connection:
        series = connection.read_parquet(str(tmp_path / "run" / "telemetry" / "*.parquet"))
        sampled = {trial for (trial,) in series.project("trial").distinct().fetchall()}
    for (stack, workload), trial in trials.items():
        assert trial.trial in sampled
        if stack.startswith("native"):
            continue
        server, inner = trial.layers
        assert (server.name, server.footprint.processes) == ("openstack", 0)
        assert inner.name == ("native" if stack == "metal" else "crun")
        assert inner.footprint.processes > 0
        if workload == "startup":  # whose server the other workload has, too
            moments = {mark.name: mark.seconds for mark in trial.timeline}
            assert 0 <= moments["openstack:started"] <= moments["openstack:ready"] <= moments[f"{inner.name}:requested"]
            # What tare brings to the server takes seconds more: it is in no layer's time.
            assert moments["ready"] == pytest.approx(server.seconds + inner.seconds)
        assert trial.path == "bridge/direct"
        assert dict(trial.proof)["openstack: flavor"] == "metal.large"
        assert {caution.kind for caution in trial.cautions} >= {"never-run"}
        if workload == "startup":
            assert trial.values[0].value == pytest.approx(moments["ready"])


@pytest.mark.slow
@pytest.mark.usefixtures("ready_home")
def test_a_run_records_each_machine_that_took_part_by_its_role(
    tare: Call, tmp_path: Path, there: Lab, cloud: State
) -> None:
    there.on("server", "echo 'PRETTY_NAME=\"The lent system\"' > /usr/lib/os-release")
    here = LocalHost().facts().operating_system
    path = _suite(tmp_path, _stack("metal", "native/openstack"), workloads=DHRYSTONE)
    done = tare("run", path, "--out", tmp_path / "both")
    assert done.returncode == 0, done.stderr
    record = load_run(tmp_path / "both").record
    systems = {role: facts.operating_system for role, facts in record.machines.items()}
    assert systems == {"controller": here, "server": here, "client": here, "lent": "The lent system"}
    assert record.instance_machine.operating_system == here

    path.write_text(path.read_text().replace('["native", "metal"]', '["metal"]\nbaseline = "metal"'))
    done = tare("run", path, "--out", tmp_path / "lent")
    assert done.returncode == 0, done.stderr
    record = load_run(tmp_path / "lent").record
    systems = {role: facts.operating_system for role, facts in record.machines.items()}
    assert systems == {"controller": here, "client": here, "lent": "The lent system"}
    assert record.instance_machine.operating_system == "The lent system"
    assert cloud.left == []


@pytest.mark.usefixtures("ready_home")
def test_the_server_of_a_run_that_was_killed_is_deleted_by_clean(
    begin: Begin, tare: Call, tmp_path: Path, cloud: State, nothing_left: NothingLeft
) -> None:
    cloud.stuck = True
    with nothing_left():
        with begin("run", _suite(tmp_path, _stack("metal", "native/openstack")), "--out", tmp_path / "run") as process:
            deadline = time.monotonic() + ENOUGH_SECONDS
            while not cloud.servers and time.monotonic() < deadline and process.poll() is None:
                time.sleep(0.1)
        assert cloud.left == ["keypair", "server"]
        done = tare("clean")
        assert (done.returncode, done.stderr.splitlines()[-1]) == (0, "clean"), done.stderr
    assert cloud.left == []

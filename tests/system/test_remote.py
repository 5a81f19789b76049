"""Whole runs on machines over SSH: server and client elsewhere, and a connection that is cut during a trial."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import duckdb
import pytest
from calls import Begin, Call
from ssh_machines import Lab, suite_on
from waiting import ENOUGH_SECONDS as SECONDS
from waiting import wait_with
from whole_runs import IMAGE, assert_in_turns

from tare.hosts.exec import SUPERVISE
from tare.hosts.local import LocalHost
from tare.hosts.ssh import connect_machine
from tare.model.files import read_text
from tare.model.image import Image
from tare.model.machine import SshTarget
from tare.model.run_folder import load_run
from tare.model.trial import Trial
from tare.plugins.technology import START_TIMEOUT_SECONDS
from tare.telemetry.turn_usage import CpuUsage, IdleWatch, TurnBoundary

pytestmark = [pytest.mark.machine, pytest.mark.ssh]

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


@pytest.mark.usefixtures("ready_home")
def test_server_and_client_on_two_machines_as_in_the_papers(tare: Call, tmp_path: Path, there: Lab) -> None:
    suite = '[suite]\nstacks = ["native", "crun", "lxc"]\nblocks = 1\n' + WORKLOADS
    path = suite_on(tmp_path, suite, server=there.server, client=there.client)
    done = tare("run", path, "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    run = load_run(tmp_path / "run")
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
    starts = [trial for trial in run.trials if trial.workload == "startup"]
    assert len(starts) == len(stacks)
    for trial in starts:
        moments = {mark.name: mark.seconds for mark in trial.timeline}
        assert 0 <= moments["started"] <= moments["ready"] < START_TIMEOUT_SECONDS
    assert there.left() == ""


@pytest.mark.usefixtures("ready_home")
def test_no_round_trip_to_the_machine_of_the_instances_is_in_a_turn(tare: Call, tmp_path: Path, there: Lab) -> None:
    suite = '[suite]\nstacks = ["native", "crun"]\nblocks = 1\n'
    suite += '[[workloads]]\nuse = "command"\ncommand = "sleep 0.02"\nruns = 8\n'
    done = tare("run", suite_on(tmp_path, suite, server=there.server_by_slow_link), "--out", tmp_path / "run")
    assert done.returncode == 0, done.stderr
    run = load_run(tmp_path / "run")
    assert [(trial.status, trial.reason) for trial in run.trials] == [("ok", "")] * 3
    for trial in run.trials_of("command"):
        slept, *_ = trial.values
        waited = [turn.seconds for turn in trial.turns if not turn.warm_up]
        assert min(slept.turns) >= 0.02
        # The word goes there, and the answer comes back, 2 ms each, and neither is in what it took by its own clock.
        assert all(there - own >= 0.004 for there, own in zip(waited, slept.turns, strict=True))
    assert_in_turns(run.trials_of("command"))
    assert there.left() == ""


def test_what_does_not_rest_on_another_machine_is_paused_between_its_turns(there: Lab, image: Image) -> None:
    supervisor = image.root / SUPERVISE[1:]
    socket = str(there.folder / "turns.ssh")
    with (
        connect_machine(LocalHost(), there.server_from_here, socket, supervisor) as host,
        host.spawn("sh", "-c", "echo $$; while :; do :; done") as process,
    ):
        pid = int(process.read_line(SECONDS).text)
        quiet = IdleWatch(host, lambda: (pid,))
        edges, states = TurnBoundary(host, CpuUsage((0,)), quiet), []
        deadline = time.monotonic() + SECONDS
        while "T" not in states and time.monotonic() < deadline:  # a busy machine gives it its CPU late
            edges.begin_turn()
            time.sleep(0.1)
            edges.end_turn(0.0)
            states.append(host.read(f"/proc/{pid}/stat").split()[2])
            time.sleep(0.1)
        edges.resume()
        assert host.read(f"/proc/{pid}/stat").split()[2] == "R"
    assert (states[0], states[-1]) == ("R", "T")
    assert [caution.kind for caution in (quiet.caution(),) if caution] == ["busy-when-idle"]
    assert edges.usage.busy_share is not None


@pytest.mark.slow
@pytest.mark.usefixtures("ready_home")
def test_a_connection_that_is_cut_costs_a_block_and_not_the_run(begin: Begin, tmp_path: Path, there: Lab) -> None:
    path = suite_on(tmp_path, THREE_BLOCKS, server=there.server_from_here, client=there.server_from_here)
    with begin("run", path, "--out", tmp_path / "run") as process:
        _wait_for_second_block(process, tmp_path, there)
        there.to_server.set("down")
        wait_with(process, lambda: read_text(str(tmp_path / "run/trials.jsonl")).count("\n") == 6)
        there.to_server.set("up")
        process.wait(180)
    trials = load_run(tmp_path / "run").trials
    assert [trial.status for trial in trials] == [*["ok"] * 3, *["failed"] * 3, *["ok"] * 3]
    # Also the one that had its turn when the connection was cut.
    reasons = [trial.reason for trial in trials[3:6]]
    assert [reason for reason in reasons if not reason.startswith("SSH to tare-test-server: ")] == []
    assert _not_sampled(tmp_path / "run", trials[-3:]) == []
    assert there.left() == ""


def _wait_for_second_block(process: subprocess.Popen[str], folder: Path, there: Lab) -> None:
    """Wait until a program measures in the turns of the second block."""
    wait_with(process, lambda: "block 1 of 3" in read_text(str(folder / "said")))
    wait_with(process, lambda: "dhrystone" in there.programs("server"))


@pytest.mark.slow
@pytest.mark.usefixtures("ready_home")
def test_a_machine_that_reboots_costs_a_block_and_not_the_run(begin: Begin, tmp_path: Path, there: Lab) -> None:
    path = suite_on(tmp_path, THREE_BLOCKS, server=there.server_from_here, client=there.server_from_here)
    with begin("run", path, "--out", tmp_path / "run") as process:
        _wait_for_second_block(process, tmp_path, there)
        there.reboot("server")
        process.wait(180)
    trials = load_run(tmp_path / "run").trials
    assert [trial.status for trial in trials] == [*["ok"] * 3, *["failed"] * 3, *["ok"] * 3]
    reasons = [trial.reason for trial in trials[3:6]]
    assert [reason for reason in reasons if not reason.startswith("SSH to tare-test-server: ")] == []
    assert "tare-test-server was rebooted: preparing it again" in read_text(str(tmp_path / "said"))
    assert there.left() == ""


@pytest.mark.usefixtures("ready_home")
def test_the_load_of_a_killed_run_on_another_machine_ends_with_clean(
    begin: Begin, tare: Call, tmp_path: Path, there: Lab
) -> None:
    suite = f'[suite]\nstacks = ["crun"]\nbaseline = "crun"\n{IMAGE}'
    suite += '[[workloads]]\nuse = "redis"\nclients = [10]\noperations = ["GET"]\nduration = "50s"\n'
    path = suite_on(tmp_path, suite, server=there.server, client=there.client)
    with begin("run", path, "--out", tmp_path / "run") as process:
        wait_with(process, lambda: "load_client" in there.programs("client"))
        assert "redis-server" in there.programs("server")
        process.kill()
        process.wait(SECONDS)
    cleaned = tare("clean")
    assert (cleaned.returncode, cleaned.stderr.splitlines()[-1]) == (0, "clean"), cleaned.stderr
    assert there.programs("client") & {"load_client", "supervise"} == set()
    assert there.programs("server") & {"redis-server", "supervise"} == set()
    assert there.left() == ""


@pytest.mark.usefixtures("ready_home")
def test_a_machine_that_is_not_there_ends_the_run_before_it_begins(tare: Call, tmp_path: Path, there: Lab) -> None:
    nowhere = SshTarget("tare-test-nowhere.invalid", str(there.ssh_config))
    suite = '[suite]\nstacks = ["native"]\n' + WORKLOADS
    done = tare("run", suite_on(tmp_path, suite, server=nowhere), "--out", tmp_path / "run")
    assert done.returncode == 3
    error, hint = done.stderr.strip().splitlines()[-2:]
    assert error == "error: SSH to tare-test-nowhere.invalid: Could not resolve hostname"
    assert hint.startswith("hint: write the name as `ssh` knows it")
    assert not (tmp_path / "run").exists()

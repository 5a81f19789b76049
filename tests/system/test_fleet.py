"""Fleets on real machines over SSH: killed, unlike and full ones, and a controller that is killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from calls import Begin, Call
from fleet_machines import Fleet, Kept, fleet
from waiting import ENOUGH_SECONDS as SECONDS
from waiting import wait_until

from tare.model.files import read_text
from tare.model.image import Image
from tare.model.run_folder import load_run

pytestmark = [pytest.mark.machine, pytest.mark.ssh]


SUITE = """\
[suite]
name = "short"
stacks = ["native", "crun"]
blocks = 6

[[workloads]]
use = "dhrystone"
duration = "200ms"
"""
WITH_FILE = """\
[suite]
stacks = ["native", "crun"]
blocks = 2

[image.files]
"/srv/greeting" = "{path}"

[[workloads]]
use = "command"
command = "grep hello /srv/greeting"
"""
LEFT = "ls -A /var/lib/tare-fleet /var/lib/tare/ledger /var/lib/tare/instances 2>/dev/null; ip netns; ps -eo args"


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory, ssh_image: Image, suite_images: Path) -> Iterator[Fleet]:
    """Three machines of a kind, the last one with a full disk, and one of another."""
    kinds = {"a1": Kept(), "a2": Kept(), "b3": Kept(cpu_model="Imaginary CPU 9000"), "a4": Kept(full=True)}
    with fleet(tmp_path_factory.mktemp("fleet"), ssh_image, suite_images, kinds) as found:
        yield found


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    path = tmp_path / "short.toml"
    path.write_text(SUITE)
    return path


def test_a_plan_says_what_runs_where(tare: Call, machines: Fleet, suite: Path) -> None:
    done = tare("fleet", "plan", "-i", machines.inventory, suite)
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[:4] for line in lines[1:5]] == [
        ["a1", "A", "1,4", "6"],
        ["a2", "A", "2,5", "6"],
        ["b3", "B", "1-6", "18"],
        ["a4", "A", "3,6", "6"],
    ]
    assert "type B: no interval for other machines of the type: add a second machine" in done.stdout
    assert "Imaginary CPU 9000" in done.stdout


@pytest.mark.slow
def test_each_block_is_measured_whatever_dies(
    tare: Call, begin: Begin, tmp_path: Path, machines: Fleet, suite: Path
) -> None:
    place = tmp_path / "week"
    run = ("fleet", "run", "-i", machines.inventory, suite, "--fleet", place)

    def said_by(name: str) -> str:
        text = read_text(str(place / "fleet.json"))
        member: dict[str, Any] = json.loads(text)["members"][name] if text else {"state": ""}
        return member["said"] if member["state"] == "runs" else ""

    # The controller is killed when the machines have begun: they go on, and it finds them again.
    with begin(*run) as process:
        wait_until(lambda: said_by("a2") not in ("", "starts"))
        machines.kill("a2")
        assert "another tare measures this fleet" in tare(*run).stderr
        process.kill()
        process.wait(SECONDS)
    said = tare("fleet", "status", "--fleet", place)
    assert said.returncode == 0
    assert "no tare watches it now" in said.stdout
    # A machine was killed, too, before its blocks are here: another one of its kind measures them.
    done = tare(*run)
    assert done.returncode == 0, done.stderr
    members = json.loads((place / "fleet.json").read_text())["members"]
    states = {name: (each["kind"], each["state"]) for name, each in members.items()}
    assert states == {"a1": ("A", "collected"), "a2": ("A", "lost"), "b3": ("B", "collected"), "a4": ("A", "failed")}
    assert "a4 is failing (Copy the suite: No space left on device): its blocks 3,6 go to" in done.stderr
    assert "a2 is lost (" in done.stderr
    measured = {name: load_run(place / name) for name in ("a1", "a2", "b3") if (place / name / "run.json").exists()}
    blocks = [{trial.block for trial in run.trials if run.folder.name in ("a1", "a2")} for run in measured.values()]
    assert set().union(*blocks) == set(range(6))
    assert {trial.block for trial in measured["b3"].trials} == set(range(6))
    assert {trial.status for run in measured.values() for trial in run.trials} == {"ok"}
    # Whole runs are here, with what only comes at the end, and the page.
    assert list((place / "a1/telemetry").glob("*.parquet"))
    assert "Imaginary CPU 9000" in (place / "report/index.html").read_text()
    assert "on too few machines" in done.stdout
    for name in ("a1", "b3"):
        left = machines.on(name, LEFT)
        assert "tare-fleet" not in left
        assert "dhrystone" not in left
        assert "tare run" not in left


@pytest.mark.slow
@pytest.mark.usefixtures("ready_home")
def test_machines_get_the_files_that_the_suite_names(
    tare: Call, begin: Begin, tmp_path: Path, machines: Fleet, suite: Path
) -> None:
    place, elsewhere = tmp_path / "greeted", tmp_path.parent / "elsewhere"
    (tmp_path / "data").mkdir()
    (tmp_path / "data/greeting").write_text("hello\n")
    suite.write_text(WITH_FILE.format(path="data/greeting"))
    with begin("image", suite) as process:
        assert process.wait(600) == 0
    inventory = only_b3(machines, tmp_path)
    done = tare("fleet", "run", "-i", inventory, suite, "--fleet", place)
    assert done.returncode == 0, done.stderr
    assert {trial.status for trial in load_run(place / "b3").trials} == {"ok"}
    elsewhere.write_text("hello\n")
    suite.write_text(WITH_FILE.format(path="../elsewhere"))
    planned = tare("fleet", "plan", "-i", inventory, suite)
    assert f"the machines must have {elsewhere}: only what is below the suite's folder is copied" in planned.stdout


@pytest.mark.slow
def test_ctrl_c_ends_the_runs_and_brings_what_they_have(
    tare: Call, begin: Begin, tmp_path: Path, machines: Fleet, suite: Path
) -> None:
    place = tmp_path / "stopped"
    suite.write_text(SUITE.replace("blocks = 6", "blocks = 600"))
    alone = only_b3(machines, tmp_path)
    with begin("fleet", "run", "-i", alone, suite, "--fleet", place) as process:
        wait_until(lambda: read_text(str(place / "b3/trials.jsonl")).count("\n") >= 3)
        process.terminate()
        assert process.wait(SECONDS) == 130
    said = read_text(str(tmp_path / "said"))
    assert "stopping the runs" in said
    trials = load_run(place / "b3").trials
    assert 3 <= len(trials) < 1800
    assert "tare run" not in machines.on("b3", "ps -eo args")
    assert tare("compare", place).returncode == 0
    cleaned = tare("fleet", "clean", "-i", alone)
    assert (cleaned.returncode, cleaned.stderr.splitlines()[-1]) == (0, "clean: 1 machine"), cleaned.stderr
    assert "stopped" not in machines.on("b3", "ls -A /var/lib/tare-fleet")


def only_b3(machines: Fleet, folder: Path) -> Path:
    """Return an inventory of one machine, which nothing happens to."""
    path = folder / "alone.ini"
    lines = machines.inventory.read_text().splitlines()
    path.write_text("\n".join(line for line in lines if line[:2] not in ("a1", "a2", "a4")))
    return path

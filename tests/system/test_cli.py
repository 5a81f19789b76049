"""Commands that measure nothing: the catalogue, the plan, and every kind of wrong input."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import termios
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from calls import Call, Quickly
from waiting import ENOUGH_SECONDS
from whole_runs import SERVED

from plug_ins import own
from tare.images.recipes import guest_recipe
from tare.model.trial import Family
from tare.suites.suite import read_suite

TARE = Path(sys.executable).parent / "tare"
CHECKOUT = Path(__file__).parents[2]
EXAMPLES = sorted((CHECKOUT / "examples").glob("*.toml"))
FAMILIES: set[Family] = {"bare metal", "container", "sandbox", "type 1", "type 2", "unikernel", "emulator"}

BAD = """\
[suite]
stacks = ["native", "dockr"]
sede = 1

[[workloads]]
use = "nginx"
duration = "2"
"""
FAULTS = """\
error: bad.toml: suite.stacks[1]: no stack named "dockr"
hint: did you mean "docker"?
error: bad.toml: suite.sede: unknown key
hint: did you mean "seed"?
error: bad.toml: workloads[0].duration: "2" cannot be used
hint: a duration needs its unit, for example 90s or 5m
"""
GOOD = '[suite]\nstacks = ["native"]\nblocks = 1\n[[workloads]]\nuse = "startup"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder that tare is called in, with one good suite and one bad one."""
    (tmp_path / "good.toml").write_text(GOOD)
    (tmp_path / "bad.toml").write_text(BAD)
    (tmp_path / "no.toml").write_text("this is not TOML\n")
    return tmp_path


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# --- wrong input ---------------------------------------------------------------------------------------------------


def test_all_faults_of_a_suite_are_reported_at_once_and_nothing_is_started(tare: Call, folder: Path) -> None:
    before = names(folder)
    output = tare("run", "bad.toml")
    assert output.stderr == FAULTS
    assert (output.returncode, output.stdout) == (2, "")
    assert names(folder) == before


@pytest.mark.usefixtures("folder")
def test_a_plan_reports_the_same_faults_as_a_run(quickly: Quickly) -> None:
    assert quickly("plan", "bad.toml") == (2, "", FAULTS)


@pytest.mark.parametrize(
    ("command", "error", "hint"),
    [
        ("run god.toml", "god.toml: no such file", 'did you mean "good.toml"?'),
        ("run .", ".: cannot be read: is a directory", "give the path of a .toml file that you may read"),
        ("run no.toml", "no.toml: line 1: not TOML: expected '=' after a key in a key/value pair", "a line is"),
        ("run", "give a suite to run, or --resume with a run", "tare run examples/quick.toml"),
        ("run good.toml --resume x", "give a suite to run, or --resume with a run", "tare run examples/quick.toml"),
        ("run good.toml --budget 5", "--budget 5: a duration needs its unit", "for example --budget 5m"),
        ("run good.toml --budget 0s", "--budget 0s: a budget must be above 0", "for example --budget 5m"),
        ("run good.toml --out .", ".: the folder already exists", "choose another --out, or continue it with --resume"),
        ("run good.toml --blocks 0", "--blocks 0: not a list of block numbers", "for example --blocks 1-4,9"),
        ("run good.toml --blocks x", "--blocks x: not a list of block numbers", "for example --blocks 1-4,9"),
        ("run good.toml --blocks 5-3", "--blocks 5-3: not a list of block numbers", "for example --blocks 1-4,9"),
        ("run good.toml --blocks 1,99", "--blocks: the suite has no block 99", "its blocks are 1-1"),
        ("run good.toml --budgt 5m", "--budgt: no such option", 'did you mean "--budget"?'),
        ("run --resume .", ".: not a run", "give the folder that `tare run` printed"),
        (
            "report nothing",
            "nothing: not a run: no such folder",
            "give the folder that `tare run` printed",
        ),
        ("report nothing --format ,", "no report format is named", "for example --format html,csv,json,yaml"),
        ("report", "missing argument RUN...", "see the usage: tare report --help"),
        ("show nothing", "nothing: not a run", "give the folder that `tare run` printed"),
        ("reparse nothing", "nothing: not a run", "give the folder that `tare run` printed"),
        ("rnu good.toml", "no such command 'rnu'", 'did you mean "run"?'),
        ("technologies --jsn", "--jsn: no such option", 'did you mean "--json"?'),
    ],
)
def test_a_wrong_call_is_two_lines_and_changes_nothing(
    quickly: Quickly, folder: Path, command: str, error: str, hint: str
) -> None:
    before = names(folder)
    code, out, err = quickly(*command.split())
    assert (code, out) == (2, "")
    first, second = err.splitlines()
    assert first.startswith(f"error: {error}")
    assert second.startswith(f"hint: {hint}")
    assert names(folder) == before


def test_without_a_command_the_help_is_shown(tare: Call) -> None:
    output = tare()
    assert output.returncode == 2
    shown = output.stdout + output.stderr
    assert all(f" {command} " in shown for command in ("doctor", "plan", "run", "report", "show", "clean"))
    assert "error" not in shown


def test_without_root_a_run_is_refused_before_anything_is_made(environment: dict[str, str]) -> None:
    somebody = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--") if os.geteuid() == 0 else ()
    if subprocess.run((*somebody, str(TARE), "--version"), capture_output=True, check=False, cwd="/").returncode:
        pytest.skip("others than root may not read this checkout or its Python")
    with TemporaryDirectory() as place:
        Path(place).chmod(0o777)
        Path(place, "good.toml").write_text(GOOD)
        output = subprocess.run(
            (*somebody, str(TARE), "run", "good.toml"),
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            cwd=place,
            env=environment | {"TARE_HOME": f"{place}/home"},
        )
        made = names(Path(place)) - {"good.toml"}
    assert (output.returncode, output.stdout, made) == (3, "", set())
    assert output.stderr == "error: only root can start containers, machines and networks\nhint: sudo tare run …\n"


# --- the catalogue, the plan, doctor -------------------------------------------------------------------------------


def test_technologies_are_listed_for_programs(quickly: Quickly) -> None:
    listed = json.loads(quickly("technologies", "--json")[1])
    entries = {entry["name"]: entry for entry in listed["technologies"]}
    assert listed["format"] == 1
    assert own("technologies").keys() <= entries.keys()
    assert entries["docker"]["settings"] == 'network = "nat"'
    assert entries["native"]["about"].startswith("Bare metal: ")
    assert (entries["docker"]["nests"], entries["docker"]["hosts"]) == (True, False)
    assert {entry["family"] for entry in entries.values()} <= FAMILIES
    assert entries["docker"]["needs"] == "docker.io, iproute2, iptables, its daemon"
    assert entries["nspawn"]["needs"] == "iproute2, systemd-container"


def test_workloads_are_listed_for_programs(quickly: Quickly) -> None:
    listed = json.loads(quickly("workloads", "--json")[1])
    entries = {entry["name"]: entry for entry in listed["workloads"]}
    assert own("workloads").keys() <= entries.keys()
    assert entries["dhrystone"]["settings"] == (
        'duration = "0.2s", passes = 0, repetitions = 5, turn = "0s", discard = "0s"'
    )
    assert [metric["unit"] for metric in entries["dhrystone"]["metrics"]] == ["dhrystones/s"]
    assert (entries["redis"]["packages"], entries["redis"]["client_packages"]) == (["redis-server"], ["redis-tools"])


@pytest.mark.parametrize("suite", EXAMPLES, ids=lambda path: path.name)
def test_every_example_can_be_planned(quickly: Quickly, home: Path, suite: Path) -> None:
    code, out, err = quickly("plan", suite)
    assert (code, err) == (0, "")
    assert "total: at most about " in out
    assert not home.exists()


def test_suites_of_whole_runs_share_the_image_of_an_example(folder: Path) -> None:
    (folder / "served.toml").write_text(SERVED)
    example, served = (read_suite(path) for path in (CHECKOUT / "examples/quick.toml", folder / "served.toml"))
    recipes = [
        guest_recipe([each.workload for each in suite.workloads], packages=suite.image.packages)
        for suite in (example, served)
    ]
    assert recipes[0] == recipes[1]


@pytest.mark.machine
def test_doctor_keeps_its_contract_and_leaves_no_trace(tare: Call, home: Path) -> None:
    output = tare("doctor", "--json")
    found = json.loads(output.stdout)
    assert (output.returncode, found["format"]) == (0, 1)
    for entry in found["technologies"]:
        assert {"name", "family", "usable", "version", "problems"} <= entry.keys()
        assert entry["usable"] == (not entry["problems"])
        assert all(problem["what"] and problem["fix"] for problem in entry["problems"])
    by_name = {entry["name"]: entry for entry in found["technologies"]}
    assert by_name["native"]["usable"]
    assert not by_name["docker"]["usable"]
    assert found["machine"]["cpus"] == os.cpu_count()
    assert found["machine"]["kernel"] == os.uname().release
    assert {each["name"] for each in found["machine"]["noise"]} >= {"governor", "turbo", "steal", "load", "swap"}
    assert not home.exists()


@pytest.mark.machine
def test_doctor_fits_a_terminal_of_80_by_24(environment: dict[str, str]) -> None:
    shown = on_terminal((str(TARE), "doctor"), environment, rows=24, columns=80)
    lines = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown).splitlines()
    assert any(re.match(r"Usable, \d+ of \d+: ", line) for line in lines)
    assert lines[-1] == "Every version, reason and fix: tare doctor --all"
    assert len(lines) <= 22  # and the command above, and the next prompt below
    assert max(map(len, lines)) <= 80


def on_terminal(argv: tuple[str, ...], environment: dict[str, str], rows: int, columns: int) -> str:
    """Run a command whose standard output is a terminal of a size; return what it printed there."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (rows, columns))
    asked = {name: value for name, value in environment.items() if name not in {"COLUMNS", "LINES"}}
    process = subprocess.Popen(
        argv, env=asked | {"TERM": "xterm"}, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL
    )
    os.close(theirs)
    printed = b""
    with suppress(OSError):  # the last one at the terminal has gone
        while chunk := os.read(ours, 65536):
            printed += chunk
    os.close(ours)
    assert process.wait(ENOUGH_SECONDS) == 0
    return printed.decode()


@pytest.mark.machine
def test_doctor_says_everything_for_people_who_ask(tare: Call) -> None:
    output = tare("doctor", "--all")
    assert output.returncode == 0
    assert " technologies can be used here" in output.stdout
    assert "→" in output.stdout


@pytest.mark.machine
def test_cleaning_a_clean_machine_does_nothing(tare: Call, home: Path) -> None:
    output = tare("clean")
    assert (output.returncode, output.stdout, output.stderr) == (0, "", "clean\n")
    assert not home.exists()

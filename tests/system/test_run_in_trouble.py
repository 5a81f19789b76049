"""What a run meets: a program that takes all memory, and another user who resumes it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from calls import Call
from runs import believable_run, write
from whole_runs import IMAGE

from tare.model.run_folder import load_run

pytestmark = [pytest.mark.machine, pytest.mark.usefixtures("machine_as_before")]

GREEDY = """\
[suite]
stacks = ["native", "crun"]
blocks = 1
until = "blocks"

[limits]
memory = "64 MiB"

[[workloads]]
name = "greedy"
use = "command"
command = ["sh", "-c", "head -c 1G /dev/zero | tail"] # which keeps a line that does not end
runs = 1
warm_up = 0

[[workloads]]
use = "dhrystone"
duration = "100ms"
repetitions = 1
"""
SHARED = f"""\
[suite]
stacks = ["native", "crun"]
blocks = 1
until = "blocks"
{IMAGE}
[[workloads]]
use = "dhrystone"
duration = "100ms"

[[workloads]]
use = "redis"
operations = ["GET"]
clients = [1, 50]
duration = "100ms"
"""
MORE = "it may want more memory than the instance has: [limits] memory"
NOBODY = 65534
# Who has no right to read this checkout has read all of it before.
AS_NOBODY = f"""
import importlib, os, pkgutil, sys
import tare
for module in pkgutil.walk_packages(tare.__path__, "tare."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
from tare.__main__ import main
os.setuid({NOBODY})
main()
"""


def test_a_program_that_takes_all_memory_costs_its_trials_alone(tare: Call, tmp_path: Path) -> None:
    (tmp_path / "greedy.toml").write_text(GREEDY)
    done = tare("run", tmp_path / "greedy.toml", "--out", tmp_path / "run")
    trials = load_run(tmp_path / "run").trials
    assert {(trial.workload, trial.status) for trial in trials} == {("greedy", "failed"), ("dhrystone", "ok")}
    failed = [trial for trial in trials if trial.status == "failed"]
    assert len(failed) == 2 + 1
    assert [trial.hint for trial in failed if not trial.hint.startswith(MORE)] == []
    assert "Traceback" not in done.stderr


@pytest.mark.usefixtures("ready_home")
def test_on_one_cpu_all_is_measured_with_a_caution(tare: Call, tmp_path: Path) -> None:
    (tmp_path / "suite.toml").write_text(SHARED)
    cpu = str(max(os.sched_getaffinity(0)))
    done = tare("run", "suite.toml", "--out", "run", prefix=("taskset", "--cpu-list", cpu))
    assert done.returncode == 0, done.stderr
    trials = load_run(tmp_path / "run").trials
    assert [(trial.trial, trial.reason) for trial in trials if trial.status != "ok"] == []
    assert len(trials) == 2 * 3
    for trial in trials:
        assert "client and instance run on the same CPUs" in " ".join(each.text for each in trial.cautions)


@pytest.mark.parametrize("file", ["run.json", "trials.jsonl"])
def test_a_folder_of_another_format_is_refused_in_two_lines(tare: Call, tmp_path: Path, file: str) -> None:
    write(believable_run(tmp_path / "run", blocks=1))
    path = tmp_path / "run" / file
    path.write_text(re.sub(r'"format": ?1', '"format": 2', path.read_text()))
    for command in (("report",), ("show",), ("compare",), ("run", "--resume")):
        done = tare(*command, "run")
        assert (done.returncode, done.stdout) == (2, "")
        error, hint = done.stderr.splitlines()
        assert error.startswith(f"error: run/{file}")
        assert error.endswith("format 2, and this tare reads 1")
        assert hint == "hint: use a newer tare"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that is full after some trials."""
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(("mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", place), check=True)
    yield place
    subprocess.run(("umount", place), check=True)


@pytest.mark.slow
def test_a_run_on_a_full_disk_ends_with_two_lines_and_resumes_with_room(
    tare: Call, tmp_path: Path, small_disk: Path
) -> None:
    workload = '[[workloads]]\nuse = "dhrystone"\nduration = "100ms"\nrepetitions = 1\n'
    (tmp_path / "suite.toml").write_text(
        f'[suite]\nstacks = ["native", "crun"]\nblocks = 12\nuntil = "blocks"\n{workload}'
    )
    run = small_disk / "run"
    done = tare("run", tmp_path / "suite.toml", "--out", run)
    assert "Traceback" not in done.stderr
    assert [line.partition(":")[0] for line in done.stderr.splitlines()[-2:]] == ["error", "hint"], done.stderr
    before = (run / "trials.jsonl").read_bytes()
    trials = load_run(run).trials
    assert {trial.status for trial in trials} == {"ok"}
    larger = shutil.copytree(run, tmp_path / "run")
    done = tare("run", "--resume", larger)
    assert done.returncode == 0, done.stderr
    assert (larger / "trials.jsonl").read_bytes().startswith(before[: before.rfind(b"\n") + 1])
    assert len(load_run(larger).trials) == 12 * 3


def test_another_user_who_resumes_a_run_gets_two_lines_and_changes_nothing(tare: Call, tmp_path: Path) -> None:
    (tmp_path / "suite.toml").write_text('[suite]\nstacks = ["native"]\nblocks = 1\n[[workloads]]\nuse = "startup"\n')
    run = tmp_path / "run"
    assert tare("run", tmp_path / "suite.toml", "--out", run).returncode == 0
    for folder in (tmp_path, *tmp_path.parents[:2], run):
        folder.chmod(0o755)
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    done = subprocess.run(
        (sys.executable, "-c", AS_NOBODY, "run", "--resume", str(run)),
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 2, done.stderr
    error, hint = done.stderr.splitlines()
    assert error == f"error: {run}: the run cannot continue: the folder is not writable"
    assert hint.startswith("hint: continue as user 0, its owner")
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before

"""The examples for continuous integration, step by step in a shell, as a runner runs them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from compared import made
from runs import write

from tare.model.run_folder import load_run, replace_trials

pytestmark = pytest.mark.machine

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples/ci"
# A container takes longer to start than a program: that is decided after five blocks on any machine.
SUITE = '[suite]\nstacks = ["native", "crun"]\nblocks = 6\n[[workloads]]\nuse = "startup"\n'
Shell = Callable[..., int]


@pytest.fixture
def shell(tmp_path: Path, environment: dict[str, str]) -> Shell:
    """Run a script in a job's folder; return its exit code. There is no sudo: tests are root."""
    job = tmp_path / "job"
    job.mkdir()
    (job / "suite.toml").write_text(SUITE)
    sudo = tmp_path / "bin/sudo"
    sudo.parent.mkdir()
    sudo.write_text('#!/bin/sh\nexec "$@"\n')
    sudo.chmod(0o755)
    known = environment | {"PATH": f"{sudo.parent}:{environment['PATH']}", "HOME": str(tmp_path)}

    def run(script: str, **more: str) -> int:
        return subprocess.run(("bash", "-e", "-c", script), cwd=job, env=known | more, check=False).returncode

    return run


def read(name: str) -> dict[str, Any]:
    document = yaml.safe_load((EXAMPLES / name).read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


def was_quicker(night: Path) -> None:
    """Let crun have started ten times as quickly in a run as it did: what is measured now is slower."""
    trials = load_run(night).trials
    quicker = {
        trial: replace(trial, values=tuple(replace(each, value=each.value / 10) for each in trial.values))
        for trial in trials
        if trial.stack == "crun"
    }
    replace_trials(night, [quicker.get(trial, trial) for trial in trials])


def without_network(wheel: Path) -> dict[str, str]:
    """What lets the examples install the wheel alone: its dependencies are those of this environment."""
    return {"TARE_WHEEL": str(wheel), "PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def installs() -> dict[str, str]:
    """The steps that install tare, by the file."""
    steps = read("github.yml")["jobs"]["weigh"]["steps"]
    github = next(each["run"] for each in steps if each.get("name") == "Install")
    return {"github.yml": github, "gitlab.yml": "\n".join(read("gitlab.yml")["weigh"]["before_script"])}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["github.yml", "gitlab.yml"])
def test_tare_is_installed_from_a_wheel_and_not_by_an_unpublished_name(
    name: str, shell: Shell, wheel: Path, tmp_path: Path
) -> None:
    install = installs()[name]
    assert "tare-bench" not in install
    assert shell(install, TARE_WHEEL="") != 0
    assert shell(install, **without_network(wheel)) == 0
    [packages] = (tmp_path / "job/.tare").glob("lib/python*/site-packages")
    assert (packages / "tare" / "__main__.py").is_file()


def test_an_undecided_change_does_not_fail_a_job(shell: Shell, tmp_path: Path) -> None:
    nights = tmp_path / "weigh"
    for folder, speed in ((nights / "20260101-nightly", 1.0), (tmp_path / "job/runs/new", 0.98)):
        folder.parent.mkdir(parents=True, exist_ok=True)
        write(made(folder, {"native": 1.0, "crun": speed}, blocks=6, seed=int(speed * 100)))
    (tmp_path / "job/.tare").symlink_to(sys.prefix)
    gate = next(each["run"] for each in read("github.yml")["jobs"]["weigh"]["steps"] if each.get("name") == "Gate")
    rest = "\n".join(read("gitlab.yml")["weigh"]["script"][1:])
    assert [shell(gate), shell(rest, CI_PIPELINE_SOURCE="merge_request_event")] == [0, 0]
    assert shell(gate.replace("worse", "undecided")) == 1


@pytest.mark.usefixtures("ready_home")
@pytest.mark.slow
def test_a_change_is_compared_with_the_last_night_by_both(shell: Shell, tmp_path: Path) -> None:
    steps: Mapping[str, str] = {
        each["name"]: each["run"] for each in read("github.yml")["jobs"]["weigh"]["steps"] if "run" in each
    }
    assert list(steps) == ["Install", "Measure", "Summarize", "Gate", "History"]
    (tmp_path / "job/.tare").symlink_to(sys.prefix)
    measure, *rest = read("gitlab.yml")["weigh"]["script"]
    assert measure == steps["Measure"]
    assert shell(measure) == 0
    assert shell(steps["Summarize"], GITHUB_STEP_SUMMARY=str(tmp_path / "summary.md")) == 0
    assert "crun" in (tmp_path / "summary.md").read_text()

    def gates() -> list[int]:
        return [shell(steps["Gate"]), shell("\n".join(rest), CI_PIPELINE_SOURCE="merge_request_event")]

    assert gates() == [0, 0]  # there is no night yet
    nights = [shell(steps["History"]), shell("\n".join(rest), CI_PIPELINE_SOURCE="schedule")]
    assert nights == [0, 0]  # one night is no history yet
    [night] = (tmp_path / "weigh").glob("*-nightly")
    was_quicker(night)
    assert gates() == [1, 1]

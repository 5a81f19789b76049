"""Whole compose files of four kinds of applications: what is written, and what is printed, as reviewed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from called import Call
from golden import assert_as_reviewed
from marks import slow

from tare.loads.application import Application
from tare.loads.application_file import read_application

SAMPLES = Path(__file__).parents[3] / "samples/compose"
NAMES = ("shop", "voting", "benchmark", "stack")
UNDER_TEST = {"voting": "vote", "benchmark": "nginx-web-server"}


def convert(name: str, folder: Path, call: Call) -> tuple[Application, str]:
    """Convert a copy of a file; return the application, and what was printed."""
    shutil.copytree(SAMPLES / name, folder / name, ignore=shutil.ignore_patterns("*.toml", "*.txt.printed"))
    (folder / name / ".env").write_text("MYSQL_ROOT_PASSWORD=fake_password\n")
    service = ("--service", UNDER_TEST[name]) if name in UNDER_TEST else ()
    printed = call("application", "from", folder / name / "compose.yaml", *service).err
    return read_application(folder / name), printed.replace(str(folder), "…")


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_file_becomes_an_application_and_says_what_it_leaves_out(name: str, tmp_path: Path, call: Call) -> None:
    _, printed = convert(name, tmp_path, call)
    assert_as_reviewed((tmp_path / name / "application.toml").read_text(), SAMPLES / name / "application.toml")
    assert_as_reviewed(printed, SAMPLES / name / "printed")


def test_services_start_when_those_that_they_wait_for_are_ready(tmp_path: Path, call: Call) -> None:
    application, _ = convert("voting", tmp_path, call)
    assert [each.name for each in application.start_order] == ["redis", "db", "result", "vote", "worker"]
    assert {each.name: each.after for each in application.start_order} == {
        "redis": (),
        "db": (),
        "result": ("db",),
        "vote": ("redis",),
        "worker": ("vote", "redis", "db"),
    }


@pytest.mark.parametrize("name", slow(NAMES, NAMES[1:]))
def test_the_output_does_not_depend_on_the_hash_seed(name: str, tmp_path: Path) -> None:
    printed = set()
    for seed in ("1", "2", "3"):
        folder = tmp_path / seed
        shutil.copytree(SAMPLES / name, folder, ignore=shutil.ignore_patterns("application.toml"))
        words = (sys.executable, "-m", "tare", "application", "from", "compose.yaml")
        service = ("--service", UNDER_TEST[name]) if name in UNDER_TEST else ()
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            (*words, *service), check=False, cwd=folder, env=environment, capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        printed.add(done.stderr + (folder / "application.toml").read_text())
    assert len(printed) == 1

"""The first hour of CONTRIBUTING.md: its commands, in a clone, with the workload of docs/contributing.md."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from documents import ROOT, blocks, example

PAGE = ROOT / "CONTRIBUTING.md"
COMMANDS = [line for block in blocks(PAGE, "sh") for line in block.splitlines()]


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone of what is committed, with the page's workload in its place."""
    folder = tmp_path_factory.mktemp("contributing") / "tare"
    subprocess.run(("git", "clone", "--quiet", "--no-hardlinks", str(ROOT), str(folder)), check=True)
    workload = example("Adding a workload")
    (folder / "src" / "tare" / "workloads" / "byte_copies.py").write_text(workload, encoding="utf-8")
    return folder


def run(clone: Path, *argv: str) -> str:
    """Run a command there, with the clone's tare."""
    environment = os.environ | {"PYTHONPATH": str(clone / "src")}
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=clone, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_page_has_the_commands_that_are_run_here() -> None:
    assert {shlex.split(line)[0] for line in COMMANDS} == {"git", "make", ".venv/bin/tare"}


@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith(".venv/bin/tare")])
def test_a_command_of_tare_works_in_a_clone(line: str, clone: Path) -> None:
    assert run(clone, sys.executable, "-m", "tare", *shlex.split(line)[1:])


@pytest.mark.parametrize("line", sorted(set(re.findall(r"`(make [^`]+)`", PAGE.read_text())) | set(COMMANDS)))
def test_a_target_of_make_exists(line: str, clone: Path) -> None:
    if line.startswith("make "):
        run(clone, *shlex.split(line), "--dry-run")


def test_the_schema_knows_the_new_workload(clone: Path) -> None:
    assert '"const": "byte-copies"' in run(clone, sys.executable, "-m", "tare", "plan", "--schema")

"""Root that reads another user's run has that user's rights: what is written is its owner's, no more is read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from calls import Call
from runs import believable_run, write

import tare as package

pytestmark = pytest.mark.machine

NOBODY = 65534
READERS = (
    ("show",),
    ("compare",),
    ("claims",),
    ("query", "FROM trials"),
    ("export",),
    ("report", "--format", "markdown,json"),
    ("reparse",),
)


def may_read(place: str) -> bool:
    """Return whether nobody, who owns nothing, may read a place."""
    words = ("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "test", "-r", place)
    return subprocess.run(words, check=False).returncode == 0


# Python of the machine where all may read it, with the libraries of this one.
PYTHON = "/usr/bin/python3"
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
LIBRARIES = (str(Path(package.__file__).parents[1]), str(Path(np.__file__).parents[1]))
ALIKE = VERSION in subprocess.run((PYTHON, "--version"), capture_output=True, text=True, check=False).stdout


@pytest.fixture
def tare(environment: dict[str, str], tmp_path: Path) -> Call:
    """Run tare by a Python that nobody may read, too, where there is one of this version."""
    python = PYTHON if ALIKE else sys.executable

    def call(*argv: str | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            (python, "-m", "tare", *map(str, argv)),
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=environment | {"PYTHONPATH": os.pathsep.join(LIBRARIES), "PYTHONDONTWRITEBYTECODE": "1"},
            stdin=subprocess.DEVNULL,
        )

    return call


def called(command: tuple[str, ...], run: Path) -> tuple[str, ...]:
    return (command[0], str(run), *command[1:])


@pytest.fixture
def run() -> Iterator[Path]:
    """A run of nobody's, where nobody may read it."""
    folder = Path(tempfile.mkdtemp(prefix="tare-test-"))
    try:
        folder.chmod(0o755)
        made = write(believable_run(folder / "run", blocks=3))
        for path in (made, *made.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        yield made
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("command", READERS, ids=lambda words: words[0])
def test_what_a_reader_writes_belongs_to_the_owner_of_the_run(tare: Call, run: Path, command: tuple[str, ...]) -> None:
    done = tare(*called(command, run))
    if not (ALIKE and all(map(may_read, LIBRARIES))):  # a checkout in a folder of root's alone
        assert done.returncode == 2
        assert "belongs to user 65534, who may not read" in done.stderr
        return
    assert "Traceback" not in done.stderr
    assert {path.stat().st_uid for path in (run, *run.rglob("*"))} == {NOBODY}
    if command[0] == "report":
        assert (run / "report" / "report.json").exists()


@pytest.mark.parametrize("name", ["trials.jsonl", "run.json", "suite.toml"])
def test_a_link_of_the_owners_to_what_only_root_may_read_gives_nothing(
    tare: Call, run: Path, tmp_path: Path, name: str
) -> None:
    secret = tmp_path / "secret"
    shutil.copy(run / name, secret)
    secret.chmod(0o600)
    (run / name).unlink()
    (run / name).symlink_to(secret)
    done = tare("show", run)
    assert done.returncode != 0 or name == "suite.toml"
    assert "Traceback" not in done.stderr


def test_a_run_that_its_owner_cannot_reach_is_refused_with_what_to_do(tare: Call, run: Path) -> None:
    run.parent.chmod(0o700)
    done = tare("report", run)
    assert (done.returncode, done.stdout) == (2, "")
    error, hint = done.stderr.splitlines()
    assert error == f"error: {run}: belongs to user 65534, who may not read {run}"
    assert hint.startswith(f"hint: move {run}, or give the run to root")


def test_roots_own_run_is_read_as_root(tare: Call, run: Path) -> None:
    for path in (run, *run.rglob("*")):
        os.chown(path, 0, 0)
    run.parent.chmod(0o700)
    assert tare("report", run, "--format", "json").returncode == 0
    assert (run / "report" / "report.json").stat().st_uid == 0

"""`tare clean --check`: what of tare's is on the machine. Tests beside these have things of their own there."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from calls import Call

pytestmark = pytest.mark.machine
LINK = f"tare-{os.getpid():x}"


def ip(*words: str) -> None:
    subprocess.run(("ip", *words), check=True)


@pytest.fixture
def link() -> Iterator[str]:
    ip("link", "add", LINK, "type", "bridge")
    yield LINK
    ip("link", "delete", LINK)


@pytest.fixture
def disk(home: Path) -> Iterator[str]:
    """A loop device over a file in tare's folder."""
    file = home / "disk"
    file.write_bytes(bytes(1 << 20))
    made = subprocess.run(("losetup", "--show", "--find", file), capture_output=True, text=True, check=True)
    yield f"{Path(made.stdout.strip()).name} {file}"
    subprocess.run(("losetup", "--detach", made.stdout.strip()), check=True)


@pytest.fixture
def home(home: Path) -> Path:
    (home / "ledger").mkdir(parents=True)
    return home


def test_what_is_there_is_listed_by_kind_and_nothing_is_removed(tare: Call, home: Path, link: str, disk: str) -> None:
    (home / "ledger" / "run-1.jsonl").write_text("")
    done = tare("clean", "--check")
    assert done.returncode == 3
    assert done.stderr.startswith("error: ")
    assert "hint: " in done.stderr
    lines = done.stdout.splitlines()
    assert f"links: {link}" in lines
    assert "ledgers: run-1.jsonl" in lines
    assert [line.endswith(disk) for line in lines if line.startswith("disks: ")].count(True) == 1
    assert (home / "ledger" / "run-1.jsonl").exists()


def test_two_lists_in_json_differ_by_what_was_made_between_them(tare: Call, link: str) -> None:
    found = json.loads(tare("clean", "--check", "--json").stdout)
    assert not any("\n" in kind for kind in found["ours"])  # no script is a name
    assert link in found["ours"]["links"]
    assert any(line.startswith("kernel/pid_max = ") for line in found["settings"]["sysctl"])
    before = set(found["settings"]["sysctl"])
    again = set(json.loads(tare("clean", "--check", "--json").stdout)["settings"]["sysctl"])
    assert before == again


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--json",), "error: --json requires --check"),
        (("--check", "--images"), "error: --check and --images exclude each other"),
    ],
)
def test_options_that_do_not_fit_are_refused(tare: Call, words: tuple[str, ...], says: str) -> None:
    done = tare("clean", *words)
    assert (done.returncode, done.stderr.splitlines()[0]) == (2, says)
    assert done.stderr.splitlines()[1].startswith("hint: ")

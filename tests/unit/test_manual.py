"""The manual page and shell completion: as the commands are now, without faults, and what a shell is told."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import manual
import pytest

from tare.cli import app

PAGE = manual.SHARE / "man" / "man1" / "tare.1"


@pytest.fixture
def path(tmp_path: Path) -> dict[str, str]:
    """An environment in which `tare` is this one."""
    program = tmp_path / "tare"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m tare "$@"\n')
    program.chmod(0o755)
    return os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


def test_what_is_below_share_is_as_the_commands_are_now() -> None:
    assert {path: path.read_text(encoding="utf-8") for path in manual.files()} == manual.files(), "make docs"


def test_the_page_has_every_command_and_no_fault() -> None:
    text = PAGE.read_text(encoding="utf-8")
    named = re.findall(r"^\.SS tare ([a-z]+)", text, re.MULTILINE)
    assert list(dict.fromkeys(named)) == list(app.command_names())
    done = subprocess.run(("groff", "-man", "-ww", "-z", PAGE), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("line", "expected"),
    [("tare comp", "compare"), ("tare run --bud", "--budget"), ("tare compare --fail", "--fail-on")],
)
def test_bash_completes_commands_and_options(line: str, expected: str, path: dict[str, str]) -> None:
    script = """
source "$1"
COMP_WORDS=($2)
COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_tare_completion tare
echo "${COMPREPLY[@]}"
"""
    place = manual.SHARE / "bash-completion" / "completions" / "tare"
    argv = ("bash", "-c", script, "bash", place, line)
    done = subprocess.run(argv, capture_output=True, text=True, check=True, env=path)
    assert done.stdout.split() == [expected]


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"_TARE_COMPLETE": "complete_zsh"}, "_arguments '*: :((\"compare\"))'"),
        ({"_TARE_COMPLETE": "complete_fish", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}, "compare"),
    ],
    ids=["zsh", "fish"],
)
def test_the_other_shells_are_told_what_they_ask_for(
    asked: dict[str, str], expected: str, path: dict[str, str]
) -> None:
    environment = path | asked | {"_TYPER_COMPLETE_ARGS": "tare comp"}
    done = subprocess.run(("tare",), capture_output=True, text=True, check=False, env=environment)
    assert (done.stdout.strip(), done.stderr) == (expected, "")


def test_the_version_names_the_commit_of_the_checkout(path: dict[str, str]) -> None:
    done = subprocess.run(("tare", "--version"), capture_output=True, text=True, check=True, env=path)
    assert re.fullmatch(r"tare \d+\.\d+\.\d+ \([0-9a-f]{12}(-dirty)?\)\n", done.stdout)

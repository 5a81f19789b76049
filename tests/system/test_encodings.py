"""The output of every command in locales that are not UTF-8."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from calls import Call
from compared import STACKS, made
from marks import slow
from runs import believable_run, write
from waiting import ENOUGH_SECONDS

from tare.cli.app import command_names

LOCALES = {
    "latin-1": {"PYTHONIOENCODING": "latin-1"},
    "ascii": {"PYTHONIOENCODING": "ascii"},
    "C": {"LC_ALL": "C", "PYTHONUTF8": "0"},
    "switch": {"TARE_ASCII": "1", "PYTHONIOENCODING": "utf-8"},
}
SUITE = '[suite]\nstacks = ["native", "crun"]\n[[workloads]]\nuse = "redis"\nclients = [1, 2]\n'
COMPOSE = "services: {web: {image: 'nginx:1', ports: ['80']}}\n"
# Those that measure, or need root or other machines, are below, or print nothing but errors and paths.
CALLS = (
    ("plan", "größer.toml"),
    ("plan", "--schema"),
    ("plan", "none…toml"),
    ("run", "wrong.toml"),
    ("report", "run", "--format", "html,csv,json,markdown,latex"),
    ("show", "run"),
    ("reparse", "run"),
    ("compare", "run"),
    ("compare", "before", "after", "--fail-on", "5%"),
    ("compare", "before", "after", "--markdown"),
    ("compare", "before", "after", "--json"),
    ("history", "before", "after"),
    ("claims", "run"),
    ("popularity",),
    ("query", "SELECT '…±µ' AS text, * FROM trials", "run"),
    ("query", "SELECT '…±µ' AS text, * FROM trials", "run", "--format", "csv"),
    ("advise", "none.json"),
    ("doctor", "--all"),
    ("technologies",),
    ("technologies", "crun"),
    ("workloads",),
    ("workloads", "redis"),
    ("application", "compose.yaml"),
    ("export", "run"),
    ("tune",),
    *((name, "--help") for name in command_names()),
)
# One process for all of them: to load tare takes a second.
CALL_ALL = """
import json, sys
from tare.cli.encoding import restart_in_utf8_mode, select_ascii_forms
restart_in_utf8_mode()
select_ascii_forms()
from tare.__main__ import run
from tare.cli.app import app
for words in json.loads(sys.argv[1]):
    print(f"exit code {run(app, words)}", file=sys.stderr)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "größer.toml").write_text(SUITE, encoding="utf-8")
    (tmp_path / "wrong.toml").write_text(SUITE.replace('["native"', '["größer"'), encoding="utf-8")
    (tmp_path / "compose.yaml").write_text(COMPOSE)
    write(believable_run(tmp_path / "run"))
    made(tmp_path / "before", STACKS, seed=1)
    made(tmp_path / "after", STACKS, seed=2)
    return tmp_path


def call_all(folder: Path, environment: dict[str, str]) -> tuple[list[str], bytes]:
    """Return what each command printed to standard error with its exit code, and the standard output of all."""
    argv = (sys.executable, "-c", CALL_ALL, json.dumps(CALLS))
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, check=False, timeout=ENOUGH_SECONDS)
    assert done.returncode == 0, done.stderr.decode(errors="replace")[-3000:]
    return done.stderr.decode("latin-1").splitlines(), done.stdout


@pytest.mark.slow
def test_every_command_ends_as_in_utf8(folder: Path, environment: dict[str, str]) -> None:
    usual, output = call_all(folder, environment | {"PYTHONIOENCODING": "utf-8"})
    codes = [line for line in usual if line.startswith("exit code")]
    assert len(codes) == len(CALLS)
    assert not output.isascii()
    for name, variables in LOCALES.items():
        lines, printed = call_all(folder, environment | variables)
        assert [line for line in lines if line.startswith("exit code")] == codes, name
        assert name == "latin-1" or printed.isascii(), name
        assert "error: none...toml: no such file" in "\n".join(lines), name
        text = printed.decode("latin-1")
        assert "^ more is better, v less is better" in text
        assert "| " in text  # Rich draws its tables in ASCII


@pytest.mark.parametrize("name", slow(LOCALES, LOCALES.keys() - {"C"}))
def test_a_comparison_of_the_command_line_gives_its_answer(
    name: str, folder: Path, tare: Call, environment: dict[str, str]
) -> None:
    environment |= LOCALES[name]
    done = tare("compare", "run", encoding="latin-1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "change from native, 95 % interval, n blocks; ^ more is better" in done.stdout
    document = tare("compare", "run", "--json", encoding="latin-1")
    assert json.loads(document.stdout)["format"] == 1
    assert folder.is_dir()


@pytest.mark.machine
@pytest.mark.usefixtures("machine_as_before")
@pytest.mark.parametrize("name", slow(["latin-1", "C"], ["latin-1"]))
def test_a_trial_of_a_command_writes_its_report(name: str, tare: Call, environment: dict[str, str]) -> None:
    environment |= LOCALES[name]
    script = "echo größer: 12.5"
    words = ("try", "--on", "native,crun", "--metric", "^größer: ([0-9.]+) -> rate events/s", "--budget", "1s")
    done = tare(*words, "--out", "run", "--", "sh", "-c", script, encoding="latin-1")
    assert done.returncode == 0, done.stderr
    assert "report: run/report/index.html" in done.stderr

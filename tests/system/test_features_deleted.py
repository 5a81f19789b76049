"""The core without its features: each folder is deleted in a copy of the package, and a suite is run there."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from marks import slow

from tare.model.run_folder import load_run
from tare.plugins.feature import find_features

ROOT = Path(__file__).parents[2]
PLUG_INS = ROOT / "tests" / "plug_ins"
FEATURES = sorted(path.name for path in (ROOT / "src/tare/features").iterdir() if (path / "__init__.py").is_file())
USED_BY_OTHERS = "compare"  # the one feature that others import
SUITE = """
[suite]
stacks = ["native", "fake"]
blocks = 2

[[workloads]]
use = "startup"
"""
# Tests of the core that use no feature, and of each place at which features add something. The runner has no such
# place: that it imports none is a contract of lint-imports, and a suite is run without each.
CORE = (
    "cli/test_show.py",
    "model",
    "plugins/test_features.py",
    "report/test_report_formats.py",
    "report/test_report_golden.py",
    "runner/test_loop.py",
    "suites/test_suite.py",
)


def copy_without(folder: Path, home: Path, *features: str) -> dict[str, str]:
    """Copy the package without these features; return the environment in which Python finds the copy.

    What Python has compiled is copied, too, as to compile all of it takes seconds; not what it is just writing.
    """
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.pyc.*"))
    for name in ("claims", "programs", "ansible"):  # beside src in a checkout; the same programs, the same image
        (folder / name).symlink_to(ROOT / name)
    for name in features:
        shutil.rmtree(folder / "src/tare/features" / name)
    places = {"TARE_HOME": str(home), "TARE_LOCK": str(folder / "lock"), "COLUMNS": "120"}
    return os.environ | places | {"PYTHONPATH": os.pathsep.join((str(folder / "src"), str(PLUG_INS)))}


def call(environment: dict[str, str], folder: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-P", "-m", *argv)
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)


def test_every_folder_of_features_is_a_feature() -> None:
    assert set(FEATURES) <= set(find_features())
    assert len(FEATURES) == 10


# Without the one that others import, none is left; the others are deleted one by one less often.
@pytest.mark.machine
@pytest.mark.parametrize("feature", slow(FEATURES, set(FEATURES) - {USED_BY_OTHERS}))
def test_a_suite_runs_and_is_reported_without_a_feature(feature: str, tmp_path: Path, ready_home: Path) -> None:
    gone = FEATURES if feature == USED_BY_OTHERS else (feature,)
    environment = copy_without(tmp_path, ready_home, *gone)
    (tmp_path / "suite.toml").write_text(SUITE)
    done = call(environment, tmp_path, "tare", "run", "suite.toml", "--out", "run")
    assert done.returncode == 0, done.stderr
    assert Counter(trial.status for trial in load_run(tmp_path / "run").trials) == {
        "ok": 6
    }  # with those of the control
    assert (tmp_path / "run/report/index.html").stat().st_size > 10_000
    done = call(environment, tmp_path, "tare", "report", "run", "--format", "markdown,csv,json", "--out", "report")
    assert done.returncode == 0, done.stderr
    done = call(environment, tmp_path, "tare", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    gone_commands = {command for name in gone for command in find_features()[name][1].commands}
    assert gone_commands.isdisjoint(line.split()[0] for line in done.stdout.splitlines() if line.strip())


@pytest.mark.slow
def test_the_tests_of_the_core_pass_without_any_feature(tmp_path: Path, home: Path) -> None:
    environment = copy_without(tmp_path, home, *FEATURES)
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.rmtree(tmp_path / "tests/unit/features")
    for name in ("pyproject.toml", "examples", "research", "docs", "share"):
        (tmp_path / name).symlink_to(ROOT / name)
    tests = [str(tmp_path / "tests/unit" / name) for name in CORE]
    chosen = ("-m", "not machine and not lab and not slow")
    done = call(environment, tmp_path, "pytest", "-q", *chosen, "-p", "no:cacheprovider", *tests)
    assert done.returncode == 0, done.stdout[-8000:]

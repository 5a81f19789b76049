"""Plug-ins of somebody else that give what a run cannot hold: each costs its own trials, not the run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tare.journal import load

pytestmark = pytest.mark.machine

Call = Callable[..., subprocess.CompletedProcess[str]]
NothingLeft = Callable[[], AbstractContextManager[None]]
SUITE = """\
[suite]
stacks = ["fake", "timeless"]
baseline = "fake"
blocks = 1

[stacks.timeless]
stack = "fake"
fails = "moment"

[[workloads]]
use = "odd"
gives = "nan"

[[workloads]]
use = "startup"
"""


@pytest.mark.usefixtures("ready_home")
def test_a_value_and_a_moment_that_are_no_numbers_fail_their_trials_and_the_run_goes_on(
    tare: Call, tmp_path: Path, nothing_left: NothingLeft
) -> None:
    (tmp_path / "odd.toml").write_text(SUITE)
    with nothing_left():
        output = tare("run", "odd.toml", "--out", "run")
    assert output.returncode == 0, output.stderr
    assert "all blocks are done: 2 trials ok, 4 failed" in output.stderr
    trials = load(tmp_path / "run").trials
    found = {(trial.stack, trial.workload): (trial.status, trial.reason) for trial in trials}
    value = ("failed", "odd gave nan for 'speed'")
    moment = ("failed", "fake: the moment 'started' of its start is nan")
    assert found == {
        ("fake", "odd"): value,
        ("fake-again", "odd"): value,
        ("timeless", "odd"): moment,
        ("fake", "startup"): ("ok", ""),
        ("fake-again", "startup"): ("ok", ""),
        ("timeless", "startup"): moment,
    }
    assert (tmp_path / "run" / "report" / "index.html").exists()
    assert f"failed: {trials[0].trial}: " in output.stderr

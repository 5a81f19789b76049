"""A price list of real technologies."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tare.journal import load
from tare.model.work import NETWORK, WORK

Call = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = [pytest.mark.machine, pytest.mark.usefixtures("machine_as_before")]


def test_every_kind_of_work_has_a_price_in_every_stack(tare: Call, tmp_path: Path) -> None:
    done = tare("prices", "--on", "native,crun", "--budget", "25s", "--out", "run")
    assert done.returncode == 0, done.stderr
    trials = load(tmp_path / "run").trials
    assert {(trial.stack, trial.status) for trial in trials} == {
        (stack, "ok") for stack in ("native", "native-again", "crun")
    }
    found = {(trial.stack, value.metric) for trial in trials for value in trial.values if value.value > 0}
    inside = [work.name for work in WORK if work not in NETWORK]
    assert {("native", name) for name in inside} <= found
    assert {("crun", name) for name in inside} <= found

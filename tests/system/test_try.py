"""One command on real technologies, without a suite."""

from __future__ import annotations

from pathlib import Path

import pytest
from calls import Call

from tare.model.operations import NETWORK_KINDS, OPERATION_KINDS
from tare.model.run_folder import load_run

WORDS = ("try", "--on", "native,crun", "--metric", "^rate: ([0-9.]+)$ -> rate events/s", "--budget", "1s")
COMMAND = ("--", "sh", "-c", "echo rate: 12.5")

pytestmark = [pytest.mark.machine, pytest.mark.usefixtures("machine_as_before")]


def assert_measured_everywhere(run: Path) -> None:
    trials = load_run(run).trials
    assert {(trial.stack, trial.status) for trial in trials} == {
        (stack, "ok") for stack in ("native", "native-again", "crun")
    }
    assert {value.value for trial in trials for value in trial.values if value.metric == "rate"} == {12.5}


def test_trying_a_command_leaves_a_run_of_the_suite_that_save_writes(tare: Call, tmp_path: Path) -> None:
    tried = tare(*WORDS, "--out", "run", *COMMAND)
    assert tried.returncode == 0, tried.stderr
    assert "change from native [95 % interval] n blocks" in tried.stdout
    assert_measured_everywhere(tmp_path / "run")
    assert tare(*WORDS, "--save", "mine.toml", *COMMAND).returncode == 0
    assert (tmp_path / "mine.toml").read_text() == (tmp_path / "run/suite.toml").read_text()


def test_a_program_missing_from_the_image_is_reported_before_any_start(tare: Call, tmp_path: Path) -> None:
    refused = tare(*WORDS, "--out", "run", "--", "no-such-program")
    hint = 'give the Debian package that has it: --package P, or packages = ["…"] in a suite'
    assert refused.stderr == f"error: no-such-program: the image has no such program\nhint: {hint}\n"
    assert (refused.returncode, refused.stdout) == (2, "")
    assert not (tmp_path / "run").exists()


def test_a_command_without_an_end_is_given_up_after_its_first_time_out(tare: Call, tmp_path: Path) -> None:
    tried = tare("try", "--on", "native,crun", "--budget", "30s", "--out", "run", "--", "sleep", "70309")
    assert tried.returncode == 3
    assert 'sleep: did not end within 5 s\nhint: a server is measured by a suite with use = "service"' in tried.stderr
    assert "leave" not in tried.stderr
    assert [(trial.stack, trial.status) for trial in load_run(tmp_path / "run").trials] == [("native", "failed")]


# --- A price list of real technologies -------------------------------------------------------------------------------


def test_every_kind_of_work_has_a_price_in_every_stack(tare: Call, tmp_path: Path) -> None:
    done = tare("prices", "--on", "native,crun", "--budget", "1s", "--out", "run")
    assert done.returncode == 0, done.stderr
    trials = load_run(tmp_path / "run").trials
    assert {(trial.stack, trial.status) for trial in trials} == {
        (stack, "ok") for stack in ("native", "native-again", "crun")
    }
    found = {(trial.stack, value.metric) for trial in trials for value in trial.values if value.value > 0}
    inside = [work.name for work in OPERATION_KINDS if work not in NETWORK_KINDS]
    assert {("native", name) for name in inside} <= found
    assert {("crun", name) for name in inside} <= found

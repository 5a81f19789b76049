"""The folder of a new run: one that has results, or anything of the user's, is never taken."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs import make_run, make_trial, measured, write

from tare.errors import UsageError
from tare.running.job import new_job
from tare.suites.suite import parse_suite

SUITE = parse_suite('[suite]\nstacks = ["native"]\n[[workloads]]\nuse = "startup"\n', "mine.toml")


def test_the_folder_of_a_run_that_was_ended_before_its_first_trial_is_taken_again(tmp_path: Path) -> None:
    write(make_run([], folder=tmp_path / "run"))
    assert new_job(SUITE, tmp_path / "run").journal.folder == tmp_path / "run"


def test_the_folder_of_a_run_with_a_trial_is_refused(tmp_path: Path) -> None:
    write(make_run([make_trial("native", 0, (measured("speed", 1.0),))], folder=tmp_path / "run"))
    for folder in (tmp_path / "run", tmp_path):
        with pytest.raises(UsageError, match="the folder already exists") as error:
            new_job(SUITE, folder)
        assert "--resume" in error.value.hint

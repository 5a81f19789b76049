"""The folder of a new run: one that has results, or anything of the user's, is never taken."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from runs import make_run, make_trial, measured, write

from tare.errors import UsageError
from tare.journal import Journal
from tare.runner.job import new_job, resumed_job
from tare.suites.suite import parse_suite
from tare.workloads.service import ServerOfYours

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


SERVICE = """[suite]
stacks = ["native"]
[[workloads]]
use = "service"
requests = "requests.jsonl"
[[workloads]]
use = "application"
folder = "shop"
"""


def test_a_run_is_continued_from_any_folder_with_the_files_beside_its_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/requests.jsonl").write_text('{"path": "/there"}\n')
    (tmp_path / "mine/shop").symlink_to(Path(__file__).parents[3] / "examples/dictionary")
    run = make_run([], folder=tmp_path / "run")
    record = replace(run.record, suite_folder=str(tmp_path / "mine"))
    Journal(run.folder).create(record, SERVICE)
    monkeypatch.chdir("/")
    service, application = (each.workload for each in resumed_job(run.folder).suite.workloads)
    assert isinstance(service, ServerOfYours)
    assert [each.path for each in service.requests] == ["/there"]
    assert application.own_files() == ("shop",)


def test_a_run_without_the_folder_of_its_suite_takes_the_current_one(tmp_path: Path) -> None:
    record = make_run([]).record
    assert replace(record, suite_folder=str(tmp_path)).paths_from == tmp_path
    assert replace(record, suite_folder=str(tmp_path / "gone")).paths_from == record.paths_from == Path()

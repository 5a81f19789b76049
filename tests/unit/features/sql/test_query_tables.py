"""SQL over runs: what the tables hold, and what is said of runs that cannot be read."""

from __future__ import annotations

import json
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from runs import REDIS, believable_run, make_run, make_trial, measured, run_in_turns, write
from sampled import sampled_run

from tare.features.sql import schema
from tare.features.sql.query import run_query
from tare.features.sql.schema import find_sources
from tare.model.errors import UsageError
from tare.model.run_folder import load_run
from tare.model.trial import Caution, Mark, MeasuredValue, Turn
from tare.report.data_files import cell_fields
from tare.report.writer import write_report
from tare.statistics.summarize import summarize
from tare.telemetry.parquet import COLUMNS


def rows(folders: Path | Sequence[Path], sql: str) -> list[dict[str, Any]]:
    return list(run_query([folders] if isinstance(folders, Path) else folders, sql).documents())


def small(folder: Path, stack: str = "docker", *, torn: str = "") -> Path:
    """Write a run of two trials of Redis, with a last line that a power cut has torn."""
    trials = [make_trial(each, 0, [measured("get", 100.0, 50.0)], "redis") for each in ("native", stack)]
    write(make_run(trials, [REDIS], folder))
    with (folder / "trials.jsonl").open("a", encoding="utf-8") as file:
        file.write(torn)
    return folder


def test_every_table_has_the_columns_that_it_says(tmp_path: Path) -> None:
    folder = sampled_run(tmp_path / "run", count=2)
    assert run_query([folder], "FROM runs").columns == list(schema.RUNS)
    assert run_query([folder], "FROM decisions").columns == list(schema.DECISIONS)
    assert {*run_query([folder], "FROM telemetry").columns} == {"run", "file", *COLUMNS}
    assert [row["name"] for row in rows(folder, "SHOW TABLES")] == sorted(schema.TABLES)


def test_values_are_those_of_ok_trials_with_their_units(tmp_path: Path) -> None:
    run = believable_run(tmp_path / "run", blocks=2)
    found = rows(write(run), 'SELECT trial, metric, point, "value", unit, better FROM values')
    told = [
        {"trial": trial.trial, **{name: getattr(each, name) for name in ("metric", "point", "value", "unit", "better")}}
        for trial in run.trials
        if trial.status == "ok"
        for each in trial.values
    ]
    assert sorted(found, key=str) == sorted(told, key=str)


def test_trials_have_their_status_and_reason_also_where_they_failed(tmp_path: Path) -> None:
    ok = replace(
        make_trial("native", 0, [measured("speed", 1.0)]),
        timeline=(Mark("requested", 0.0), Mark("qemu:ready", 1.0), Mark("ready", 2.5)),
        cautions=(Caution("steal", "some"), Caution("swap", "any")),
    )
    failed = replace(make_trial("docker", 0, ()), status="failed", reason='it\'s "odd" <b>', hint="fix it")
    folder = write(make_run([ok, failed], folder=tmp_path / "run"))
    sql = "SELECT stack, status, reason, hint, started, ready_seconds, cautions FROM trials ORDER BY stack"
    assert [[*row.values()] for row in rows(folder, sql)] == [
        ["docker", "failed", 'it\'s "odd" <b>', "fix it", "2023-11-14 22:13:20", None, []],
        ["native", "ok", "", "", "2023-11-14 22:13:20", 2.5, ["steal", "swap"]],
    ]
    assert rows(folder, "FROM \"values\" WHERE stack = 'docker'") == []
    marks = rows(folder, "SELECT stack, name, seconds FROM marks WHERE stack = 'native' ORDER BY seconds")
    assert [[*row.values()] for row in marks] == [
        ["native", "requested", 0.0], ["native", "qemu:ready", 1.0], ["native", "ready", 2.5]
    ]  # fmt: skip


def test_turns_have_their_rounds_and_when_they_were(tmp_path: Path) -> None:
    made = run_in_turns(clients=(1.0, 50.0), blocks=2, rounds=3)
    late = [replace(trial, first_round=10) if trial.stack == "crun" else trial for trial in made.trials]
    run = replace(made, folder=tmp_path / "run", trials=tuple(late))
    found = rows(
        write(run),
        """SELECT round, "value", began, seconds, steal FROM turns
        WHERE stack = 'crun' AND block = 1 AND point = 50 ORDER BY round""",
    )
    (trial,) = (trial for trial in run.trials if (trial.stack, trial.block) == ("crun", 1))
    taken = [turn for turn in trial.turns if turn.label == "GET 50"]
    assert [(row["round"], row["value"]) for row in found] == [*enumerate(trial.values[1].turns, start=10)]
    assert [(row["began"], row["seconds"]) for row in found] == [(turn.began, turn.seconds) for turn in taken]


def test_turns_have_cpu_time_also_for_each_unit_of_a_rate(tmp_path: Path) -> None:
    turns = (
        Turn("GET 50", 0, 0.0, 0.2, warm_up=True, cpu_seconds=9.0, waited_seconds=9.0, sending_seconds=9.0),
        Turn("GET 50", 1, 1.0, 0.2, cpu_seconds=0.1, waited_seconds=0.03, sending_seconds=0.1),
    )
    values = (
        MeasuredValue("get", 50.0, 100e3, "requests/s", "higher", (), "GET 50"),
        MeasuredValue("p99", 50.0, 0.01, "s", "lower", (), "GET 50"),
    )
    new = replace(make_trial("docker", 0, values, "redis"), turns=turns)
    old = replace(make_trial("native", 0, values[:1], "redis"), turns=(Turn("GET 50", 0, 0.0, 0.2),))
    folder = write(make_run([new, old], [REDIS], tmp_path / "run"))
    of_older_versions = json.loads((folder / "trials.jsonl").read_text(encoding="utf-8").splitlines()[1])
    for name in ("cpu_seconds", "waited_seconds", "sending_seconds"):
        assert of_older_versions["turns"][0].pop(name) is None
    (folder / "trials.jsonl").write_text(
        (folder / "trials.jsonl").read_text(encoding="utf-8").splitlines()[0] + f"\n{json.dumps(of_older_versions)}\n",
        encoding="utf-8",
    )
    sql = "SELECT stack, metric, cpu_seconds, waited_seconds, cpu_seconds_per_unit FROM turns ORDER BY ALL"
    assert [(*row.values(),) for row in rows(folder, sql)] == [
        ("docker", "get", 0.1, 0.03, pytest.approx(1e-5)),
        ("docker", "p99", 0.1, 0.03, None),
        ("native", "get", None, None, None),
    ]


def test_a_value_that_was_measured_at_once_is_a_turn_without_a_round(tmp_path: Path) -> None:
    found = rows(small(tmp_path / "run"), 'SELECT round, "value", began FROM turns')
    assert found == [{"round": None, "value": 100.0, "began": None}] * 2


def test_where_turns_and_outputs_are_not_as_many_no_time_is_reported(tmp_path: Path) -> None:
    run = run_in_turns(blocks=1, rounds=3)
    less = [replace(trial, turns=trial.turns[:-1]) for trial in run.trials]
    folder = write(replace(run, folder=tmp_path / "run", trials=tuple(less)))
    assert rows(folder, 'SELECT count(began) AS told, count("value") AS known FROM turns') == [{"told": 0, "known": 18}]


def test_telemetry_has_one_series_for_each_instance_and_one_of_the_machine(tmp_path: Path) -> None:
    folder = sampled_run(tmp_path / "run", count=3)
    found = rows(folder, "SELECT file, scope, trial, count(*) AS samples FROM telemetry GROUP BY ALL ORDER BY ALL")
    assert [(*row.values(),) for row in found] == [
        ("dhrystone-000", "host", None, 3),
        ("dhrystone-000", "instance", "a-trial-that-is-not-in-the-journal", 3),
        ("dhrystone-000", "instance", "dhrystone-000-00", 3),
        ("dhrystone-000", "instance", "dhrystone-000-01", 3),
        ("dhrystone-001-00", "host", None, 3),
        ("dhrystone-001-00", "instance", "dhrystone-001-00", 3),
    ]


def test_decisions_are_those_of_the_report(tmp_path: Path) -> None:
    run = believable_run(tmp_path / "run", blocks=5)
    summary = summarize(run)
    sql = "SELECT workload, headline, metric, point, stack, decision, estimate, n, mean, skipped FROM decisions"
    found = rows(write(run), sql)
    told = [{name: cell_fields(cell)[name] for name in found[0]} for cell in (*summary.headlines, *summary.cells)]
    assert sorted(found, key=str) == sorted(told, key=str)


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with its report."""
    folder = tmp_path_factory.mktemp("reported") / "run"
    write_report([load_run(write(believable_run(folder, blocks=5)))], ["json"])
    return folder


@pytest.fixture
def report(reported: Path, tmp_path: Path) -> Path:
    """The report of a run, in which a decision is another one, by which it is known."""
    [path] = shutil.copytree(reported, tmp_path / "run").rglob("report.json")
    text = path.read_text(encoding="utf-8")
    assert '"decision": "baseline"' in text
    path.write_text(text.replace('"decision": "baseline"', '"decision": "as reported"'), encoding="utf-8")
    return path


def are_reported(folder: Path) -> bool:
    found = {row["decision"] for row in rows(folder, "SELECT DISTINCT decision FROM decisions")}
    assert len(found & {"baseline", "as reported"}) == 1
    return "as reported" in found


def test_decisions_are_read_from_the_report_of_this_journal(report: Path, tmp_path: Path) -> None:
    assert are_reported(tmp_path / "run")
    journal = tmp_path / "run" / "trials.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"torn')
    assert are_reported(tmp_path / "run")
    journal.write_bytes(whole.replace(b'"seconds": 2.0', b'"seconds": 3.0', 1))
    assert journal.stat().st_size == len(whole)
    assert not are_reported(tmp_path / "run")
    journal.write_bytes(b"".join(whole.splitlines(keepends=True)[:-1]))
    assert not are_reported(tmp_path / "run")
    assert '"decision": "as reported"' in report.read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "other"), [
    ('"format": 1', '"format": 9'),
    ('"computed_by": "', '"computed_by": "9'),
    ('"journal": "', '"journal": "9'),
    ('"cells": [', '"cells": 5, "old": ['),
    ('"cautions": [', '"cautions": [null, '),
    ('"interval": ', '"interval": "wide", "old": '),
    ('"headlines": [', '"headlines": [' + "[" * 100_000),
    ("{", "["),
])  # fmt: skip
def test_a_report_that_tare_would_not_write_today_is_not_read(name: str, other: str, report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    assert name in text
    report.write_text(text.replace(name, other), encoding="utf-8")
    assert not are_reported(report.parents[1])


def test_an_untrusted_report_of_wrong_types_is_refused(report: Path) -> None:
    text = report.read_text(encoding="utf-8")
    report.write_text(text.replace('"trials": ', '"trials": "many", "old": '), encoding="utf-8")
    with pytest.raises(UsageError, match="many"):
        rows(report.parents[1], "FROM decisions")


def test_a_pipe_in_place_of_a_report_does_not_make_a_query_wait(report: Path) -> None:
    report.unlink()
    os.mkfifo(report)
    assert not are_reported(report.parents[1])


def test_a_run_without_a_trial_has_its_reports_decisions_too(tmp_path: Path) -> None:
    run = make_run([], [REDIS], tmp_path / "run")
    write(replace(run, record=replace(run.record, stacks=("native", "docker"))))
    computed = rows(tmp_path / "run", "FROM decisions ORDER BY ALL")
    write_report([load_run(tmp_path / "run")], ["json"])
    assert rows(tmp_path / "run", "FROM decisions ORDER BY ALL") == computed


def test_runs_are_distinguished_by_their_folders(tmp_path: Path) -> None:
    folders = [small(tmp_path / name) for name in ("a/run", "b/run", "c")]
    found = rows(folders, "SELECT run, count(*) AS trials FROM trials GROUP BY run ORDER BY run")
    assert [(*row.values(),) for row in found] == [(f"{tmp_path}/a/run", 2), (f"{tmp_path}/b/run", 2), ("c", 2)]
    with pytest.raises(UsageError, match="is given 2 times"):
        run_query([folders[0], tmp_path / "b" / ".." / "a" / "run"], "FROM runs")


@pytest.mark.parametrize("name", ["a[1]*?", "it's", 'a"b', "year=2024", "a,b", "{a,b}", "ünï 中", "$(x);--", "a\\b"])
def test_a_folder_may_have_any_name(name: str, tmp_path: Path) -> None:
    small(tmp_path / "a1b")  # which a pattern would find, too
    found = rows(small(tmp_path / name), "SELECT run, trial FROM trials")
    assert [(row["run"], [*row]) for row in found] == [(name, ["run", "trial"])] * 2


def test_names_in_a_journal_are_data(tmp_path: Path) -> None:
    stack = "'; COPY (SELECT 1) TO 'x' -- <b>&\\ 中\t"
    sql = "SELECT stack FROM trials WHERE stack <> 'native'"
    assert rows(small(tmp_path / "run", stack), sql) == [{"stack": stack}]


def test_the_order_of_rows_is_that_which_the_query_asks_for(tmp_path: Path) -> None:
    sql = "SELECT n FROM range(150000) AS numbers (n) ORDER BY hash(n), n"
    assert run_query([small(tmp_path / "run")], sql).rows() == duckdb.connect().execute(sql).fetchall()


@pytest.mark.parametrize("late", [0.0, 0.5])
def test_ctrl_c_ends_a_query_also_before_it_has_begun(late: float, tmp_path: Path) -> None:
    endless = "SELECT max(hash(a.range * b.range)) FROM range(1000000) AS a, range(1000000) AS b"
    answer = run_query([small(tmp_path / "run")], "SELECT 1")

    def run() -> None:
        time.sleep(late)
        answer._connection.execute(endless)

    def interrupted() -> None:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        answer._run_interruptibly(run)

    with pytest.raises(KeyboardInterrupt):
        interrupted()


def test_numbers_that_json_lacks_are_null(tmp_path: Path) -> None:
    sql = "SELECT 'nan'::DOUBLE AS a, ['inf'::DOUBLE, 1] AS b, now() IS NULL AS c, 1.5::DECIMAL(3, 2) AS d"
    assert rows(small(tmp_path / "run"), sql) == [{"a": None, "b": [None, 1.0], "c": False, "d": 1.5}]


# --- runs that are odd, old, torn or damaged -------------------------------------------------------------------------


def test_an_empty_run_has_no_trials(tmp_path: Path) -> None:
    folder = write(make_run([], folder=tmp_path / "run"))
    assert not (folder / "trials.jsonl").exists()
    for table in schema.TABLES:
        assert len(rows(folder, f'FROM "{table}"')) == (table == "runs")
    (folder / "trials.jsonl").touch()
    assert rows(folder, "FROM trials") == []
    (folder / "trials.jsonl").write_text('{"format": 1', encoding="utf-8")  # torn in its first line
    assert rows(folder, "FROM trials") == []


@pytest.mark.parametrize("torn", ['{"format": 1, "trial": "x"', "{", '{"format": 1, "trial": "whole but for its end"}'])
def test_a_torn_last_line_is_left_out_and_the_journal_stays_as_it_is(torn: str, tmp_path: Path) -> None:
    folder = small(tmp_path / "run", torn=torn)
    text = (folder / "trials.jsonl").read_text(encoding="utf-8")
    assert len(rows(folder, "FROM trials")) == 2
    assert (folder / "trials.jsonl").read_text(encoding="utf-8") == text


def test_a_newer_format_is_refused_also_in_the_last_line_alone(tmp_path: Path) -> None:
    folder = small(tmp_path / "run")
    first, last = (folder / "trials.jsonl").read_text(encoding="utf-8").splitlines()
    newer = last.replace('"format": 1', '"format": 9')
    (folder / "trials.jsonl").write_text(f"{first}\n{newer}\n", encoding="utf-8")
    with pytest.raises(UsageError, match="its last line: format 9, and this tare reads 1") as error:
        run_query([folder], "FROM trials")
    assert error.value.hint == "use a newer tare"


@pytest.mark.parametrize("bad", ["{", "[]", '{"seconds": "x"}', '{"values": 5}', "no JSON", "[" * 100_000])
def test_a_damaged_line_is_reported_with_its_file(bad: str, tmp_path: Path) -> None:
    folder = small(tmp_path / "run")
    journal = folder / "trials.jsonl"
    first, last = journal.read_text(encoding="utf-8").splitlines()
    for text in (f"{first}\n{bad}\n{last}\n", f"{first}\n{bad}\n{last}\ntorn", f"{bad}\n{last}\n"):
        journal.write_text(text, encoding="utf-8")
        with pytest.raises(UsageError, match=str(journal)) as error:
            rows(folder, "SELECT trial, seconds FROM trials SEMI JOIN turns USING (trial)")
        assert error.value.hint == "the file is damaged or of a newer tare"


def test_damaged_telemetry_is_reported_with_its_file_only_if_queried(tmp_path: Path) -> None:
    folder = sampled_run(tmp_path / "run", count=2)
    (folder / "telemetry" / "dhrystone-000.parquet").write_bytes(b"no parquet")
    assert rows(folder, "SELECT count(*) AS n FROM trials") == [{"n": 3}]
    with pytest.raises(UsageError, match=r"dhrystone-000\.parquet"):
        rows(folder, "FROM telemetry")


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run") as error:
        run_query([tmp_path], "FROM runs")
    assert error.value.hint == "give the folder that `tare run` printed"


# --- untrusted run ------------------------------------------------------------------------------------------------


def test_a_strangers_run_leads_to_no_file_elsewhere(tmp_path: Path) -> None:
    secret = small(tmp_path / "mine")
    folder = sampled_run(tmp_path / "run", count=2)
    telemetry = folder / "telemetry" / "dhrystone-000.parquet"
    telemetry.rename(tmp_path / "moved.parquet")
    telemetry.symlink_to(tmp_path / "moved.parquet")
    with pytest.raises(UsageError, match=r"dhrystone-000.parquet: is a symbolic link"):
        run_query([folder], "FROM telemetry")
    (folder / "trials.jsonl").unlink()
    (folder / "trials.jsonl").symlink_to(secret / "trials.jsonl")
    with pytest.raises(UsageError, match=r"trials.jsonl: is a symbolic link"):
        run_query([folder], "FROM trials")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_journal_that_is_not_a_file_is_refused_without_reading_a_pipe(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    folder = write(make_run([], folder=tmp_path / "run"))
    make(folder / "trials.jsonl")
    with pytest.raises(UsageError, match="is no file"):
        run_query([folder], "FROM trials")


def test_a_disk_without_room_for_a_copy_is_reported(tmp_path: Path) -> None:
    folder = small(tmp_path / "run", torn="torn")
    (found,) = find_sources([folder], tmp_path, with_telemetry=False)
    assert found.journal == tmp_path / "0.jsonl"
    with pytest.raises(UsageError, match=r"0\.jsonl: no such file or directory"):
        list(find_sources([folder], tmp_path / "full", with_telemetry=False))


def test_numbers_of_a_strangers_run_that_no_table_holds_are_refused(tmp_path: Path) -> None:
    record = (folder := small(tmp_path / "run")) / "run.json"
    text = record.read_text(encoding="utf-8")
    record.write_text(text.replace('"margin": 0.03', '"margin": NaN'), encoding="utf-8")
    assert rows(folder, "SELECT margin FROM runs") == [{"margin": None}]
    record.write_text(text.replace('"cpus": 2', f'"cpus": {10**30}'), encoding="utf-8")
    with pytest.raises(UsageError):
        run_query([folder], "FROM runs")


def test_a_run_and_the_folder_for_temporary_files_may_be_behind_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small(tmp_path / "run", torn="torn")
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "newest").symlink_to(folder)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "link"))
    assert [row["run"] for row in rows(tmp_path / "newest", "FROM trials")] == ["run"] * 2


def test_what_a_query_needs_meanwhile_is_gone_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "own"))
    answer = run_query([small(tmp_path / "run", torn="torn")], "FROM trials")
    assert len(list((tmp_path / "own").iterdir())) == 1
    assert len(list(answer.texts())) == 2
    del answer
    assert list((tmp_path / "own").iterdir()) == []

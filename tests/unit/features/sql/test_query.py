from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest
from called import Call
from runs import REDIS, make_run, make_trial, measured, write


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    trials = [make_trial(each, 0, [measured("get", -1.5, 50.0)], "redis") for each in ("native", "=1+1", "a\x1b[1m\nb")]
    return write(make_run(trials, [REDIS], tmp_path / "run"))


def test_a_table_is_printed_for_people(folder: Path, call: Call) -> None:
    said = call("query", folder, "SELECT stack, value, NULL AS no FROM values ORDER BY stack")
    header, line, *rows = [" ".join(line.split()) for line in said.out.splitlines() if line.strip()]
    assert (header, set(line)) == ("stack value no", {"─"})
    assert rows == ["=1+1 -1.5", "a [1m b -1.5", "native -1.5"]
    assert "\x1b" not in said.out
    assert said.err == ""


def test_json_has_the_types_of_the_query(folder: Path, call: Call) -> None:
    sql = "SELECT stack, value, [1, 2] AS list, 'nan'::DOUBLE AS none FROM values ORDER BY stack"
    rows = call("query", folder, sql, "--json").document
    assert rows[0] == {"stack": "=1+1", "value": -1.5, "list": [1, 2], "none": None}
    assert [row["stack"] for row in rows] == ["=1+1", "a\x1b[1m\nb", "native"]
    assert call("query", folder, "FROM trials WHERE false", "--json").document == []


def test_csv_lets_no_spreadsheet_run_a_strangers_formula(folder: Path, call: Call) -> None:
    sql = "SELECT stack, value, NULL AS no FROM values ORDER BY stack"
    rows = list(csv.reader(io.StringIO(call("query", folder, sql, "--csv").out)))
    assert rows[:2] == [["stack", "value", "no"], ["'=1+1", "-1.5", ""]]


def test_a_long_table_is_cut_and_says_so(folder: Path, call: Call) -> None:
    said = call("query", folder, "FROM range(1001)")
    assert said.err == "more than 1000 rows: --csv or --json prints all\n"
    assert said.out.split()[-1] == "999"
    assert len(call("query", folder, "FROM range(1001)", "--csv").out.splitlines()) == 1002


def test_the_query_comes_from_standard_input_where_it_is_a_dash(
    folder: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT count(*) AS trials\nFROM trials\n"))
    assert call("query", folder, "-", "--csv").out == "trials\n3\n"


def test_several_runs_are_asked_together(folder: Path, tmp_path: Path, call: Call) -> None:
    other = write(replace(make_run([make_trial("native", 0, ())]), folder=tmp_path / "other"))
    assert call(
        "query", folder, other, "SELECT run, count(*) FROM trials GROUP BY 1 ORDER BY 1", "--csv"
    ).out.splitlines()[1:] == ["other,1", "run,3"]


@pytest.mark.parametrize(("words", "what"), [
    (["FROM trails"], "the query: Table with name trails does not exist!"),
    (["FROM read_text('/etc/passwd')"], "read_text() cannot be read from"),
    (["FROM runs", "--csv", "--json"], "--json and --csv exclude each other"),
    (["."], "no SQL: the last argument, ., is a folder"),
    (["/nonexistent", "FROM runs"], "/nonexistent: not a run"),
    (["SELECT '" + "a" * 5000], "the query: "),
])  # fmt: skip
def test_wrong_usage_is_reported_in_two_lines(words: list[str], what: str, folder: Path, call: Call) -> None:
    error, hint = call("query", folder, *words, code=2).err.splitlines()
    assert error.startswith("error: ")
    assert what in error
    assert hint.startswith("hint: ")
    assert len(hint) > 6


@pytest.mark.parametrize(("words", "what", "hint"), [
    ([], "missing argument RUN... SQL", "tare query --help"),
    (["RUN"], "no SQL: the last argument, RUN, is a folder", "tare query RUN 'FROM trials'"),
    (["FROM trials"], "no run is named", "tare query RUN 'FROM trials'"),
    (["FROM trials", "RUN"], "no SQL: the last argument, RUN, is a folder", "tare query RUN 'FROM trials'"),
])  # fmt: skip
def test_a_run_or_a_query_that_is_missing_is_reported(
    words: list[str], what: str, hint: str, folder: Path, call: Call
) -> None:
    said = call("query", *(word.replace("RUN", str(folder)) for word in words), code=2).err.replace(str(folder), "RUN")
    assert f"error: {what}\n" in said
    assert hint in said

"""The formats that programs read, and where reports are written."""

from __future__ import annotations

import csv
import io
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from pages import rendered, report_of
from runs import believable_run, pairs, run_in_turns, write

from tare.model.errors import UsageError
from tare.model.run_folder import Run, load_run
from tare.model.trial import Footprint
from tare.report import data_files as report_csv
from tare.report.writer import find_renderer, format_names, write_report


def test_json_never_holds_what_is_no_json() -> None:
    run = pairs([float("nan"), 90, 91], [100, float("inf"), 100])
    assert "NaN" not in rendered(run, "json")["report.json"]


def test_csv_has_a_row_per_value_of_a_turn_with_its_round_in_the_block() -> None:
    run = run_in_turns(clients=(1.0, 50.0), blocks=2)
    late = replace(run, trials=tuple(replace(t, first_round=10) if t.stack == "crun" else t for t in run.trials))
    rows = [row for row in _rows(late, "turns.csv") if (row["block"], row["point"]) == ("1", "50.0")]
    rounds = {stack: [int(row["round"]) for row in rows if row["stack"] == stack] for stack in ("native", "crun")}
    assert rounds == {"native": list(range(10)), "crun": list(range(10, 20))}
    [trial] = (trial for trial in run.trials if (trial.stack, trial.block) == ("crun", 1))
    assert [float(row["value"]) for row in rows if row["stack"] == "crun"] == list(trial.values[1].turns)
    assert len(_rows(late, "values.csv")) == 2 * 2 * 6  # turns are no values of their own


def test_csv_has_no_round_where_a_value_was_measured_at_once() -> None:
    rows = _rows(pairs([90, 91], [100, 100]), "turns.csv")
    assert [(row["round"], row["value"]) for row in rows] == [("", "100"), ("", "100"), ("", "90"), ("", "91")]


def test_json_counts_the_turns_of_each_cell() -> None:
    run = run_in_turns(clients=(1.0, 50.0), blocks=3)
    document = report_of(run)
    assert {cell["turns"] for cell in (*document["cells"], *document["headlines"])} == {30}
    once = believable_run(blocks=2)
    assert {cell["turns"] for cell in report_of(once)["cells"]} == {0}


def test_csv_has_one_row_for_each_known_part_of_a_footprint_with_its_unit() -> None:
    run = pairs([90], [100])
    first, *others = (replace(trial, footprint=None) for trial in run.trials)
    guest = replace(first, footprint=Footprint(8 << 20, None, 4096, 3, reported_bytes=5 << 20))
    failed = replace(guest, trial="failed", status="failed")
    run = replace(run, trials=(guest, *others, failed))
    rows = _rows(run, "footprints.csv")
    assert {(row["trial"], row["stack"], row["block"]) for row in rows} == {(first.trial, first.stack, "0")}
    assert [(row["footprint"], row["value"], row["unit"]) for row in rows] == [
        ("memory", "8388608", "bytes"),
        ("disk", "4096", "bytes"),
        ("processes", "3", "processes"),
        ("reported-memory", "5242880", "bytes"),
    ]


def test_csv_lets_no_spreadsheet_run_a_strangers_formula() -> None:
    run = pairs([90, -1], [100, 100])
    run = replace(run, record=replace(run.record, suite='=HYPERLINK("x")'))
    rows = _rows(run, "values.csv")
    assert rows[0]["suite"] == '\'=HYPERLINK("x")'
    assert rows[-1]["value"] == "-1"


def test_a_large_table_is_in_memory_once() -> None:
    rows = [("crun", number, 0.5) for number in range(20_000)]
    tracemalloc.start()
    try:
        text = report_csv._render_table(("stack", "round", "value"), rows)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert text.splitlines()[-1] == b"crun,19999,0.5"
    assert most_bytes < 2 * len(text)


def test_a_report_goes_to_the_folder_of_its_run(tmp_path: Path) -> None:
    run = load_run(write(believable_run(tmp_path / "run", blocks=2)))
    written = write_report([run])
    names = ("index.html", "values.csv", "turns.csv", "footprints.csv", "summary.csv", "report.json")
    assert written == [run.folder / "report" / name for name in names]
    assert all(path.stat().st_size > 100 for path in written)


def test_reports_of_several_runs_do_not_overwrite_each_other(tmp_path: Path) -> None:
    runs = [replace(pairs([90], [100]), folder=tmp_path / name) for name in ("one", "two")]
    written = write_report(runs, ["json"], tmp_path / "out")
    assert written == [tmp_path / "out/one/report.json", tmp_path / "out/two/report.json"]


def test_an_unknown_format_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no report format named 'docx'") as error:
        write_report([pairs([90], [100])], ["json", "docx"], tmp_path)
    assert error.value.hint == f"there are {', '.join(format_names())}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["figures", "terminal", "../html", "nothing"])
def test_what_is_no_format_is_not_found_as_one(name: str) -> None:
    assert name not in format_names()
    with pytest.raises(UsageError):
        find_renderer(name)


def _rows(run: Run, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(rendered(run, "csv")[name])))


@pytest.mark.parametrize("name", ["index.html", "index.html.new"])
def test_a_report_is_written_through_no_link_of_a_strangers_run(tmp_path: Path, name: str) -> None:
    run = believable_run(tmp_path / "run", blocks=2)
    mine = tmp_path / "mine"
    mine.write_text("precious", encoding="utf-8")
    (write(run) / "report").mkdir()
    (run.folder / "report" / name).symlink_to(mine)
    write_report([run], ["html"])
    assert mine.read_text(encoding="utf-8") == "precious"
    assert "<html" in (run.folder / "report" / "index.html").read_text(encoding="utf-8")


def test_a_report_goes_to_no_folder_that_is_a_link_in_a_run(tmp_path: Path) -> None:
    run = believable_run(tmp_path / "run", blocks=2)
    (tmp_path / "mine").mkdir()
    (write(run) / "report").symlink_to(tmp_path / "mine")
    with pytest.raises(UsageError, match="report: is a symbolic link") as caught:
        write_report([run], ["csv"])
    assert caught.value.hint == f"rm {run.folder / 'report'}"
    assert list((tmp_path / "mine").iterdir()) == []
    assert write_report([run], ["csv"], tmp_path / "mine")

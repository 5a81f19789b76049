"""Runs in notebooks: `tare.load`."""

from __future__ import annotations

import gc
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from runs import believable_run, write
from sampled import sampled_run

import tare
from tare.features.sql import query
from tare.features.sql.schema import TABLES
from tare.model.errors import UsageError


def test_each_table_is_a_property_that_outlives_what_it_came_from(tmp_path: Path) -> None:
    folder = sampled_run(tmp_path / "run", count=2)
    with (folder / "trials.jsonl").open("a", encoding="utf-8") as file:
        file.write("torn")
    for name in TABLES:
        table = getattr(tare.load(folder), name)
        gc.collect()
        assert all(len(row) == len(table.columns) for row in table.rows())
    assert [row[0] for row in tare.load(str(folder)).query("SELECT stack FROM trials ORDER BY trial").rows()] == [
        "native",
        "docker/qemu",
        "native",
    ]


def test_several_runs_are_loaded_together(tmp_path: Path) -> None:
    runs = [replace(believable_run(blocks=1), folder=tmp_path / name) for name in ("a", "b")]
    tables = tare.load(*map(write, runs))
    assert tables.query("SELECT DISTINCT run FROM trials ORDER BY run").rows() == [("a",), ("b",)]


def test_what_is_no_run_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not a run"):
        tare.load(tmp_path)


@pytest.mark.parametrize("name", ["pandas", "polars"])
def test_a_missing_library_is_named_with_the_command_that_installs_it(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query, "find_spec", lambda _: None)
    values = tare.load(write(believable_run(tmp_path / "run", blocks=1))).values
    with pytest.raises(ModuleNotFoundError, match=f"pip install {name}"):
        getattr(values, name)()


def test_a_data_frame_of_pandas_has_the_types_of_the_table(tmp_path: Path) -> None:
    tables = tare.load(write(believable_run(tmp_path / "run", blocks=2)))
    frame, values, columns = tables.values.pandas(), tables.values.rows(), tables.values.columns
    assert [*frame.columns] == columns
    assert sorted(frame["value"]) == sorted(row[columns.index("value")] for row in values)
    assert frame[frame.workload == "dhrystone"]["point"].isna().all()
    started = tables.trials.pandas()["started"]
    assert started.dt.year.unique().tolist() == [2023]
    assert [*tables.trials.pandas().query("stack == 'qemu'")["status"].unique()] == ["skipped"]


def test_a_data_frame_of_polars_has_the_types_of_the_table(tmp_path: Path) -> None:
    tables = tare.load(write(believable_run(tmp_path / "run", blocks=2)))
    frame = tables.values.polars()
    assert frame.columns == tables.values.columns
    assert frame.height == len(tables.values.rows()) > 0
    assert frame.filter(frame["workload"] == "dhrystone")["point"].null_count() == 2 * 8 + 1
    (cautions,) = tables.query("SELECT cautions FROM trials WHERE stack = 'docker/qemu'").polars()["cautions"].to_list()
    assert cautions == []
    assert tables.runs.polars()["started"].dt.year().to_list() == [2024]


def test_tare_itself_loads_no_table_before_one_is_asked_for() -> None:
    assert "load" in vars(tare)
    source = Path(sys.modules["tare"].__file__ or "").read_text(encoding="utf-8")
    assert "\nfrom tare" not in source

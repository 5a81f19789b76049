"""docs/data.md says what the tables have, and its queries are answered."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from documents import DOCS, blocks, rows, section
from runs import believable_run, write
from sampled import sampled_run

from tare.features.sql.query import run_query
from tare.features.sql.schema import TABLES
from tare.telemetry.parquet import COLUMNS

PAGE = DOCS / "data.md"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [write(believable_run(folder / "one", blocks=2)), sampled_run(folder / "two", count=3)]


@pytest.mark.parametrize("table", TABLES)
def test_every_column_of_a_table_is_described(table: str, runs: list[Path]) -> None:
    described = re.findall(r"`([a-z_]+)`", re.sub(r"\([^)]*\)", "", rows(section(PAGE, "The tables"))[table][1]))
    columns = run_query(runs, f'DESCRIBE "{table}"').texts()
    more = COLUMNS if table == "telemetry" else ()
    assert sorted({*described, *more}) == sorted(str(row[0]) for row in columns)


def test_there_is_a_query() -> None:
    assert len(blocks(PAGE, "sql")) == 1


@pytest.mark.parametrize("sql", blocks(PAGE, "sql"))
def test_the_queries_are_answered(sql: str, runs: list[Path]) -> None:
    answer = run_query(runs, sql)
    assert list(answer.texts())
    heads = [line.split() for text in blocks(PAGE, "text") for line in text.splitlines()[:1]]
    assert answer.columns in heads

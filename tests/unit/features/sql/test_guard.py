"""SQL of a stranger reads the tables of the runs, and nothing else; it writes nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from runs import REDIS, make_run, make_trial, measured, write

from tare.features.sql.query import QueryResult, run_query
from tare.model.errors import UsageError

# Each is refused, with these words. RUN is the run's folder, OTHER a folder beside it with a file `secret`; <COPY> is
# what DuckDB would do: it may open this file.
COPY = "COPY (SELECT 1) TO 'RUN/trials.jsonl' (FORMAT csv, USE_TMP_FILE false)"
ONE = "a query is one SELECT, which changes nothing"
HIDDEN = "cannot be read from: a query reads the tables of the runs alone"
REFUSED = {
    # what writes
    COPY: ONE,
    "WITH w AS (<COPY>) SELECT 1": "WITH clause containing a COPY statement must be at the top level",
    "WITH w AS (<COPY>) SELECT * FROM trials": "must be at the top level",
    "SELECT * FROM (WITH w AS (<COPY>) SELECT 1)": "must be at the top level",
    "SELECT 1 UNION ALL (WITH w AS (<COPY>) SELECT 1)": "must be at the top level",
    "DESCRIBE WITH w AS (<COPY>) SELECT 1": "must be at the top level",
    "SUMMARIZE WITH w AS (<COPY>) SELECT 1": "must be at the top level",
    "FROM trials PIVOT (count(*) FOR stack IN (WITH w AS (<COPY>) SELECT 'a'))": "",
    "SELECT * FROM (PIVOT trials ON stack IN (WITH w AS (<COPY>) SELECT 'a'))": "a PIVOT needs its values",
    "FROM json_execute_serialized_sql(json_serialize_sql('WITH w AS (<QUOTED>) SELECT 1'))": HIDDEN,
    "SELECT (FROM main.query('WITH w AS (<QUOTED>) SELECT 1'))": HIDDEN,
    "FROM \"QUERY\"('SELECT 1')": HIDDEN,
    "EXPLAIN ANALYZE <COPY>": ONE,
    "PREPARE p AS <COPY>": ONE,
    "SELECT 1) AS a; <COPY>; SELECT * FROM (SELECT 1": "",
    "SELECT 1) UNION ALL (SELECT 2": "syntax error",
    "WITH w AS (INSERT INTO runs SELECT * FROM runs RETURNING *) SELECT 1": "must be at the top level",
    "CREATE TABLE a (b INTEGER)": ONE,
    "DROP VIEW trials": ONE,
    "DELETE FROM runs": ONE,
    "EXPORT DATABASE 'OTHER/all'": ONE,
    "ATTACH 'OTHER/new.db'": ONE,
    "CHECKPOINT": ONE,
    # what reads elsewhere
    "FROM read_text('OTHER/secret')": HIDDEN,
    "FROM read_blob('OTHER/secret')": HIDDEN,
    "FROM read_csv('OTHER/secret')": HIDDEN,
    "FROM read_json('OTHER/*')": HIDDEN,
    "FROM read_parquet('RUN/../OTHER/secret')": HIDDEN,
    "FROM glob('OTHER/*')": HIDDEN,
    "FROM sniff_csv('OTHER/secret')": HIDDEN,
    "SELECT * FROM trials, LATERAL (FROM read_text('OTHER/secret'))": HIDDEN,
    "SELECT list_transform([1], lambda x: (SELECT content FROM read_text('OTHER/secret')))": HIDDEN,
    "FROM 'OTHER/secret.csv'": "a query reads the tables of the runs alone",
    "FROM 'OTHER/../OTHER/secret.csv'": "a query reads the tables of the runs alone",
    "FROM 'RUN/run.json'": "a query reads the tables of the runs alone",
    "FROM 'RUN/raw/*.json'": "a query reads the tables of the runs alone",
    "FROM which_secret('s3://a', 's3')": HIDDEN,
    "SELECT 1 ORDER BY (FROM glob('OTHER/*'))": HIDDEN,
    "SELECT [a FOR a IN (FROM glob('OTHER/*'))]": HIDDEN,
    "SELECT sum(1) FILTER (WHERE (SELECT true FROM range((FROM glob('OTHER/*')))))": HIDDEN,
    "SELECT * FROM (" * 400 + "FROM glob('OTHER/*')" + ")" * 400: HIDDEN,
    # what leads to the network, to programs, or to other settings
    "FROM 'https://127.0.0.1:9/a.csv'": "a query reads the tables of the runs alone",
    "FROM read_csv('https://127.0.0.1:9/a.csv')": HIDDEN,
    "FROM 's3://a/b.parquet'": "a query reads the tables of the runs alone",
    "INSTALL httpfs": ONE,
    "LOAD httpfs": ONE,
    "SET enable_external_access = true": ONE,
    "RESET allowed_paths": ONE,
    "PRAGMA database_list": ONE,
    "CALL pragma_version()": ONE,
    "SELECT getenv('HOME')": "getenv",
    # what is no query
    "": f"{ONE}; this has 0 statements",
    "-- nothing": f"{ONE}; this has 0 statements",
    "SELECT 1; SELECT 2": f"{ONE}; this has 2 statements",
    "PIVOT trials ON stack": "a PIVOT needs its values",
    "SELECT ?": "the following parameters",
}
ALLOWED = (
    "FROM trials",
    "SELECT 1;",
    "SELECT 1 -- a remark",
    "SELECT ';' AS \"a;\"",
    "(SELECT 1) UNION ALL SELECT 2 ORDER BY 1",
    "WITH own AS (SELECT * FROM trials) SELECT count(*) FROM own",
    "DESCRIBE trials",
    "SUMMARIZE trials",
    "SHOW TABLES",
    "VALUES (1), (2)",
    "PIVOT trials ON stack IN ('native', 'docker') USING count(*) GROUP BY run",
    "SELECT trial, caution FROM trials, unnest(cautions) AS kinds (caution)",
    "SELECT * FROM range(3)",
    "SELECT key FROM json_each('{\"a\": 1}')",
    "SELECT a.stack, median(a.value / b.value) FROM values AS a JOIN values AS b USING (run, block) GROUP BY ALL",
)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("guard") / "run"
    trials = [make_trial(each, 0, [measured("get", 100.0, 50.0)], "redis") for each in ("native", "docker")]
    return write(make_run(trials, [REDIS], folder))


@pytest.fixture
def unchanged(run: Path) -> Iterator[Path]:
    """Yield the run's folder, and look afterwards whether anything in it or beside it has changed."""
    other = run.parent / "other"
    other.mkdir(exist_ok=True)
    for name in ("secret", "secret.csv"):
        (other / name).write_text("secret\nsecret\n", encoding="utf-8")
    before = _files(run.parent)
    yield run
    assert _files(run.parent) == before


@pytest.mark.parametrize("sql", REFUSED)
def test_what_is_no_reading_of_the_tables_is_refused(sql: str, unchanged: Path) -> None:
    written = sql.replace("<COPY>", COPY).replace("<QUOTED>", COPY.replace("'", "''"))
    written = written.replace("RUN", str(unchanged)).replace("OTHER", str(unchanged.parent / "other"))
    with pytest.raises(UsageError) as error:
        list(run_query([unchanged], written).texts())
    assert REFUSED[sql] in str(error.value)
    assert error.value.hint
    assert "secret\n" not in str(error.value)


@pytest.mark.parametrize("sql", ALLOWED)
def test_what_people_ask_is_answered(sql: str, unchanged: Path) -> None:
    assert isinstance(answer := run_query([unchanged], sql), QueryResult)
    assert all(len(row) == len(answer.columns) for row in answer.texts())


@pytest.mark.parametrize(("sql", "what", "hint"), [
    ("SELEC 1", 'the query: syntax error at or near "SELEC"', "the tables are runs, trials"),
    ("FROM trails", "the query: Table with name trails does not exist!", 'did you mean "trials"?'),
    ("FROM '/etc/passwd'", "Table with name /etc/passwd does not exist!", "the tables are runs, trials"),
    ("SELECT stak FROM trials", 'Referenced column "stak" not found', 'did you mean "stack"?'),
    ("SELECT trial + 1 FROM trials", "the query: ", "the tables are"),
    ("SELECT trial::INTEGER FROM trials", "the query: ", "the tables are"),
    ("SELECT error('no')", "the query: ", "the tables are"),
])  # fmt: skip
def test_a_mistake_is_reported_in_two_lines(sql: str, what: str, hint: str, run: Path) -> None:
    with pytest.raises(UsageError) as error:
        list(run_query([run], sql).texts())
    assert what in str(error.value)
    assert "\n" not in str(error.value)
    assert hint in error.value.hint


def _files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("sql", [
    "SELECT " + "+".join("1" * 3000),
    "SELECT " + "(" * 3000 + "1" + ")" * 3000,
    "SELECT " + "(SELECT " * 500 + "1" + ")" * 500,
    "SELECT * FROM (" * 300 + "SELECT 1" + ")" * 300,
    "SELECT '" + "a" * 1_000_000 + "'",
])  # fmt: skip
def test_a_query_of_any_depth_is_answered_or_refused(sql: str, run: Path) -> None:
    with suppress(UsageError):
        assert len(list(run_query([run], sql).texts())) == 1

"""Schema of the tables in DuckDB, and the check of queries.

DuckDB opens only files of the runs, no connection and no extension (`query.py`). It could still write to these files:
from DuckDB 2.0 on, a COPY can be a part of a SELECT. So a query must be a single SELECT without functions that can hide
other SQL, and runs as a subquery, where DuckDB refuses to write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tare.model.errors import UsageError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

TABLES = ("runs", "trials", "values", "turns", "telemetry", "decisions")

RUNS: Mapping[str, str] = {
    "run": "VARCHAR",
    "folder": "VARCHAR",
    "format": "BIGINT",
    "tare": "VARCHAR",
    "suite": "VARCHAR",
    "started": "TIMESTAMP",
    "seed": "HUGEINT",
    "baseline": "VARCHAR",
    "control": "VARCHAR",
    "margin": "DOUBLE",
    "stop_reason": "VARCHAR",
    "image": "VARCHAR",
    "image_origin": "VARCHAR",
    "kernel": "VARCHAR",
    "architecture": "VARCHAR",
    "operating_system": "VARCHAR",
    "cpu_model": "VARCHAR",
    "cpus": "BIGINT",
    "memory_bytes": "BIGINT",
    "clock_source": "VARCHAR",
    "virtualization": "VARCHAR",
    "microcode": "VARCHAR",
}
"""The columns of `runs`; those from `kernel` on are of the machine that instances ran on."""

DECISIONS: Mapping[str, str] = {
    "run": "VARCHAR",
    "workload": "VARCHAR",
    "headline": "VARCHAR",
    "metric": "VARCHAR",
    "point": "DOUBLE",
    "stack": "VARCHAR",
    "unit": "VARCHAR",
    "better": "VARCHAR",
    "decision": "VARCHAR",
    "estimate": "DOUBLE",
    "low": "DOUBLE",
    "high": "DOUBLE",
    "n": "BIGINT",
    "trials": "BIGINT",
    "mean": "DOUBLE",
    "sd": "DOUBLE",
    "minimum": "DOUBLE",
    "maximum": "DOUBLE",
    "mean_ratio": "DOUBLE",
    "resolution": "DOUBLE",
    "tolerated_autocorrelation": "DOUBLE",
    "cautions": "VARCHAR[]",
    "notes": "VARCHAR[]",
    "failures": "BIGINT",
    "skipped": "VARCHAR",
}
"""The columns of `decisions`, one row a cell, as in report.json."""

_VALUE = (
    'STRUCT(metric VARCHAR, point DOUBLE, "value" DOUBLE, unit VARCHAR, better VARCHAR, turns DOUBLE[], label VARCHAR)'
)
_TURN = (
    "STRUCT(label VARCHAR, began DOUBLE, seconds DOUBLE, steal DOUBLE, warm_up BOOLEAN, cpu_seconds DOUBLE,"
    " waited_seconds DOUBLE, sending_seconds DOUBLE)"
)
_FOOTPRINT = (
    "STRUCT(memory_bytes BIGINT, kernel_bytes BIGINT, disk_bytes BIGINT, processes BIGINT, reported_bytes BIGINT)"
)
JOURNAL: Mapping[str, str] = {
    "trial": "VARCHAR",
    "block": "BIGINT",
    "order": "BIGINT",
    "workload": "VARCHAR",
    "stack": "VARCHAR",
    "status": "VARCHAR",
    "reason": "VARCHAR",
    "hint": "VARCHAR",
    "started": "DOUBLE",
    "ended": "DOUBLE",
    "seconds": "DOUBLE",
    "path": "VARCHAR",
    "values": f"{_VALUE}[]",
    "timeline": 'STRUCT("name" VARCHAR, seconds DOUBLE)[]',
    "footprint": _FOOTPRINT,
    "cautions": 'STRUCT(kind VARCHAR, "text" VARCHAR)[]',
    "first_round": "BIGINT",
    "turns": f"{_TURN}[]",
}
"""The fields of a line of trials.jsonl that are read; a field that a line lacks is NULL."""

# Views name their fields instead of `*`: DuckDB parses only the fields that a query needs.
TRIALS = """
CREATE VIEW trials AS
SELECT run, trial, workload, stack, block, "order", status, reason, hint,
    make_timestamp(TRY_CAST(started * 1e6 AS BIGINT)) AS started,
    make_timestamp(TRY_CAST(ended * 1e6 AS BIGINT)) AS ended, seconds, path,
    [mark.seconds FOR mark IN timeline IF mark.name = 'ready'][1] AS ready_seconds, timeline,
    footprint.memory_bytes AS memory_bytes, footprint.kernel_bytes AS kernel_bytes,
    footprint.disk_bytes AS disk_bytes, footprint.processes AS processes, footprint.reported_bytes AS reported_bytes,
    [caution.kind FOR caution IN cautions] AS cautions
FROM source.journal JOIN source.files USING (filename)
"""
VALUES = """
CREATE VIEW "values" AS
SELECT run, trial, workload, stack, block, entry.metric AS metric, entry.point AS point, entry."value" AS "value",
    entry.unit AS unit, entry.better AS better, greatest(len(entry.turns), 1) AS turns
FROM (
    SELECT run, trial, workload, stack, block, unnest("values") AS entry
    FROM source.journal JOIN source.files USING (filename) WHERE status = 'ok'
)
"""
# A value is the mean of its turns: the outputs with its label, without warm-up.
TURNS = """
CREATE VIEW turns AS
SELECT run, trial, workload, stack, block, entry.metric AS metric, entry.point AS point,
    CASE WHEN many THEN first_round + turn.number - 1 END AS round, turn."value" AS "value",
    entry.unit AS unit, entry.better AS better, turn.taken.began AS began, turn.taken.seconds AS seconds,
    turn.taken.steal AS steal, turn.taken.cpu_seconds AS cpu_seconds, turn.taken.waited_seconds AS waited_seconds,
    CASE WHEN entry.unit LIKE '%/s' AND entry.better = 'higher' AND turn."value" > 0
        THEN turn.taken.cpu_seconds / (turn."value" * nullif(turn.taken.sending_seconds, 0))
    END AS cpu_seconds_per_unit
FROM (
    SELECT *, unnest([
        {
            'number': number,
            'value': measured[number],
            'taken': CASE WHEN len(taken) = len(measured) THEN taken[number] END
        }
        FOR number IN range(1, len(measured) + 1)
    ]) AS turn
    FROM (
        SELECT *, len(entry.turns) > 0 AS many,
            CASE WHEN len(entry.turns) > 0 THEN entry.turns ELSE [entry."value"] END AS measured,
            [turn FOR turn IN turns IF turn.label = entry.label AND NOT turn.warm_up] AS taken
        FROM (
            SELECT run, trial, workload, stack, block, first_round, turns, unnest("values") AS entry
            FROM source.journal JOIN source.files USING (filename) WHERE status = 'ok'
        )
    )
)
"""


HINT = f"the tables are {', '.join(TABLES)}; DESCRIBE trials shows the columns of one"
_ONE_SELECT_HINT = "a query is one SELECT, which changes nothing"
_PIVOT_HINT = "a PIVOT needs its values: PIVOT … ON stack IN ('native', 'docker')"
# Table functions in FROM. Not `query` and `json_execute_serialized_sql`, which hide SQL, nor readers of files.
_ALLOWED_FUNCTIONS = frozenset({"unnest", "range", "generate_series", "json_each", "json_tree", "duckdb_columns"})

# Returns whether a statement is not a SELECT, and the names of table functions at any depth; NULL without a name.
_PARSE_QUERY = """
SELECT
    json_extract_string(parsed, '$.error') IS DISTINCT FROM 'false',
    [function ->> 'function_name' FOR function IN json_extract(parsed, '$..function')]
FROM (SELECT json_serialize_sql(CAST(? AS VARCHAR)) AS parsed)
"""


def to_read_only_select(connection: DuckDBPyConnection, sql: str) -> str:
    """Return the query as a subquery of a SELECT; raises UsageError if it is not a single SELECT, or duckdb.Error."""
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise UsageError(f"{_ONE_SELECT_HINT}; this has {len(statements)} statements", HINT)
    if statements[0].type.name == "MULTI":
        raise UsageError(_PIVOT_HINT, HINT)
    text = statements[0].query.strip().rstrip("; \n")
    ((failed, names),) = connection.execute(_PARSE_QUERY, [text]).fetchall()
    if failed:
        raise UsageError(_ONE_SELECT_HINT, HINT)
    for name in names:
        if str(name).lower() not in _ALLOWED_FUNCTIONS:
            raise UsageError(f"{name}() cannot be read from: a query reads the tables of the runs alone", HINT)
    return f"SELECT * FROM (\n{text}\n)"  # noqa: S608 - it is the user's

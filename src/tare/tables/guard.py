"""What SQL may do here: read the tables.

DuckDB itself opens no file but those of the runs, no connection and no extension (`asking.py`). It would still write to
the files that it may open: from DuckDB 2.0 on, a COPY can be a part of a SELECT. So only one SELECT runs, in which the
functions that hide others are refused, as the part of another SELECT, where DuckDB refuses to write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tare.errors import UsageError
from tare.tables.schema import TABLES

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

HINT = f"the tables are {', '.join(TABLES)}; DESCRIBE trials shows the columns of one"
_ONE = "a query is one SELECT, which changes nothing"
_PIVOT = "a PIVOT needs its values: PIVOT … ON stack IN ('native', 'docker')"
# Of those in FROM. `query` and `json_execute_serialized_sql` hide SQL, readers and `glob` lead to files.
_FUNCTIONS = frozenset({"unnest", "range", "generate_series", "json_each", "json_tree", "duckdb_columns"})

# Whether a statement is no SELECT, and the names of the functions in FROM, at any depth; NULL for one without a name.
_PARSED = """
SELECT
    json_extract_string(parsed, '$.error') IS DISTINCT FROM 'false',
    [function ->> 'function_name' FOR function IN json_extract(parsed, '$..function')]
FROM (SELECT json_serialize_sql(CAST(? AS VARCHAR)) AS parsed)
"""


def only_reading(connection: DuckDBPyConnection, sql: str) -> str:
    """Return a SELECT of all rows of the query; raises UsageError where it is none, or duckdb.Error."""
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise UsageError(f"{_ONE}; this has {len(statements)} statements", HINT)
    if statements[0].type.name == "MULTI":
        raise UsageError(_PIVOT, HINT)
    text = statements[0].query.strip().rstrip("; \n")
    ((failed, names),) = connection.execute(_PARSED, [text]).fetchall()
    if failed:
        raise UsageError(_ONE, HINT)
    for name in names:
        if str(name).lower() not in _FUNCTIONS:
            raise UsageError(f"{name}() cannot be read from: a query reads the tables of the runs alone", HINT)
    return f"SELECT * FROM (\n{text}\n)"  # noqa: S608 - it is the user's

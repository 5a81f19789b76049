"""Read-only SQL over runs in DuckDB, for `tare query` and for the data frames of `tare.load`."""

from __future__ import annotations

import glob
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from tare.features.sql import schema
from tare.features.sql.schema import HINT, RunSource, decisions, find_sources, to_read_only_select
from tare.model.errors import TareError, UsageError
from tare.telemetry.parquet import TYPES, open_sandboxed_database

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

_MEMORY_LIMIT = "1GB"
_MAX_THREADS = 4  # each takes 64 MB for reading
_FETCH_ROWS = 1000  # in memory at once
_JSON_OPTIONS = "format = 'newline_delimited', filename = true, hive_partitioning = false"
_EXPENSIVE_TABLES = ("telemetry", "decisions")  # empty unless the query names them

Result = TypeVar("Result")


@dataclass(frozen=True)
class Tables:
    """Tables of runs, one property each. A table is read at each access."""

    folders: tuple[Path, ...]

    def query(self, sql: str) -> QueryResult:
        """Return the rows of a SELECT over these tables; raises TareError."""
        return run_query(self.folders, sql)

    @property
    def runs(self) -> QueryResult:
        """A row for each run, with its machine."""
        return self.query("FROM runs")

    @property
    def trials(self) -> QueryResult:
        """A row for each trial, including failed and skipped ones."""
        return self.query("FROM trials")

    @property
    def marks(self) -> QueryResult:
        """A row for each mark of a trial's timeline."""
        return self.query("FROM marks")

    @property
    def values(self) -> QueryResult:
        """A row for each value of an ok trial."""
        return self.query('FROM "values"')

    @property
    def turns(self) -> QueryResult:
        """A row for each value of a turn."""
        return self.query("FROM turns")

    @property
    def telemetry(self) -> QueryResult:
        """A row for each sample."""
        return self.query("FROM telemetry")

    @property
    def decisions(self) -> QueryResult:
        """A row for each cell: the ratio to the baseline, its interval, and the decision."""
        return self.query("FROM decisions")


def load(*runs: str | Path) -> Tables:
    """Return the tables of one or several run folders; raises TareError for a folder that is not a run."""
    tables = Tables(tuple(Path(run) for run in runs))
    tables.query("SELECT 1")  # reports a wrong folder here, not at the first access
    return tables


@dataclass(frozen=True)
class QueryResult:
    """Rows of a query, which are read on demand.

    The methods raise TareError. `relation` is DuckDB's, with the names and types of the columns. Connection and
    temporary folder live as long as the result.
    """

    relation: DuckDBPyRelation
    _select: str
    _connection: DuckDBPyConnection
    _folder: TemporaryDirectory[str]
    _copies: Mapping[str, str]

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return list(self.relation.columns)

    @property
    def are_texts(self) -> list[bool]:
        """For each column, whether its values are text."""
        return [str(kind) == "VARCHAR" for kind in self.relation.types]

    def texts(self) -> Iterator[tuple[str | None, ...]]:
        """Return the rows with all values as text; None for NULL."""
        return self._select_rows("CAST(COLUMNS(*) AS VARCHAR)")

    def documents(self) -> Iterator[dict[str, Any]]:
        """Yield the rows as JSON objects; numbers that are not finite become None."""
        names = self.columns
        for row in self._select_rows("to_json(COLUMNS(*))"):
            values = (None if text is None else json.loads(text, parse_constant=lambda _: None) for text in row)
            yield dict(zip(names, values, strict=True))

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows as Python values."""
        return self._run_interruptibly(self.relation.fetchall)

    def pandas(self) -> Any:
        """Return a pandas DataFrame; raises ModuleNotFoundError if pandas is not installed."""
        _require("pandas")
        return self._run_interruptibly(self.relation.df)

    def polars(self) -> Any:
        """Return a polars DataFrame; raises ModuleNotFoundError if polars or PyArrow is not installed."""
        _require("polars", "pyarrow")
        return self._run_interruptibly(self.relation.pl)

    def _select_rows(self, expression: str) -> Iterator[tuple[str | None, ...]]:
        select = f"SELECT {expression} FROM (\n{self._select}\n)"  # noqa: S608 - see schema.py
        rows = self._run_interruptibly(lambda: self._connection.execute(select))
        while batch := self._run_interruptibly(lambda: rows.fetchmany(_FETCH_ROWS)):
            yield from batch

    def _run_interruptibly(self, call: Callable[[], Result]) -> Result:
        """Call DuckDB in a thread, so that Ctrl-C ends the query; raises TareError for its errors."""
        with _translate_errors(self._copies), ThreadPoolExecutor(1) as worker:
            answer = worker.submit(call)
            try:
                while not answer.done():  # a wait without a timeout is not interrupted by the signal handler of polars
                    wait([answer], timeout=0.2)
                return answer.result()
            except KeyboardInterrupt:
                while not answer.done():  # DuckDB ignores an interrupt before the query has begun: repeat it
                    self._connection.interrupt()
                    wait([answer], timeout=0.05)
                raise


def _require(*names: str) -> None:
    missing = " ".join(name for name in names if find_spec(name) is None)
    if missing:
        raise ModuleNotFoundError(f"not installed: pip install {missing}")


def run_query(folders: Sequence[Path], sql: str) -> QueryResult:
    """Run a query over runs; raises UsageError for an invalid query or an unreadable run."""
    folder = TemporaryDirectory(prefix="tare-query-")
    work = Path(folder.name).resolve()  # DuckDB resolves links before it checks whether it may read a file
    # To keep the order of files, DuckDB would hold all rows in memory; ORDER BY works without.
    connection = open_sandboxed_database(str(work / "spilled"), _MEMORY_LIMIT, _MAX_THREADS, ordered=False)
    named = [name for name in _EXPENSIVE_TABLES if name in sql.lower()]
    sources = list(find_sources(folders, work, "telemetry" in named))
    copies = {str(work / f"{number}.jsonl"): str(each.folder / "trials.jsonl") for number, each in enumerate(sources)}
    with _translate_errors(copies):
        _create_tables(connection, work, sources, named)
        _seal(connection, work, sources)
        connection.execute("BEGIN TRANSACTION READ ONLY")
        select = to_read_only_select(connection, sql)
        return QueryResult(connection.sql(select), select, connection, folder, copies)


def _create_tables(
    connection: DuckDBPyConnection, work_folder: Path, run_sources: Sequence[RunSource], named_tables: Sequence[str]
) -> None:
    """Create the tables; those of journals and telemetry are views, whose files are read by the query."""
    _create_table(connection, work_folder, "runs", schema.RUNS, map(_run_row, run_sources))
    decided = run_sources if "decisions" in named_tables else ()
    _create_table(connection, work_folder, "decisions", schema.DECISIONS, chain.from_iterable(map(decisions, decided)))
    connection.execute("CREATE SCHEMA source")
    connection.execute("CREATE TABLE source.files (filename VARCHAR, run VARCHAR, file VARCHAR)")
    files = [(str(path), source.run, path.stem) for source in run_sources for path in _data_files(source)]
    if files:
        query = "INSERT INTO source.files SELECT unnest($1::VARCHAR[]), unnest($2::VARCHAR[]), unnest($3::VARCHAR[])"
        connection.execute(query, [list(column) for column in zip(*files, strict=True)])
    empty = work_folder / "empty.jsonl"
    empty.touch()
    journals = _list_sql([empty, *(source.journal for source in run_sources if source.journal is not None)])
    read = f"read_json({journals}, {_JSON_OPTIONS}, columns = {_columns_sql(schema.JOURNAL)})"
    connection.execute(f"CREATE VIEW source.journal AS SELECT * FROM {read}")  # noqa: S608 - quoted by _list
    for view in (schema.TRIALS, schema.MARKS, schema.VALUES, schema.TURNS):
        connection.execute(view)
    _create_telemetry_view(connection, work_folder, run_sources)


def _create_telemetry_view(connection: DuckDBPyConnection, work_folder: Path, run_sources: Sequence[RunSource]) -> None:
    """Create the view of telemetry; an empty file with all columns comes first, for runs without telemetry."""
    empty = work_folder / "empty.parquet"
    types = ", ".join(f"NULL::{kind} AS {name}" for name, kind in TYPES.items())
    connection.execute(f"COPY (SELECT {types} WHERE false) TO {_quote(str(empty))} (FORMAT parquet)")
    paths = _list_sql([empty, *(path for source in run_sources for path in source.telemetry)])
    read = f"read_parquet({paths}, union_by_name = true, filename = true, hive_partitioning = false)"
    select = f"SELECT run, file, {', '.join(TYPES)} FROM {read} JOIN source.files USING (filename)"  # noqa: S608
    connection.execute(f"CREATE VIEW telemetry AS {select}")


def _seal(connection: DuckDBPyConnection, work_folder: Path, run_sources: Sequence[RunSource]) -> None:
    """Deny DuckDB all files but those of the runs, the network, and changes of its settings."""
    paths = [
        work_folder / "empty.jsonl",
        work_folder / "empty.parquet",
        *chain.from_iterable(map(_data_files, run_sources)),
    ]
    # DuckDB compares the escaped pattern with this list, and the plain path.
    both = sorted({form for path in paths for form in (str(path), glob.escape(str(path)))})
    connection.execute(f"SET allowed_paths = [{', '.join(map(_quote, both))}]")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def _data_files(source: RunSource) -> list[Path]:
    return [*([] if source.journal is None else [source.journal]), *source.telemetry]


def _create_table(
    connection: DuckDBPyConnection,
    work_folder: Path,
    name: str,
    columns: Mapping[str, str],
    rows: Iterable[dict[str, Any]],
) -> None:
    """Create a table from rows, through a temporary JSON file, which DuckDB converts to the types of the columns."""
    path = work_folder / f"{name}.jsonl"
    with path.open("w", encoding="utf-8") as file:
        file.writelines(json.dumps({key: _finite_or_none(value) for key, value in row.items()}) + "\n" for row in rows)
    read = f"read_json([{_quote(str(path))}], format = 'newline_delimited', columns = {_columns_sql(columns)})"
    connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {read}")  # noqa: S608 - quoted
    path.unlink()


def _run_row(source: RunSource) -> dict[str, Any]:
    record, machine = source.record, source.record.instance_machine
    fields = {"run": source.run, "folder": str(source.folder)} | vars(record) | vars(machine)
    return {name: fields[name] for name in schema.RUNS}


def _finite_or_none(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _columns_sql(types: Mapping[str, str]) -> str:
    return "{" + ", ".join(f'"{name}": {_quote(kind)}' for name, kind in types.items()) + "}"


def _list_sql(paths: Sequence[Path]) -> str:
    return f"[{', '.join(_quote(glob.escape(str(path))) for path in paths)}]"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@contextmanager
def _translate_errors(copies: Mapping[str, str]) -> Iterator[None]:
    """Context manager: raise TareError for errors of DuckDB, with paths of journals in place of their `copies`."""
    import duckdb  # noqa: PLC0415 - its import takes a fifth of a second

    try:
        yield
    except duckdb.Error as error:
        text = str(error)
        for copy, path in copies.items():
            text = text.replace(copy, path)
        raise _to_tare_error(error, text) from error
    except UnicodeEncodeError as error:
        raise UsageError("a name that is no UTF-8 cannot be queried", "rename the folder") from error


def _to_tare_error(error: Exception, text: str) -> TareError:
    """Return an error with the first line of DuckDB's message, and DuckDB's suggestion as the hint."""
    import duckdb  # noqa: PLC0415 - its import takes a fifth of a second

    message, *more = [line.strip() for line in text.splitlines() if line.strip()]
    message = re.sub(r"^[A-Z][A-Za-z ]* Error: ", "", message)
    meant = re.search(r'^(?:Did you mean|Candidate bindings:) "([^"]+)"', "\n".join(more), re.MULTILINE)
    if message.startswith("Table with name") and meant and meant[1] not in schema.TABLES:
        meant = None  # an internal table of DuckDB
    if isinstance(error, duckdb.OutOfMemoryException):
        return TareError(
            f"the query needs more than {_MEMORY_LIMIT} of memory", "ask for less: WHERE, GROUP BY, fewer columns"
        )
    if isinstance(error, duckdb.PermissionException):
        return UsageError(f"a query reads the tables of the runs alone: {message}", HINT)
    if ".jsonl" in message or ".parquet" in message:
        return UsageError(message, "the file is damaged or of a newer tare")
    return UsageError(f"the query: {message}", f'did you mean "{meant[1]}"?' if meant else HINT)

"""Tables of runs in DuckDB: their schema, the check of queries, and the files with their data.

DuckDB opens only files of the runs, no connection and no extension (`query.py`). It could still write to these files:
from DuckDB 2.0 on, a COPY can be a part of a SELECT. So a query must be a single SELECT without functions that can hide
other SQL, and runs as a subquery, where DuckDB refuses to write.

A run folder may be untrusted: tare reads only regular files, no links.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import shutil
import stat
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare import __version__
from tare.hosts.local import sha256_of
from tare.model.errors import UsageError
from tare.model.run_folder import RunRecord, load_record, load_run, read_trial
from tare.report.data_files import FORMAT, create_document
from tare.statistics.summarize import summarize

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


TABLES = ("runs", "trials", "marks", "values", "turns", "telemetry", "decisions")

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
    [mark.seconds FOR mark IN timeline IF mark.name = 'ready'][1] AS ready_seconds,
    footprint.memory_bytes AS memory_bytes, footprint.kernel_bytes AS kernel_bytes,
    footprint.disk_bytes AS disk_bytes, footprint.processes AS processes, footprint.reported_bytes AS reported_bytes,
    [caution.kind FOR caution IN cautions] AS cautions
FROM source.journal JOIN source.files USING (filename)
"""
MARKS = """
CREATE VIEW marks AS
SELECT run, trial, workload, stack, block, mark.name AS "name", mark.seconds AS seconds
FROM (
    SELECT run, trial, workload, stack, block, unnest(timeline) AS mark
    FROM source.journal JOIN source.files USING (filename)
)
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


_DERIVED_COLUMNS = {"run", "low", "high", "cautions", "failures"}  # the other columns are as in the report


@dataclass(frozen=True)
class RunSource:
    """Source of a run, with its name in the tables (`run`); `journal` is None without trials."""

    run: str
    folder: Path
    record: RunRecord
    journal: Path | None
    telemetry: tuple[Path, ...]


@dataclass(frozen=True)
class JournalEnds:
    """First and last whole line of a journal, and the offset after the last one, where a torn line may follow."""

    first: bytes
    last: bytes
    end_offset: int


def find_sources(folders: Sequence[Path], work_folder: Path, with_telemetry: bool) -> Iterator[RunSource]:
    """Yield the source of each run; raises UsageError.

    A journal with a torn last line, as after a power cut, is copied without that line to `work_folder`. All files are
    regular files: links of an untrusted run folder could lead to any file.
    """
    for number, (folder, run) in enumerate(zip(folders, _run_names(folders), strict=True)):
        record, whole = load_record(folder), folder.resolve()
        try:
            journal = _prepare_journal(whole / "trials.jsonl", work_folder / f"{number}.jsonl")
            telemetry = _telemetry_files(whole) if with_telemetry else ()
        except OSError as error:
            message = f"{error.filename or folder}: {(error.strerror or str(error)).lower()}"
            raise UsageError(message, "a query needs to read the run, and room for its copies") from error
        yield RunSource(run, folder, record, journal, telemetry)


def _run_names(folders: Sequence[Path]) -> list[str]:
    """Return the names of runs: the name of the folder, or its absolute path if several folders have that name."""
    whole = [folder.resolve() for folder in folders]
    times = Counter(path.name for path in whole)
    for path, count in Counter(whole).items():
        if count > 1:
            raise UsageError(f"{path}: is given {count} times", "name each run once")
    return [path.name if times[path.name] == 1 else str(path) for path in whole]


def _prepare_journal(path: Path, copy: Path) -> Path | None:
    """Return the path of the journal, or of a copy without a torn last line; None if it has no whole line."""
    if not os.path.lexists(path):
        return None
    _require_plain(path)
    ends = find_journal_ends(path)
    if ends is None:
        return None
    read_trial(ends.first, f"{path}:1")
    read_trial(ends.last, f"{path}: its last line")
    if ends.end_offset == path.stat().st_size:
        return path
    shutil.copyfile(path, copy)
    os.truncate(copy, ends.end_offset)
    return copy


def find_journal_ends(path: Path) -> JournalEnds | None:
    """Return the first and the last whole line of a file without reading all of it; None if it has none."""
    if not path.stat().st_size:
        return None
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        end = text.rfind(b"\n") + 1
        if not end:
            return None
        first = text[: text.find(b"\n")]
        return JournalEnds(first, text[text.rfind(b"\n", 0, end - 1) + 1 : end - 1], end)


def _telemetry_files(folder: Path) -> tuple[Path, ...]:
    within = folder / "telemetry"
    if within.is_symlink():
        raise _link_error(within)
    paths = tuple(sorted(within.glob("*.parquet")))
    for path in paths:
        _require_plain(path)
    return paths


def _require_plain(path: Path) -> None:
    mode = path.lstat().st_mode
    if stat.S_ISLNK(mode):
        raise _link_error(path)
    if not stat.S_ISREG(mode):
        raise UsageError(f"{path}: is no file", "a run folder holds plain files alone")


def _link_error(path: Path) -> UsageError:
    message = f"{path}: is a symbolic link, and a query follows none in a run folder"
    return UsageError(message, "put a copy of the file in its place")


def decisions(source: RunSource) -> Iterator[dict[str, Any]]:
    """Yield the rows of `decisions`: headlines and cells of a run; raises UsageError.

    Rows are read from the report, or computed if the report is missing, of another journal, or by another tare.
    """
    yield from _read_report_rows(source) or _report_rows(source.run, _compute_report(source))


def _read_report_rows(source: RunSource) -> list[dict[str, Any]]:
    """Return the rows of the report, which may be untrusted; empty if it is outdated or invalid."""
    path = source.folder / "report" / "report.json"
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        if path.is_file():
            report = json.loads(path.read_bytes())
            is_ours = (report["format"], report["computed_by"]) == (FORMAT, __version__)
            if is_ours and report["journal"] == _journal_digest(source):
                return list(_report_rows(source.run, report))
    return []


def _journal_digest(source: RunSource) -> str:
    """Return the SHA-256 of the journal's whole lines, as `load_run` does."""
    if source.journal is None:
        return hashlib.sha256().hexdigest()
    return sha256_of(source.journal)


def _compute_report(source: RunSource) -> dict[str, Any]:
    run = load_run(source.folder)
    return create_document(summarize(run), run)


def _report_rows(name: str, report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for cell in (*report["headlines"], *report["cells"]):
        low, high = cell["interval"] or (None, None)
        yield {
            "run": name,
            **{column: cell[column] for column in DECISIONS if column not in _DERIVED_COLUMNS},
            "low": low,
            "high": high,
            "cautions": list(dict.fromkeys(caution["kind"] for caution in cell["cautions"])),
            "failures": len(cell["failures"]),
        }

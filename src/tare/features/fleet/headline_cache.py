"""Cache of a run's digest: a small Parquet file, `report/headlines.parquet`, a row for each headline and stack.

The file is written at the end of a run, or by the first fleet command that reads the run. DuckDB then reads the files
of all machines at once, and no journal: 13 s instead of 23 minutes for a thousand runs. A file is not used if it is
damaged, of another tare, or made from another journal or record: the digest is then computed again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import signal
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from glob import escape
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, Json, TypeAdapter, ValidationError

from tare import __version__
from tare.features.compare.run_series import RunDigest, digest_run
from tare.features.fleet.random_effects import MachineSample, summarize_machine
from tare.hosts.local import sha256_of
from tare.model.errors import UsageError
from tare.model.files import make_within, write_within
from tare.model.run_folder import Run, load_run
from tare.statistics.cells import Cell
from tare.statistics.ratios import LARGEST_LOGARITHM
from tare.telemetry.parquet import open_sandboxed_database

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

CACHE_FILE = "report/headlines.parquet"
_JOURNAL = "trials.jsonl"
FORMAT = 1
_MEMORY_LIMIT = "512MB"  # of DuckDB, for a batch
_BATCH_FILES = 250  # limits memory, and the files that a damaged one makes DuckDB read again
_MAX_BYTES = 8 << 20  # of a file; a file of 35 rows has 14 KB
_MANY_BYTES = 64 << 20  # of journals: with less, starting processes takes longer than they save
_MAX_PROCESSES = 4  # each holds a journal in memory

COLUMNS: Mapping[str, str] = {
    "suite": "VARCHAR",
    "baseline": "VARCHAR",
    "margin": "DOUBLE",
    "architecture": "VARCHAR",
    "cpu_model": "VARCHAR",
    "cpus": "BIGINT",
    "memory_bytes": "BIGINT",
    "virtualization": "VARCHAR",
    "kernel": "VARCHAR",
    "workload": "VARCHAR",
    "headline": "VARCHAR",
    "stack": "VARCHAR",
    "better": "VARCHAR",
    "log": "DOUBLE",
    "blocks": "BIGINT",
    "squares": "DOUBLE",
    "cell": "VARCHAR",
    "run": "VARCHAR",
    "digest": "VARCHAR",
}
"""The columns of the file. `cell` and `run` are JSON: the whole cell, and what all cells of the run have in common.

`digest` is the SHA-256 of all that is read from the file, so that damage to it is noticed.
"""
_READ_COLUMNS = ("log", "blocks", "squares", "cell")


@dataclass(frozen=True)
class CacheKey:
    """Key of a cache file: its format and tare, SHA-256 of record and journal, and the journal's size and time."""

    format: int
    tare: str
    record: str
    journal: str
    journal_bytes: Annotated[int, Field(ge=1)]  # an endless device has 0, and is not read for its digest
    journal_modified: int


@dataclass(frozen=True)
class _Common:
    """Common part of all rows: the key of the file, and the digest without cells and folder."""

    origin: CacheKey
    run: RunDigest[MachineSample]


@dataclass(frozen=True)
class _CacheRow:
    log: Annotated[float, Field(ge=-LARGEST_LOGARITHM, le=LARGEST_LOGARITHM)]
    blocks: Annotated[int, Field(ge=1)]
    squares: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    cell: Json[Cell]

    @property
    def sample(self) -> MachineSample:
        """The summary of the blocks' logarithms."""
        return MachineSample(self.blocks, self.log, self.squares)


_COMMON = TypeAdapter(_Common)
_ROWS = TypeAdapter(tuple[_CacheRow, ...])


def load_digests(
    folders: Sequence[Path], baseline: str, progress: Callable[[int], None]
) -> list[RunDigest[MachineSample]]:
    """Return the digests of runs, from their cache files if these are current; raises UsageError.

    All stacks of a run are compared with the baseline by the margin of the run. `progress` is called with the number of
    digests.
    """
    digests: dict[Path, RunDigest[MachineSample]] = {}
    for at in range(0, len(folders), _BATCH_FILES):
        for key, run in read_caches(folders[at : at + _BATCH_FILES]):
            if run.baseline == baseline and _is_current(key, run.folder):
                digests[run.folder] = run
        progress(len(digests))
    missing = [folder for folder in folders if folder not in digests]
    for count, (folder, run) in enumerate(_compute_digests(missing, baseline), start=len(folders) - len(missing) + 1):
        digests[folder] = run
        progress(count)
    return [digests[folder] for folder in folders]


def store_if_usable(run: Run) -> None:
    """Write the cache file of a finished run, unless no trial has the baseline, so that it cannot be in a fleet."""
    with suppress(UsageError):
        write_cache(run)


def write_cache(run: Run) -> RunDigest[MachineSample]:
    """Compute the digest of a run, write its cache file if the folder is writable, and return the digest."""
    import duckdb  # noqa: PLC0415 - its import takes a fifth of a second

    digest = _compact_digest(run, run.record.baseline)
    if digest.cells:
        with suppress(OSError, UsageError, UnicodeError, duckdb.Error):  # a cache: without it, the next command is slow
            journal, record = (run.folder / _JOURNAL).stat(), sha256_of(run.folder / "run.json")
            key = CacheKey(FORMAT, __version__, record, run.digest, journal.st_size, journal.st_mtime_ns)
            make_within(run.folder, "report")
            write_within(run.folder, CACHE_FILE, _to_parquet(run, digest, key))
    return digest


def _compact_digest(run: Run, baseline: str) -> RunDigest[MachineSample]:
    return digest_run(run, baseline, (), None, lambda cell, logs: (replace(cell, ratios=()), summarize_machine(logs)))


def _compute_digests(folders: Sequence[Path], baseline: str) -> Iterator[tuple[Path, RunDigest[MachineSample]]]:
    """Yield the digests of runs and write their cache files, in several processes if journals are large."""
    left = dict.fromkeys(folders)
    if len(folders) > 1 and sum(map(_journal_bytes, folders)) > _MANY_BYTES:
        processes = min(len(os.sched_getaffinity(0)), _MAX_PROCESSES, len(folders))
        pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_ignore_interrupts)
        try:
            with suppress(BrokenProcessPool):  # out of memory, or killed: the rest is computed one by one below
                futures = {pool.submit(_compute_digest, folder, baseline): folder for folder in folders}
                for future in as_completed(futures):
                    yield futures[future], future.result()
                    del left[futures[future]]
        finally:
            pool.shutdown(cancel_futures=True)
    for folder in left:
        yield folder, _compute_digest(folder, baseline)


def _ignore_interrupts() -> None:
    """Ignore Ctrl-C in a worker process: the parent handles it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _compute_digest(folder: Path, baseline: str) -> RunDigest[MachineSample]:
    if _has_cache(folder) and not os.path.lexists(folder / _JOURNAL):
        message = f"{folder}: has no {_JOURNAL}, and {CACHE_FILE} is damaged, of another tare, or of another baseline"
        raise UsageError(message, f"copy {_JOURNAL} there, too")
    run = load_run(folder)
    return write_cache(run) if run.record.baseline == baseline else _compact_digest(run, baseline)


def _journal_bytes(folder: Path) -> int:
    with suppress(OSError):
        return (folder / _JOURNAL).stat().st_size
    return 0


def _has_cache(folder: Path) -> bool:
    """Return whether the run has a regular cache file; links are refused, as a run folder is untrusted."""
    path = folder / CACHE_FILE
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size <= _MAX_BYTES and not path.parent.is_symlink()


def _is_current(key: CacheKey, folder: Path) -> bool:
    """Return whether the record and the journal are those that the cache file was made from.

    A journal of the same size and time is not read, a journal of the same size and another time (a copy) is hashed. A
    run that was copied without its journal is current.
    """
    if (key.format, key.tare) != (FORMAT, __version__):
        return False
    journal = folder / _JOURNAL
    try:
        if sha256_of(folder / "run.json") != key.record:
            return False
        if not os.path.lexists(journal):
            return True
        status = journal.stat()
        return status.st_size == key.journal_bytes and (
            status.st_mtime_ns == key.journal_modified or sha256_of(journal) == key.journal
        )
    except OSError:
        return False


def _to_parquet(run: Run, digest: RunDigest[MachineSample], key: CacheKey) -> bytes:
    """Return the content of the cache file."""
    record, machine = run.record, run.record.machine
    text = _COMMON.dump_json(_Common(key, replace(digest, folder=Path(), cells={}))).decode()
    rows = [
        vars(cell) | {"log": logs.mean, "blocks": logs.count, "squares": logs.squares, "cell": _to_json(cell)}
        for cell, logs in digest.cells.values()
    ]
    common = vars(record) | vars(machine) | {"run": text, "digest": _content_digest(text, rows)}
    unnested = ", ".join(f"unnest(?::{sql_type}[]) AS {name}" for name, sql_type in COLUMNS.items())
    with _open_database() as (folder, connection):
        path = folder / "headlines.parquet"
        connection.execute(
            f"CREATE TABLE rows AS SELECT {unnested}", [[(common | row)[name] for row in rows] for name in COLUMNS]
        )
        connection.table("rows").write_parquet(str(path), compression="zstd")
        return path.read_bytes()


@contextmanager
def _open_database() -> Iterator[tuple[Path, DuckDBPyConnection]]:
    """Context manager: open a database in a temporary folder, which takes what does not fit into memory."""
    with (
        TemporaryDirectory(prefix="tare-headlines-") as folder,
        open_sandboxed_database(folder, _MEMORY_LIMIT, _MAX_PROCESSES) as connection,
    ):
        yield Path(folder), connection


def _content_digest(common: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the SHA-256 of all content that is read from a file, as hexadecimal digits."""
    text = json.dumps([common, *([row[name] for name in _READ_COLUMNS] for row in rows)])
    return hashlib.sha256(text.encode()).hexdigest()


def _to_json(cell: Cell) -> str:
    return json.dumps(asdict(cell))  # pydantic would write NaN as null


def read_caches(folders: Sequence[Path]) -> Iterator[tuple[CacheKey, RunDigest[MachineSample]]]:
    """Yield keys and digests from the cache files of runs, which may be untrusted; damaged files are left out."""
    with _open_database() as (folder, connection):
        empty = folder / "empty.parquet"  # gives a query over older files all columns
        nothing = ", ".join(f"NULL::{sql_type} AS {name}" for name, sql_type in COLUMNS.items())
        connection.sql(f"SELECT {nothing} WHERE false").write_parquet(str(empty))
        by_name = {str(each / CACHE_FILE): each for each in folders if _has_cache(each)}
        for name, common, digest, rows in _scan_files(connection, empty, [*by_name]):
            with suppress(ValidationError):
                stored, read = _COMMON.validate_json(common or ""), _ROWS.validate_python(rows)
                if digest == _content_digest(common, rows) and all(_is_finite(row.cell) for row in read):
                    cells = {(row.cell.headline, row.cell.stack): (row.cell, row.sample) for row in read}
                    yield stored.origin, replace(stored.run, folder=by_name[name], cells=cells)


def _scan_files(
    connection: DuckDBPyConnection, empty: Path, paths: Sequence[str]
) -> list[tuple[str, str, str, list[dict[str, Any]]]]:
    """Return name, common part, digest and rows of each file; nothing for a damaged file."""
    import duckdb  # noqa: PLC0415 - see write_cache

    if not paths:
        return []
    row = ", ".join(f"'{name}': {name}" for name in _READ_COLUMNS)
    query = (
        f"SELECT filename, any_value(run), any_value(digest), list({{{row}}} ORDER BY file_row_number) "  # noqa: S608 - paths are a parameter
        "FROM read_parquet($1, filename = true, file_row_number = true, hive_partitioning = false) GROUP BY filename"
    )
    try:
        return connection.execute(query, [[str(empty), *map(escape, paths)]]).fetchall()
    except (duckdb.Error, UnicodeError):
        if len(paths) == 1:
            return []
    half = len(paths) // 2  # the error does not name the damaged file: search for it by halves
    return [row for part in (paths[:half], paths[half:]) for row in _scan_files(connection, empty, part)]


def _is_finite(cell: Cell) -> bool:
    return all(math.isfinite(value) for value in vars(cell).values() if isinstance(value, float))

"""What a fleet needs of a run, as a small Parquet file in it: `report/headlines.parquet`, a row for a headline's stack.

The end of a run writes it, or the first command that reads the run in a fleet. DuckDB then reads those of all machines
at once, and no journal. A file that was made of another journal or record, by another tare, or that is damaged, is not
used: the run is condensed again.
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
from tare.model.journal import Run, load_run, make_within, write_within
from tare.statistics.cells import Cell
from tare.statistics.ratios import LARGEST_LOGARITHM
from tare.telemetry.parquet import open_sandboxed_database

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

CACHE_FILE = "report/headlines.parquet"
_JOURNAL = "trials.jsonl"
FORMAT = 1
_MEMORY_LIMIT = "512MB"  # of DuckDB, for a batch
_BATCH_FILES = 250  # files
_MAX_BYTES = 8 << 20  # of a file; one of 35 rows has 14 KB
_MANY_BYTES = 64 << 20  # of journals, from which on processes are worth their start
_MAX_PROCESSES = 4  # each has a journal in memory

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
    """What a file was made of, and by which tare: SHA-256 of record and journal, and the latter's size and time."""

    format: int
    tare: str
    record: str
    journal: str
    journal_bytes: Annotated[int, Field(ge=1)]  # an endless device has 0, and is not read for its digest
    journal_modified: int


@dataclass(frozen=True)
class _Common:
    """What all rows have in common: what the file was made of, and the run without its cells and its folder."""

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
        """The logarithms in short."""
        return MachineSample(self.blocks, self.log, self.squares)


_COMMON = TypeAdapter(_Common)
_ROWS = TypeAdapter(tuple[_CacheRow, ...])


def load_digests(
    folders: Sequence[Path], baseline: str, progress: Callable[[int], None]
) -> list[RunDigest[MachineSample]]:
    """Return what a fleet needs of these runs, from their files where these hold; raises UsageError.

    All stacks of a run are compared with the baseline by the margin of the run. `progress` is told how many runs are
    known.
    """
    found: dict[Path, RunDigest[MachineSample]] = {}
    for at in range(0, len(folders), _BATCH_FILES):
        for origin, run in read_caches(folders[at : at + _BATCH_FILES]):
            if run.baseline == baseline and _is_current(origin, run.folder):
                found[run.folder] = run
        progress(len(found))
    missing = [folder for folder in folders if folder not in found]
    for count, (folder, run) in enumerate(_compute_digests(missing, baseline), start=len(folders) - len(missing) + 1):
        found[folder] = run
        progress(count)
    return [found[folder] for folder in folders]


def store_if_usable(run: Run) -> None:
    """Write a finished run's file; nothing for a run that cannot be part of a fleet, as no trial has the baseline."""
    with suppress(UsageError):
        write_cache(run)


def write_cache(run: Run) -> RunDigest[MachineSample]:
    """Write the file of a run, if its folder can be written to, and return what is in it."""
    import duckdb  # noqa: PLC0415 - a fifth of a second that other commands need not wait

    found = _compact_digest(run, run.record.baseline)
    if found.cells:
        with suppress(OSError, UsageError, UnicodeError, duckdb.Error):  # nothing can be written there: again next time
            seen, record = (run.folder / _JOURNAL).stat(), sha256_of(run.folder / "run.json")
            origin = CacheKey(FORMAT, __version__, record, run.digest, seen.st_size, seen.st_mtime_ns)
            make_within(run.folder, "report")
            write_within(run.folder, CACHE_FILE, _to_parquet(run, found, origin))
    return found


def _compact_digest(run: Run, baseline: str) -> RunDigest[MachineSample]:
    return digest_run(run, baseline, (), None, lambda cell, logs: (replace(cell, ratios=()), summarize_machine(logs)))


def _compute_digests(folders: Sequence[Path], baseline: str) -> Iterator[tuple[Path, RunDigest[MachineSample]]]:
    """Condense runs, in several processes where they are large, and store what comes of it."""
    left = dict.fromkeys(folders)
    if len(folders) > 1 and sum(map(_journal_bytes, folders)) > _MANY_BYTES:
        processes = min(len(os.sched_getaffinity(0)), _MAX_PROCESSES, len(folders))
        pool = ProcessPoolExecutor(processes, get_context("spawn"), initializer=_ignore_interrupts)
        try:
            with suppress(BrokenProcessPool):  # no memory was left for it, or somebody ended it
                futures = {pool.submit(_compute_digest, folder, baseline): folder for folder in folders}
                for future in as_completed(futures):
                    yield futures[future], future.result()
                    del left[futures[future]]
        finally:
            pool.shutdown(cancel_futures=True)
    for folder in left:
        yield folder, _compute_digest(folder, baseline)


def _ignore_interrupts() -> None:
    """Leave Ctrl-C to the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _compute_digest(folder: Path, baseline: str) -> RunDigest[MachineSample]:
    if _has_cache(folder) and not os.path.lexists(folder / _JOURNAL):
        what = f"{folder}: has no {_JOURNAL}, and {CACHE_FILE} is damaged, of another tare, or of another baseline"
        raise UsageError(what, f"copy {_JOURNAL} there, too")
    run = load_run(folder)
    return write_cache(run) if run.record.baseline == baseline else _compact_digest(run, baseline)


def _journal_bytes(folder: Path) -> int:
    with suppress(OSError):
        return (folder / _JOURNAL).stat().st_size
    return 0


def _has_cache(folder: Path) -> bool:
    """Return whether the run has a plain file of the name, and no link to one elsewhere."""
    path = folder / CACHE_FILE
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size <= _MAX_BYTES and not path.parent.is_symlink()


def _is_current(key: CacheKey, folder: Path) -> bool:
    """Return whether the record and the journal are those that the file was made of.

    A journal of the same size and time is not read again. One that was copied without its time is. A run may have been
    copied without its journal.
    """
    if (key.format, key.tare) != (FORMAT, __version__):
        return False
    journal = folder / _JOURNAL
    try:
        if sha256_of(folder / "run.json") != key.record:
            return False
        if not os.path.lexists(journal):
            return True
        seen = journal.stat()
        return seen.st_size == key.journal_bytes and (
            seen.st_mtime_ns == key.journal_modified or sha256_of(journal) == key.journal
        )
    except OSError:
        return False


def _to_parquet(run: Run, digest: RunDigest[MachineSample], key: CacheKey) -> bytes:
    """Return the bytes of the file."""
    record, machine = run.record, run.record.machine
    text = _COMMON.dump_json(_Common(key, replace(digest, folder=Path(), cells={}))).decode()
    rows = [
        vars(cell) | {"log": logs.mean, "blocks": logs.count, "squares": logs.squares, "cell": _to_json(cell)}
        for cell, logs in digest.cells.values()
    ]
    alike = vars(record) | vars(machine) | {"run": text, "digest": _content_digest(text, rows)}
    unnested = ", ".join(f"unnest(?::{kind}[]) AS {name}" for name, kind in COLUMNS.items())
    with _open_database() as (folder, connection):
        path = folder / "headlines.parquet"
        connection.execute(
            f"CREATE TABLE rows AS SELECT {unnested}", [[(alike | row)[name] for row in rows] for name in COLUMNS]
        )
        connection.table("rows").write_parquet(str(path), compression="zstd")
        return path.read_bytes()


@contextmanager
def _open_database() -> Iterator[tuple[Path, DuckDBPyConnection]]:
    """Make a folder of its own, and a database that uses it for what does not fit."""
    with (
        TemporaryDirectory(prefix="tare-headlines-") as folder,
        open_sandboxed_database(folder, _MEMORY_LIMIT, _MAX_PROCESSES) as connection,
    ):
        yield Path(folder), connection


def _content_digest(common: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the SHA-256 of what is read from a file."""
    text = json.dumps([common, *([row[name] for name in _READ_COLUMNS] for row in rows)])
    return hashlib.sha256(text.encode()).hexdigest()


def _to_json(cell: Cell) -> str:
    return json.dumps(asdict(cell))  # not by pydantic, which would write NaN as null


def read_caches(folders: Sequence[Path]) -> Iterator[tuple[CacheKey, RunDigest[MachineSample]]]:
    """Read the files of runs, which may be untrusted, and what they were made of; leave out those that are damaged."""
    with _open_database() as (own, connection):
        empty = own / "empty.parquet"
        nothing = ", ".join(f"NULL::{kind} AS {name}" for name, kind in COLUMNS.items())
        connection.sql(f"SELECT {nothing} WHERE false").write_parquet(str(empty))
        by_name = {str(folder / CACHE_FILE): folder for folder in folders if _has_cache(folder)}
        for name, common, digest, rows in _scan_files(connection, empty, [*by_name]):
            with suppress(ValidationError):
                stored, read = _COMMON.validate_json(common or ""), _ROWS.validate_python(rows)
                if digest == _content_digest(common, rows) and all(_is_finite(row.cell) for row in read):
                    cells = {(row.cell.headline, row.cell.stack): (row.cell, row.sample) for row in read}
                    yield stored.origin, replace(stored.run, folder=by_name[name], cells=cells)


def _scan_files(
    connection: DuckDBPyConnection, empty: Path, paths: Sequence[str]
) -> list[tuple[str, str, str, list[dict[str, Any]]]]:
    """Return of each file its name, what is common, the digest, and its rows; of a damaged one nothing."""
    import duckdb  # noqa: PLC0415 - see store

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
    half = len(paths) // 2
    return [row for part in (paths[:half], paths[half:]) for row in _scan_files(connection, empty, part)]


def _is_finite(cell: Cell) -> bool:
    return all(math.isfinite(value) for value in vars(cell).values() if isinstance(value, float))

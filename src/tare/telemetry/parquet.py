"""Parquet files of telemetry, written and read by a sandboxed DuckDB."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from glob import escape
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tare.model.trial import Trial
from tare.telemetry.host_reader import UsageReading
from tare.telemetry.procfs import TICKS_PER_SECOND

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_GAUGES = frozenset({"memory_bytes", "charged_bytes", "swap_bytes"})
_COLUMNS = tuple(field.name for field in fields(UsageReading) if field.name != "cpus")
_FRACTIONS = ("cpu_", "disk_busy", "pressure_")  # prefixes of columns in seconds; all others are whole numbers
# Positions in `ProcStat.ticks_by_cpu` that each time sums up.
_TIMES = {"user": (0,), "system": (2, 5, 6), "iowait": (4,), "softirq": (6,), "steal": (7,)}
TYPES: Mapping[str, str] = {
    "seconds": "DOUBLE",
    "scope": "VARCHAR",
    "trial": "VARCHAR",
    **{name: "DOUBLE" if name.startswith(_FRACTIONS) else "BIGINT" for name in _COLUMNS},
    "time": "TIMESTAMP",
    **{f"cpus_{name}": "DOUBLE[]" for name in _TIMES},
}
"""All columns of the file, with their types in SQL."""
COLUMNS = tuple(TYPES)
_VALUES = attrgetter(*_COLUMNS)
Matrix = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TelemetryRow:
    """Sample of the instance of a trial, or of the machine, for which `trial` is None.

    `seconds` is the time of the monotonic clock. The counters in `used` may start at any value; in the file, they start
    at 0 in the first row of the same instance or machine.
    """

    seconds: float
    trial: str | None
    used: UsageReading


def prepare_writing() -> None:
    """Load what `write` needs. The first time in a process, this takes 0.1 s or more."""
    _database()


def write(target: Path, rows: Sequence[TelemetryRow], began: float) -> str:
    """Write rows to a Parquet file atomically; return the error, or "".

    `began` is the zero of the monotonic clock in seconds since 1970.
    """
    import duckdb  # noqa: PLC0415 - takes 0.2 s, for which only a run has to wait

    partial = target.with_name(f"{target.name}.partial")
    try:
        partial.unlink(missing_ok=True)  # may be a symbolic link of another user
        connection = _database()
        cpu_columns, lists = _cpu_columns(rows)
        columns = _columns(rows, began)
        connection.register("rows", columns | cpu_columns)
        selected = ", ".join((*columns, *lists))
        connection.sql(f"SELECT {selected} FROM rows").write_parquet(str(partial), compression="zstd")  # noqa: S608
        connection.unregister("rows")
        partial.replace(target)
    except (duckdb.Error, OSError) as error:
        partial.unlink(missing_ok=True)
        return str(error).splitlines()[0]
    return ""


def telemetry_files(folder: Path, trial: Trial) -> Iterator[Path]:
    """Yield the existing files of a run folder that may have a trial's telemetry: the trial's, and its block's."""
    for name in (trial.trial, f"{trial.workload}-{trial.block:03d}"):
        file = folder / "telemetry" / f"{name}.parquet"
        # The journal may be untrusted: no name may lead out of the folder.
        if "/" not in name and "\0" not in name and file.is_file():
            yield file


class UsageSample(NamedTuple):
    """CPU time that an instance had used up to a moment, and its memory; None if a value was not read."""

    seconds: float
    cpu_seconds: float | None
    memory_bytes: float | None


class InstanceSeries(NamedTuple):
    """Samples of an instance, and pairs of a moment and the cumulative steal time of its machine, in seconds."""

    samples: list[UsageSample]
    steal_times: list[tuple[float, float]]


def count_samples(file: Path, trial: str) -> tuple[int, float]:
    """Return the number of samples of a trial's instance, and the seconds from the first to the last.

    Raises OSError for a file that cannot be read.
    """
    ((samples, seconds),) = _aggregate(file, "count(*), max(seconds) - min(seconds)", "scope = 'instance'", trial)
    return samples, seconds or 0.0


def read_series(file: Path, trial: str) -> InstanceSeries:
    """Return the samples of a trial's instance and its machine in order; raises OSError if the file is unreadable."""
    names = ("seconds", "cpu_user + cpu_system", "memory_bytes", "cpu_steal")
    lists = ", ".join(f"list(CAST({name} AS DOUBLE))" for name in names)  # the file may be untrusted
    scopes = _aggregate(file, f"scope, {lists}", "scope IN ('instance', 'host')", trial)
    rows = {
        scope: sorted(_drop_unknown(zip(*columns, strict=True)), key=lambda row: row[0]) for scope, *columns in scopes
    }
    return InstanceSeries(
        [UsageSample(moment, used, memory) for moment, used, memory, _ in rows.get("instance", ())],
        [(moment, steal) for moment, _, _, steal in rows.get("host", ()) if steal is not None],
    )


def _drop_unknown(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [row for row in rows if row[0] is not None]


def _aggregate(file: Path, columns: str, scopes: str, trial: str) -> list[tuple[Any, ...]]:
    """Aggregate the machine's and one trial's rows, filtered by scope; raises OSError if the file is unreadable."""
    import duckdb  # noqa: PLC0415 - see write
    from duckdb import ColumnExpression, ConstantExpression  # noqa: PLC0415

    try:
        with _database().cursor() as connection:
            # DuckDB takes paths as patterns, and would read a folder named `a=b` as a column.
            rows = connection.read_parquet(escape(str(file)), hive_partitioning=False).filter(scopes)
            if "trial" in rows.columns:
                is_of_trial = ColumnExpression("trial") == ConstantExpression(trial)
                rows = rows.filter(is_of_trial | (ColumnExpression("scope") == ConstantExpression("host")))
            result: list[tuple[Any, ...]] = rows.aggregate(columns).fetchall()
    except duckdb.Error as error:
        raise OSError(str(error).splitlines()[0]) from error
    return result


@cache
def _database() -> DuckDBPyConnection:
    """Return an empty database in memory, which does not cache files. Creating one takes 35 ms."""
    import duckdb  # noqa: PLC0415 - see write

    return duckdb.connect(config={"threads": 1, "enable_external_file_cache": False})


def _columns(rows: Sequence[TelemetryRow], began: float) -> dict[str, Any]:
    """Return the table's columns as arrays, in which seconds are since the first row.

    Arrays are the fastest way into DuckDB, which reads a masked array as a column with NULLs.
    """
    seconds = np.array([row.seconds for row in rows])
    trials = [row.trial for row in rows]
    columns: dict[str, Any] = {
        "seconds": seconds - seconds[0],
        "scope": np.array(["host" if trial is None else "instance" for trial in trials], dtype=object),
        "trial": np.array(trials, dtype=object),
    }
    values = np.array([_VALUES(row.used) for row in rows], dtype=np.float64)  # None becomes NaN
    counters = np.array([name not in _GAUGES for name in _COLUMNS])
    for trial in dict.fromkeys(trials):
        selected = np.ix_(np.array([name == trial for name in trials]), counters)
        values[selected] -= _first_known(values[selected])
    for name, column in zip(_COLUMNS, values.T, strict=True):
        columns[name] = _mask_missing(column, np.float64 if name.startswith(_FRACTIONS) else np.int64)
    columns["time"] = ((began + seconds) * 1e6).astype("datetime64[us]")
    return columns


def _cpu_columns(rows: Sequence[TelemetryRow]) -> tuple[dict[str, Any], list[str]]:
    """Return a column per CPU and use of its time, and for each use the SQL that makes a list by CPU number."""
    numbers = sorted({number for row in rows for number in row.used.cpus or ()})
    ticks = np.full((len(rows), max(numbers, default=-1) + 1, 8), np.nan)
    for index, row in enumerate(rows):
        for number, times in (row.used.cpus or {}).items():
            ticks[index, number] = times
    columns: dict[str, Any] = {}
    lists = []
    for name, indexes in _TIMES.items():
        seconds = ticks[:, :, indexes].sum(axis=2) / TICKS_PER_SECOND
        by_cpu = {
            f"{name}_{number}": _mask_missing(column, np.float64)
            for number, column in enumerate((seconds - _first_known(seconds)).T)
        }
        lists.append(f"CASE WHEN scope = 'host' THEN [{', '.join(by_cpu)}]::DOUBLE[] END AS cpus_{name}")
        columns |= by_cpu
    return columns, lists


def _first_known(values: Matrix) -> Matrix:
    """Return the first known value of each column; NaN if a column has none."""
    first: Matrix = values[np.argmax(~np.isnan(values), axis=0), np.arange(values.shape[1])]
    return first


def _mask_missing(column: Matrix, dtype: type[np.float64 | np.int64]) -> Any:
    missing = np.isnan(column)
    return np.ma.MaskedArray(np.where(missing, 0, column).astype(dtype), missing)


def open_sandboxed_database(
    folder: str, memory_limit: str, max_threads: int, *, ordered: bool = True
) -> DuckDBPyConnection:
    """Return a database in memory, which uses at most `memory_limit` and spills to `folder`.

    If not `ordered`, queries may return rows in any order, for which DuckDB needs less memory.
    """
    import duckdb  # noqa: PLC0415 - takes 0.2 s, for which other commands need not wait

    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory_limit,
        "threads": min(os.cpu_count() or 1, max_threads),
        "temp_directory": folder,
        "preserve_insertion_order": ordered,
        # Sandbox for untrusted queries: no downloads, and no access to variables of this process.
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
    }
    return duckdb.connect(config=settings)

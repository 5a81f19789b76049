"""Write and read telemetry as Parquet, through a sandboxed DuckDB."""

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
_FRACTIONS = ("cpu_", "disk_busy", "pressure_")  # in seconds; all others are whole numbers
_TIMES = {"user": (0, 1), "system": (2, 5, 6), "iowait": (4,), "softirq": (6,), "steal": (7,)}  # which ticks they are
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
    """What one had used at a moment: the instance of a trial, or the machine, which has none.

    `seconds` are those of the monotonic clock. The counters in `used` have any beginning: in the file, it is the first
    row of the same.
    """

    seconds: float
    trial: str | None
    used: UsageReading


def write(target: Path, rows: Sequence[TelemetryRow], began: float) -> str:
    """Write rows to a Parquet file, whole or not at all; return the error, or "".

    `began` is the beginning of the monotonic clock in seconds since 1970.
    """
    import duckdb  # noqa: PLC0415 - a fifth of a second that only a run has to wait

    partial = target.with_name(f"{target.name}.partial")
    try:
        partial.unlink(missing_ok=True)  # also a link that another user has made
        connection = _database()
        each_cpu, lists = _cpu_columns(rows)
        columns = _columns(rows, began)
        connection.register("rows", columns | each_cpu)
        wanted = ", ".join((*columns, *lists))
        connection.sql(f"SELECT {wanted} FROM rows").write_parquet(str(partial), compression="zstd")  # noqa: S608
        connection.unregister("rows")
        partial.replace(target)
    except (duckdb.Error, OSError) as error:
        partial.unlink(missing_ok=True)
        return str(error).splitlines()[0]
    return ""


def telemetry_files(folder: Path, trial: Trial) -> Iterator[Path]:
    """Yield the files of a run folder that may have a trial's telemetry: the trial's own, and that of its block.

    What a journal names may be untrusted: no path leads out of the folder.
    """
    for name in (trial.trial, f"{trial.workload}-{trial.block:03d}"):
        file = folder / "telemetry" / f"{name}.parquet"
        if "/" not in name and "\0" not in name and file.is_file():
            yield file


class UsageSample(NamedTuple):
    """What an instance had used of the CPUs at a moment, and its memory; None for what was not read."""

    seconds: float
    cpu_seconds: float | None
    memory_bytes: float | None


class InstanceSeries(NamedTuple):
    """What an instance had used along time, and how many seconds the CPUs of its machine had been taken away."""

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
    own = _aggregate(file, f"scope, {lists}", "scope IN ('instance', 'host')", trial)
    rows = {scope: sorted(_drop_unknown(zip(*columns, strict=True)), key=lambda row: row[0]) for scope, *columns in own}
    return InstanceSeries(
        [UsageSample(moment, used, memory) for moment, used, memory, _ in rows.get("instance", ())],
        [(moment, stolen) for moment, _, _, stolen in rows.get("host", ()) if stolen is not None],
    )


def _drop_unknown(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [row for row in rows if row[0] is not None]


def _aggregate(file: Path, columns: str, scopes: str, trial: str) -> list[tuple[Any, ...]]:
    """Aggregate the rows of some scopes; of instances, a trial's alone."""
    import duckdb  # noqa: PLC0415 - see write
    from duckdb import ColumnExpression, ConstantExpression  # noqa: PLC0415

    try:
        with _database().cursor() as connection:
            rows = connection.read_parquet(escape(str(file)), hive_partitioning=False).filter(scopes)
            if "trial" in rows.columns:
                own = ColumnExpression("trial") == ConstantExpression(trial)
                rows = rows.filter(own | (ColumnExpression("scope") == ConstantExpression("host")))
            found: list[tuple[Any, ...]] = rows.aggregate(columns).fetchall()
    except duckdb.Error as error:
        raise OSError(str(error).splitlines()[0]) from error
    return found


@cache
def _database() -> DuckDBPyConnection:
    """Return an empty database in memory; it is kept, because making one takes 35 ms. It keeps nothing of files."""
    import duckdb  # noqa: PLC0415 - see write

    return duckdb.connect(config={"threads": 1, "enable_external_file_cache": False})


def _columns(rows: Sequence[TelemetryRow], began: float) -> dict[str, Any]:
    """Return the table's columns as arrays, the quickest way into DuckDB; seconds are since the first row.

    DuckDB reads a masked array as a column with NULLs.
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
        mine = np.ix_(np.array([each == trial for each in trials]), counters)
        values[mine] -= _first_known(values[mine])
    for name, column in zip(_COLUMNS, values.T, strict=True):
        columns[name] = _mask_missing(column, np.float64 if name.startswith(_FRACTIONS) else np.int64)
    columns["time"] = ((began + seconds) * 1e6).astype("datetime64[us]")
    return columns


def _cpu_columns(rows: Sequence[TelemetryRow]) -> tuple[dict[str, Any], list[str]]:
    """Return a column for each time of each CPU, and what makes a list of them, whose index is the CPU's number."""
    numbers = sorted({number for row in rows for number in row.used.cpus or ()})
    ticks = np.full((len(rows), max(numbers, default=-1) + 1, 8), np.nan)
    for index, row in enumerate(rows):
        for number, times in (row.used.cpus or {}).items():
            ticks[index, number] = times
    columns: dict[str, Any] = {}
    lists = []
    for name, places in _TIMES.items():
        seconds = ticks[:, :, places].sum(axis=2) / TICKS_PER_SECOND
        mine = {
            f"{name}_{number}": _mask_missing(column, np.float64)
            for number, column in enumerate((seconds - _first_known(seconds)).T)
        }
        lists.append(f"CASE WHEN scope = 'host' THEN [{', '.join(mine)}]::DOUBLE[] END AS cpus_{name}")
        columns |= mine
    return columns, lists


def _first_known(values: Matrix) -> Matrix:
    """Return the first value of each column that is known; NaN where none is."""
    first: Matrix = values[np.argmax(~np.isnan(values), axis=0), np.arange(values.shape[1])]
    return first


def _mask_missing(column: Matrix, kind: type[np.float64 | np.int64]) -> Any:
    missing = np.isnan(column)
    return np.ma.MaskedArray(np.where(missing, 0, column).astype(kind), missing)


def open_sandboxed_database(
    folder: str, memory_limit: str, max_threads: int, *, ordered: bool = True
) -> DuckDBPyConnection:
    """Return a database in memory, of so much at most; what does not fit goes to the folder.

    Unless it is `ordered`, rows may come in any order, and fewer have to be held.
    """
    import duckdb  # noqa: PLC0415 - a fifth of a second that other commands need not wait

    settings: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": memory_limit,
        "threads": min(os.cpu_count() or 1, max_threads),
        "temp_directory": folder,
        "preserve_insertion_order": ordered,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "python_enable_replacements": False,
    }
    return duckdb.connect(config=settings)

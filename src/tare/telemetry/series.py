"""The file of a telemetry: the rows of a machine and of the instances on it, as Parquet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tare.hosts.process import held_back
from tare.telemetry.readings import Reading

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_COUNTERS = tuple(field.name for field in fields(Reading))


@dataclass(frozen=True)
class Row:
    """What one had used at a moment: the instance of a trial, or the machine, which has none.

    `seconds` are those of the monotonic clock, the counters in `used` since the first row of the same.
    """

    seconds: float
    trial: str | None
    used: Reading


def write(target: Path, rows: Sequence[Row]) -> str:
    """Write rows to a Parquet file, whole or not at all; gives the error, or ""."""
    import duckdb  # noqa: PLC0415 - a fifth of a second that only a run has to wait

    partial = target.with_name(f"{target.name}.partial")
    try:
        # DuckDB would turn Ctrl-C into an error of its own, and the run would end as if tare had a bug.
        with held_back():
            partial.unlink(missing_ok=True)  # also a link that a stranger has put there
            connection = _database()
            connection.register("rows", _columns(rows))
            connection.table("rows").write_parquet(str(partial), compression="zstd")
            connection.unregister("rows")
            partial.replace(target)
    except (duckdb.Error, OSError) as error:
        partial.unlink(missing_ok=True)
        return str(error).splitlines()[0]
    return ""


@cache
def _database() -> DuckDBPyConnection:
    """Give an empty database in memory; it is kept, because making one takes 15 ms."""
    import duckdb  # noqa: PLC0415 - see write

    return duckdb.connect(config={"threads": 1})


def _columns(rows: Sequence[Row]) -> dict[str, Any]:
    """Give the table's columns as arrays, the quickest way into DuckDB; seconds are since the first row.

    DuckDB reads a masked array as a column with NULLs.
    """
    columns: dict[str, Any] = {
        "seconds": np.array([row.seconds - rows[0].seconds for row in rows]),
        "scope": np.array(["host" if row.trial is None else "instance" for row in rows], dtype=object),
        "trial": np.array([row.trial for row in rows], dtype=object),
    }
    counted = map(attrgetter(*_COUNTERS), (row.used for row in rows))
    for name, values in zip(_COUNTERS, zip(*counted, strict=True), strict=True):
        missing = [value is None for value in values]
        kind = np.int64 if name.endswith("_bytes") else np.float64
        columns[name] = np.ma.MaskedArray(np.array([value or 0 for value in values], dtype=kind), missing)
    return columns

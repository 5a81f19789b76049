"""Runs as data frames, for notebooks: `tare.load(run).values.pandas()`."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tare.tables.asking import Answer, ask


@dataclass(frozen=True)
class Table:
    """Rows that are read when they are asked for, into whatever the caller has."""

    _answer: Answer

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return self._answer.columns

    def rows(self) -> list[tuple[Any, ...]]:
        """Return the rows as Python's own values."""
        return self._answer.given(lambda relation: relation.fetchall())

    def pandas(self) -> Any:
        """Return a DataFrame of pandas, which has to be installed."""
        _require("pandas")
        return self._answer.given(lambda relation: relation.df())

    def polars(self) -> Any:
        """Return a DataFrame of polars, which has to be installed, and PyArrow with it."""
        _require("polars", "pyarrow")
        return self._answer.given(lambda relation: relation.pl())


@dataclass(frozen=True)
class Tables:
    """The tables of runs, one property each. A table is read anew each time."""

    folders: tuple[Path, ...]

    def query(self, sql: str) -> Table:
        """Return the rows of a SELECT over these tables; raises TareError."""
        return Table(ask(self.folders, sql))

    @property
    def runs(self) -> Table:
        """A row for each run, with its machine."""
        return self.query("FROM runs")

    @property
    def trials(self) -> Table:
        """A row for each trial, also those that failed or were skipped."""
        return self.query("FROM trials")

    @property
    def values(self) -> Table:
        """A row for each value of an ok trial."""
        return self.query('FROM "values"')

    @property
    def turns(self) -> Table:
        """A row for each value of a turn."""
        return self.query("FROM turns")

    @property
    def telemetry(self) -> Table:
        """A row for each sample."""
        return self.query("FROM telemetry")

    @property
    def decisions(self) -> Table:
        """A row for each cell: the ratio to the baseline, its interval, and the decision."""
        return self.query("FROM decisions")


def load(*runs: str | Path) -> Tables:
    """Return the tables of one or several run folders; raises TareError for what is none."""
    tables = Tables(tuple(Path(run) for run in runs))
    tables.query("SELECT 1")  # so that a wrong folder is told here
    return tables


def _require(*names: str) -> None:
    missing = " ".join(name for name in names if find_spec(name) is None)
    if missing:
        raise ModuleNotFoundError(f"not installed: pip install {missing}")

"""Runs as data frames, for notebooks: `tare.load(run).values.pandas()`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tare.tables.asking import QueryResult, ask


@dataclass(frozen=True)
class Tables:
    """The tables of runs, one property each. A table is read each time."""

    folders: tuple[Path, ...]

    def query(self, sql: str) -> QueryResult:
        """Return the rows of a SELECT over these tables; raises TareError."""
        return ask(self.folders, sql)

    @property
    def runs(self) -> QueryResult:
        """A row for each run, with its machine."""
        return self.query("FROM runs")

    @property
    def trials(self) -> QueryResult:
        """A row for each trial, also those that failed or were skipped."""
        return self.query("FROM trials")

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
    """Return the tables of one or several run folders; raises TareError for what is none."""
    tables = Tables(tuple(Path(run) for run in runs))
    tables.query("SELECT 1")  # so that a wrong folder is reported here
    return tables

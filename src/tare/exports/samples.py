"""The samples of a run's telemetry, one after the other, each with the names of what it is of."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tare.errors import UsageError
from tare.journal import Run
from tare.model.trials import Trial
from tare.telemetry.series import COLUMNS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

Labels = tuple[tuple[str, str], ...]

_ROWS = 1000  # in memory at once
_EACH_CPU = "cpus_"
_VALUES = frozenset(COLUMNS) - {"seconds", "scope", "trial", "time"}


@dataclass(frozen=True)
class Sample:
    """One row of the telemetry. `values` are by column, those of `cpus` by number and kind of time; NULLs are missing.

    `labels` are `run` and `scope`, and `stack`, `workload`, `block` and `trial` as far as it is of one.
    """

    labels: Labels
    nanoseconds: int  # since 1970
    values: Mapping[str, float]
    cpus: Mapping[int, Mapping[str, float]]


@dataclass(frozen=True)
class _File:
    """A telemetry file: its trials in the journal, and the moment of its first sample."""

    path: Path
    trials: Mapping[str, Trial]
    began_nanoseconds: int


def samples_of(run: Run) -> Iterator[Sample]:
    """Yield the samples of all trials in the journal; those of a series one after the other.

    Raises UsageError for a file that cannot be read, and for a run without any.
    """
    import duckdb  # noqa: PLC0415 - a fifth of a second that other commands need not wait

    paths = sorted((run.folder / "telemetry").glob("*.parquet"))
    if not paths:
        raise UsageError(f"{run.folder}: no telemetry", "only a trial whose instance was started has one")
    with closing(duckdb.connect(config={"threads": 1})) as connection:
        for path in paths:
            try:
                yield from _samples_in(connection, path, run)
            except (duckdb.Error, TypeError, ValueError) as error:  # untrusted columns may be of any type
                what = f"{path}: cannot be read: {str(error).splitlines()[0]}"
                raise UsageError(what, "remove the file to export the others") from error


def _samples_in(connection: DuckDBPyConnection, path: Path, run: Run) -> Iterator[Sample]:
    pattern = glob.escape(str(path))
    table = connection.read_parquet(pattern, hive_partitioning=False)  # a folder named a=b is no column
    columns = table.columns
    if not {"seconds", "scope", "trial", "time"} <= {*columns}:
        raise ValueError("not the columns of a telemetry")
    file = _file(table, path, {trial.trial: trial for trial in run.trials})
    if not file.trials:  # of a block that was stopped, and is not in the journal
        return
    query = "SELECT * FROM read_parquet(?, hive_partitioning = false) ORDER BY scope, trial, seconds"
    rows = connection.execute(query, [pattern])
    while found := rows.fetchmany(_ROWS):
        for row in found:
            fields = dict(zip(columns, row, strict=True))
            if fields["scope"] == "host" or fields["trial"] in file.trials:
                yield _sample(fields, file, run.folder.resolve().name)


def _file(table: DuckDBPyRelation, path: Path, known: Mapping[str, Trial]) -> _File:
    named = table.filter("trial IS NOT NULL").project("trial").distinct().fetchall()
    ((began,),) = table.aggregate("epoch_ns(min(time))").fetchall()
    return _File(path, {trial: known[trial] for (trial,) in sorted(named) if trial in known}, began)


def _sample(fields: Mapping[str, Any], file: _File, run: str) -> Sample:
    each_cpu = {name.removeprefix(_EACH_CPU): fields[name] for name in fields if name.startswith(_EACH_CPU)}
    trial = file.trials.get(fields["trial"]) if fields["scope"] == "instance" else None
    return Sample(
        labels=(("run", run), ("scope", fields["scope"]), *_labels(trial, file)),
        nanoseconds=file.began_nanoseconds + round(fields["seconds"] * 1e9),
        values={name: value for name, value in fields.items() if isinstance(value, int | float) and name in _VALUES},
        cpus=_of_each_cpu({name: times for name, times in each_cpu.items() if times is not None}),
    )


def _labels(trial: Trial | None, file: _File) -> Labels:
    """Name a trial; of the machine, its block, and the trial if it was alone on it."""
    alone = next(iter(file.trials.values()))
    named = trial or alone
    labels = (("workload", named.workload), ("block", str(named.block)))
    if trial is None and (len(file.trials) > 1 or file.path.stem != alone.trial):
        return labels
    return (("stack", named.stack), *labels, ("trial", named.trial))


def _of_each_cpu(times: Mapping[str, Sequence[float | None]]) -> dict[int, dict[str, float]]:
    count = max(map(len, times.values()), default=0)
    each = {
        number: {name: value for name, values in times.items() if (value := values[number]) is not None}
        for number in range(count)
    }
    return {number: values for number, values in each.items() if values}

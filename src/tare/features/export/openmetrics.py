"""Command `tare export`: OpenMetrics text from telemetry samples.

OpenMetrics requires all samples of a metric family together, but a run has them by time. So each family is written to
separate temporary files, which are then joined: a run of any size takes little memory.
"""

from __future__ import annotations

import glob
import math
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tare.cli.arguments import read_run
from tare.model.errors import UsageError
from tare.model.files import convert_write_errors
from tare.model.run_folder import Run
from tare.model.trial import Trial
from tare.telemetry.parquet import COLUMNS

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation

Labels = tuple[tuple[str, str], ...]

_FETCH_ROWS = 1000  # in memory at once
_CPU_COLUMN_PREFIX = "cpus_"
_VALUE_COLUMNS = frozenset(COLUMNS) - {"seconds", "scope", "trial", "time"}
_CHUNK_CHARACTERS = 1 << 20
_MAX_BUFFERED_LINES = 50_000  # lines in memory
_LABEL_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


@dataclass(frozen=True)
class TelemetrySample:
    """Row of the telemetry: `values` by column, `cpus` by CPU number and mode; NULLs are missing.

    `labels` are `run` and `scope`, and `stack`, `workload`, `block` and `trial` if the sample belongs to one of each.
    """

    labels: Labels
    nanoseconds: int  # since 1970
    values: Mapping[str, float]
    cpus: Mapping[int, Mapping[str, float]]


@dataclass(frozen=True)
class _File:
    """Telemetry file: its trials in the journal, and the time of its first sample in ns since 1970."""

    path: Path
    trials: Mapping[str, Trial]
    began_nanoseconds: int


def samples_of(run: Run) -> Iterator[TelemetrySample]:
    """Yield the samples of all trials in the journal, grouped by series.

    Raises UsageError for an unreadable file, and for a run without telemetry.
    """
    import duckdb  # noqa: PLC0415 - its import takes a fifth of a second

    paths = sorted((run.folder / "telemetry").glob("*.parquet"))
    if not paths:
        raise UsageError(f"{run.folder}: no telemetry", "only a trial whose instance was started has one")
    with closing(duckdb.connect(config={"threads": 1})) as connection:
        for path in paths:
            try:
                yield from _samples_in(connection, path, run)
            except (duckdb.Error, TypeError, ValueError) as error:  # untrusted columns may be of any type
                message = f"{path}: cannot be read: {str(error).splitlines()[0]}"
                raise UsageError(message, "remove the file to export the others") from error


def _samples_in(connection: DuckDBPyConnection, path: Path, run: Run) -> Iterator[TelemetrySample]:
    pattern = glob.escape(str(path))
    table = connection.read_parquet(pattern, hive_partitioning=False)  # a folder named a=b must not become a column
    columns = table.columns
    if not {"seconds", "scope", "trial", "time"} <= {*columns}:
        raise ValueError("not the columns of a telemetry")
    file = _describe_file(table, path, {trial.trial: trial for trial in run.trials})
    if not file.trials:  # the file of an interrupted block, which is not in the journal
        return
    query = "SELECT * FROM read_parquet(?, hive_partitioning = false) ORDER BY scope, trial, seconds"
    rows = connection.execute(query, [pattern])
    while batch := rows.fetchmany(_FETCH_ROWS):
        for row in batch:
            fields = dict(zip(columns, row, strict=True))
            if fields["scope"] == "host" or fields["trial"] in file.trials:
                yield _to_sample(fields, file, run.folder.resolve().name)


def _describe_file(table: DuckDBPyRelation, path: Path, trials: Mapping[str, Trial]) -> _File:
    named = table.filter("trial IS NOT NULL").project("trial").distinct().fetchall()
    ((began,),) = table.aggregate("epoch_ns(min(time))").fetchall()
    return _File(path, {trial: trials[trial] for (trial,) in sorted(named) if trial in trials}, began)


def _to_sample(fields: Mapping[str, Any], file: _File, run: str) -> TelemetrySample:
    each_cpu = {
        name.removeprefix(_CPU_COLUMN_PREFIX): fields[name] for name in fields if name.startswith(_CPU_COLUMN_PREFIX)
    }
    trial = file.trials.get(fields["trial"]) if fields["scope"] == "instance" else None
    return TelemetrySample(
        labels=(("run", run), ("scope", fields["scope"]), *_labels(trial, file)),
        nanoseconds=file.began_nanoseconds + round(fields["seconds"] * 1e9),
        values={
            name: value for name, value in fields.items() if isinstance(value, int | float) and name in _VALUE_COLUMNS
        },
        cpus=_times_by_cpu({name: times for name, times in each_cpu.items() if times is not None}),
    )


def _labels(trial: Trial | None, file: _File) -> Labels:
    """Return the labels of a trial; for samples of the host those of its block, and of its only trial."""
    first = next(iter(file.trials.values()))
    named = trial or first
    labels = (("workload", named.workload), ("block", str(named.block)))
    if trial is None and (len(file.trials) > 1 or file.path.stem != first.trial):
        return labels
    return (("stack", named.stack), *labels, ("trial", named.trial))


def _times_by_cpu(times: Mapping[str, Sequence[float | None]]) -> dict[int, dict[str, float]]:
    count = max(map(len, times.values()), default=0)
    each = {
        number: {
            name: value  # lists of an untrusted file may differ in length
            for name, values in times.items()
            if number < len(values) and (value := values[number]) is not None
        }
        for number in range(count)
    }
    return {number: values for number, values in each.items() if values}


@dataclass(frozen=True)
class MetricFamily:
    """Metric family. OpenMetrics requires that its unit, if it has one, ends its name."""

    name: str
    metric_type: Literal["counter", "gauge"]
    unit: str
    help_text: str

    @property
    def metric(self) -> str:
        """The name of its samples."""
        return f"{self.name}_total" if self.metric_type == "counter" else self.name


CPU = MetricFamily("tare_cpu_seconds", "counter", "seconds", "CPU time of all CPUs; softirq is part of system.")
EACH_CPU = MetricFamily(
    "tare_each_cpu_seconds", "counter", "seconds", "CPU time of each CPU; softirq is part of system."
)
MEMORY = MetricFamily(
    "tare_memory_bytes",
    "gauge",
    "bytes",
    "Of a host, memory that is not available; of an instance, resident set sizes.",
)
CHARGED = MetricFamily(
    "tare_charged_bytes", "gauge", "bytes", "Memory charged to the control group, with the page cache."
)
SWAP = MetricFamily("tare_swap_bytes", "gauge", "bytes", "What lies in swap.")
SWAPPED = MetricFamily("tare_swapped_bytes", "counter", "bytes", "What came back from swap (in), or went there (out).")
DISK = MetricFamily("tare_disk_bytes", "counter", "bytes", "Bytes that disks read and wrote.")
DISK_OPERATIONS = MetricFamily("tare_disk_operations", "counter", "", "Reads and writes that disks have done.")
DISK_BUSY = MetricFamily("tare_disk_busy_seconds", "counter", "seconds", "Time in which disks were at work.")
NETWORK = MetricFamily("tare_network_bytes", "counter", "bytes", "Bytes received and sent.")
PACKETS = MetricFamily("tare_network_packets", "counter", "", "Packets received and sent.")
SWITCHES = MetricFamily("tare_context_switches", "counter", "", "Context switches.")
INTERRUPTS = MetricFamily("tare_interrupts", "counter", "", "Interrupts served.")
PRESSURE = MetricFamily(
    "tare_pressure_seconds", "counter", "seconds", "Time in which some tasks, or all (full), waited for the resource."
)

FAMILY_OF_COLUMN: dict[str, tuple[MetricFamily, Labels]] = {
    **{f"cpu_{mode}": (CPU, (("mode", mode),)) for mode in ("user", "system", "iowait", "softirq", "steal")},
    "memory_bytes": (MEMORY, ()),
    "charged_bytes": (CHARGED, ()),
    "swap_bytes": (SWAP, ()),
    **{f"swap_{way}_bytes": (SWAPPED, (("direction", way),)) for way in ("in", "out")},
    **{f"disk_{way}_bytes": (DISK, (("direction", way),)) for way in ("read", "write")},
    **{f"disk_{way}s": (DISK_OPERATIONS, (("direction", way),)) for way in ("read", "write")},
    "disk_busy": (DISK_BUSY, ()),
    **{f"network_{way}_bytes": (NETWORK, (("direction", way),)) for way in ("receive", "send")},
    **{f"network_{way}_packets": (PACKETS, (("direction", way),)) for way in ("receive", "send")},
    "context_switches": (SWITCHES, ()),
    "interrupts": (INTERRUPTS, ()),
    "pressure_cpu": (PRESSURE, (("resource", "cpu"), ("share", "some"))),
    **{f"pressure_{name}": (PRESSURE, (("resource", name), ("share", "some"))) for name in ("memory", "io")},
    **{f"pressure_{name}_full": (PRESSURE, (("resource", name), ("share", "full"))) for name in ("memory", "io")},
}
"""The family of each column of the telemetry, and the labels that distinguish it from the others of that family."""

FAMILIES = (*dict.fromkeys(family for family, _ in FAMILY_OF_COLUMN.values()), EACH_CPU)


def _metric_values(sample: TelemetrySample) -> Iterator[tuple[MetricFamily, Labels, float]]:
    """Yield the values of a sample, each with its family and the labels in addition to those of the sample."""
    for column, value in sample.values.items():
        if column in FAMILY_OF_COLUMN and math.isfinite(value):  # a newer tare may have more columns
            yield (*FAMILY_OF_COLUMN[column], value)
    for number, times in sample.cpus.items():
        for mode, value in times.items():
            if math.isfinite(value):
                yield EACH_CPU, (("cpu", str(number)), ("mode", mode)), value


def format_series(family: MetricFamily, *labels: Labels) -> str:
    """Return the name of a series with all these labels."""
    return f"{family.metric}{{{','.join(written for each in labels if (written := _format_labels(each)))}}}"


@lru_cache(maxsize=1024)  # the same labels recur with each sample
def _format_labels(labels: Labels) -> str:
    return ",".join(f'{name}="{escape_label_value(value)}"' for name, value in labels)


def escape_label_value(text: str) -> str:
    """Return the value of a label with backslashes, quotes and line ends escaped."""
    return text.translate(_LABEL_ESCAPES)


class _Spool:
    """Spool: lines by family and labels, buffered in memory and flushed to files of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[tuple[MetricFamily, Labels], Path] = {}
        self._waiting: dict[tuple[MetricFamily, Labels], list[str]] = {}
        self._count = 0

    def add(self, family: MetricFamily, labels: Labels, line: str) -> None:
        """Add a line of a family; `labels` are those in addition to the labels of the sample."""
        self._waiting.setdefault((family, labels), []).append(line)
        self._count += 1
        if self._count >= _MAX_BUFFERED_LINES:
            self.flush()

    def flush(self) -> None:
        """Write the buffered lines. Files are closed again: there may be more than a process can open."""
        for key, lines in self._waiting.items():
            path = self._files.setdefault(key, self._folder / str(len(self._files)))
            with path.open("a", encoding="utf-8") as file:
                file.writelines(lines)
        self._waiting.clear()
        self._count = 0

    def read_texts(self, family: MetricFamily) -> Iterator[str]:
        """Yield the text of a family in pieces of at most 1 Mi characters."""
        for path in [path for (each, _), path in self._files.items() if each == family]:
            with path.open(encoding="utf-8") as file:
                while text := file.read(_CHUNK_CHARACTERS):
                    yield text


def format_samples(samples: Iterable[TelemetrySample]) -> Iterator[str]:
    """Yield the OpenMetrics text of samples in pieces."""
    with tempfile.TemporaryDirectory(prefix="tare-export-") as folder:
        spool = _Spool(Path(folder))
        for sample in samples:
            seconds = f"{sample.nanoseconds / 1e9:.3f}"
            for family, labels, value in _metric_values(sample):
                spool.add(family, labels, f"{format_series(family, sample.labels, labels)} {value!r} {seconds}\n")
        spool.flush()
        for family in FAMILIES:
            texts = spool.read_texts(family)
            if (first := next(texts, None)) is not None:
                yield _family_header(family)
                yield first
                yield from texts
    yield "# EOF\n"


def _family_header(family: MetricFamily) -> str:
    unit = f"# UNIT {family.name} {family.unit}\n" if family.unit else ""
    return f"# TYPE {family.name} {family.metric_type}\n{unit}# HELP {family.name} {family.help_text}\n"


def export(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.", metavar="RUN...")],
    out: Annotated[Path | None, typer.Option(help="File to write [default: standard output].", metavar="FILE")] = None,
) -> None:
    """Write the telemetry of runs as OpenMetrics, for Prometheus.

    VictoriaMetrics and Grafana read it too.
    """
    loaded = [read_run(folder) for folder in runs]
    _refuse_same_names(loaded)
    texts = format_samples(chain.from_iterable(map(samples_of, loaded)))
    if out is not None:
        _write(out, texts)
        print(out)  # noqa: T201 - as other commands print the path of what they wrote
    else:
        sys.stdout.writelines(texts)


def _refuse_same_names(runs: Sequence[Run]) -> None:
    """Raise UsageError for runs whose folders have the same name: a server would merge their series."""
    names = [run.folder.resolve().name for run in runs]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"several runs are named {name}", "rename one of the folders")


def _write(path: Path, texts: Iterable[str]) -> None:
    """Write a file atomically; raises UsageError."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        with convert_write_errors(path, "choose another file with --out"):
            with partial.open("w", encoding="utf-8") as file:
                file.writelines(texts)
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)

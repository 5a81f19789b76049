"""Command `tare export`: OpenMetrics text from telemetry samples.

OpenMetrics requires all samples of a metric family together, and those of a series, but telemetry files have them by
time. So each file is read again for each column, in the order of the text: a run of any size takes little memory.
"""

from __future__ import annotations

import glob
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal

import duckdb
import typer

from tare.cli.arguments import read_run
from tare.model.errors import UsageError
from tare.model.files import convert_write_errors
from tare.model.run_folder import Run
from tare.model.trial import Trial

Labels = tuple[tuple[str, str], ...]

_FETCH_ROWS = 1000  # in memory at once
_LABEL_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
_MODES = ("user", "system", "iowait", "softirq", "steal")  # of CPU time
_ROWS = """
SELECT * FROM (
    SELECT {cpu} AS cpu, scope, trial, seconds, {value} AS value FROM read_parquet(?, hive_partitioning = false)
) ORDER BY cpu, scope, trial, seconds
"""


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
    **{f"cpu_{mode}": (CPU, (("mode", mode),)) for mode in _MODES},
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
    **{f"cpus_{mode}": (EACH_CPU, (("mode", mode),)) for mode in _MODES},
}
"""The family of each column of the telemetry, and the labels that distinguish it from the others of that family."""

FAMILIES = tuple(dict.fromkeys(family for family, _ in FAMILY_OF_COLUMN.values()))


@dataclass(frozen=True)
class TelemetryFile:
    """Telemetry file of a run: its columns, its trials in the journal, and the time of its first sample."""

    path: Path
    run: str
    columns: frozenset[str]
    trials: Mapping[str, Trial]
    began_nanoseconds: int  # since 1970

    def labels_of(self, scope: str, trial: str | None) -> Labels | None:
        """Return the labels of a sample; None for a trial that is not in the journal.

        Samples of the host have the labels of their block, and those of its only trial.
        """
        if scope != "host" and trial not in self.trials:
            return None
        first = next(iter(self.trials.values()))
        named = self.trials[trial] if scope == "instance" and trial is not None else first
        labels = (("run", self.run), ("scope", scope))
        of_block = (("workload", named.workload), ("block", str(named.block)))
        if scope == "host" and (len(self.trials) > 1 or self.path.stem != first.trial):
            return (*labels, *of_block)
        return (*labels, ("stack", named.stack), *of_block, ("trial", named.trial))


def format_runs(runs: Iterable[Run]) -> Iterator[str]:
    """Yield the OpenMetrics text of the telemetry of runs in pieces.

    Raises UsageError for a run without telemetry, before the first piece, and for an unreadable file.
    """
    with closing(duckdb.connect(config={"threads": 1})) as connection:
        files = [file for run in runs for file in _open_files(connection, run)]
        for family in FAMILIES:
            lines = (line for file in files for line in _format_file(connection, file, family))
            if (first := next(lines, None)) is not None:
                yield _family_header(family) + first
                yield from lines
    yield "# EOF\n"


def _open_files(connection: duckdb.DuckDBPyConnection, run: Run) -> Iterator[TelemetryFile]:
    """Yield the telemetry files of a run, without those of interrupted blocks, which are not in the journal."""
    paths = sorted((run.folder / "telemetry").glob("*.parquet"))
    if not paths:
        raise UsageError(f"{run.folder}: no telemetry", "only a trial whose instance was started has one")
    trials = {trial.trial: trial for trial in run.trials}
    for path in paths:
        with _naming_file(path):
            # A folder named a=b must not become a column.
            table = connection.read_parquet(glob.escape(str(path)), hive_partitioning=False)
            columns = frozenset(table.columns)
            if not {"seconds", "scope", "trial", "time"} <= columns:
                raise ValueError("not the columns of a telemetry")
            named = table.filter("trial IS NOT NULL").project("trial").distinct().fetchall()
            ((began,),) = table.aggregate("epoch_ns(min(time))").fetchall()
        known = {trial: trials[trial] for (trial,) in sorted(named) if trial in trials}
        if known:
            yield TelemetryFile(path, run.folder.resolve().name, columns, known, began)


@contextmanager
def _naming_file(path: Path) -> Iterator[None]:
    """Context manager: convert errors of an untrusted file, whose columns may be of any type, into UsageError."""
    try:
        yield
    except (duckdb.Error, TypeError, ValueError) as error:
        message = f"{path}: cannot be read: {str(error).splitlines()[0]}"
        raise UsageError(message, "remove the file to export the others") from error


def _format_file(connection: duckdb.DuckDBPyConnection, file: TelemetryFile, family: MetricFamily) -> Iterator[str]:
    """Yield the lines of a metric family from a file, those of a series together and by time."""
    for column, (of_column, labels) in FAMILY_OF_COLUMN.items():
        if of_column != family or column not in file.columns:
            continue
        is_list = family == EACH_CPU
        query = _ROWS.format(
            cpu=f"generate_subscripts({column}, 1) - 1" if is_list else "NULL",
            value=f"unnest({column})" if is_list else column,
        )
        with _naming_file(file.path):
            rows = connection.cursor().execute(query, [glob.escape(str(file.path))])
            while batch := rows.fetchmany(_FETCH_ROWS):
                for cpu, scope, trial, seconds, value in batch:
                    sample_labels = file.labels_of(scope, trial)
                    if sample_labels is not None and isinstance(value, int | float) and math.isfinite(value):
                        series = format_series(family, sample_labels, (("cpu", str(cpu)),) * is_list + labels)
                        time = (file.began_nanoseconds + round(seconds * 1e9)) / 1e9
                        yield f"{series} {value!r} {time:.3f}\n"


def format_series(family: MetricFamily, *labels: Labels) -> str:
    """Return the name of a series with all these labels."""
    return f"{family.metric}{{{','.join(written for each in labels if (written := _format_labels(each)))}}}"


@lru_cache(maxsize=1024)  # the same labels recur with each sample
def _format_labels(labels: Labels) -> str:
    return ",".join(f'{name}="{escape_label_value(value)}"' for name, value in labels)


def escape_label_value(text: str) -> str:
    """Return the value of a label with backslashes, quotes and line ends escaped."""
    return text.translate(_LABEL_ESCAPES)


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
    texts = format_runs(loaded)
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

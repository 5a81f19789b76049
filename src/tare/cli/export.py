"""`tare export`: a run's telemetry for the tools that operators have."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from tare.cli.console import say
from tare.cli.files import writing
from tare.cli.reading import read_run
from tare.errors import UsageError, did_you_mean
from tare.exports import grafana, influx, openmetrics, prometheus
from tare.exports.push import Server, influxdb_1, influxdb_2, push, pushgateway
from tare.exports.samples import Sample, samples_of
from tare.journal import Run

FORMATS: dict[str, Callable[[Iterable[Sample]], Iterator[str]]] = {
    "influx": influx.lines,
    "openmetrics": openmetrics.texts,
    "prometheus": prometheus.texts,
    "grafana-influx": lambda samples: grafana.texts(samples, grafana.INFLUX),
    "grafana-prometheus": lambda samples: grafana.texts(samples, grafana.PROMETHEUS),
}


def export(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.", metavar="RUN...")],
    to: Annotated[str, typer.Option("--to", help=f"{', '.join(FORMATS)}.", metavar="FORMAT")],
    out: Annotated[Path | None, typer.Option(help="File to write [default: standard output].")] = None,
    url: Annotated[
        str | None, typer.Option("--push", help="Send it to this InfluxDB or Pushgateway.", metavar="URL")
    ] = None,
    into: Annotated[
        str, typer.Option(help="Database of InfluxDB 1.x, ORGANIZATION/BUCKET of 2.x, job of the Pushgateway [tare].")
    ] = "",
) -> None:
    """Write the telemetry of runs for InfluxDB or Prometheus, or a dashboard of them for Grafana.

    Secrets come from the environment: INFLUX_USERNAME and INFLUX_PASSWORD, or INFLUX_TOKEN.
    """
    if to not in FORMATS:
        raise UsageError(f"telemetry has no format named {to!r}", _meant(to))
    if url is not None and out is not None:
        raise UsageError("--push sends, and --out writes a file", "give one of the two")
    server = _server(url, to, into) if url is not None else None
    loaded = [read_run(folder) for folder in runs]
    _refuse_same_names(loaded)
    texts = FORMATS[to](chain.from_iterable(map(samples_of, loaded)))
    if server is not None:
        sent = push(texts, server)
        say(f"sent {sent} lines to {server.address.netloc}")
    elif out is not None:
        _write(out, texts)
        print(out)
    else:
        sys.stdout.writelines(texts)


def _meant(name: str) -> str:
    """Return the hint for an unknown format, which may be one of reports."""
    from tare.report import formats  # noqa: PLC0415 - its libraries take half a second

    if name in formats():
        return f"that is one of reports: tare report RUN --format {name}"
    return did_you_mean(name, FORMATS, f"there are {', '.join(FORMATS)}")


def _server(url: str, to: str, into: str) -> Server:
    """Return where to send to, as it was asked for."""
    if to == "prometheus":
        return pushgateway(url, into or "tare")
    if to != "influx":
        what = f"--push sends to InfluxDB and the Pushgateway, which do not take {to}"
        raise UsageError(what, "give --to influx or --to prometheus, or write a file by --out")
    if not into:
        what = "a server needs the name of what it is to write into"
        raise UsageError(what, "give --into DATABASE for InfluxDB 1.x, or --into ORGANIZATION/BUCKET for 2.x")
    organization, slash, bucket = into.partition("/")
    if slash:
        return influxdb_2(url, organization, bucket, os.environ.get("INFLUX_TOKEN", ""))
    user, password = (os.environ.get(name, "") for name in ("INFLUX_USERNAME", "INFLUX_PASSWORD"))
    return influxdb_1(url, into, user, password)


def _refuse_same_names(runs: Sequence[Run]) -> None:
    """Refuse runs whose folders have the same name, which would be one run for the server."""
    names = [run.folder.resolve().name for run in runs]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"several runs are named {name}", "rename one of the folders")


def _write(path: Path, texts: Iterable[str]) -> None:
    """Write a file, whole or not at all."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        with writing(path, "give another file by --out"):
            with partial.open("w", encoding="utf-8") as file:
                file.writelines(texts)
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)

"""Command `tare export`: telemetry of runs as OpenMetrics."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Annotated

import typer

from tare.cli.arguments import read_run
from tare.features.export import openmetrics
from tare.features.export.openmetrics import samples_of
from tare.model.errors import UsageError
from tare.model.files import convert_write_errors
from tare.model.journal import Run


def export(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.", metavar="RUN...")],
    out: Annotated[Path | None, typer.Option(help="File to write [default: standard output].")] = None,
) -> None:
    """Write the telemetry of runs as OpenMetrics, for Prometheus, VictoriaMetrics and Grafana."""
    loaded = [read_run(folder) for folder in runs]
    _refuse_same_names(loaded)
    texts = openmetrics.format_samples(chain.from_iterable(map(samples_of, loaded)))
    if out is not None:
        _write(out, texts)
        print(out)
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
        with convert_write_errors(path, "give another file by --out"):
            with partial.open("w", encoding="utf-8") as file:
                file.writelines(texts)
            partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)

"""Reports: one format a file, found by its name.

The file `report/data_files.py` is the format `csv`: its function `render(summary, run)` returns the files to write, by name.
Other packages add theirs with an entry point in the group `tare.reports` that names such a function.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import os
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tare.model.errors import UsageError, did_you_mean
from tare.model.journal import Run, write_within
from tare.statistics.summarize import summarize
from tare.statistics.summary import Summary

Render = Callable[[Summary, Run], Mapping[str, bytes]]

DEFAULT_FORMATS = ("html", "csv", "json", "yaml")


def write_report(
    runs: Sequence[Run],
    formats: Sequence[str] = DEFAULT_FORMATS,
    out: Path | None = None,
    claims: Sequence[str] = (),
    summaries: Sequence[Summary] = (),
) -> list[Path]:
    """Write a report of each run in each format. Return the files written, the pages to read first.

    Without `out`, a run's report goes to `report` in its own folder. Runs are not merged: with several runs, each gets
    a folder of its own in `out`. `claims` names the files of claims that are judged, the papers' if none is named.
    `summaries` are those of the runs, where they are already computed.
    Raises UsageError for an unknown format, before anything is written.
    """
    renderers = [find(name) for name in dict.fromkeys(formats)]
    written = []
    for run, summary in zip(runs, summaries or map(summarize, runs), strict=True):
        folder, below = _target(run, runs, out)
        folder.mkdir(parents=True, exist_ok=True)
        way = os.path.relpath(run.folder.resolve(), (folder / below).resolve())
        for render in renderers:
            files = render(summary, replace(run, from_report=way, claims=tuple(claims))).items()
            written += [write_within(folder, f"{below}{name}", content) for name, content in files]
    return written


def find(name: str) -> Render:
    """Find the function that renders a format; raises UsageError where there is none, with the formats there are."""
    for entry in importlib.metadata.entry_points(group="tare.reports", name=name):
        try:
            other: Render = entry.load()
        except Exception as error:  # a broken plug-in breaks only itself
            raise UsageError(
                f"the report format {name!r} is broken: {error}", "repair or remove its package"
            ) from error
        return other
    render = _renderer(name)
    if render is None:
        known = formats()
        raise UsageError(f"no report format named {name!r}", did_you_mean(name, known, f"there are {', '.join(known)}"))
    return render


def formats() -> tuple[str, ...]:
    """Names of all formats, sorted."""
    own = {module.name for module in pkgutil.iter_modules(__path__) if _renderer(module.name) is not None}
    others = {entry.name for entry in importlib.metadata.entry_points(group="tare.reports")}
    return tuple(sorted(own | others))


def _renderer(name: str) -> Render | None:
    """Return a module's `render`, None for what is no format: a report is also made of files that are none."""
    if name not in {module.name for module in pkgutil.iter_modules(__path__)}:
        return None
    render: Render | None = getattr(importlib.import_module(f"tare.report.{name}"), "render", None)
    return render


def _target(run: Run, runs: Sequence[Run], out: Path | None) -> tuple[Path, str]:
    """Return the folder that is trusted, and what of a path below it is not."""
    if out is None:
        return run.folder, "report/"
    return out if len(runs) == 1 else out / run.folder.name, ""

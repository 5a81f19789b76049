"""Report of a run in the requested formats.

A format is a function `render(summary, run)` that returns the files to write as bytes by name. Features add formats.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tare.model.errors import UsageError, did_you_mean
from tare.model.files import write_within
from tare.model.run_folder import Run
from tare.plugins.feature import default_formats as feature_default_formats
from tare.plugins.feature import formats as feature_formats
from tare.plugins.feature import resolve_hooks
from tare.statistics.summarize import summarize
from tare.statistics.summary import Summary

Render = Callable[[Summary, Run], Mapping[str, bytes]]

_DEFAULT_FORMATS = ("html", "csv", "json")
_FORMATS = {
    "card": "figure_files:render_card",
    "csv": "data_files:render_csv",
    "html": "html.page:render",
    "json": "data_files:render_json",
    "latex": "documents:render_latex",
    "markdown": "documents:render_markdown",
    "pdf": "figure_files:render_pdf",
    "svg": "figure_files:render_svg",
}


def write_report(
    runs: Sequence[Run],
    formats: Sequence[str] | None = None,
    out: Path | None = None,
    claims: Sequence[str] = (),
    summaries: Sequence[Summary] = (),
) -> list[Path]:
    """Write a report of each run in each format; return the paths of the files, pages first.

    `formats` is None for the default formats. Without `out`, a report goes to `report` in the run folder. Runs are not
    merged: several runs get separate folders in `out`. `claims` names files of claims to judge; if it is empty, tare
    judges the claims of the papers. `summaries` are those of the runs if they are already computed. Raises UsageError
    for an unknown format before it writes anything.
    """
    renderers = [find_renderer(name) for name in dict.fromkeys(default_formats() if formats is None else formats)]
    written = []
    for run, summary in zip(runs, summaries or map(summarize, runs), strict=True):
        folder, below = _report_folder(run, runs, out)
        folder.mkdir(parents=True, exist_ok=True)
        path_to_run = os.path.relpath(run.folder.resolve(), (folder / below).resolve())
        for render in renderers:
            files = render(summary, replace(run, path_from_report=path_to_run, claims=tuple(claims))).items()
            written += [write_within(folder, f"{below}{name}", content) for name, content in files]
    return written


def find_renderer(name: str) -> Render:
    """Load the function that renders a format. Raises UsageError with the known formats for an unknown one."""
    known = {**resolve_hooks("tare.report", _FORMATS), **feature_formats()}
    if name not in known:
        hint = did_you_mean(name, known, f"there are {', '.join(sorted(known))}")
        raise UsageError(f"no report format named {name!r}", hint)
    return known[name].load()


def format_names() -> tuple[str, ...]:
    """Return the names of all formats, sorted."""
    return tuple(sorted({*_FORMATS, *feature_formats()}))


def default_formats() -> tuple[str, ...]:
    """Return the default formats, including those of features."""
    return (*_DEFAULT_FORMATS, *feature_default_formats())


def _report_folder(run: Run, runs: Sequence[Run], out: Path | None) -> tuple[Path, str]:
    """Return the trusted folder, and the untrusted part of the path below it."""
    if out is None:
        return run.folder, "report/"
    return out if len(runs) == 1 else out / run.folder.name, ""

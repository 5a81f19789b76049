"""The page's charts as files of their own, for papers and slides."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from shutil import which

from tare.errors import UsageError
from tare.hosts.process import execute
from tare.journal import Run
from tare.report import drawn_claims, overview, tradeoff
from tare.report.chart_svg import Drawing
from tare.report.html.charts import MOST_DRAWN, costs, headlines_map, starts, workload_drawings
from tare.statistics.summarize import records
from tare.statistics.summary import Summary

_CONVERTER, _PACKAGE = "rsvg-convert", "librsvg2-bin"
_SECONDS = 60.0  # for a chart, which takes a tenth of one


def plots(summary: Summary, run: Run) -> dict[str, tuple[str, str]]:
    """Return the charts and their captions by the names of their files, without the ends: those of the whole run first.

    The others are in the page's order, named after what they show; there are none of more stacks than can be read.
    """
    whole = {
        "00-overview": (overview.figure(summary, run), f"What each stack costs beside {summary.baseline}."),
        "00-trade": (tradeoff.figure(summary, run), f"{tradeoff.TITLE}."),
        "00-claims": (drawn_claims.figure(run), f"{drawn_claims.TITLE}."),
    }
    files = {name: (svg, caption) for name, (svg, caption) in whole.items() if svg}
    return files | dict(_charts(summary, run) if len(summary.stacks) <= MOST_DRAWN else ())


def converted(svg: str, name: str) -> bytes:
    """Convert a figure to `pdf` or `png`; raises UsageError where the program for that is not installed."""
    if which(_CONVERTER) is None:
        raise UsageError(f"{_CONVERTER} is not installed: it makes {name.upper()} files", f"apt install {_PACKAGE}")
    return execute((_CONVERTER, f"--format={name}"), _SECONDS, svg.encode()).stdout


def _charts(summary: Summary, run: Run) -> Iterator[tuple[str, tuple[str, str]]]:
    shown: list[tuple[str, Iterable[Drawing], str]] = [
        (record.name, workload_drawings(summary, run, record), f"{record.title}: ") for record in records(run)
    ]
    shown.append(("map", headlines_map(summary.headlines, summary.stacks, summary.baseline), ""))
    shown += [("start", starts(run, summary), ""), ("footprint", costs(run, summary), "")]
    for number, (what, drawings, title) in enumerate(shown, start=1):
        # The number keeps names different where no letter may be in a file's name.
        name = "-".join(filter(None, (f"{number:02}", re.sub(r"[^A-Za-z0-9]+", "-", what)[:40].strip("-").lower())))
        for at, each in enumerate(drawings, start=1):
            # In the page, a heading has the title of the workload.
            caption = each.caption if each.caption.startswith(what) else f"{title}{each.caption}"
            yield f"{name}-{at}", (each.chart.file(caption), caption)

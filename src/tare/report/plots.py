"""The page's charts as files of their own, for papers and slides."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import chain

from tare.journal import Run, WorkloadRecord
from tare.report.html.drawing import Drawing
from tare.report.html.drawings import MOST_DRAWN, costs, headlines_map, starts, workload_drawings
from tare.report.looks import Spec
from tare.statistics.summarize import records
from tare.statistics.summary import Summary


@dataclass(frozen=True)
class Plot:
    """A chart that is not drawn yet; `name` is its file's, without the end."""

    name: str
    caption: str
    spec: Spec


def plots(summary: Summary, run: Run) -> list[Plot]:
    """Return the charts in the page's order, named after what they show; none of more stacks than can be read."""
    if len(summary.stacks) > MOST_DRAWN:
        return []
    shown: list[tuple[str, Iterable[Drawing]]] = [
        (record.name, [_of(record, each) for each in workload_drawings(summary, run, record, f"w{index}")])
        for index, record in enumerate(records(run))
    ]
    shown.append(("map", headlines_map(summary.headlines, summary.stacks, summary.baseline)))
    shown += [("start", starts(run, summary)), ("footprint", costs(run, summary))]
    return list(chain.from_iterable(_named(f"{number:02}", *each) for number, each in enumerate(shown, start=1)))


def _of(record: WorkloadRecord, drawing: Drawing) -> Drawing:
    """Put the workload's title before a caption that does not begin with its name: in the page, a heading has it."""
    named = drawing.caption.startswith(record.name)
    return drawing if named else replace(drawing, caption=f"{record.title}: {drawing.caption}")


def _named(number: str, what: str, drawings: Iterable[Drawing]) -> list[Plot]:
    """Name charts of one kind; the number keeps names different where no letter may be in a file's name."""
    name = "-".join(filter(None, (number, re.sub(r"[^A-Za-z0-9]+", "-", what)[:40].strip("-").lower())))
    return [Plot(f"{name}-{at}", each.caption, each.spec) for at, each in enumerate(drawings, start=1)]

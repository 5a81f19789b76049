"""The page of `tare history`: series through runs, where they changed, and what else changed there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tare import __version__
from tare.answers.history import History
from tare.report.chart_svg import Drawing
from tare.report.history import (
    bars,
    change,
    event_sentence,
    events,
    gate_sentence,
    legend,
    own_sentence,
    present,
    remarks,
    sentence,
    when,
)
from tare.report.html.charts import MOST_DRAWN, drawing
from tare.report.html.entries import look
from tare.report.html.page import described
from tare.report.timelines import timeline

_GATE_LOOKS = {"passed": "equivalent", "failed": "worse", "cannot tell": "undecided"}


@dataclass(frozen=True)
class SeriesRow:
    """A stack in a headline: what it has now, its runs as small bars, and its last change."""

    name: str
    stack: str
    now: str
    interval: str
    count: int
    bars: str
    change: str
    look: str


@dataclass(frozen=True)
class RunRow:
    """A run: when it was started, its folder, and what is not as in the run before."""

    when: str
    folder: str
    facts: tuple[tuple[str, bool], ...]


@dataclass(frozen=True)
class HistoryPage:
    """All of the page."""

    title: str
    version: str
    lead: str
    own: str
    gate: str
    gate_look: str
    rows: tuple[SeriesRow, ...]
    legend: str
    events: tuple[str, ...]
    drawings: tuple[Drawing, ...]
    remarks: tuple[str, ...]
    alike: str
    facts: tuple[str, ...]
    runs: tuple[RunRow, ...]


def history_page(found: History) -> HistoryPage:
    """Lay out what `tare history` found."""
    suites = dict.fromkeys(record.suite for record in found.records)
    facts = dict(_facts(found))
    differing = {title: texts for title, texts in facts.items() if len(set(texts)) > 1}
    return HistoryPage(
        title=f"{', '.join(suites)}: {len(found.records)} runs",
        version=__version__,
        lead=sentence(found),
        own=own_sentence(found),
        gate=gate_sentence(found),
        gate_look=_GATE_LOOKS[found.gate.answer],
        rows=tuple(_rows(found)),
        legend=legend(found),
        events=tuple(_capital(event_sentence(found, event)) for event in events(found)),
        drawings=tuple(_drawings(found)),
        remarks=remarks(found)[len(events(found)) :],
        alike="; ".join(f"{title}: {texts[0]}" for title, texts in facts.items() if title not in differing),
        facts=tuple(differing),
        runs=tuple(_runs(found, [*differing.values()])),
    )


def _rows(found: History) -> Iterator[SeriesRow]:
    for one in found.series:
        text, cell = change(found, one)
        now, bounds = present(one)
        yield SeriesRow(
            name=f"{one.headline} {'↑' if one.latest.better == 'higher' else '↓'}",
            stack=one.stack,
            now=now,
            interval=bounds,
            count=one.count,
            bars=bars(one),
            change=text,
            look=look(cell.verdict, cell) if cell else "",
        )


def _drawings(found: History) -> Iterator[Drawing]:
    stacks = list(dict.fromkeys(one.stack for one in found.series))
    if len(stacks) > MOST_DRAWN:
        return
    for headline in dict.fromkeys(one.headline for one in found.series):
        caption = (
            f"{headline}: percent of {found.baseline} in each run, with 95 % interval; of {found.baseline} itself, "
            f"percent of its first run. A dotted rule with a triangle: here a level changed."
        )
        if drawn := drawing(timeline(found, headline, stacks), caption, wide=True):
            yield drawn


def _facts(found: History) -> Iterator[tuple[str, list[str]]]:
    """Yield what each run says of itself: a name, and the text of every run."""
    yield "suite", [record.suite for record in found.records]
    yield "tare", [record.tare for record in found.records]
    yield "image", [record.image.removeprefix("sha256:")[:12] for record in found.records]
    machines = [described(record.measured_on) for record in found.records]
    yield from ((rows[0][0], [text for _, text in rows]) for rows in zip(*machines, strict=True))


def _runs(found: History, columns: Sequence[Sequence[str]]) -> Iterator[RunRow]:
    """Yield the runs, each with what differs somewhere."""
    for place, folder in enumerate(found.folders):
        facts = tuple((column[place], place > 0 and column[place] != column[place - 1]) for column in columns)
        yield RunRow(when(found, place), folder.resolve().name, facts)


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]

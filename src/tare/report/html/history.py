"""The page of `tare history`: series through runs, where they changed, and what else changed there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tare.answers.history import History
from tare.report.chart_svg import Drawing
from tare.report.history import answer, event_sentence, events, when
from tare.report.html import render_page
from tare.report.html.charts import MOST_DRAWN, drawing
from tare.report.html.entries import look
from tare.report.html.page import described
from tare.report.timelines import timeline


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
    looks: tuple[str, ...]  # of the rows
    events: tuple[str, ...]
    drawings: tuple[Drawing, ...]
    alike: str
    facts: tuple[str, ...]
    runs: tuple[RunRow, ...]


def render(found: History) -> bytes:
    """Render what `tare history` found."""
    return render_page("history.html.j2", _page(found), answer(found))


def _page(found: History) -> HistoryPage:
    suites = dict.fromkeys(record.suite for record in found.records)
    facts = dict(_facts(found))
    differing = {title: texts for title, texts in facts.items() if len(set(texts)) > 1}
    return HistoryPage(
        title=f"{', '.join(suites)}: {len(found.records)} runs",
        looks=tuple(look(step.cell.verdict, step.cell) if (step := one.last_step) else "" for one in found.series),
        events=tuple(event_sentence(found, event) for event in events(found)),
        drawings=tuple(_drawings(found)),
        alike="; ".join(f"{title}: {texts[0]}" for title, texts in facts.items() if title not in differing),
        facts=tuple(differing),
        runs=tuple(_runs(found, [*differing.values()])),
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

"""The page of `tare history`: every change, a timeline for each headline, and what differs from run to run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from tare.features.compare.history import History, Series
from tare.features.compare.history_text import answer, event_sentence, events, when
from tare.report.chart_svg import Area, Chart, Drawing, curve_area, group, legend, mark, path, px, text
from tare.report.chart_theme import VERDICTS, WIDTH, stack_look
from tare.report.curve_charts import Spot, drawn_lines
from tare.report.html.cells import look
from tare.report.html.charts import MOST_DRAWN, drawing
from tare.report.html.page import described
from tare.report.numbers import estimate, interval
from tare.report.rendering import render_page
from tare.report.svg_axes import Axis, Scale, ratio_scale

_SIZE = (2 * WIDTH, 220)
_ROOM = 0.75  # of the axis of time, in runs, beyond the first and the last one
_MANY = 40  # runs from which on a one has no marks
_LABELS = 12
_TITLE = 22


def render(found: History) -> bytes:
    """Render what `tare history` found."""
    suites = dict.fromkeys(record.suite for record in found.records)
    facts = dict(_facts(found))
    differing = {title: texts for title, texts in facts.items() if len(set(texts)) > 1}
    page = {
        "title": f"{', '.join(suites)}: {len(found.records)} runs",
        "looks": [look(one.steps[-1].cell.verdict, one.steps[-1].cell) if one.steps else "" for one in found.series],
        "events": [event_sentence(found, event) for event in events(found)],
        "drawings": list(_drawings(found)),
        "alike": "; ".join(f"{title}: {texts[0]}" for title, texts in facts.items() if title not in differing),
        "facts": list(differing),
        "runs": list(_runs(found, [*differing.values()])),
    }
    return render_page(__package__, "history.html.j2", page, answer(found))


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


def _runs(found: History, columns: Sequence[Sequence[str]]) -> Iterator[dict[str, Any]]:
    """Yield each run: when it was started, its folder, and its facts, each with whether the run before has another."""
    for place, folder in enumerate(found.folders):
        facts = [(column[place], place > 0 and column[place] != column[place - 1]) for column in columns]
        yield {"when": when(found, place), "folder": folder.resolve().name, "facts": facts}


def timeline(found: History, headline: str, stacks: Sequence[str]) -> Chart | None:
    """Draw the series of a headline; a dashed rule stands where one changed. None where no one has two values.

    `stacks` are all of the history, which fix their colors.
    """
    series = [one for one in found.series if one.headline == headline]
    pieces = [(one.stack, piece) for one in series for piece in _pieces(found, one)]
    spots = [spot for _, piece in pieces for spot in piece]
    if len({spot.at for spot in spots}) < 2:
        return None
    count, present = len(found.records), {stack for stack, _ in pieces}
    looks = {stack: stack_look(stack, stacks) for stack in stacks if stack in present}
    parts, top = legend(looks, 6, _SIZE[0], _TITLE)
    up = ratio_scale([end for spot in spots for end in (spot.low, spot.value, spot.high)])
    area = curve_area(top, _SIZE, _days([record.started for record in found.records]), up)
    better = "more" if series[0].latest.better == "higher" else "less"
    parts.append(text(f"{headline}, percent of {found.baseline}, {better} is better", 6, 15))
    parts += [*area.axes("run, by its day", grid=False), area.level(1.0), *_steps(series, area)]
    for stack, piece in pieces:
        parts += drawn_lines(area, {stack: piece}, looks, described=count <= _MANY)
    return area.chart(parts)


def _days(started: Sequence[str]) -> Scale:
    """Return the axis of the runs, by their places; some have their day."""
    axis = Axis(-_ROOM, len(started) - 1 + _ROOM, None)
    every = max(1, -(-len(started) // _LABELS))
    return Scale(axis, tuple((axis.place(at), _day(started[at])) for at in range(0, len(started), every)))


def _day(started: str) -> str:
    """Return the month and the day; nothing of what an untrusted folder may have in their place."""
    return started[5:10] if re.fullmatch(r"\d\d-\d\d", started[5:10], re.ASCII) else ""


def _pieces(found: History, one: Series) -> Iterator[list[Spot]]:
    """Yield the lines of a series; a run without a value ends one."""
    piece: list[Spot] = []
    for place, cell in enumerate(one.cells):
        if cell is None or cell.ratio is None:
            yield from [piece] if piece else []
            piece = []
            continue
        said = f"{one.stack}, {found.records[place].started[:10]}: {estimate(cell)} {interval(cell)}".rstrip()
        low, high = (None, None) if one.own else (cell.low, cell.high)
        piece.append(Spot(place, low or cell.ratio, cell.ratio, high or cell.ratio, said))
    yield from [piece] if piece else []


def _steps(series: Sequence[Series], area: Area) -> Iterator[str]:
    """Draw a rule before the run at which a one changed, and at its new level the glyph of its verdict."""
    for one in series:
        for step in one.steps:
            cell = one.cells[step.at]
            if cell is not None and cell.ratio is not None:
                color, shape = VERDICTS[step.cell.verdict]
                x, said = area.x(step.at - 0.5), f"{one.stack}: {step.cell.verdict}, {estimate(step.cell)} of before"
                rule = path(f"M{px(x)} {px(area.top)}v{px(area.height)}", "line", dash="2 3")
                yield group(color, [rule, mark(x, area.y(cell.ratio), shape, said)])

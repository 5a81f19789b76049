"""The figure of `tare.report.overview` as SVG: in the page, as a file, and as a card to share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from markupsafe import Markup

from tare.journal import Run
from tare.report.framed import Inner, Words, framed, room, template
from tare.report.numbers import listing, percent
from tare.report.overview import Column, Overview, overview
from tare.statistics.summary import Summary

_NAMES, _AXIS, _COLUMN, _ROW = 132, 130, 220, 26  # widths and heights, pixels
_TOP, _BOTTOM = 46, 24
_INSET = 5  # of an axis, so that a dot at its end is whole
_HIGHEST_ROW = 44
_IN_A_LINE = 5  # columns
_CARD_WIDTH, _CARD_HEIGHT, _CARD_ROWS = 1200, 630, 16


@dataclass(frozen=True)
class _Line:
    """Columns beside each other, whose rows begin at `top`."""

    columns: Sequence[Column]
    top: int


@dataclass(frozen=True)
class _Block:
    """A picture of its own."""

    width: int
    height: int
    lines: Sequence[_Line]
    row: int = _ROW


@dataclass(frozen=True)
class Figure:
    """The figure in the page: a picture of each column, how to lay them beside each other, and what to read there.

    `columns` are what is drawn, for a table of it. Each picture has the stacks' names at its left. Beside each other,
    only the first of a line shows them.
    """

    panels: tuple[Markup, ...]
    style: str
    counts: str
    legend: str
    columns: tuple[Column, ...]


def figure_of(found: Overview) -> Figure | None:
    """Draw the figure for a page; None where no stack has a value."""
    if not found.has_values:
        return None
    width, number = _NAMES + _COLUMN, min(len(found.columns), _IN_A_LINE)
    panels = tuple(_drawn(_Block(width, _height(found), [_Line([column], _TOP)]), found) for column in found.columns)
    columns = f"grid-template-columns: {width}fr{f' repeat({number - 1}, {_COLUMN}fr)' if number > 1 else ''}"
    style = f"{columns}; max-width: {_NAMES + _COLUMN * number}px"
    return Figure(panels, style, _counts(found), _legend(found), found.columns)


def _counts(found: Overview) -> str:
    """Count what is decided; name how many stacks are not drawn."""
    care = f", {found.doubted} of them to be read with care" if found.doubted else ""
    what = "changes" if found.compares else "results"
    counts = f"{found.decided} of {found.asked} {what} are decided{care}."
    if not found.left_out:
        return counts
    return f"{counts} Drawn are the {len(found.stacks)} stacks that cost least; {found.left_out} more are below."


def figure(summary: Summary, run: Run) -> str:
    """Draw the figure as a file of its own; empty where no stack has a value."""
    found = overview(summary)
    return _framed(found, run)


def card(summary: Summary, run: Run) -> str:
    """Draw as much of the figure as can be read in a card; empty where no stack has a value.

    A card has at most five headlines and sixteen stacks.
    """
    found = overview(summary)
    kept = tuple(replace(column, entries=column.entries[:_CARD_ROWS]) for column in found.columns[:_IN_A_LINE])
    size = (_CARD_WIDTH, _CARD_HEIGHT)
    return _framed(replace(found, stacks=found.stacks[:_CARD_ROWS], columns=kept), run, size)


def _framed(found: Overview, run: Run, size: tuple[int, int] | None = None) -> str:
    if not found.has_values:
        return ""
    block = _whole(found, _row(found, size) if size else _ROW)
    most = max(entry.n for column in found.columns for entry in column.entries)
    decided = f"{found.decided} of {found.asked} decided, n up to {most}"
    words = Words(f"What each stack costs beside {found.baseline}", decided, _legend(found))
    return framed(Inner(_drawn(block, found), block.width, block.height), words, run, size)


def _legend(found: Overview) -> str:
    """Describe how to read the figure."""
    band = f"green band: no measurable cost, within {percent(found.margin)}"
    if found.compares:
        dots = "Gray and hollow: before; below it: after, in the color of the change, pale where undecided"
        return f"{dots}; bars: intervals; {band}; \N{MIDDLE DOT}: read with care. The axis is logarithmic beyond 0."
    marks = "hollow: undecided; \N{MIDDLE DOT}: read with care"
    dots = "Dot: estimate, in the color of its size; bar: interval"
    return f"{dots}; {band}; {marks}. The axis is linear near 0 and logarithmic beyond."


def _whole(found: Overview, row: int = _ROW) -> _Block:
    tall = _height(found, row)
    groups = [found.columns[at : at + _IN_A_LINE] for at in range(0, len(found.columns), _IN_A_LINE)]
    lines = [_Line(group, _TOP + tall * at) for at, group in enumerate(groups)]
    return _Block(_width(found), tall * max(len(lines), 1), lines, row)


def _width(found: Overview) -> int:
    return _NAMES + _COLUMN * min(len(found.columns), _IN_A_LINE)


def _height(found: Overview, row: int = _ROW) -> int:
    return _TOP + row * len(found.stacks) + _BOTTOM


def _row(found: Overview, size: tuple[int, int]) -> int:
    """Return how high rows are so that these fill a picture of one line of columns."""
    width, height = room(size)
    fitting = (height * _width(found) / width - _TOP - _BOTTOM) / len(found.stacks)
    return min(max(int(fitting), _ROW), _HIGHEST_ROW)


def _drawn(block: _Block, found: Overview) -> Markup:
    size = {"names": _NAMES, "axis": _AXIS, "column": _COLUMN, "row": block.row, "inset": _INSET}
    names = listing(tuple(column.name for line in block.lines for column in line.columns))
    label = f"{names}: what each stack costs beside {found.baseline}{', before and after' if found.compares else ''}"
    text = template("overview.svg.j2").render(block=block, size=size, label=label, compares=found.compares)
    return Markup(text)  # noqa: S704  # the template escapes what is from a run

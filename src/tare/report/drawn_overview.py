"""The figure of `tare.report.overview` as SVG: in the page, as a file, and as a card to share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from tare.journal import Run
from tare.report.findings import place
from tare.report.numbers import cut, listing, percent
from tare.report.overview import Column, Overview, overview
from tare.statistics.summary import Summary

_NAMES, _AXIS, _COLUMN, _ROW = 132, 130, 220, 26  # widths and heights, pixels
_TOP, _BOTTOM, _EDGE, _HEAD, _FOOT = 46, 24, 24, 56, 20
_IN_A_LINE = 5  # columns
_CARD_WIDTH, _CARD_HEIGHT, _CARD_ROWS = 1200, 630, 16
_TEXT = 'font-family: system-ui, "Segoe UI", "Helvetica Neue", Arial, "DejaVu Sans", sans-serif'
# The colors of a light page (style.css), for files: what draws these knows no variables.
_STYLE = f"""
text {{ {_TEXT}; font-size: 13px; fill: #1b1f24; }}
.title {{ font-size: 21px; font-weight: 700; }}
.head, .base {{ font-weight: 600; }}
.soft {{ font-size: 11px; fill: #59636e; }}
.tick, .row {{ stroke: #d9d6d0; stroke-width: .7; fill: none; }}
.zero {{ stroke: #59636e; }}
.band {{ fill: #d6efe7; }}
.bar {{ stroke-width: 6; stroke-linecap: round; stroke-opacity: .45; }}
.dot {{ stroke-width: 1.6; }}
.origin {{ fill: #59636e; }}
.size-none .bar, .size-none .dot {{ stroke: #009e73; fill: #009e73; }}
.size-small .bar, .size-small .dot {{ stroke: #d19a00; fill: #d19a00; }}
.size-medium .bar, .size-medium .dot {{ stroke: #d55e00; fill: #d55e00; }}
.size-large .bar, .size-large .dot {{ stroke: #a11d3a; fill: #a11d3a; }}
.size-unknown .bar, .size-unknown .dot {{ stroke: #59636e; fill: #59636e; }}
.open .dot {{ fill: #fff; }}
.open .bar {{ stroke-opacity: .22; }}
.open .value, .none-here {{ fill: #59636e; }}
"""


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


@dataclass(frozen=True)
class Figure:
    """The figure in the page: a picture of each column, how to lay them beside each other, and what to read there.

    Each picture has the stacks' names at its left. Beside each other, only the first of a line shows them.
    """

    panels: tuple[Markup, ...]
    style: str
    counts: str
    legend: str


def figure_of(summary: Summary, anchors: Mapping[tuple[str, str], str]) -> Figure | None:
    """Draw the figure for the page, with links to the trials; None where no stack has a value."""
    found = overview(summary, anchors)
    if not found.has_values:
        return None
    width, number = _NAMES + _COLUMN, min(len(found.columns), _IN_A_LINE)
    panels = tuple(_drawn(_Block(width, _height(found), [_Line([column], _TOP)]), found) for column in found.columns)
    columns = f"grid-template-columns: {width}fr{f' repeat({number - 1}, {_COLUMN}fr)' if number > 1 else ''}"
    style = f"{columns}; max-width: {_NAMES + _COLUMN * number}px"
    return Figure(panels, style, _counts(found), _legend(found))


def _counts(found: Overview) -> str:
    """Count what is decided; name how many stacks are not drawn."""
    care = f", {found.doubted} of them to be read with care" if found.doubted else ""
    counts = f"{found.decided} of {found.asked} results are decided{care}."
    if not found.left_out:
        return counts
    return f"{counts} Drawn are the {len(found.stacks)} stacks that cost least; {found.left_out} more are below."


def figure(summary: Summary, run: Run) -> str:
    """Draw the figure as a file of its own; empty where no stack has a value."""
    found = overview(summary)
    block = _whole(found)
    return _framed(found, run, block.width + 2 * _EDGE, block.height + 2 * _EDGE + _HEAD + _FOOT)


def card(summary: Summary, run: Run) -> str:
    """Draw as much of the figure as can be read in a card; empty where no stack has a value.

    A card has at most five headlines and sixteen stacks.
    """
    found = overview(summary)
    kept = tuple(replace(column, entries=column.entries[:_CARD_ROWS]) for column in found.columns[:_IN_A_LINE])
    return _framed(replace(found, stacks=found.stacks[:_CARD_ROWS], columns=kept), run, _CARD_WIDTH, _CARD_HEIGHT)


def _framed(found: Overview, run: Run, width: int, height: int) -> str:
    if not found.has_values:
        return ""
    block = _whole(found)
    most = max(entry.n for column in found.columns for entry in column.entries)
    decided = f"{found.decided} of {found.asked} decided, n up to {most}"
    parts = (run.record.suite, place(run.record.measured_on), run.record.started[:10], decided)
    return _template("framed.svg.j2").render(
        width=width,
        height=height,
        edge=_EDGE,
        style=Markup(_STYLE),  # noqa: S704  # ours
        title=f"What each stack costs beside {found.baseline}",
        subtitle=" · ".join(part for part in parts if part),
        inner_width=width - 2 * _EDGE,
        inner_height=height - 2 * _EDGE - _HEAD - _FOOT,
        block=block,
        figure=_drawn(block, found),
        legend=_legend(found),
    )


def _legend(found: Overview) -> str:
    """Describe how to read the figure."""
    band = f"green band: no measurable cost, within {percent(found.margin)}"
    marks = "hollow: undecided; \N{MIDDLE DOT}: read with care"
    return f"Dot: estimate; bar: interval; {band}; {marks}. The axis is linear near 0 and logarithmic beyond."


def _whole(found: Overview) -> _Block:
    tall = _height(found)
    groups = [found.columns[at : at + _IN_A_LINE] for at in range(0, len(found.columns), _IN_A_LINE)]
    lines = [_Line(group, _TOP + tall * at) for at, group in enumerate(groups)]
    return _Block(_NAMES + _COLUMN * min(len(found.columns), _IN_A_LINE), tall * max(len(lines), 1), lines)


def _height(found: Overview) -> int:
    return _TOP + _ROW * len(found.stacks) + _BOTTOM


def _drawn(block: _Block, found: Overview) -> Markup:
    size = {"names": _NAMES, "axis": _AXIS, "column": _COLUMN, "row": _ROW}
    names = listing(tuple(column.name for line in block.lines for column in line.columns))
    label = f"{names}: what each stack costs beside {found.baseline}"
    text = _template("overview.svg.j2").render(block=block, size=size, label=label)
    return Markup(text)  # noqa: S704  # the template escapes what is from a run


@cache
def _template(name: str) -> Template:
    environment = Environment(
        loader=PackageLoader("tare.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["short"] = cut
    return environment.get_template(name)

"""Figures of tare's own as SVG: their templates, and the frame of those that are files of their own."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from tare.journal import Run
from tare.report.axes import Size
from tare.report.findings import place
from tare.report.numbers import cut

EDGE, HEAD, FOOT = 24, 56, 20  # of the frame, pixels
_TEXT = 'font-family: system-ui, "Segoe UI", "Helvetica Neue", Arial, "DejaVu Sans", sans-serif'
# Of the sizes of costs: a test has how far apart they are for each color blindness, and that a light page has the same.
SIZES: dict[Size, str] = {
    "gain": "#104489",
    "none": "#289a8a",
    "small": "#c08504",
    "medium": "#b34635",
    "large": "#520e38",
    "unknown": "#59636e",
}
_SIZES = "\n".join(
    f".size-{size} .bar, .size-{size} .dot {{ stroke: {color}; fill: {color}; }}" for size, color in SIZES.items()
)
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
.cross, .lead {{ fill: none; }}
.lead {{ stroke: #d9d6d0; stroke-width: .7; }}
{_SIZES}
.open .dot {{ fill: #fff; }}
.open .bar {{ stroke-opacity: .22; }}
.open .value, .none-here {{ fill: #59636e; }}
.region {{ fill: #59636e; fill-opacity: .16; }}
.printed {{ stroke: #59636e; stroke-width: 1.6; }}
.further {{ fill: none; stroke-width: 1.6; }}
.sign {{ font-weight: 700; }}
.name, .here {{ font-size: 12px; }}
.undecided .bar, .undecided .dot, .undecided .further {{ stroke: #59636e; stroke-width: 2; }}
.undecided .bar, .reproduced .bar {{ stroke-width: 4; stroke-opacity: .3; }}
.undecided .dot {{ fill: #fff; stroke-width: 1.6; }}
.reproduced .bar, .reproduced .dot, .reproduced .further {{ stroke: {SIZES["none"]}; }}
.reproduced .dot {{ fill: {SIZES["none"]}; fill-opacity: .5; stroke-opacity: .6; }}
.reproduced text {{ fill: #59636e; }}
.reproduced .sign {{ fill: {SIZES["none"]}; }}
.contradicted .bar, .contradicted .dot, .contradicted .further {{ stroke: {SIZES["medium"]}; }}
.contradicted .dot, .contradicted text {{ fill: {SIZES["medium"]}; }}
.contradicted text {{ font-weight: 600; }}
.contradicted .bar {{ stroke-opacity: .7; }}
"""


@dataclass(frozen=True)
class Inner:
    """A figure that is framed, of this size."""

    svg: Markup
    width: int
    height: int


@dataclass(frozen=True)
class Words:
    """What stands around a figure; `fact` is what the line of the run ends with."""

    title: str
    fact: str
    legend: str


def framed(inner: Inner, words: Words, run: Run, size: tuple[int, int] | None = None) -> str:
    """Write a figure as a file of its own: with a title, where it was measured, and how to read it."""
    parts = (run.record.suite, place(run.record.measured_on), run.record.started[:10], words.fact)
    width, height = size or (inner.width + 2 * EDGE, inner.height + 2 * EDGE + HEAD + FOOT)
    return template("framed.svg.j2").render(
        width=width,
        height=height,
        edge=EDGE,
        style=Markup(_STYLE),  # noqa: S704  # ours
        subtitle=" · ".join(part for part in parts if part),
        room=room((width, height)),
        inner=inner,
        words=words,
    )


def room(size: tuple[int, int]) -> tuple[int, int]:
    """Return the width and height that a frame of this size has for its figure."""
    width, height = size
    return width - 2 * EDGE, height - 2 * EDGE - HEAD - FOOT


@cache
def template(name: str) -> Template:
    """Return the template of a figure."""
    environment = Environment(
        loader=PackageLoader("tare.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["short"] = cut
    return environment.get_template(name)

"""Chart theme: one style for stacks, verdicts and axes in all charts.

Readers with each of the three color blindnesses can distinguish the colors of eleven stacks, on a light and on a dark
page; a test checks their distances. The first six are those of Okabe and Ito ("Color universal design", 2008); the
others are far from them and from one another. Colors never carry a meaning alone: verdicts differ in shape, stacks in
shape and, from the twelfth on, in the dashes of their lines.

`chart_theme.css` has the colors of the light and of the dark page. Files have the light colors.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import NamedTuple

DOT = "#3d94cf"
BETTER, WORSE, EQUIVALENT, SAME, UNKNOWN = "#0072B2", "#D55E00", "#009E73", "#7d8590", "#b08900"
STACKS = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"),
    *("#695A2D", "#A578FF", "#5A3CC3", "#873C69", "#A5B469"),
)
# Paths around a point, all of about the size of a circle with a radius of 4.5 pixels.
SHAPES = {
    "circle": "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0Z",
    "square": "M-4 -4H4V4H-4Z",
    "triangle-up": "M0 -5.2L5 3.8H-5Z",
    "diamond": "M0 -5.8L5 0L0 5.8L-5 0Z",
    "cross": "M-1.8 -5.2H1.8V-1.8H5.2V1.8H1.8V5.2H-1.8V1.8H-5.2V-1.8H-1.8Z",
    "triangle-down": "M0 5.2L5 -3.8H-5Z",
}
VERDICTS = {
    "better": (BETTER, "triangle-up"),
    "worse": (WORSE, "triangle-down"),
    "equivalent": (EQUIVALENT, "circle"),
    "undecided": (SAME, "cross"),
    "too few blocks": (UNKNOWN, "cross"),
}
# Dashes of the first eleven stacks, of the next eleven, and so on: sixty stacks have sixty different styles.
DASHES = ("", "6 3", "2 2", "10 3 2 3", "12 5", "2 6")
WIDTH = 290  # with its names, a chart fits a phone: its text stays larger than 9 pixels
ROW_HEIGHT = 24


class SeriesStyle(NamedTuple):
    """Color, shape of marks, and dashes of a series."""

    color: str
    shape: str = "circle"
    dash: str = ""


def stack_style(stack: str, stacks: Sequence[str]) -> SeriesStyle:
    """Return the style that a stack has in all charts of a run with these stacks."""
    at = stacks.index(stack)
    return SeriesStyle(
        STACKS[at % len(STACKS)], list(SHAPES)[at % len(SHAPES)], DASHES[at // len(STACKS) % len(DASHES)]
    )


@cache
def page_style() -> str:
    """Return the style of charts in a page, light and dark."""
    return files("tare.report").joinpath("chart_theme.css").read_text(encoding="utf-8")


@cache
def file_style() -> str:
    """Return the style of charts that are files, without CSS variables, which rsvg-convert does not support."""
    light, rules = page_style().partition("@media")[0], page_style()[page_style().index(".chart text") :]
    colors = dict(re.findall(r"--([\w-]+): ([^;]+);", light))
    fonts = 'text { font-family: system-ui, "Segoe UI", "Helvetica Neue", Arial, "DejaVu Sans", sans-serif; }'
    plain = re.sub(r"var\(--([\w-]+)\)", lambda found: colors[found[1]], rules)
    return f"\n{fonts}\n{plain}"

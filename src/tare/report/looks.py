"""How all charts look: one style, so that a stack, a verdict and an axis are the same in each of them.

Readers with each of the three color blindnesses can distinguish the colors of eleven stacks, on a light and on a dark
page: a test has the distances. The first six are Okabe and Ito's ("Color universal design", 2008), the others lie far
from them and from one another. Colors never carry a meaning alone: verdicts differ in shape, stacks in shape and, from
the twelfth on, in the dashes of their lines.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import sha256
from typing import Any

import altair as alt
from altair.utils import schemapi

Spec = dict[str, Any]
Rows = list[dict[str, Any]]

# The color of text and axes; the report replaces it, so that a chart follows the page into the dark.
INK = "#1b1f24"
FONT = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"
DOT = "#3d94cf"
BETTER, WORSE, ALIKE, SAME, UNKNOWN = "#0072B2", "#D55E00", "#009E73", "#7d8590", "#b08900"
VERDICTS = {
    "better": (BETTER, "triangle-up"),
    "worse": (WORSE, "triangle-down"),
    "equivalent": (ALIKE, "circle"),
    "undecided": (SAME, "cross"),
    "too few blocks": (UNKNOWN, "cross"),
}
STACKS = (
    *("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00"),
    *("#695A2D", "#A578FF", "#5A3CC3", "#873C69", "#A5B469"),
)
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
# The lines of the first eleven stacks, of the next eleven, and so on: of sixty stacks, no two have the same look.
DASHES = ([1, 0], [6, 3], [2, 2], [10, 3, 2, 3], [12, 5], [2, 6])
WIDTH = 290  # with names beside it, a chart fits a phone: its text stays larger than 9 pixels
ROW_HEIGHT = 24
# Ratios spread more widely than this are drawn on a logarithmic axis.
WIDE = 4.0
# As many digits as are needed, without exponents.
NUMBER = ",.6~r"
FACTORS = (
    "datum.label == '' ? '' : datum.value >= 10 ? '\N{MULTIPLICATION SIGN}' + format(datum.value, ',~r') : "
    "format(datum.value, '.4~%')"
)
THOUSANDS = "datum.value >= 10000 ? format(datum.value / 1000, ',.6~r') + 'k' : format(datum.value, ',.6~r')"
SIZES = (
    "datum.value >= 1073741824 ? format(datum.value / 1073741824, '~g') + ' GiB' : "
    "datum.value >= 1048576 ? format(datum.value / 1048576, '~g') + ' MiB' : "
    "datum.value >= 1024 ? format(datum.value / 1024, '~g') + ' KiB' : format(datum.value, '~g') + ' B'"
)


def log_scale(least: float, most: float) -> alt.Scale:
    """Return a logarithmic axis with a little room at its ends."""
    return alt.Scale(type="log", domain=[least * 0.9, most * 1.1], nice=False)


def ratio_scale(ratios_seen: Sequence[float]) -> alt.Scale:
    """Return an axis of ratios, with 1 on it."""
    least, most = min(*ratios_seen, 1.0), max(*ratios_seen, 1.0)
    if most / least > WIDE:
        return log_scale(least, most)
    room = (most - least) * 0.06 or 0.01
    return alt.Scale(domain=[least - room, most + room], nice=False, zero=False)


def by_stack(present: Sequence[str], stacks: Sequence[str], looks: Sequence[str]) -> alt.Scale:
    """Return the scale in which each stack has the color or the shape that it has in every chart of the run."""
    return alt.Scale(domain=list(present), range=[looks[stacks.index(stack) % len(looks)] for stack in present])


class _Name(str):
    """The name of rows, which it has with it: Altair would copy all of them for each word of a chart."""

    __slots__ = ("rows",)

    rows: Rows


def data(rows: Rows) -> alt.NamedData:
    """Put rows into a chart, which `finished` writes into its specification."""
    name = _Name(sha256(repr(rows).encode()).hexdigest()[:16])
    name.rows = rows
    return alt.NamedData(name=name)


_STYLE = {
    "background": "transparent",
    "font": FONT,
    "padding": 4,
    "view": {"stroke": None, "continuousWidth": 300, "continuousHeight": 300},
    "axis": {
        "labelColor": INK,
        "titleColor": INK,
        "domainColor": INK,
        "tickColor": INK,
        "gridColor": INK,
        "gridOpacity": 0.12,
        "domainOpacity": 0.5,
        "tickOpacity": 0.5,
        "labelFontSize": 13,
        "titleFontSize": 13,
        "titleFontWeight": "normal",
        "labelLimit": 180,
    },
    "legend": {"labelColor": INK, "titleColor": INK, "labelFontSize": 13, "labelLimit": 180},
    "title": {"color": INK, "fontSize": 13, "anchor": "start", "frame": "bounds", "offset": 8, "fontWeight": "normal"},
}


def finished(chart: alt.LayerChart | alt.FacetChart | alt.VConcatChart) -> Spec:
    """Return the specification of a chart, with the style that all share."""
    spec: Spec = chart.to_dict(validate=schemapi.DEBUG_MODE)
    spec["config"] = _STYLE
    spec["datasets"] = {name: name.rows for name in _names(spec)}
    return spec


def _names(spec: Spec) -> Iterator[_Name]:
    if "data" in spec:
        yield spec["data"]["name"]
    for part in (*spec.get("layer", ()), *spec.get("vconcat", ())):
        yield from _names(part)

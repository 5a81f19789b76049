"""What the small drawings of the page share: those of which it has one for each cell and each block.

The renderer would take a twentieth of a second for each of them, and several times the room. They have the colours of
`tare.report.looks`, and their text is the page's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from markupsafe import Markup, escape

AXIS = 30.0
"""The height of the axis of time."""


def ticks(length: float, most: int) -> list[float]:
    """Return round numbers from 0 up to a length, at most so many steps of 1, 2 or 5 times a power of ten."""
    least = length / most
    power = 10.0 ** math.floor(math.log10(least))
    step = next(power * each for each in (1, 2, 5, 10) if power * each >= least * (1 - 1e-9))
    return [step * number for number in range(math.floor(length / step * (1 + 1e-9)) + 1)]


def time_axis(seconds: float, left: float, width: float, top: float) -> Iterator[str]:
    """Draw the axis of a time, from 0."""
    places = {tick: left + tick / seconds * width for tick in ticks(seconds, 6 if width < 500 else 12)}
    marks = "".join(f"M{at:.0f} {top:g}v4" for at in places.values())
    yield f'<path d="M{left:g} {top:g}h{width:g}{marks}" class="ground"/>'
    yield from (label(f"{tick:g}", at, top + 15, "middle") for tick, at in places.items())
    yield label("seconds", left + width, top + 28, "end")


def label(text: str, x: float, y: float, anchor: str = "start") -> str:
    """Write text at a place."""
    aligned = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.0f}" y="{y:.0f}"{aligned}>{escape(text)}</text>'


def small(parts: str, size: tuple[float, float], text: str, kind: str) -> Markup:
    """Put a drawing together; `kind` is its class in the style of the page."""
    width, height = size
    opening = f'<svg class="small {kind}" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(text)}">'
    return Markup(f"{opening}{parts}</svg>")  # noqa: S704  # numbers, our own words, and escaped names

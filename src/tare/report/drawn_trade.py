"""The panels of `tare.report.trade` as SVG: in the page, and as a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tare.journal import Run
from tare.report.framed import Inner, Words, framed, template
from tare.report.numbers import listing
from tare.report.trade import Panel, Point, Trade, trade
from tare.statistics.summary import Summary

TITLE = "Cost against isolation, memory and start-up"
_LEFT, _ACROSS, _LEAD, _NAMES = 110, 170, 16, 116  # widths of a panel's parts, pixels
_WIDTH = _LEFT + _ACROSS + _LEAD + _NAMES
_TOP, _BOTTOM, _LEAST_UP = 46, 40, 190  # heights
_LINE = 15  # from one name to the next
_NAMED = 4  # in the sentence of those that are left out


@dataclass(frozen=True)
class Label:
    """A point with the height of its name, in pixels from the top of the axes."""

    point: Point
    y: float


@dataclass(frozen=True)
class Choice:
    """The panels for the page, and the sentence that says how to read them."""

    panels: tuple[Markup, ...]
    caption: str


def choice(summary: Summary, run: Run) -> Choice | None:
    """Draw the panels, each as a picture of its own; None where there is nothing to choose between."""
    found = trade(summary, run)
    if not found:
        return None
    return Choice(tuple(_drawn((panel,), found) for panel in found.panels), _caption(found))


def figure(summary: Summary, run: Run) -> str:
    """Draw the panels beside each other as a file of its own; empty where there are none."""
    found = trade(summary, run)
    if not found:
        return ""
    words = Words(TITLE, f"over {listing(found.workloads)}", _caption(found, short=True))
    inner = Inner(_drawn(found.panels, found), _WIDTH * len(found.panels), _TOP + _up(found) + _BOTTOM)
    return framed(inner, words, run)


def _drawn(panels: Sequence[Panel], found: Trade) -> Markup:
    up = _up(found)
    text = template("trade.svg.j2").render(
        trade=found,
        panels=[(panel, labels(panel.points, up)) for panel in panels],
        size={"left": _LEFT, "across": _ACROSS, "lead": _LEAD, "top": _TOP, "up": up, "width": _WIDTH},
        height=_TOP + up + _BOTTOM,
        label=f"{listing(tuple(panel.name for panel in panels))} beside the cost of each stack",
    )
    return Markup(text)  # noqa: S704  # the template escapes what is from a run


def _up(found: Trade) -> int:
    """Return the height of the axes, which have room for all names."""
    return max(_LEAST_UP, _LINE * max(len(panel.points) for panel in found.panels))


def labels(points: Sequence[Point], up: int) -> list[Label]:
    """Put the names of the points below each other, each as near to the height of its point as the others allow."""
    order = sorted(points, key=lambda point: -point.up.place)
    heights: list[float] = []
    for point in order:
        least = heights[-1] + _LINE if heights else _LINE / 2
        heights.append(max(up * (1 - point.up.place), least))
    most = up - _LINE / 2
    for at in reversed(range(len(heights))):
        heights[at] = min(heights[at], most)
        most = heights[at] - _LINE
    return [Label(point, y) for point, y in zip(order, heights, strict=True)]


def _caption(found: Trade, *, short: bool = False) -> str:
    """Describe how to read the panels, and which stacks are not in them."""
    where = "" if short else f" over {listing(found.workloads)}"
    read = f"Across: the cost{where}, with its interval. Nearer to the lower left is better in memory and start-up."
    if short:
        return read
    texts = [read, "Dots have the color of the cost, shapes show the isolation as in the first panel."]
    if found.left_out:
        names = found.left_out[:_NAMED]
        more = len(found.left_out) - len(names)
        which = listing((*names, *((f"{more} more",) if more else ())))
        texts.append(f"Not drawn, as not every workload has enough values of it: {which}.")
    if found.more:
        texts.append(f"Drawn are the stacks that cost least; {found.more} more are below.")
    return " ".join(texts)

"""Parts of charts as SVG: plot areas with their axes, legends and marks; and the frame of charts that are files.

All text goes through `draw_text`, `draw_path` and `draw_titled_group`, which escape it: names are from a run folder,
which may be untrusted. Colors and sizes are those of `chart_theme.css`; what belongs to a series has its color by
`color`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from tare.model.journal import Run
from tare.report.chart_theme import ROW_HEIGHT, SHAPES, WIDTH, SeriesStyle, file_style
from tare.report.findings import describe_machine
from tare.report.numbers import cut
from tare.report.rendering import render_section
from tare.report.svg_axes import Scale, drop_overlapping_labels

EDGE, HEAD, FOOT = 24, 56, 20  # of the frame, pixels
_LETTER_WIDTH = 7.2  # width of one
_MAX_LETTERS, _MAX_OF_LEGEND = 24, 36  # of a name
_PAD = 6  # around a chart, so that marks at its edges are whole
_LABELS, _TITLE = 18, 18  # heights of what stands below an axis
_LEGEND = 20  # height of a line


@dataclass(frozen=True)
class Chart:
    """A chart of this size."""

    width: float
    height: float
    parts: tuple[str, ...]

    def svg(self, label: str) -> Markup:
        """Return the chart for a page, which has the style; `label` is for those who cannot see it."""
        return self._as_markup(label, f'style="max-width:{px(self.width)}px"', "")

    def file(self, label: str) -> str:
        """Return the chart as a file."""
        size = f'width="{px(self.width)}" height="{px(self.height)}"'
        return str(self._as_markup(label, size, f"<style>{file_style()}</style>"))

    def _as_markup(self, label: str, size: str, style: str) -> Markup:
        box = f'viewBox="0 0 {px(self.width)} {px(self.height)}"'
        opening = f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" {box} {size} role="img"'
        return Markup(f'{opening} aria-label="{escape(label)}">{style}{"".join(self.parts)}</svg>')  # noqa: S704


@dataclass(frozen=True)
class Drawing:
    """A chart in the page, with the sentence that says how to read it."""

    caption: str
    chart: Chart
    wide: bool = False

    @property
    def svg(self) -> Markup:
        """The chart, drawn for the page."""
        return self.chart.svg(self.caption)


@dataclass(frozen=True)
class Area:
    """Where values are drawn: across and, where there is a second axis, upwards."""

    left: float
    top: float
    width: float
    height: float
    across: Scale
    up: Scale | None = None

    def x_of(self, value: float) -> float:
        """Return the place of a value of the lower axis."""
        return self.left + self.width * self.across.position(value)

    def y_of(self, value: float) -> float:
        """Return the place of a value of the upright axis."""
        return self.top + self.height * (1 - self.up.position(value) if self.up else 0.5)

    def line_path(self, points: Iterable[tuple[float, float]]) -> str:
        """Return the line through values of both axes."""
        return "M" + "L".join(f"{px(self.x_of(across))} {px(self.y_of(up))}" for across, up in points)

    def draw_axes(self, title: str = "", *, grid: bool = True) -> Iterator[str]:
        """Draw both axes with their labels; `grid` is whether the lower one has lines through the area."""
        right, bottom = self.left + self.width, self.top + self.height
        across = [(self.left + self.width * at, label) for at, label in self.across.ticks]
        up = [(self.top + self.height * (1 - at), label) for at, label in (self.up.ticks if self.up else ())]
        lines = [f"M{px(x)} {px(self.top)}V{px(bottom)}" for x, _ in across if grid]
        yield draw_path("".join((*lines, *(f"M{px(self.left)} {px(y)}H{px(right)}" for y, _ in up))), "tick")
        marks = "".join(f"M{px(x)} {px(bottom)}v4" for x, _ in across)
        yield draw_path(f"M{px(self.left)} {px(self.top)}V{px(bottom)}H{px(right)}{marks}", "frame")
        for at, label in drop_overlapping_labels(self.across.ticks, _LETTER_WIDTH / self.width):
            if label:
                yield draw_text(label, self.left + self.width * at, bottom + _LABELS, "middle")
        yield from (draw_text(label, self.left - 6, y + 4.5, "end") for y, label in up)
        if title:
            yield draw_text(title, self.left + self.width / 2, bottom + _LABELS + _TITLE, "middle")

    def create_chart(self, parts: Iterable[str], room: float = 4 * _PAD, *, has_title: bool = True) -> Chart:
        """Put a chart together that ends with this area, its labels and title, left of `size_within_frame`."""
        height = self.top + self.height + _LABELS + (_TITLE if has_title else 0) + _PAD
        return Chart(self.left + self.width + room, height, tuple(parts))

    def draw_level(self, value: float) -> str:
        """Draw a dashed line at a value: of the upright axis if there is one."""
        if self.up:
            return draw_path(f"M{px(self.left)} {px(self.y_of(value))}h{px(self.width)}", "level")
        return draw_path(f"M{px(self.x_of(value))} {px(self.top)}v{px(self.height)}", "level")


class RowChart:
    """A chart with a row for each name, in which `parts` lie below each other, and an axis of values below all."""

    def __init__(
        self,
        names: Sequence[str],
        scale: Scale,
        series: Mapping[str, SeriesStyle] | None = None,
        *,
        size: tuple[float, float] = (WIDTH, ROW_HEIGHT),
        parts: int = 1,
    ) -> None:
        """`size` is the width of the area, and the height of a row or of a part of it."""
        width, row = size
        self._rows = {name: at for at, name in enumerate(names)}
        self.height, self._gap = row, row / 3 if parts > 1 else 0.0  # between the rows
        self._row = row * parts + 2 * self._gap
        left = names_width(names)
        self._legend, top = draw_legend(series or {}, _PAD, left + width)
        self.area = Area(left, top, width, self._row * len(names), scale)

    def y_of(self, name: str, part: int = 0) -> float:
        """Return the middle of a row, or of a part of it."""
        return self.area.top + self._row * self._rows[name] + self._gap + self.height * (part + 0.5)

    def create_chart(self, title: str, parts: Sequence[str], room: float = 4 * _PAD, *, grid: bool = True) -> Chart:
        """Put the chart together; `size_within_frame` is for texts at the right of the area."""
        area = self.area
        names = (
            draw_text(cut(name, _MAX_LETTERS), area.left - 8, area.top + self._row * (at + 0.5) + 4.5, "end")
            for name, at in self._rows.items()
        )
        all_parts = (*self._legend, *area.draw_axes(title, grid=grid), *names, *parts)
        return area.create_chart(all_parts, room, has_title=bool(title))


def create_curve_area(top: float, size: tuple[float, float], across: Scale, up: Scale) -> Area:
    """Return an area with room for the labels of its upright axis."""
    left = max((len(label) for _, label in up.ticks), default=1) * _LETTER_WIDTH + 2 * _PAD
    return Area(left, top, *size, across, up)


def draw_legend(
    series: Mapping[str, SeriesStyle], left: float, right: float, top: float = 0.0
) -> tuple[list[str], float]:
    """Draw the names of the series with their looks, in as many lines as these take; return it and where it ends."""
    parts: list[str] = []
    x, y = left, top + 15.0
    for name, look in series.items():
        width = 18 + len(cut(name, _MAX_OF_LEGEND)) * _LETTER_WIDTH + 18
        if x > left and x + width > right:
            x, y = left, y + _LEGEND
        line = draw_path(f"M{px(x - 2)} {px(y - 4.5)}h15", "line", dash=look.dash) if look.dash else ""
        parts += [draw_colored_group(look.color, [line, draw_mark(x + 5, y - 4.5, look.shape)])]
        parts += [draw_text(cut(name, _MAX_OF_LEGEND), x + 16, y)]
        x += width
    return parts, (y + 14 if parts else top + _PAD)


def names_width(names: Sequence[str]) -> float:
    """Return how wide the column of these names is."""
    return min(max(map(len, names), default=0), _MAX_LETTERS) * _LETTER_WIDTH + 8 + _PAD


def px(value: float) -> str:
    """Write a place, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def draw_text(words: str, x: float, y: float, anchor: str = "start", kind: str = "") -> str:
    """Write words at a place."""
    more = (f' text-anchor="{anchor}"' if anchor != "start" else "") + (f' class="{kind}"' if kind else "")
    return f'<text x="{px(x)}" y="{px(y)}"{more}>{escape(words)}</text>'


def draw_path(commands: str, kind: str, *, dash: str = "", title: str = "", **attributes: Any) -> str:
    """Draw a path in the style of its kind; its title is what a pointer shows."""
    if dash:
        attributes["stroke-dasharray"] = dash
    more = "".join(f' {name}="{value}"' for name, value in attributes.items())
    opening = f'<path class="{kind}" d="{commands}"{more}'
    return f"{opening}><title>{escape(title)}</title></path>" if title else f"{opening}/>"


def draw_bar(
    x: tuple[float, float], middle: float, thick: float, kind: str, *, title: str = "", **attributes: Any
) -> str:
    """Draw a bar across, from the one place to the other."""
    start, end = sorted(x)
    return draw_path(
        f"M{px(start)} {px(middle - thick / 2)}H{px(end)}v{px(thick)}H{px(start)}Z", kind, title=title, **attributes
    )


def draw_mark(x: float, y: float, shape: str = "circle", title: str = "", **attributes: Any) -> str:
    """Draw the mark of a value."""
    return draw_path(SHAPES[shape], "mark", title=title, transform=f"translate({px(x)} {px(y)})", **attributes)


def draw_colored_group(color: str, parts: Sequence[str]) -> str:
    """Give parts the color of their series."""
    return f'<g color="{color}">{"".join(parts)}</g>'


def draw_titled_group(kind: str, parts: Sequence[str], title: str) -> str:
    """Give parts a common title, which is what a pointer shows, and a style."""
    return f'<g class="{kind}"><title>{escape(title)}</title>{"".join(parts)}</g>'


@dataclass(frozen=True)
class FramedFigure:
    """A figure of this size, and what stands around it; `fact` is what the line of the run ends with."""

    svg: Markup
    width: int
    height: int
    title: str
    fact: str
    legend: str

    def file(self, run: Run, size: tuple[int, int] | None = None) -> str:
        """Write the figure as a file: with a title, where it was measured, and how to read it."""
        parts = (run.record.suite, describe_machine(run.record.instance_machine), run.record.started[:10], self.fact)
        width, height = size or (self.width + 2 * EDGE, self.height + 2 * EDGE + HEAD + FOOT)
        return render_section(
            "tare.report",
            "framed.svg.j2",
            figure=self,
            width=width,
            height=height,
            edge=EDGE,
            style=Markup(file_style()),  # noqa: S704  # ours
            subtitle=" · ".join(part for part in parts if part),
            room=size_within_frame((width, height)),
        )


def size_within_frame(size: tuple[int, int]) -> tuple[int, int]:
    """Return the width and height that a frame of this size has for its figure."""
    width, height = size
    return width - 2 * EDGE, height - 2 * EDGE - HEAD - FOOT

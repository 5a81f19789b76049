"""SVG parts of charts: plot areas with axes, legends, marks, and the frame of charts that are files.

`draw_text`, `draw_path` and `draw_titled_group` escape all text, because names come from a run folder, which may be
untrusted. Colors and sizes are those of `chart_theme.css`; parts of a series inherit its color from their group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape

from tare.model.run_folder import Run
from tare.report.chart_theme import ROW_HEIGHT, SHAPES, WIDTH, SeriesStyle, file_style
from tare.report.findings import describe_machine
from tare.report.numbers import cut
from tare.report.rendering import render_section
from tare.report.svg_axes import Scale, drop_overlapping_labels

EDGE, HEAD, FOOT = 24, 56, 20  # of the frame, pixels
_LETTER_WIDTH = 7.2  # average width of a character, pixels
_MAX_LETTERS, _MAX_OF_LEGEND = 24, 36  # characters of a name
_PAD = 6  # around a chart, so that marks at its edges are not cut
_LABELS, _TITLE = 18, 18  # heights of the labels and of the title below an axis
_LEGEND = 20  # height of a line


@dataclass(frozen=True)
class Chart:
    """Chart with its size in pixels and its SVG parts."""

    width: float
    height: float
    parts: tuple[str, ...]

    def svg(self, label: str) -> Markup:
        """Return the chart for a page, which has the style; `label` is the text for screen readers."""
        return self._as_markup(label, f'style="max-width:{px(self.width)}px"', "")

    def file(self, label: str) -> str:
        """Return the chart as the text of an SVG file with its style."""
        size = f'width="{px(self.width)}" height="{px(self.height)}"'
        return str(self._as_markup(label, size, f"<style>{file_style()}</style>"))

    def _as_markup(self, label: str, size: str, style: str) -> Markup:
        box = f'viewBox="0 0 {px(self.width)} {px(self.height)}"'
        opening = f'<svg xmlns="http://www.w3.org/2000/svg" class="chart" {box} {size} role="img"'
        return Markup(f'{opening} aria-label="{escape(label)}">{style}{"".join(self.parts)}</svg>')  # noqa: S704


@dataclass(frozen=True)
class Drawing:
    """Chart of the page with its caption."""

    caption: str
    chart: Chart
    wide: bool = False

    @property
    def svg(self) -> Markup:
        """The chart as SVG for the page."""
        return self.chart.svg(self.caption)


@dataclass(frozen=True)
class Area:
    """Plot area with a horizontal axis and an optional upright axis."""

    left: float
    top: float
    width: float
    height: float
    across: Scale
    up: Scale | None = None

    def x_of(self, value: float) -> float:
        """Return the x coordinate of a value of the horizontal axis."""
        return self.left + self.width * self.across.position(value)

    def y_of(self, value: float) -> float:
        """Return the y coordinate of a value of the upright axis; the middle without that axis."""
        return self.top + self.height * (1 - self.up.position(value) if self.up else 0.5)

    def line_path(self, points: Iterable[tuple[float, float]]) -> str:
        """Return the SVG path through points of both axes."""
        return "M" + "L".join(f"{px(self.x_of(across))} {px(self.y_of(up))}" for across, up in points)

    def draw_axes(self, title: str = "", *, grid: bool = True) -> Iterator[str]:
        """Draw both axes with their labels; with `grid`, the horizontal axis has lines through the area."""
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
        """Return a chart of `parts` that ends below this area's labels and title, with `room` at the right."""
        height = self.top + self.height + _LABELS + (_TITLE if has_title else 0) + _PAD
        return Chart(self.left + self.width + room, height, tuple(parts))

    def draw_level(self, value: float) -> str:
        """Draw a dashed line at a value of the upright axis, or of the horizontal axis if it is the only one."""
        if self.up:
            return draw_path(f"M{px(self.left)} {px(self.y_of(value))}h{px(self.width)}", "level")
        return draw_path(f"M{px(self.x_of(value))} {px(self.top)}v{px(self.height)}", "level")


class RowChart:
    """Chart with a row for each name and an axis of values below; a row has `parts` lines."""

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
    """Return a plot area with room for the labels of its upright axis."""
    left = max((len(label) for _, label in up.ticks), default=1) * _LETTER_WIDTH + 2 * _PAD
    return Area(left, top, *size, across, up)


def draw_legend(
    series: Mapping[str, SeriesStyle], left: float, right: float, top: float = 0.0
) -> tuple[list[str], float]:
    """Draw the names and styles of the series in as many lines as needed; return the parts and their lower end."""
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
    """Return the width of the column of these names, in pixels."""
    return min(max(map(len, names), default=0), _MAX_LETTERS) * _LETTER_WIDTH + 8 + _PAD


def px(value: float) -> str:
    """Format a coordinate to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def draw_text(words: str, x: float, y: float, anchor: str = "start", kind: str = "") -> str:
    """Draw a text at a position; `kind` is its CSS class."""
    more = (f' text-anchor="{anchor}"' if anchor != "start" else "") + (f' class="{kind}"' if kind else "")
    return f'<text x="{px(x)}" y="{px(y)}"{more}>{escape(words)}</text>'


def draw_path(commands: str, kind: str, *, dash: str = "", title: str = "", **attributes: Any) -> str:
    """Draw a path; `kind` is its CSS class, `title` its tooltip."""
    if dash:
        attributes["stroke-dasharray"] = dash
    more = "".join(f' {name}="{value}"' for name, value in attributes.items())
    opening = f'<path class="{kind}" d="{commands}"{more}'
    return f"{opening}><title>{escape(title)}</title></path>" if title else f"{opening}/>"


def draw_bar(
    x: tuple[float, float], middle: float, thick: float, kind: str, *, title: str = "", **attributes: Any
) -> str:
    """Draw a horizontal bar between two x coordinates."""
    start, end = sorted(x)
    return draw_path(
        f"M{px(start)} {px(middle - thick / 2)}H{px(end)}v{px(thick)}H{px(start)}Z", kind, title=title, **attributes
    )


def draw_mark(x: float, y: float, shape: str = "circle", title: str = "", **attributes: Any) -> str:
    """Draw the mark of a value; `title` is its tooltip."""
    return draw_path(SHAPES[shape], "mark", title=title, transform=f"translate({px(x)} {px(y)})", **attributes)


def draw_colored_group(color: str, parts: Sequence[str]) -> str:
    """Return a group of parts with the color of their series."""
    return f'<g color="{color}">{"".join(parts)}</g>'


def draw_titled_group(kind: str, parts: Sequence[str], title: str) -> str:
    """Return a group of parts with a common tooltip and CSS class."""
    return f'<g class="{kind}"><title>{escape(title)}</title>{"".join(parts)}</g>'


@dataclass(frozen=True)
class FramedFigure:
    """Figure with its size and the texts of its frame; `fact` ends the line about the run."""

    svg: Markup
    width: int
    height: int
    title: str
    fact: str
    legend: str

    def file(self, run: Run, size: tuple[int, int] | None = None) -> str:
        """Return the figure as an SVG file with title, suite, machine, date and legend."""
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
    """Return the width and height that a frame of this size leaves for its figure."""
    width, height = size
    return width - 2 * EDGE, height - 2 * EDGE - HEAD - FOOT

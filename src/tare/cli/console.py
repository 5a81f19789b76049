"""Console output without escape sequences from guests, other machines and untrusted run folders.

Results go to standard output; progress, warnings and errors to standard error. A table in a pipe has no blanks at the
ends of its lines and no empty lines.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import rich.console
from rich.console import ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table

_WARNING_STYLES = ("yellow", "red")  # of lines that --quiet leaves
_is_quiet = False


def select_output_level(*, is_quiet: bool, is_verbose: bool) -> None:
    """Leave progress out of standard error from now on, and print there the commands that tare runs, as they end."""
    global _is_quiet  # noqa: PLW0603 - one for the process, as its standard error
    _is_quiet = is_quiet
    if is_verbose:
        logging.basicConfig(format="$ %(message)s")
        logging.getLogger("tare").setLevel(logging.INFO)


def is_verbose() -> bool:
    """Return whether tare prints the commands that it runs: lines that a live screen would overwrite."""
    return logging.getLogger("tare").isEnabledFor(logging.INFO)


class Console(rich.console.Console):
    """Rich's console without markup. Control characters become blanks, except those that Rich itself writes."""

    def __init__(self, **settings: Any) -> None:
        usual = {"markup": False, "highlight": False}
        if settings.get("stderr") and _is_quiet:
            usual["force_terminal"] = False  # no live display
        super().__init__(**usual | settings)

    def print(self, *objects: Any, style: Any = None, **settings: Any) -> None:
        """Print objects; see Rich. With --quiet, standard error gets warnings only."""
        if self.stderr and _is_quiet and style not in _WARNING_STYLES:
            return
        if not self.is_terminal and any(isinstance(each, Table) for each in objects):
            with self.capture() as captured:
                super().print(*objects, style=style, **settings)
            lines = (line.rstrip() for line in captured.get().splitlines())
            self.file.write("".join(f"{line}\n" for line in lines if line))
            return
        super().print(*objects, style=style, **settings)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments to print; see Rich."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(replace_unprintable(segment.text), segment.style)


@dataclass
class CachedTable:
    """Table that is rendered once per width.

    The live screen refreshes four times a second, on CPUs that the load may need.
    """

    table: RenderableType
    _lines: list[list[Segment]] = field(default_factory=list)
    _width: int = 0

    def __rich_console__(self, console: rich.console.Console, options: ConsoleOptions) -> RenderResult:
        """Yield the cached lines; render the table again if the terminal's width has changed."""
        if self._width != options.max_width:
            self._lines, self._width = console.render_lines(self.table, options, pad=False), options.max_width
        for line in self._lines:
            yield from (*line, Segment.line())


def create_console(piped_width: int | None = None) -> Console:
    """Return the console of standard output.

    `piped_width` is the number of columns if that is no terminal; None for Rich's default.
    """
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else piped_width)


def print_status(*lines: str, style: str = "none") -> None:
    """Print lines to standard error. Rich does not wrap them, so that paths and commands can be copied."""
    Console(stderr=True).print(*lines, sep="\n", style=style, soft_wrap=True)


def replace_unprintable(text: str) -> str:
    """Replace unprintable characters by blanks, except tabs and line ends."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\t" else " " for letter in text)

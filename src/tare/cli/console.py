"""The terminal, protected from escape sequences of guests, other machines and untrusted run folders."""

from __future__ import annotations

from collections.abc import Iterable

import rich.console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment


class Console(rich.console.Console):
    """Rich's console, which prints blanks in place of control characters that are not its own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments to print; see Rich."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


def printable(text: str) -> str:
    """Replace unprintable characters by blanks, except tabs and the ends of lines."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in "\n\t" else " " for letter in text)
